//! When a certificate is to be fetched: told what time it is, this decides, and does nothing.
//!
//! The invariant: whatever the clock does, a CA is never asked more often than the pauses say, and a clock that was set
//! back does not make a pause longer than it was.

use std::time::{Duration, SystemTime};

use millrace_net::tls::CertificateInfo;

use super::advice::Advice;
use super::order::Trouble;

/// The pause after a first failure without a sensible answer; doubled each time.
const AWAY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// The same where the CA said no. Let's Encrypt allows five failed checks an hour for a name.
const REFUSED: (Duration, Duration) = (Duration::from_secs(15 * 60), Duration::from_secs(24 * 3600));

/// The pause behind a success, whatever the new certificate says of its time.
const DONE: Duration = Duration::from_secs(3600);

/// Of a pause, as much is added by luck at the most.
const JITTER: f64 = 0.25;

/// The history that determines the next attempt.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    failures: u32,
    /// Since when, and for how long, nothing is to be done.
    pause: Option<(SystemTime, Duration)>,
    /// Which certificate the CA was asked about last. It may have been replaced since.
    about: Option<CertificateInfo>,
    /// When the CA would have that one renewed.
    advised: Option<SystemTime>,
    /// Since when, and for how long, it is not asked about that.
    content: Option<(SystemTime, Duration)>,
}

impl Schedule {
    /// Returns true if a certificate must be ordered now: there is none, the CA suggests it, or, without advice, two
    /// thirds of its lifetime are over.
    pub(super) fn is_due(&self, held: Option<&CertificateInfo>, now: SystemTime) -> bool {
        !is_on(self.pause, now) && held.is_none_or(|held| now >= self.renewal(held))
    }

    /// Returns true if the CA is to be asked when it would have a certificate renewed.
    pub(super) fn wants_advice(&self, held: &CertificateInfo, now: SystemTime) -> bool {
        let has_said = self.about.as_ref() == Some(held) && is_on(self.content, now);
        !(is_on(self.pause, now) || has_said)
    }

    /// The CA was asked about this one, and has said this or nothing. Of a window some moment is chosen, so that not all
    /// come at its beginning, and kept for as long as it is within. `luck` is from 0 to 1.
    pub(super) fn advised(&mut self, held: &CertificateInfo, advice: &Advice, now: SystemTime, luck: f64) {
        if self.about.replace(*held).as_ref() != Some(held) {
            self.advised = None;
        }
        self.content = Some((now, advice.again));
        let Some((start, end)) = advice.window else { return };
        if self.advised.is_none_or(|chosen| chosen < start || chosen > end) {
            let length = end.duration_since(start).unwrap_or_default();
            self.advised = start.checked_add(length.mul_f64(luck.clamp(0.0, 1.0)));
        }
    }

    /// Returns true if a certificate is due only on the CA's advice.
    pub(super) fn is_early(&self, held: &CertificateInfo, now: SystemTime) -> bool {
        self.is_due(Some(held), now) && now < by_age(held)
    }

    fn renewal(&self, held: &CertificateInfo) -> SystemTime {
        match self.advised.filter(|_| self.about.as_ref() == Some(held)) {
            Some(advised) => advised.min(at_last(held)),
            None => by_age(held),
        }
    }

    /// It was fetched.
    pub(super) fn succeeded(&mut self, now: SystemTime) {
        *self = Self { pause: Some((now, DONE)), ..Self::default() };
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

/// Returns true if it is not over.
fn is_on(pause: Option<(SystemTime, Duration)>, now: SystemTime) -> bool {
    // If the clock was set back, the elapsed time is unknown.
    pause.is_some_and(|(since, pause)| now.duration_since(since).is_ok_and(|passed| passed < pause))
}

/// When a third of the time is left.
fn by_age(held: &CertificateInfo) -> SystemTime {
    before_its_end(held, 3)
}

/// Whatever a CA advises, so much has to be left for tries that fail.
fn at_last(held: &CertificateInfo) -> SystemTime {
    before_its_end(held, 10)
}

fn before_its_end(held: &CertificateInfo, part: u32) -> SystemTime {
    let life = held.until.duration_since(held.from).unwrap_or_default();
    held.until.checked_sub(life / part).unwrap_or(held.from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const MINUTE: Duration = Duration::from_secs(60);

    fn day(number: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY * 20_000 + DAY * number
    }

    fn held(from: u32, until: u32) -> CertificateInfo {
        CertificateInfo { from: day(from), until: day(until), covers: true, is_self_signed: false }
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

    fn advice(window: Option<(u32, u32)>, again: Duration) -> Advice {
        let window = window.map(|(start, end)| (day(start), day(end)));
        Advice { window, again, ..Advice::none() }
    }

    #[test]
    fn the_cas_advice_decides_and_without_it_the_age() {
        let held = held(0, 90);
        for (window, luck, due) in [
            // It is to be taken back.
            (Some((0, 0)), 0.5, 0),
            (Some((20, 30)), 0.0, 20),
            (Some((20, 30)), 1.0, 30),
            (Some((70, 74)), 0.5, 72),
            // Too late for tries that fail.
            (Some((200, 300)), 0.5, 81),
            (None, 0.5, 60),
        ] {
            let mut schedule = Schedule::default();
            schedule.advised(&held, &advice(window, DAY), day(0), luck);
            let begin = (0..100).find(|now| schedule.is_due(Some(&held), day(*now))).unwrap();
            assert_eq!(begin, due, "{window:?}");
            assert_eq!(schedule.is_early(&held, day(due)), due < 60, "{window:?}");
        }
    }

    #[test]
    fn advice_is_asked_for_again_when_the_ca_says_and_stays_where_it_says_the_same() {
        let first = held(0, 90);
        let mut schedule = Schedule::default();
        assert!(schedule.wants_advice(&first, day(0)));
        schedule.advised(&first, &advice(Some((20, 30)), 3 * DAY), day(0), 0.3);
        assert!(!schedule.wants_advice(&first, day(2)) && schedule.wants_advice(&first, day(3)));
        schedule.advised(&first, &advice(Some((20, 30)), DAY), day(3), 0.9);
        assert!(schedule.is_due(Some(&first), day(23)), "the moment is the one of before");
        schedule.advised(&first, &advice(None, DAY), day(4), 0.9);
        assert!(schedule.is_due(Some(&first), day(23)), "who says nothing takes nothing back");
        schedule.advised(&first, &advice(Some((25, 30)), DAY), day(5), 1.0);
        assert!(!schedule.is_due(Some(&first), day(29)) && schedule.is_due(Some(&first), day(30)));
        schedule.succeeded(day(30));
        assert!(!schedule.is_due(Some(&held(30, 120)), day(60)), "of the next one it has said nothing");
        let pause = schedule.failed(&refusal(None), day(60), 0.0);
        assert!(!schedule.wants_advice(&first, day(60)) && schedule.wants_advice(&first, day(60) + pause));
    }

    #[test]
    fn advice_about_a_certificate_does_not_apply_to_its_replacement() {
        let (first, second) = (held(0, 90), held(1, 91));
        let mut schedule = Schedule::default();
        schedule.advised(&first, &advice(Some((0, 0)), 30 * DAY), day(2), 0.5);
        assert!(schedule.is_due(Some(&first), day(2)) && !schedule.is_due(Some(&second), day(2)));
        assert!(!schedule.wants_advice(&first, day(2)) && schedule.wants_advice(&second, day(2)));
        schedule.advised(&second, &advice(None, DAY), day(2), 0.5);
        assert!(!schedule.is_due(Some(&second), day(2)));
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
    fn the_cas_retry_after_is_obeyed() {
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
