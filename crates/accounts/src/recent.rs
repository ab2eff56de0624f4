//! A cache of recent successful logins, for sources that ask elsewhere about a password.
//!
//! Of a password only a keyed hash is kept, and no longer than the time that was set. A login that came otherwise (from
//! another address, unencrypted...) is another login.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::password::Mac;
use super::profile::User;
use super::source::{Found, Proof};
use super::{Attempt, Protocol};

/// Logins that are remembered.
const MOST: usize = 10_000;

/// Logins, and what was found of each.
#[derive(Debug)]
pub(super) struct Recent<T> {
    time: Duration,
    /// Guarded for a look-up.
    logins: Mutex<HashMap<Mac, (Instant, T)>>,
}

impl<T: Clone> Recent<T> {
    /// Remembers for this time; for none, nothing.
    pub(super) fn new(time: Duration) -> Self {
        Self { time, logins: Mutex::default() }
    }

    pub(super) fn find(&self, login: Mac, now: Instant) -> Option<T> {
        let logins = self.logins();
        let (then, found) = logins.get(&login)?;
        self.is_recent(*then, now).then(|| found.clone())
    }

    pub(super) fn put(&self, login: Mac, found: T, now: Instant) {
        if self.time.is_zero() {
            return;
        }
        let mut logins = self.logins();
        if logins.len() >= MOST {
            logins.retain(|_, (then, _)| self.is_recent(*then, now));
        }
        if logins.len() < MOST {
            logins.insert(login, (now, found));
        }
    }

    fn is_recent(&self, then: Instant, now: Instant) -> bool {
        now.saturating_duration_since(then) < self.time
    }

    fn logins(&self) -> MutexGuard<'_, HashMap<Mac, (Instant, T)>> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent<User> {
    /// The user, if the same login has succeeded recently.
    pub(super) fn found(&self, attempt: &Attempt<'_>) -> Option<Found> {
        let user = self.find(login(attempt), Instant::now())?;
        Some(Found::User(Box::new(user), Proof::Right))
    }

    /// Accepts a user, and remembers the login for a while.
    pub(super) fn let_in(&self, attempt: &Attempt<'_>, user: User) -> Found {
        self.put(login(attempt), user.clone(), Instant::now());
        Found::User(Box::new(user), Proof::Right)
    }
}

/// All that a source is asked about, in a form that may be kept.
fn login(attempt: &Attempt<'_>) -> Mac {
    let protocol = match attempt.protocol {
        Protocol::Ftp => "ftp",
        Protocol::Http => "http",
    };
    let how = format!("\0{}\0{protocol}\0{}\0{}", attempt.from, attempt.encrypted, attempt.certified);
    Mac::of(&[attempt.user, how.as_bytes()].concat(), attempt.password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_remembered_for_its_time_and_no_other_is() {
        let (recent, now) = (Recent::new(Duration::from_secs(60)), Instant::now());
        let login = Mac::of(b"alice", b"secret");
        recent.put(login, 7, now);
        assert_eq!(recent.find(login, now + Duration::from_secs(59)), Some(7));
        assert_eq!(recent.find(login, now + Duration::from_secs(60)), None);
        assert_eq!(recent.find(Mac::of(b"alice", b"Secret"), now), None);
        assert_eq!(recent.find(Mac::of(b"alic", b"esecret"), now), None);
        let never = Recent::new(Duration::ZERO);
        never.put(login, 7, now);
        assert_eq!(never.find(login, now), None);
    }
}
