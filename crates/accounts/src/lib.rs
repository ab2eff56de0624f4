//! Authentication and accounts: the trait of an authenticator, and a built-in list of accounts.

#[cfg(any(test, not(feature = "ldap"), not(feature = "mysql"), not(feature = "postgres")))]
mod absent;
mod accounts;
mod argon2id;
mod asked;
mod bucket;
mod chain;
#[cfg(any(feature = "ldap", feature = "mysql", feature = "postgres"))]
mod columns;
mod database_error;
mod database_source;
mod decoys;
mod effective;
mod guard;
mod hash;
mod hashing;
mod homes;
mod hosts;
mod ldap;
mod listed;
mod mounts;
mod pam;
pub mod password;
#[cfg(feature = "postgres")]
mod postgres;
mod profile;
mod recent;
#[cfg(any(feature = "ldap", feature = "mysql", feature = "postgres"))]
mod remote;
mod roster;
mod security;
mod settings;
mod source;
mod source_error;
mod sql;
mod sqlite;
mod totp;
mod turns;
#[cfg(any(feature = "ldap", feature = "mysql", feature = "postgres"))]
mod watch;

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use millrace_cluster::Place;
use millrace_ftp::session::Rules;
pub use millrace_ftp::session::{Permission, Permissions};
use millrace_limits::{AccountLimits, LoginLimit};
pub use millrace_limits::{HostName, HostNameError, Protocol};
pub use millrace_net::host_address::{HostAddress, HostAddressError};
use millrace_vfs::{Storage, VirtualPath};

pub use accounts::Accounts;
pub use asked::{Asked, Service};
pub use bucket::MountedBucket;
pub use chain::{Chain, Explained, RosterSource};
pub use database_error::DatabaseError;
pub use effective::{AdmitError, Effective, Origin, TemplateError, resolve};
pub use homes::{HomeError, Homes};
pub use hosts::plain as plain_host;
pub use hosts::{KnownBy, VirtualHost};
pub use ldap::{Ldap, ldap};
pub use listed::Listed;
pub use mounts::{Mount, MountError, MountedDatabase, MountedDirectory, MountedFiles, Mounts};
pub use pam::{Pam, pam};
pub use password::{Password, PasswordError, hash_password};
pub use profile::{Access, Amount, Expiry, Group, Hours, Profile, Tree, User, ValueError};
pub use roster::{RosterUser, Stored, UserPage, UserQuery};
pub use security::{CertificateLogin, CertificateLoginError, Resumption, ResumptionError};
pub use settings::{
    NameError, NewPasswordError, SettingError, check_hash, check_name, check_password, hash_new_password,
    read_setting, read_settings,
};
pub use source::{Found, Needs, Proof, Source};
pub use source_error::{ProgramError, SetupError, SourceError, SourceUnavailable};
pub use sql::{Sql, cluster_audit, cluster_events, cluster_table, mysql, postgres};
pub use sqlite::Database;
pub use totp::{Secret, SecretError};

/// Decides logins. One value serves all workers and all protocols.
pub trait Authenticator: Send + Sync + Debug {
    /// Answers on a reactor thread where that takes microseconds (no such user, a cached success, a
    /// password that is no secret); `None` where [`Authenticator::authenticate`] must be asked.
    fn quick(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        let _ = attempt;
        None
    }

    /// Returns the first name, or else address, of the virtual host of a client that says this plain name and came to this
    /// address of the machine.
    fn virtual_host(&self, name: &str, local: Option<SocketAddr>) -> Option<String> {
        let _ = (name, local);
        None
    }

    /// Answers on a thread of the blocking pool, however long it takes.
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision;

    /// The present account of an authenticated user, without a password check. For sessions that run while accounts
    /// change, and for logins proved by a client certificate. Called on a thread of the blocking pool.
    ///
    /// `None` where these accounts cannot tell: a session then keeps what it was given, and a proof other than
    /// a password is not enough.
    fn current(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        let _ = attempt;
        None
    }

    /// Like [`Authenticator::current`], for a user that logged in with this account; with `None` the account stays.
    fn look_again(&self, account: &Account, attempt: &Attempt<'_>) -> Option<Decision> {
        self.current(attempt).or_else(|| account.by_clock(attempt))
    }

    /// Returns the sources of the accounts, as far as they are asked in a chain: for administrators, who list and change
    /// users.
    fn chain(&self) -> Option<&Chain> {
        None
    }

    /// The users whose accounts have changed since the last call; their sessions are checked again. Called about every
    /// second on a thread of its own; `present` returns the names of the users with sessions.
    fn changed(&self, present: &dyn Fn() -> Vec<Vec<u8>>) -> Changed {
        let _ = present;
        Changed::Nothing
    }
}

/// The users whose accounts have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// None.
    Nothing,
    /// Those of these names.
    Users(Vec<Vec<u8>>),
    /// All accounts may have changed.
    Everything,
}

impl Changed {
    /// This and that.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, changed) | (changed, Self::Nothing) => changed,
            (Self::Users(mut users), Self::Users(more)) => {
                users.extend(more);
                Self::Users(users)
            }
            (Self::Everything, _) | (_, Self::Everything) => Self::Everything,
        }
    }

    /// Returns true if a user's account may have been changed.
    pub fn concerns(&self, user: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Users(users) => users.iter().any(|changed| changed == user),
            Self::Everything => true,
        }
    }
}

