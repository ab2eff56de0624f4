//! The trait of a source of accounts: it finds users by name, and says how their password is checked.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::database_error::DatabaseError;
use super::password::Password;
use super::profile::User;
use super::roster::{RosterUser, UserPage, UserQuery};
use super::source_error::SourceError;
use super::sqlite::Database;
use super::{Attempt, Changed};

/// What a source needs to find a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The name.
    Name,
    /// The password, or a certificate with the name in it, which is as good a proof.
    Proof,
    /// The password, whatever else there is: to ask without one would count as a failed login.
    Password,
}

impl Needs {
    /// Returns true if that is available without a password.
    pub(super) fn are_met_without_password(self, attempt: &Attempt<'_>) -> bool {
        match self {
            Self::Name => true,
            Self::Proof => attempt.certified,
            Self::Password => false,
        }
    }
}

/// Where accounts are kept. One value serves all workers.
pub trait Source: Send + Sync + Debug {
    /// How the log names it: `users.db`.
    fn name(&self) -> &str;

    /// Distinguishes it from others of that name, such as two queries to one database.
    fn mark(&self) -> u64 {
        0
    }

    /// Finds the user of this name. Called on a thread that may block; the source limits the time itself.
    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError>;

    /// As [`Source::find`], on a reactor thread; `None` where that would wait.
    fn find_at_once(&self, attempt: &Attempt<'_>) -> Option<Found> {
        let _ = attempt;
        None
    }

    /// What [`Source::find`] needs: the password of a user that logged in earlier is not available.
    fn needs(&self) -> Needs {
        Needs::Name
    }

    /// Whether names, however wrong, are looked up in hashes here.
    fn holds_hashes(&self) -> bool {
        true
    }

    /// Tells passwords of its users, at least one of each kind of hash that there is, so that refusals cost what they do
    /// from the first on. Returns whether it has told any; a source that cannot know them, as it asks another, tells none.
    fn tell_passwords(&self, tell: &mut dyn FnMut(&Password)) -> bool {
        let _ = tell;
        false
    }

    /// Called once when the server starts, to report problems at once; logins are refused until the source works.
    fn begin(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Returns true if it has groups for other purposes too: groups without settings here are ignored. Otherwise a
    /// missing group is a mistake, and its members are refused.
    fn has_groups_of_its_own(&self) -> bool {
        false
    }

    /// Lists users for administrators; `None` if it finds a user by the name alone.
    fn users(&self, wanted: &UserQuery<'_>) -> Result<Option<UserPage>, DatabaseError> {
        let _ = wanted;
        Ok(None)
    }

    /// Finds a user for administrators, if it lists users.
    fn user(&self, name: &str) -> Result<Option<RosterUser>, DatabaseError> {
        let _ = name;
        Ok(None)
    }

    /// Counts the members of each group, as far as it lists users.
    fn members(&self) -> Result<HashMap<String, u64>, DatabaseError> {
        Ok(HashMap::new())
    }

    /// Returns the database in which administrators may change users, if it is one.
    fn database(&self) -> Option<&Database> {
        None
    }

    /// The changes since the last call. Called every second on a thread of its own, which it must not block; `present`
    /// returns the names of the users with sessions.
    fn changed(&self, present: &dyn Fn() -> Vec<Vec<u8>>) -> Changed {
        let _ = present;
        Changed::Nothing
    }
}

/// The result of a search for a name.
#[derive(Debug)]
pub enum Found {
    /// Nothing: the next source is asked.
    Unknown,
    /// A user, and how the password is checked.
    User(Box<User>, Proof),
}

/// How a password is checked.
#[derive(Debug)]
pub enum Proof {
    /// It is to be compared.
    Password(Password),
    /// The source has found it right.
    Right,
    /// The source has found it wrong, or the user has no password.
    Wrong,
    /// The source has found it right, and the account not to be used now: for the log.
    Refused(String),
}

/// A mark of settings that a name leaves out.
pub(super) fn mark_of(settings: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    settings.hash(&mut hasher);
    hasher.finish()
}
