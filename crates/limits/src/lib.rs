//! Limits on bandwidth, sessions, logins and quotas, by scope and time of day.
//!
//! ```text
//! server > listener > group > user > session      each with a bucket for downloads and one for uploads
//! ```
//!
//! A transfer asks for an allowance before each slice (`meter.rs`) and sleeps in its worker's timer wheel until its
//! turn. The same allowance bounds `sendfile`, `splice` and buffered copies. The kernel paces what is sent (`flow.rs`).
//! Without a limit there is no meter, and a turn costs one read of a counter.

mod as_text;
mod bans;
mod bucket;
mod classes;
mod clock;
mod connection_limits;
mod cpu_load;
mod credit;
mod fading;
mod flow;
mod guessing;
mod held;
mod host_name;
mod login_limit;
mod logins;
mod meter;
mod network;
mod pace;
pub mod period;
mod protocol;
mod reached;
mod schedule;
mod timed;
mod traffic;
mod tree;

/// What buckets share between threads; `tests/loom.rs` has them try every order instead.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

pub use as_text::text;
pub use bans::{BanReport, BanRules, Bans, Cause, Failed, FailureTally, TallyOf, Turned};
pub use classes::Class;
pub use clock::wall_seconds;
pub use connection_limits::{ConnectionLimit, NetworkBits, TooManyConnections};
pub use cpu_load::Load;
pub use flow::Flow;
pub use guessing::{FamiliarNetwork, LoginBlock};
pub use held::HeldQuota;
pub use host_name::{HostName, HostNameError};
pub use login_limit::LoginLimit;
pub use logins::{LoginRates, LoginTally, Logins, LoginsOf, Rate, RateError, RateLimit, TooMany};
pub use network::{Network, NetworkError};
pub use pace::{Errand, Pace};
pub use protocol::{Protocol, ProtocolError};
pub use reached::{LimitKey, Reached, Setting};
pub use schedule::{Limit, LimitError, Quantity, Scheduled, says_when};
pub use timed::Timed;
pub use traffic::{
    CurrentQuota, Moved, MovedBytes, Per, Period, Quotas, Ratio, Since, Traffic, TrafficAnswer,
    TrafficCounts, TrafficTelling, TransferQuota, TransferQuotaError, Used,
};
pub use tree::{Direction, Headcount, LimitHandle, RateDemand, Scope, ScopeReport, SharedRate, Tree};

/// The limits of a scope; `None` where none is set, so that a default may apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes a second to clients.
    pub download: Option<Limit>,
    /// Bytes a second from clients.
    pub upload: Option<Limit>,
    /// Sessions at a time. (A session's own limits have no use for it.)
    pub sessions: Option<Limit>,
}

impl Limits {
    /// These, and where they say nothing, those.
    pub fn or(self, others: &Self) -> Self {
        Self {
            download: self.download.or_else(|| others.download.clone()),
            upload: self.upload.or_else(|| others.upload.clone()),
            sessions: self.sessions.or_else(|| others.sessions.clone()),
        }
    }

    /// Returns true if nothing was said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The limits of an account: of its user, groups and sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// All of the user's sessions together.
    pub user: Limits,
    /// Each of the user's sessions.
    pub session: Limits,
    /// All sessions of all members of each of the user's groups together.
    pub groups: Vec<GroupLimits>,
    /// The user's transfer quota, and what is used of it.
    pub moved: Option<Moved>,
    /// The virtual host that the client belongs to.
    pub host: Option<HostOfUser>,
}

impl AccountLimits {
    /// Returns what a user is counted by: the name, or `files.example.org/zoe` for a user that only this host has.
    pub fn counted_by<'a>(&self, user: &'a [u8]) -> Cow<'a, [u8]> {
        self.host.as_ref().map_or(Cow::Borrowed(user), |host| host.counted_by(user))
    }
}

/// The virtual host of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOfUser {
    /// Its first name or address.
    pub name: Arc<str>,
    /// Whether its users are its own: others of the same name are other people.
    pub has_own_users: bool,
}

impl HostOfUser {
    /// Returns what one of its users is counted by.
    pub fn counted_by<'a>(&self, user: &'a [u8]) -> Cow<'a, [u8]> {
        match self.has_own_users {
            true => Cow::Owned([self.name.as_bytes(), b"/", user].concat()),
            false => Cow::Borrowed(user),
        }
    }
}

/// A group that shares a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLimits {
    /// Its name.
    pub name: Arc<str>,
    /// For all members together.
    pub limits: Limits,
}

/// The limits of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// The whole server. Its limits on sessions stand elsewhere in the configuration.
    pub server: Limits,
    /// The clients of a listener, by the address that the running server names it by.
    pub listeners: Vec<(SocketAddr, Limits)>,
    /// All members of a group together, whose accounts say nothing else of it.
    pub groups: Vec<(Arc<str>, Limits)>,
    /// Each user whose account says nothing else.
    pub user: Limits,
    /// Each session whose account says nothing else.
    pub session: Limits,
}

/// A limit of sessions is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The scope.
    pub scope: Scope,
    /// How many there may be.
    pub value: u64,
    /// The limits are the default of users without limits of their own.
    pub is_default: bool,
}

impl Refused {
    /// The reply for the client: it names the limit, without a number or a name.
    pub fn for_the_client(&self) -> &'static str {
        match self.scope {
            Scope::Server => "Too many sessions on this server; try again later.",
            Scope::Listener(_) => "Too many sessions on this address of the server; try again later.",
            Scope::Group(_) => "Too many sessions of your group; try again later.",
            Scope::User(_) | Scope::Session(_) => {
                "Too many sessions of this user; end one, or try again later."
            }
        }
    }

    /// For the log.
    pub fn reached(&self) -> Reached {
        let key = match self.scope {
            Scope::Server => return Reached::new(LimitKey::Sessions, self.value),
            Scope::Listener(_) => LimitKey::ListenerSessions,
            Scope::Group(_) => LimitKey::GroupSessions,
            Scope::User(_) | Scope::Session(_) if self.is_default => LimitKey::UserSessions,
            Scope::User(_) | Scope::Session(_) => LimitKey::OwnSessions,
        };
        Reached::new(key, self.value).of(&self.scope)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("server"),
            Self::Listener(address) => write!(f, "listener {address}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::User(name) => write!(f, "user {}", String::from_utf8_lossy(name)),
            Self::Session(number) => write!(f, "session {number}"),
        }
    }
}

/// A text that names no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not server, listener ADDR:PORT, group NAME, user NAME or session NUMBER")]
pub struct ScopeError(String);

impl FromStr for Scope {
    type Err = ScopeError;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let wrong = || ScopeError(text.to_owned());
        match text.split_once(' ').unwrap_or((text, "")) {
            ("server", "") => Ok(Self::Server),
            (_, "") => Err(wrong()),
            (_, name) if name.contains('\0') => Err(wrong()),
            ("listener", address) => address.parse().map(Self::Listener).map_err(|_| wrong()),
            ("group", name) => Ok(Self::Group(name.into())),
            ("user", name) => Ok(Self::User(Arc::from(name.as_bytes()))),
            ("session", number) => number.parse().map(Self::Session).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests;
