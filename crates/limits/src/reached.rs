//! Limits that refuse: which one it was, whose, and what it is set to.
//!
//! A refused client learns which limit it is, but neither value nor owner. The log has its key as in the configuration,
//! its value, and its owner. [`LimitKey`] has every limit that may refuse with 421, 425, 452 or 552, by HTTP with 429,
//! 503 or 507; `tests/sessions/refusals.rs` provokes each of them.

use std::fmt;
use std::io;
use std::time::Duration;

use millrace_ftp::session::Bound;
use millrace_vfs::{Counted, FileError, OverQuota, QuotaScope};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// The limits and their keys, of which neither list can forget one: they are the same.
macro_rules! limit_keys {
    ($($(#[$doc:meta])* $name:ident = $key:literal,)*) => {
        /// A limit that may refuse a client or an operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum LimitKey {
            $($(#[$doc])* $name,)*
        }

        impl LimitKey {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The key in the configuration, or in `docs/limits.md` if it is not configurable.
            pub fn key(self) -> &'static str {
                match self {
                    $(Self::$name => $key,)*
                }
            }
        }
    };
}

limit_keys! {
    /// Sessions on the server.
    Sessions = "sessions",
    /// Files that the process may have open, which bounds the sessions as well.
    OpenFiles = "open-files",
    /// Sessions from an address.
    SessionsPerAddress = "sessions-per-address",
    /// Sessions from a network.
    SessionsPerNetwork = "sessions-per-network",
    /// Sessions at an address of the server.
    ListenerSessions = "sessions",
    /// Sessions of a group's members.
    GroupSessions = "shared-sessions",
    /// Sessions of a user, said of that user.
    OwnSessions = "sessions",
    /// Sessions of a user, said of all.
    UserSessions = "user-sessions",
    /// Networks that may connect.
    Allow = "allow",
    /// Networks that may not.
    Deny = "deny",
    /// A network that an administrator has banned.
    Ban = "ban",
    /// Failed logins from an address.
    BanAfter = "ban-after",
    /// Logins on the server.
    Logins = "logins",
    /// Logins from an address.
    LoginsPerAddress = "logins-per-address",
    /// Logins from a network.
    LoginsPerNetwork = "logins-per-network",
    /// Logins of a user.
    UserLogins = "user-logins",
    /// How busy the processors are.
    CpuLimit = "cpu-limit",
    /// The time allowed for logging in.
    LoginTimeout = "login-timeout",
    /// Wrong passwords on a connection.
    LoginAttempts = "login-attempts",
    /// Silence of a client.
    IdleTimeout = "idle-timeout",
    /// Lines that are no command.
    UnknownCommands = "unknown-commands",
    /// Ports for data connections.
    PassivePorts = "passive-ports",
    /// The time until a data connection is there.
    ConnectTimeout = "connect-timeout",
    /// Bytes that are kept.
    QuotaBytes = "quota-bytes",
    /// Files that are kept.
    QuotaFiles = "quota-files",
    /// Bytes uploaded within a period.
    QuotaUpload = "quota-upload",
    /// Bytes downloaded within a period.
    QuotaDownload = "quota-download",
    /// Bytes in both directions within a period.
    QuotaTransfer = "quota-transfer",
    /// Bytes downloaded for those uploaded.
    Ratio = "ratio",
    /// Room on the device.
    Space = "space",
    /// The file system's own quota.
    DeviceQuota = "device-quota",
    /// How large a file may be there.
    FileSize = "file-size",
    /// Programs that HTTP runs.
    CgiProcesses = "cgi-processes",
    /// Requests that are passed on.
    ProxyMaxRequests = "max-requests",
    /// Uploads that wait to be gone on with.
    WaitingUploads = "waiting-uploads",
    /// Locks of WebDAV.
    Locks = "locks",
    /// Bytes of WebDAV's properties.
    Properties = "properties",
}

impl LimitKey {
    /// Returns true if it is a time of silence: that it is over happens every day, and is nothing to look at.
    pub fn is_silence(self) -> bool {
        matches!(self, Self::LoginTimeout | Self::IdleTimeout | Self::ConnectTimeout)
    }
}

/// The value of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// A number.
    Number(u64),
    /// A text, as it is configured.
    Text(String),
}

impl Setting {
    /// Returns the number, of what is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl From<u64> for Setting {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Setting {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// In the form of the configuration.
impl From<Duration> for Setting {
    fn from(time: Duration) -> Self {
        Self::Text(match time.subsec_millis() {
            0 => format!("{}s", time.as_secs()),
            _ => format!("{}ms", time.as_millis()),
        })
    }
}

/// A limit that is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Which limit it is.
    pub key: LimitKey,
    /// The value of the limit.
    pub value: Setting,
    /// The owner, where there are several: `user alice`.
    pub of: Option<String>,
}

impl Reached {
    /// Returns true if it bounds how many sessions there are.
    pub fn is_about_sessions(&self) -> bool {
        matches!(
            self.key,
            LimitKey::Sessions
                | LimitKey::OpenFiles
                | LimitKey::SessionsPerAddress
                | LimitKey::SessionsPerNetwork
                | LimitKey::ListenerSessions
        )
    }

    /// Creates the record of a limit that belongs to the whole server.
    pub fn new(key: LimitKey, value: impl Into<Setting>) -> Self {
        Self { key, value: value.into(), of: None }
    }

    /// Adds whose limit it is.
    pub fn of(self, whose: impl fmt::Display) -> Self {
        Self { of: Some(whose.to_string()), ..self }
    }

    /// The limit that is in a file's way, if it is one.
    pub fn by(error: &FileError) -> Option<Self> {
        match error {
            FileError::OverQuota(over) => Some((&**over).into()),
            FileError::NoSpace => Some(Self::new(LimitKey::Space, 0)),
            // Only the device's owner can learn the amount from the system.
            FileError::QuotaExceeded => {
                Some(Self::new(LimitKey::DeviceQuota, "as the device has it".to_owned()))
            }
            FileError::TooLarge => Some(Self::of_process(LimitKey::FileSize, Resource::Fsize)),
            FileError::Exhausted => Some(Self::of_process(LimitKey::OpenFiles, Resource::Nofile)),
            _ => None,
        }
    }

    /// The limit of open files, where it is what the system says no for.
    pub fn by_lack(error: &io::Error) -> Option<Self> {
        let is_lack = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
        is_lack.then(|| Self::of_process(LimitKey::OpenFiles, Resource::Nofile))
    }

    /// A limit of the process, or beyond that one of the system's own.
    fn of_process(key: LimitKey, resource: Resource) -> Self {
        match getrlimit(resource).current {
            Some(value) => Self::new(key, value),
            None => Self::new(key, "as the system has it".to_owned()),
        }
    }

    /// The quota as hooks see it: its key and its owner.
    pub fn quota(&self) -> Option<String> {
        match self.key {
            LimitKey::DeviceQuota => Some("the quota of the device".to_owned()),
            LimitKey::QuotaBytes
            | LimitKey::QuotaFiles
            | LimitKey::QuotaUpload
            | LimitKey::QuotaDownload
            | LimitKey::QuotaTransfer
            | LimitKey::Ratio => Some(match &self.of {
                Some(whose) => format!("{} of {whose}", self.key.key()),
                None => self.key.key().to_owned(),
            }),
            _ => None,
        }
    }
}

impl From<&OverQuota> for Reached {
    fn from(over: &OverQuota) -> Self {
        let key = match over.counted {
            Counted::Bytes => LimitKey::QuotaBytes,
            Counted::Files => LimitKey::QuotaFiles,
            Counted::Uploaded => LimitKey::QuotaUpload,
            Counted::Downloaded => LimitKey::QuotaDownload,
            Counted::Moved => LimitKey::QuotaTransfer,
            Counted::Ratio => LimitKey::Ratio,
        };
        let reached = Self::new(key, over.most);
        match &over.scope {
            QuotaScope::Account => reached,
            QuotaScope::Folder(path) => reached.of(format_args!("folder {path}")),
        }
    }
}

impl From<Bound> for Reached {
    fn from(bound: Bound) -> Self {
        match bound {
            Bound::Login(time) => Self::new(LimitKey::LoginTimeout, time),
            Bound::Idle(time) => Self::new(LimitKey::IdleTimeout, time),
            Bound::Attempts(most) => Self::new(LimitKey::LoginAttempts, u64::from(most)),
            Bound::UnknownCommands(most) => Self::new(LimitKey::UnknownCommands, u64::from(most)),
            Bound::Space(free) => Self::new(LimitKey::Space, free),
            Bound::Quota(over) => (&over).into(),
        }
    }
}
