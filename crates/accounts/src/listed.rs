//! Accounts that are known from the start: those of the configuration file and the command line.

use std::collections::HashMap;

use super::Attempt;
use super::password::{Kept, Password};
use super::profile::User;
use super::source::{Found, Proof, Source};
use super::source_error::SourceError;

/// A fixed list of users, in memory.
#[derive(Debug, Default)]
pub struct Listed {
    users: HashMap<Vec<u8>, (User, Password)>,
}

impl Listed {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a user. A later one of the same name replaces the earlier.
    pub fn user(mut self, user: User, password: Password) -> Self {
        self.users.insert(user.name.clone().into_bytes(), (user, password));
        self
    }

    fn look_up(&self, name: &[u8]) -> Found {
        match self.users.get(name) {
            None => Found::Unknown,
            Some((user, password)) => Found::User(Box::new(user.clone()), Proof::Password(password.clone())),
        }
    }
}

impl Source for Listed {
    fn name(&self) -> &str {
        "the configuration"
    }

    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        Ok(self.look_up(attempt.user))
    }

    fn find_at_once(&self, attempt: &Attempt<'_>) -> Option<Found> {
        Some(self.look_up(attempt.user))
    }

    fn tell_passwords(&self, tell: &mut dyn FnMut(&Password)) -> bool {
        self.users.values().for_each(|(_, password)| tell(password));
        true
    }

    fn holds_hashes(&self) -> bool {
        self.users.values().any(|(_, password)| matches!(password.0, Kept::Hashed(_)))
    }
}
