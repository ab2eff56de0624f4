//! The user of a request, and how it is known.

use std::time::Instant;

use millrace_accounts::Account;
use millrace_ftp::session::Permission;

/// The user of a request without credentials.
pub(crate) const ANONYMOUS: &[u8] = b"anonymous";

/// What stands before a link among what clients have said: no field can hold it.
pub(crate) const LINK: &[u8] = b"\0link ";

/// How a request is authenticated: each way counts differently for the rates of logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// They said nothing.
    Nothing,
    /// By a signed link: its author must not be locked out by requests of others with it.
    Link,
    Certificate,
    Password,
}

impl Means {
    /// How `user` came to be known by what was said.
    pub(crate) fn of(said: &[u8], user: &[u8]) -> Self {
        match said {
            b"" if user == ANONYMOUS => Self::Nothing,
            b"" => Self::Certificate,
            _ if said.starts_with(LINK) => Self::Link,
            _ => Self::Password,
        }
    }

    /// Returns whether it is a login, of which there may be too many.
    pub(crate) fn is_login(self) -> bool {
        matches!(self, Self::Certificate | Self::Password)
    }
}

/// An authenticated user.
#[derive(Debug)]
pub(crate) struct Who {
    /// The credentials of the field, or the link; empty for an anonymous request.
    pub(crate) authorization: Vec<u8>,
    /// The host that they came by, as they wrote it; empty where no host has a tree of its own.
    pub(crate) host: Vec<u8>,
    /// `None` for anonymous.
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) account: Account,
    /// What this connection is not encrypted for.
    pub(crate) is_barred: bool,
    pub(crate) until: Instant,
    /// The edition of the accounts that decided: a newer one is asked again.
    pub(crate) edition: u64,
}

impl Who {
    /// Returns true if the request came by a signed link.
    pub(crate) fn is_by_link(&self) -> bool {
        self.authorization.starts_with(LINK)
    }

    /// The same, to a folder.
    pub(crate) fn may_list_by_link(&self) -> bool {
        self.is_by_link() && self.account.permissions.allows(Permission::List)
    }
}
