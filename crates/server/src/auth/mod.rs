//! Who may log in: the door for accounts, and the accounts that need no door.

mod accounts;
mod hashing;
mod password;

use std::fmt::Debug;
use std::sync::Arc;

use millrace_ftp::session::Permissions;
use millrace_vfs::{Storage, VirtualPath};

pub use accounts::Accounts;
pub use password::{Password, PasswordError, hash_password};

/// Decides logins. One value serves all workers.
pub trait Authenticator: Send + Sync + Debug {
    /// Answers on a reactor thread where that takes microseconds (no such user, a cached success, a
    /// password that is no secret); `None` where [`Authenticator::authenticate`] must be asked.
    fn quick(&self, user: &[u8], password: &[u8]) -> Option<Decision> {
        let _ = (user, password);
        None
    }

    /// Answers on a thread of the blocking pool, however long it takes.
    fn authenticate(&self, user: &[u8], password: &[u8]) -> Decision;
}

/// How a login is decided.
#[derive(Debug, Clone)]
pub enum Decision {
    /// Welcome.
    Granted(Account),
    /// Wrong name or password; the client is not told which.
    Denied,
    /// The accounts cannot be reached, or the account is not usable now; the text may be told.
    Unavailable(String),
}

/// What a login gives access to.
#[derive(Debug, Clone)]
pub struct Account {
    /// The files.
    pub storage: Arc<dyn Storage>,
    /// What may be done with them.
    pub permissions: Permissions,
    /// Where the session begins.
    pub home: VirtualPath,
}
