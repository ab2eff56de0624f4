//! The database of users as a source of accounts.

use std::collections::HashMap;

use super::database_error::DatabaseError;
use super::password::Password;
use super::roster::{RosterUser, Stored, UserPage, UserQuery};
use super::source::{Found, Proof, Source};
use super::source_error::SourceError;
use super::sqlite::Database;
use super::{Attempt, Changed};

impl Source for Database {
    fn name(&self) -> &str {
        self.log_name()
    }

    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        let Ok(name) = str::from_utf8(attempt.user) else { return Ok(Found::Unknown) };
        let Some(Stored { user, hash }) = self.get(name)? else {
            return Ok(Found::Unknown);
        };
        let proof = match hash.as_deref().map(Password::hashed) {
            None => Proof::Wrong,
            Some(Ok(password)) => Proof::Password(password),
            Some(Err(source)) => return Err(SourceError::Password { user: name.to_owned(), source }),
        };
        Ok(Found::User(Box::new(user), proof))
    }

    /// Of many users some are enough: there are few kinds of hashes, and the others are met when they log in.
    fn tell_passwords(&self, tell: &mut dyn FnMut(&Password)) -> bool {
        const SOME: usize = 1000;
        let some = self.list("", SOME).unwrap_or_default();
        let passwords = some.iter().filter_map(|stored| Password::hashed(stored.hash.as_deref()?).ok());
        passwords.inspect(|password| tell(password)).count() > 0
    }

    fn users(&self, wanted: &UserQuery<'_>) -> Result<Option<UserPage>, DatabaseError> {
        self.search(wanted).map(Some)
    }

    fn user(&self, name: &str) -> Result<Option<RosterUser>, DatabaseError> {
        Ok(self.get(name)?.map(|stored| self.roster_user(stored)))
    }

    fn members(&self) -> Result<HashMap<String, u64>, DatabaseError> {
        self.count_members()
    }

    fn database(&self) -> Option<&Database> {
        Some(self)
    }

    /// The file may be replaced or away for a moment: what cannot be asked now is asked a second later.
    fn changed(&self, _: &dyn Fn() -> Vec<Vec<u8>>) -> Changed {
        self.take_changes()
    }
}
