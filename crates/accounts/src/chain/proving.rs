//! Checks a password, followed by a one-time code.
//!
//! A wrong password and an unknown name take the same time (`decoys.rs`).

use super::Chain;
use crate::effective::seconds;
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
            Kept::Plain(right) => {
                let is_right = Mac::of(b"", attempt.password) == *right;
                if !is_right {
                    self.pretend(attempt.password);
                }
                is_right
            }
            Kept::Nothing => {
                self.pretend(attempt.password);
                false
            }
            Kept::Hashed(hash) => {
                let login = Mac::with_hash(attempt.user, attempt.password, hash);
                self.decoys.meet_hash(hash);
                let is_right =
                    self.hashing.remembers(login) || self.hashing.check(login, hash, attempt.password);
                if !is_right {
                    self.decoys.pretend(&self.hashing, Some(hash), attempt.password);
                }
                is_right
            }
        }
    }

    /// Takes the time of a wrong password.
    pub(super) fn pretend(&self, password: &[u8]) {
        self.decoys.pretend(&self.hashing, None, password);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_storage::LocalOptions;

    use super::*;
    use crate::{Authenticator, Homes, Listed, Password, User};

    /// The number of hashes, and of which costs they are, does not depend on the name, from the first attempt on.
    #[test]
    fn every_refusal_computes_one_hash_of_each_cost() {
        let hash = |memory: u32| {
            let text = format!(
                "$argon2id$v=19$m={memory},t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
            );
            Password::hashed(&text).unwrap()
        };
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        for name in ["cheap", "dear", "plain", "missing", "bad\0name"] {
            let homes = Arc::new(Homes::new(std::env::temp_dir(), LocalOptions::default()));
            let listed = Listed::new()
                .user(user("cheap"), hash(256))
                .user(user("dear"), hash(512))
                .user(user("dear too"), hash(512))
                .user(user("plain"), Password::from("right"));
            let chain = Chain::new(homes).source(listed);
            let attempt = Attempt::new(name.as_bytes(), b"wrong");
            for attempts in 1..=2 {
                assert!(matches!(chain.authenticate(&attempt), Decision::Denied), "{name}");
                assert_eq!(chain.hashing.computed(), 2 * attempts, "{name}");
            }
        }
    }
}
