//! `millrace link`: a link to a file or a folder that expires, for those who have no account.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::SystemTime;

use millrace_log::{Event, IssuedLink};
use millrace_server::auth::plain_host;
use millrace_server::web::{Gives, Link};
use millrace_server::{Account, Accounts, Attempt, Authenticator, Decision, Permission, Protocol};
use millrace_terminal::Failure;
use millrace_vfs::{VirtualPath, Wait};

use crate::announce::web_url;
use crate::args::MakeLink;
use crate::audit::Audit;
use crate::config::{self, Site, Written};

pub(crate) fn run(arguments: &MakeLink) -> Result<(), Failure> {
    let site = config::load(Written::default(), Some(&arguments.config))?;
    let path = VirtualPath::root().resolve(arguments.path.as_bytes());
    let path = path.map_err(|_| wrong(format!("{:?} cannot be a path", arguments.path)))?;
    may_be_linked(&site, &path)?;
    let user = arguments.user.clone().unwrap_or_else(|| "anonymous".to_owned());
    let url = arguments.url.clone().or_else(|| web_url(&site));
    let at = Where::of(url.as_deref().unwrap_or_default());
    let account = account(&site, arguments, &user, &at)?;
    let gives = gives(account.as_ref(), arguments, &path)?;
    if let Some(account) = account.as_ref().filter(|_| !arguments.force) {
        may_be_used(account, gives, &path, &user)?;
    }
    if arguments.valid.value.0.is_zero() {
        return Err(wrong("--for 0: the link would have expired; write 24h or 7d".to_owned()));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let expires = (now + arguments.valid.value.0).as_secs();
    let permits = if gives == Gives::Upload { "put" } else { "get" };
    let link = Link { path, gives, user: user.clone().into_bytes(), expires };
    let links = &site.config.web.links;
    let host = site.accounts.virtual_host(&at.name, at.local);
    let target = links.sign_at(&link, host.as_deref()).ok_or_else(|| {
        wrong(
            "there is no key to sign links with: write http-link-keys = \"FILE\" in the configuration file"
                .to_owned(),
        )
    })?;
    let url = url.ok_or_else(|| {
        wrong(
            "the configuration does not say where browsers find the server (http and https are off, or at a \
             port that is drawn): say it with --url"
                .to_owned(),
        )
    })?;
    let mut audit = Audit::open(site.config.audit.as_ref().map(|audit| &*audit.path))?;
    let (key, by) = (links.names().into_iter().next().unwrap_or_default(), audit.by());
    let issued = IssuedLink { path: &link.path, user: &user, permits, expires, key: &key };
    audit.record([Event::LinkIssued { link: &issued, by }])?;
    println!("{}{target}", url.trim_end_matches('/'));
    Ok(())
}

/// Refuses paths that are not files (programs, other servers): a link is for files only.
fn may_be_linked(site: &Site, path: &VirtualPath) -> Result<(), Failure> {
    let config = &site.config;
    let answers = if config.programs.folders.iter().any(|(mark, _)| path.starts_with(mark)) {
        "a program (cgi)"
    } else if config.proxy_routes.iter().any(|route| route.takes(path)) {
        "another server ([[proxy]])"
    } else {
        return Ok(());
    };
    Err(wrong(format!("{path} is answered by {answers}; a link is for files and folders")))
}

/// What to do where `serve` is given more than the configuration file.
const FORCE: &str = "where flags of \"serve\" name users or the folder, --force makes the link";

/// Where the link is to be used: by another name or address of the server there may be other files.
struct Where {
    name: String,
    local: Option<SocketAddr>,
}

impl Where {
    fn of(url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let host = rest.split('/').next().unwrap_or_default();
        let port = if scheme == "https" { 443 } else { 80 };
        let ip = || host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        let local = host.parse().ok().or_else(|| Some(SocketAddr::new(ip()?, port)));
        Self { name: plain_host(host.as_bytes()), local }
    }
}

/// The account in whose name the link acts; `None`, and a warning, where only a login would tell.
fn account(site: &Site, arguments: &MakeLink, user: &str, at: &Where) -> Result<Option<Account>, Failure> {
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
    let doubt = match site.accounts.current(&attempt) {
        Some(Decision::Granted(account)) => return Ok(Some(account)),
        Some(Decision::Denied) if arguments.force => format!("there is no user named {user}"),
        Some(Decision::Denied) if Accounts::is_anonymous_name(user.as_bytes()) => {
            return Err(wrong("anonymous is off: name a user with --user".to_owned()));
        }
        Some(Decision::Denied) => return Err(wrong(format!("there is no user named {user}; {FORCE}"))),
        Some(Decision::Refused(why) | Decision::Unavailable(why)) => {
            format!("{user} is not let in now: {why}")
        }
        _ => format!("whether there is a user named {user} is known at a login only"),
    };
    eprintln!("warning: {doubt}.");
    Ok(None)
}

/// What the link permits; a path is a folder if it ends in a slash or is one. Refuses a path at which the user has
/// nothing to get, or no folder to put a file into.
fn gives(account: Option<&Account>, arguments: &MakeLink, path: &VirtualPath) -> Result<Gives, Failure> {
    let look = |path: &VirtualPath| account.map(|account| account.storage.metadata(path, Wait::Allowed));
    let found = look(path);
    let is_folder = arguments.path.ends_with('/')
        || path.is_root()
        || matches!(&found, Some(Ok(metadata)) if metadata.is_directory());
    let (needed, needs) =
        if arguments.put { (look(&path.parent()), path.parent()) } else { (found, path.clone()) };
    match (is_folder, arguments.put, needed) {
        (true, true, _) => {
            Err(wrong(format!("{path} is a folder, and a link to send something is for one file: name it")))
        }
        (.., Some(Err(error))) if !arguments.force => {
            Err(wrong(format!("{needs} cannot be linked to: {error}; {FORCE}")))
        }
        (true, false, _) => Ok(Gives::Folder),
        (false, true, _) => Ok(Gives::Upload),
        (false, false, _) => Ok(Gives::File),
    }
}

/// Refuses a link that its user has no right to use.
fn may_be_used(account: &Account, gives: Gives, path: &VirtualPath, user: &str) -> Result<(), Failure> {
    let permissions = account.rules.as_ref().map_or(account.permissions, |rules| rules.at(path));
    let needed = match gives {
        Gives::Upload => [(Permission::Write, "write")].as_slice(),
        Gives::File => &[(Permission::Read, "read")],
        Gives::Folder => &[(Permission::Read, "read"), (Permission::List, "list")],
    };
    match needed.iter().find(|(permission, _)| !permissions.allows(*permission)) {
        Some((_, may)) => Err(wrong(format!("{user} may not {may} {path}; {FORCE}"))),
        None => Ok(()),
    }
}

fn wrong(message: String) -> Failure {
    Failure::Configuration(format!("{message}."))
}
