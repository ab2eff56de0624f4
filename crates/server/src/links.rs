//! Links that expire, made by administrators: for what, and in whose name.
//!
//! A link acts as its user, who may do no more by it than without it. What is refused here are links that would not work.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use millrace_http::link::{Gives, Link};
use millrace_vfs::{FileError, VirtualPath, Wait};

use crate::auth::plain_host;
use crate::config::Config;
use crate::log::{Administrator, Event, IssuedLink};
use crate::running::Running;
use crate::web::LinkKeys;
use crate::{Account, Accounts, Attempt, Authenticator, Decision, Permission, Protocol};

/// What a link is to be.
#[derive(Debug, Clone, Copy)]
pub struct NewLink<'a> {
    /// Where it leads; to a folder, if it ends in a slash or is one.
    pub path: &'a str,
    /// In whose name it acts; `anonymous` is a user.
    pub user: &'a str,
    /// How long it is good.
    pub valid: Duration,
    /// To send the file, in place of getting it.
    pub is_upload: bool,
    /// Make it though the user, the file or the right to it is not found.
    pub is_forced: bool,
    /// The beginning of its URL: at another virtual host there may be other files. Empty where it names none.
    pub url: &'a str,
}

/// A link that was made.
#[derive(Debug)]
pub struct MadeLink {
    /// Path and query: what follows the beginning of the URL.
    pub target: String,
    /// What it is.
    pub link: Link,
    /// The name of the key that signed it.
    pub key: String,
    /// Why it may not work: the user cannot be looked up now.
    pub doubt: Option<String>,
}

impl MadeLink {
    /// What it permits, by the word that the log has.
    pub fn permits(&self) -> &'static str {
        if self.link.gives == Gives::Upload { "put" } else { "get" }
    }

    /// Has the log's event of it.
    pub fn event<T>(&self, by: Administrator<'_>, tell: impl FnOnce(Event<'_>) -> T) -> T {
        let user = String::from_utf8_lossy(&self.link.user);
        let (path, permits, expires) = (&self.link.path, self.permits(), self.link.expires);
        let link = IssuedLink { path, user: &user, permits, expires, key: &self.key };
        tell(Event::LinkIssued { link: &link, by })
    }
}

/// Why a link is not made.
#[derive(Debug, thiserror::Error)]
pub enum LinkRefused {
    /// The path is none.
    #[error("{0:?} cannot be a path")]
    NoPath(String),
    /// It leads to what is no file.
    #[error("{0} is answered by {1}; a link is for files and folders")]
    NoFile(VirtualPath, &'static str),
    /// Nobody may be anonymous.
    #[error("anonymous is off: name a user")]
    AnonymousOff,
    /// The accounts do not have the user.
    #[error("there is no user named {0}")]
    UnknownUser(String),
    /// A folder cannot be sent.
    #[error("{0} is a folder, and a link to send something is for one file: name it")]
    IsFolder(VirtualPath),
    /// The user sees no such file, or no folder to put it into.
    #[error("{0} cannot be linked to: {1}")]
    Unseen(VirtualPath, FileError),
    /// The user has no right to it.
    #[error("{0} may not {1} {2}")]
    Forbidden(String, &'static str, VirtualPath),
    /// It would be good for no time.
    #[error("the link would have expired: say for how long it is good, such as 24 hours")]
    Expired,
    /// Links are not configured.
    #[error("there is no key to sign links with: write http-link-keys = \"FILE\" in the configuration file")]
    NoKey,
}

impl LinkRefused {
    /// Returns whether the link is made where it is asked for by force.
    pub fn yields_to_force(&self) -> bool {
        matches!(self, Self::UnknownUser(_) | Self::Unseen(..) | Self::Forbidden(..))
    }
}

/// What links are made with.
#[derive(Debug)]
pub struct LinkMaker<'a> {
    accounts: &'a dyn Authenticator,
    keys: &'a LinkKeys,
    config: &'a Config,
}

impl<'a> LinkMaker<'a> {
    /// With these accounts and keys, at a server with this configuration.
    pub fn new(accounts: &'a dyn Authenticator, keys: &'a LinkKeys, config: &'a Config) -> Self {
        Self { accounts, keys, config }
    }

