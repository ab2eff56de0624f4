//! Whether a password is the right one, and a code behind it.
//!
//! A wrong password and an unknown name take the same time: where any source may hold hashes, an unknown name is checked
//! against a decoy.

use std::sync::{Arc, PoisonError};

use super::Chain;
use crate::effective::seconds;
use crate::hash::Hash;
use crate::password::{Kept, Mac, Password};
use crate::totp::{DIGITS, Secret};
use crate::{Attempt, Decision};

impl Chain {
    /// Looks for a code behind the password. One hash is computed, whatever there is.
    pub(super) fn check_code(
        &self,
        attempt: &Attempt<'_>,
        password: &Password,
        secret: &Secret,
    ) -> Result<(), Decision> {
        let split = attempt.password.len().checked_sub(DIGITS).map(|at| attempt.password.split_at(at));
        let with_code = split.and_then(|(rest, code)| {
            secret.period_of(code, seconds(attempt.now)).map(|period| (rest, period))
        });
        match with_code {
            None if self.check(attempt, password) => Err(Decision::NeedsCode),
            None => Err(Decision::Denied),
            Some((rest, _)) if !self.check(&Attempt { password: rest, ..*attempt }, password) => {
                Err(Decision::Denied)
            }
            Some((_, period)) if !self.codes.accept(attempt.user, period, attempt.from) => {
                Err(Decision::Refused("the code has let in another address before".to_owned()))
            }
            Some(_) => Ok(()),
        }
    }

    pub(super) fn check(&self, attempt: &Attempt<'_>, password: &Password) -> bool {
        match &password.0 {
            Kept::Plain(right) => Mac::of(b"", attempt.password) == *right,
            Kept::Nothing => {
                self.pretend(attempt.password);
                false
            }
            Kept::Hashed(hash) => {
                let login = Mac::with_hash(attempt.user, attempt.password, hash);
                self.meet(hash);
                self.hashing.remembers(login) || self.hashing.check(login, hash, attempt.password)
            }
        }
    }

    /// Keeps the decoy as costly as the costliest hash.
    pub(super) fn meet(&self, hash: &Hash) {
        let mut decoy = self.decoy.lock().unwrap_or_else(PoisonError::into_inner);
        if decoy.as_ref().is_none_or(|decoy| decoy.cost() < hash.cost()) {
            *decoy = Some(Arc::new(hash.decoy()));
        }
    }

    pub(super) fn pretend(&self, password: &[u8]) {
        let decoy = self.decoy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(decoy) = decoy {
            self.hashing.pretend(&decoy, password);
        }
    }
}
