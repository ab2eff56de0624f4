//! The accounts of a simulation: known at once, or only to the pool.

use crate::auth::{Account, Attempt, Authenticator, Decision};

use super::draw::Draw;

/// The password of every user.
pub(super) const PASSWORD: &str = "secret";

/// The users, by name.
#[derive(Debug)]
pub(super) struct SimulatedAccounts {
    pub(super) users: Vec<(&'static str, Account)>,
    pub(super) draw: Draw,
}

impl Authenticator for SimulatedAccounts {
    fn quick(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        self.draw.chance(30).then(|| self.decide(attempt))
    }

    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        match self.draw.fault(3) {
            true => Decision::Unavailable("the accounts cannot be reached".to_owned()),
            false => self.decide(attempt),
        }
    }
}

impl SimulatedAccounts {
    fn decide(&self, attempt: &Attempt<'_>) -> Decision {
        let known = self.users.iter().find(|(name, _)| name.as_bytes() == attempt.user);
        match known {
            Some((_, account)) if attempt.password == PASSWORD.as_bytes() => {
                Decision::Granted(account.clone())
            }
            _ => Decision::Denied,
        }
    }
}