/// A login attempt: the name, the credentials, and the connection.
#[derive(Clone, Copy)]
pub struct Attempt<'a> {
    /// The name, as the client sent it.
    pub user: &'a [u8],
    /// The password, as the client sent it.
    pub password: &'a [u8],
    /// The client's address, in its plain form (an IPv4 client is IPv4 also on a dual-stack socket).
    pub from: IpAddr,
    /// The client's protocol.
    pub protocol: Protocol,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Whether the client has shown a certificate with this name in it, which was found to be good.
    pub certified: bool,
    /// The name of the host that the client asked for, without its port and in lower case; empty where it named none.
    pub host: &'a str,
    /// The address of this machine that the client came to, where that is known.
    pub local: Option<SocketAddr>,
    /// The time, which accounts with hours or an end are held to.
    pub now: SystemTime,
}

impl<'a> Attempt<'a> {
    /// A name and a password, by FTP in clear, from this computer, now.
    pub fn new(user: &'a [u8], password: &'a [u8]) -> Self {
        Self {
            user,
            password,
            from: IpAddr::from([127, 0, 0, 1]),
            protocol: Protocol::Ftp,
            encrypted: false,
            certified: false,
            host: "",
            local: None,
            now: SystemTime::now(),
        }
    }
}

/// Never shows the password.
impl Debug for Attempt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attempt({} from {} by {:?})", self.user.escape_ascii(), self.from, self.protocol)
    }
}

/// How a login is decided.
#[derive(Debug, Clone)]
pub enum Decision {
    /// Welcome.
    Granted(Account),
    /// Wrong name or password; the client is not told which.
    Denied,
    /// The right password, but the code of the second factor is missing: it may be given behind the password.
    NeedsCode,
    /// The certificate alone is not enough.
    NeedsPassword,
    /// The right password, but not so: from there, at this hour, in clear. The client is told no more than
    /// with [`Decision::Denied`]; the log is told this.
    Refused(String),
    /// The right password, and a limit on sessions, or on logins, refuses it for now.
    Limited(LoginLimit),
    /// The accounts cannot be reached, or the account is not usable now: 421. The client is not told the reason; the
    /// log is.
    Unavailable(String),
}

impl Decision {
    /// The same, about an account of a session that runs: what is granted keeps the place that it has.
    pub fn keeping_place(self, before: &Account) -> Self {
        match self {
            Self::Granted(account) => Self::Granted(Account { place: before.place.clone(), ..account }),
            other => other,
        }
    }
}

/// The access that a login grants.
#[derive(Debug, Clone)]
pub struct Account {
    /// The files.
    pub storage: Arc<dyn Storage>,
    /// The same without the user's permissions, for hooks: they can read the files of a user that may only upload.
    /// `None` where that is `storage`.
    pub unruled: Option<Arc<dyn Storage>>,
    /// Its permissions, in at least one place.
    pub permissions: Permissions,
    /// The permissions by path, which `storage` enforces; `None` if they are the same everywhere.
    pub rules: Option<Arc<Rules>>,
    /// Where the session begins.
    pub home: VirtualPath,
    /// Bandwidth and sessions; `None` where the server's defaults hold.
    pub limits: Option<Arc<AccountLimits>>,
    /// The required protection of its data connections.
    pub data: DataSecurity,
    /// Whether a certificate with the user's name in it makes the password needless.
    pub certificate_suffices: bool,
    /// Whether the account may have to be looked at again as time passes: it has hours, or an end.
    pub follows_clock: bool,
    /// Which source has let the user in, and by what.
    pub told: Option<Arc<Told>>,
    /// The place in a cluster that its session has; no source gives one.
    pub place: Option<Arc<Place>>,
}

/// What a source knew of the user at the login.
#[derive(Debug, Clone)]
pub struct Told {
    /// Its name.
    pub source: Box<str>,
    /// Which of those of this name.
    pub mark: u64,
    /// The accepted user, where the source cannot find it without the password.
    pub user: Option<Box<User>>,
    /// The settings that permitted the login, where that may change with time and the source may be unable to answer
    /// again.
    pub effective: Option<Box<Effective>>,
}

impl Told {
    fn is_by(&self, source: &dyn Source) -> bool {
        *self.source == *source.name() && self.mark == source.mark()
    }
}

/// The required protection of an account's data connections, beyond the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataSecurity {
    /// They have to be encrypted.
    pub encrypted: bool,
    /// Whether they have to resume the TLS session of their control connection; `None` is as the server says.
    pub resumption: Option<Resumption>,
}

impl Account {
    /// These files, with these permissions everywhere, and no other bounds.
    pub fn new(storage: Arc<dyn Storage>, permissions: Permissions) -> Self {
        Self::ruled(storage, Rules::new(permissions))
    }

    /// These files, with permissions that differ by place and name.
    pub fn ruled(storage: Arc<dyn Storage>, rules: Rules) -> Self {
        let rules = Arc::new(rules);
        Self {
            storage: guard::guard(Arc::clone(&storage), &rules),
            unruled: Some(storage),
            permissions: rules.anywhere(),
            rules: (!rules.is_uniform()).then_some(rules),
            home: VirtualPath::root(),
            limits: None,
            data: DataSecurity::default(),
            certificate_suffices: false,
            follows_clock: false,
            told: None,
            place: None,
        }
    }

    /// Where the accounts cannot tell, the clock still can.
    fn by_clock(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        self.told
            .as_ref()?
            .effective
            .as_ref()?
            .admit(attempt)
            .err()
            .map(|why| Decision::Refused(why.to_string()))
    }

    /// The files as hooks have them.
    pub fn for_hooks(&self) -> Arc<dyn Storage> {
        Arc::clone(self.unruled.as_ref().unwrap_or(&self.storage))
    }
}
