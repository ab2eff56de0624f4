//! Accounts that are known from the start: those of the configuration file and the command line.

use std::collections::HashMap;

use super::Attempt;
use super::database_error::DatabaseError;
use super::password::{Kept, Password};
use super::profile::User;
use super::roster::{RosterUser, Stored, UserPage, UserQuery};
use super::source::{Found, Proof, Source};
use super::source_error::SourceError;

/// A fixed list of users, in memory.
#[derive(Debug)]
pub struct Listed {
    name: String,
    users: HashMap<Vec<u8>, (User, Password)>,
}

impl Default for Listed {
    fn default() -> Self {
        Self::new()
    }
}

impl Listed {
    /// An empty list.
    pub fn new() -> Self {
        Self { name: "the configuration".to_owned(), users: HashMap::new() }
    }

    /// An empty list of the users of a host alone.
    pub fn of_host(host: &str) -> Self {
        Self { name: format!("the configuration, of {host}"), users: HashMap::new() }
    }

    /// With a user. A later one of the same name replaces the earlier.
    pub fn user(mut self, user: User, password: Password) -> Self {
        self.users.insert(user.name.clone().into_bytes(), (user, password));
        self
    }

    /// Returns a user as administrators have it listed.
    fn roster_user(&self, (user, password): &(User, Password)) -> RosterUser {
        RosterUser {
            source: self.name().to_owned(),
            is_writable: false,
            has_password: !matches!(password.0, Kept::Nothing),
            stored: Stored { user: user.clone(), hash: None },
        }
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
        &self.name
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

    fn users(&self, wanted: &UserQuery<'_>) -> Result<Option<UserPage>, DatabaseError> {
        let mut found: Vec<&(User, Password)> =
            self.users.values().filter(|(user, _)| wanted.covers(user)).collect();
        found.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        let total = found.len() as u64;
        let page = found.into_iter().skip(wanted.offset as usize).take(wanted.limit as usize);
        Ok(Some(UserPage { users: page.map(|found| self.roster_user(found)).collect(), total }))
    }

    fn user(&self, name: &str) -> Result<Option<RosterUser>, DatabaseError> {
        Ok(self.users.get(name.as_bytes()).map(|found| self.roster_user(found)))
    }

    fn members(&self) -> Result<HashMap<String, u64>, DatabaseError> {
        let mut members = HashMap::new();
        for group in self.users.values().flat_map(|(user, _)| &user.groups) {
            *members.entry(group.clone()).or_default() += 1;
        }
        Ok(members)
    }

    fn holds_hashes(&self) -> bool {
        self.users.values().any(|(_, password)| matches!(password.0, Kept::Hashed(_)))
    }
}
