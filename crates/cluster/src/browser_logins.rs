//! Logins of administrators' browsers, which every node knows. The database has them by the hash of what the browser shows.
//!
//! The caller decides how long a login lasts. While the database is away nothing is asked of it.

use std::time::Duration;

/// How long a login lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginLifetime {
    /// Without a request.
    pub idle: Duration,
    /// At most.
    pub longest: Duration,
}

/// A login, as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserLogin {
    /// The user, if it is one of the accounts, which others may change: its logins can be ended by that name.
    pub user: Option<String>,
    /// Who it is, as the node needs it that has made it.
    pub detail: String,
    /// How long ago it has begun.
    pub age: Duration,
}

/// What a node that looks for a login knows of its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginUse {
    /// How long ago the node has seen a request of it; `None` where it has seen none.
    pub unused: Option<Duration>,
    /// Whether there is a request now.
    pub is_use: bool,
}

/// Which logins end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginEnd {
    /// The one of this hash.
    Hash(String),
    /// Those of a user of the accounts.
    User(String),
}
