//! Calls with a token that is unknown or has expired: how many of them the log is told of.
//!
//! They lead to no ban and take nothing of the rates of logins: a token cannot be guessed, and a program that goes on with
//! an expired one would shut out the users behind its address.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of the log a second.
const MOST: u32 = 10;

/// How many were told in the second that began then.
#[derive(Debug, Default)]
pub(crate) struct WrongTokens(Mutex<Option<(Instant, u32)>>);

impl WrongTokens {
    /// Returns whether the log is to be told of one that comes now.
    pub(crate) fn is_told(&self, now: Instant) -> bool {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun =
            second.filter(|(begun, _)| now.saturating_duration_since(*begun) < Duration::from_secs(1));
        let (begun, told) = begun.unwrap_or((now, 0));
        *second = Some((begun, told.saturating_add(1)));
        told < MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_of_ten_a_second() {
        let (wrong, now) = (WrongTokens::default(), Instant::now());
        let told = |at: Instant| (0..2 * MOST).filter(|_| wrong.is_told(at)).count() as u32;
        assert_eq!(told(now), MOST);
        assert_eq!(told(now + Duration::from_millis(999)), 0);
        assert_eq!(told(now + Duration::from_secs(1)), MOST);
    }
}