    /// Makes a link. It looks at accounts and files, which takes as long as it takes.
    pub fn make(&self, new: &NewLink<'_>) -> Result<MadeLink, LinkRefused> {
        let path = VirtualPath::root().resolve(new.path.as_bytes());
        let path = path.map_err(|_| LinkRefused::NoPath(new.path.to_owned()))?;
        self.check_files(&path)?;
        let at = Place::of(new.url);
        let (account, doubt) = self.account(new, &at)?;
        let gives = gives(account.as_ref(), new, &path)?;
        if let Some(account) = account.as_ref().filter(|_| !new.is_forced) {
            check_permission(account, gives, &path, new.user)?;
        }
        if new.valid.is_zero() {
            return Err(LinkRefused::Expired);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let expires = now.saturating_add(new.valid).as_secs();
        let link = Link { path, gives, user: new.user.as_bytes().to_vec(), expires };
        let host = self.accounts.virtual_host(&at.name, at.local);
        let target = self.keys.sign_at(&link, host.as_deref()).ok_or(LinkRefused::NoKey)?;
        let key = self.keys.names().into_iter().next().unwrap_or_default();
        Ok(MadeLink { target, link, key, doubt })
    }

    /// Refuses paths that programs or other servers answer.
    fn check_files(&self, path: &VirtualPath) -> Result<(), LinkRefused> {
        let is_program = self.config.programs.folders.iter().any(|(mark, _)| path.starts_with(mark));
        let answers = match () {
            () if is_program => "a program (cgi)",
            () if self.config.proxy_routes.iter().any(|route| route.takes(path)) => {
                "another server ([[proxy]])"
            }
            () => return Ok(()),
        };
        Err(LinkRefused::NoFile(path.clone(), answers))
    }

    /// The account in whose name the link acts, or a doubt, where only a login would tell.
    fn account(
        &self,
        new: &NewLink<'_>,
        at: &Place,
    ) -> Result<(Option<Account>, Option<String>), LinkRefused> {
        let user = new.user;
        let attempt = Attempt {
            user: user.as_bytes(),
            password: b"",
            from: IpAddr::V4(Ipv4Addr::LOCALHOST),
            protocol: Protocol::Http,
            encrypted: true,
            certified: true,
            host: &at.name,
            local: at.local,
            now: SystemTime::now(),
        };
        let doubt = match self.accounts.current(&attempt) {
            Some(Decision::Granted(account)) => return Ok((Some(account), None)),
            Some(Decision::Denied) if new.is_forced => format!("there is no user named {user}"),
            Some(Decision::Denied) if Accounts::is_anonymous_name(user.as_bytes()) => {
                return Err(LinkRefused::AnonymousOff);
            }
            Some(Decision::Denied) => return Err(LinkRefused::UnknownUser(user.to_owned())),
            Some(Decision::Refused(why) | Decision::Unavailable(why)) => {
                format!("{user} is not let in now: {why}")
            }
            _ => format!("whether there is a user named {user} is known at a login only"),
        };
        Ok((None, Some(doubt)))
    }
}

/// Where a link is to be used.
struct Place {
    name: String,
    local: Option<SocketAddr>,
}

impl Place {
    fn of(url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let host = rest.split('/').next().unwrap_or_default();
        let port = if scheme == "https" { 443 } else { 80 };
        let ip = || host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        let local = host.parse().ok().or_else(|| Some(SocketAddr::new(ip()?, port)));
        Self { name: plain_host(host.as_bytes()), local }
    }
}

/// What the link permits; a path is a folder if it ends in a slash or is one. Refuses a path at which the user has
/// nothing to get, or no folder to put a file into.
fn gives(account: Option<&Account>, new: &NewLink<'_>, path: &VirtualPath) -> Result<Gives, LinkRefused> {
    let look = |path: &VirtualPath| account.map(|account| account.storage.metadata(path, Wait::Allowed));
    let found = look(path);
    let is_folder = new.path.ends_with('/')
        || path.is_root()
        || matches!(&found, Some(Ok(metadata)) if metadata.is_directory());
    let (needed, needs) =
        if new.is_upload { (look(&path.parent()), path.parent()) } else { (found, path.clone()) };
    match (is_folder, new.is_upload, needed) {
        (true, true, _) => Err(LinkRefused::IsFolder(path.clone())),
        (.., Some(Err(error))) if !new.is_forced => Err(LinkRefused::Unseen(needs, error)),
        (true, false, _) => Ok(Gives::Folder),
        (false, true, _) => Ok(Gives::Upload),
        (false, false, _) => Ok(Gives::File),
    }
}

/// Refuses a link that its user has no right to use.
fn check_permission(
    account: &Account,
    gives: Gives,
    path: &VirtualPath,
    user: &str,
) -> Result<(), LinkRefused> {
    let permissions = account.rules.as_ref().map_or(account.permissions, |rules| rules.at(path));
    let needed = match gives {
        Gives::Upload => [(Permission::Write, "write")].as_slice(),
        Gives::File => &[(Permission::Read, "read")],
        Gives::Folder => &[(Permission::Read, "read"), (Permission::List, "list")],
    };
    match needed.iter().find(|(permission, _)| !permissions.allows(*permission)) {
        Some((_, may)) => Err(LinkRefused::Forbidden(user.to_owned(), may, path.clone())),
        None => Ok(()),
    }
}

/// Makes a link at a server that runs, and writes that to its log.
pub fn issue_link(
    running: &Running,
    new: &NewLink<'_>,
    by: Administrator<'_>,
) -> Result<MadeLink, LinkRefused> {
    let state = &running.state;
    let accounts = state.accounts();
    let made = LinkMaker::new(&*accounts, state.shared.http.link_keys(), &state.config).make(new)?;
    made.event(by, |event| state.log.note(event));
    Ok(made)
}
