//! When a certificate is to be fetched: told what time it is, this decides, and does nothing.
//!
//! The invariant: whatever the clock does, a CA is never asked more often than the pauses say, and a clock that was set
//! back does not make a pause longer than it was.

use std::time::{Duration, SystemTime};

use millrace_net::tls::Standing;

use super::order::Trouble;

/// The pause behind a first failure where nobody answered, or what came made no sense; doubled each time.
const AWAY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// The same where the CA said no. Let's Encrypt allows five failed checks an hour for a name.
const REFUSED: (Duration, Duration) = (Duration::from_secs(15 * 60), Duration::from_secs(24 * 3600));

/// The pause behind a success, whatever the new certificate says of its time.
const DONE: Duration = Duration::from_secs(3600);

/// Of a pause, as much is added by luck at the most.
const JITTER: f64 = 0.25;

/// What has happened so far.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    failures: u32,
    /// Since when, and for how long, nothing is to be done.
    pause: Option<(SystemTime, Duration)>,
}

impl Schedule {
    /// Claims that a certificate is to be fetched now: there is none, or two thirds of its time are over.
    pub(super) fn is_due(&self, held: Option<&Standing>, now: SystemTime) -> bool {
        let is_pause = self.pause.is_some_and(|(since, pause)| {
            // Where the clock was set back, nobody knows how long it has been.
            now.duration_since(since).is_ok_and(|passed| passed < pause)
        });
        !is_pause && held.is_none_or(|held| now >= renewal(held))
    }

    /// It was fetched.
    pub(super) fn succeeded(&mut self, now: SystemTime) {
        *self = Self { failures: 0, pause: Some((now, DONE)) };
    }

    /// It was not; answers for how long nothing is done. `luck` is from 0 to 1.
    pub(super) fn failed(&mut self, trouble: &Trouble, now: SystemTime, luck: f64) -> Duration {
        let (first, most) = if trouble.is_refusal { REFUSED } else { AWAY };
        let doubled = first.saturating_mul(1 << self.failures.min(16)).min(most);
        let pause =
            doubled.mul_f64(1.0 + JITTER * luck.clamp(0.0, 1.0)).max(trouble.retry_after.unwrap_or_default());
        self.failures += 1;
        self.pause = Some((now, pause));
        pause
    }
}

/// When a third of the time is left.
fn renewal(held: &Standing) -> SystemTime {
    let life = held.until.duration_since(held.from).unwrap_or_default();
    held.until.checked_sub(life / 3).unwrap_or(held.from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const MINUTE: Duration = Duration::from_secs(60);

    fn day(number: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY * 20_000 + DAY * number
    }

    fn held(from: u32, until: u32) -> Standing {
        Standing { from: day(from), until: day(until), covers: true, is_self_signed: false }
    }

    fn refusal(retry_after: Option<Duration>) -> Trouble {
        Trouble { why: String::new(), is_refusal: true, retry_after }
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_time_is_left() {
        let schedule = Schedule::default();
        assert!(schedule.is_due(None, day(0)));
        for (now, expected) in [(0, false), (59, false), (60, true), (90, true), (200, true)] {
            assert_eq!(schedule.is_due(Some(&held(0, 90)), day(now)), expected, "day {now}");
        }
        assert!(!schedule.is_due(Some(&held(0, 6)), day(3)));
        assert!(schedule.is_due(Some(&held(0, 6)), day(4)));
    }

    #[test]
    fn failures_are_further_and_further_apart() {
        let mut schedule = Schedule::default();
        let away = Trouble::of("away");
        let pauses: Vec<_> = (0..8).map(|_| schedule.failed(&away, day(0), 0.0).as_secs() / 60).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        schedule.succeeded(day(0));
        let pauses: Vec<_> =
            (0..9).map(|_| schedule.failed(&refusal(None), day(0), 0.0).as_secs() / 60).collect();
        assert_eq!(pauses, [15, 30, 60, 120, 240, 480, 960, 1440, 1440]);
        for _ in 0..100 {
            schedule.failed(&away, day(0), 0.5);
        }
        assert_eq!(schedule.failed(&away, day(0), 1.0), 75 * MINUTE, "luck adds a quarter");
    }

    #[test]
    fn nothing_is_done_before_a_pause_is_over() {
        let mut schedule = Schedule::default();
        let pause = schedule.failed(&refusal(None), day(1), 1.0);
        assert!(!schedule.is_due(None, day(1)) && !schedule.is_due(None, day(1) + pause - MINUTE));
        assert!(schedule.is_due(None, day(1) + pause));
        assert!(schedule.is_due(None, day(0)), "the clock was set back");
    }

    #[test]
    fn what_the_ca_says_about_the_next_try_is_obeyed() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.failed(&refusal(Some(3 * DAY)), day(0), 0.0), 3 * DAY);
        assert!(!schedule.is_due(None, day(2)) && schedule.is_due(None, day(3)));
        let soon = refusal(Some(Duration::from_secs(1)));
        assert_eq!(schedule.failed(&soon, day(3), 0.0), 30 * MINUTE, "not sooner than we would");
    }

    #[test]
    fn a_certificate_that_is_old_when_it_comes_is_not_fetched_at_once_again() {
        let mut schedule = Schedule::default();
        schedule.succeeded(day(1));
        assert!(!schedule.is_due(Some(&held(0, 1)), day(1)));
        assert!(schedule.is_due(Some(&held(0, 1)), day(2)));
    }
}
