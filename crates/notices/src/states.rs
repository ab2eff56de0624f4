//! What is told when: once when something goes wrong, again after a while, and once when it is well.
//!
//! ```text
//!           bad: told                      well for SETTLED: told
//! (nothing) ---------> bad (told again each `repeat`) ---------> (nothing)
//! ```
//!
//! What flaps stays bad, so a condition is told of at most twice in [`SETTLED`].

use std::time::{Duration, Instant};

use super::conditions::{Condition, Kind};

/// What was well for so long is well again.
const SETTLED: Duration = Duration::from_secs(300);

/// What was not seen for so long, such as a disk that does not answer, is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(86_400);

/// Something to be told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Notice {
    pub(crate) kind: Kind,
    pub(crate) subject: String,
    /// False: it is well again.
    pub(crate) is_bad: bool,
    pub(crate) text: String,
    /// When this was found, in seconds since 1970.
    pub(crate) at: i64,
    /// When it went wrong.
    pub(crate) since: i64,
}

impl Notice {
    /// Returns whether both are about the same thing.
    pub(crate) fn is_about_the_same(&self, other: &Self) -> bool {
        (self.kind, &self.subject) == (other.kind, &other.subject)
    }
}

/// What is wrong now.
#[derive(Debug)]
pub(crate) struct States {
    /// After how long it is told again. Zero: never.
    repeat: Duration,
    bad: Vec<Bad>,
}

/// One thing that is wrong.
#[derive(Debug)]
struct Bad {
    kind: Kind,
    subject: String,
    since: i64,
    told: Instant,
    /// When it was last wrong.
    seen: Instant,
}

impl States {
    pub(crate) fn new(repeat: Duration) -> Self {
        Self { repeat, bad: Vec::new() }
    }

    /// Returns what is to be told of the conditions at an instant, which is `wall` by the clock of the wall.
    pub(crate) fn step(&mut self, now: Instant, wall: i64, conditions: Vec<Condition>) -> Vec<Notice> {
        let notices = conditions.into_iter().filter_map(|condition| self.one(now, wall, condition)).collect();
        self.bad.retain(|bad| now.duration_since(bad.seen) < FORGOTTEN);
        notices
    }

    fn one(&mut self, now: Instant, wall: i64, condition: Condition) -> Option<Notice> {
        let Condition { kind, subject, is_bad, text } = condition;
        let place = self.bad.iter().position(|bad| (bad.kind, &bad.subject) == (kind, &subject));
        let since = match (place, is_bad) {
            (None, false) => return None,
            (None, true) => {
                self.bad.push(Bad { kind, subject: subject.clone(), since: wall, told: now, seen: now });
                wall
            }
            (Some(place), true) => {
                let bad = &mut self.bad[place];
                bad.seen = now;
                if self.repeat.is_zero() || now.duration_since(bad.told) < self.repeat {
                    return None;
                }
                bad.told = now;
                bad.since
            }
            (Some(place), false) if now.duration_since(self.bad[place].seen) < SETTLED => return None,
            (Some(place), false) => self.bad.swap_remove(place).since,
        };
        Some(Notice { kind, subject, is_bad, text, at: wall, since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States, a clock, and what is told of one disk.
    struct Simulation {
        states: States,
        start: Instant,
    }

    impl Simulation {
        fn new(repeat: u64) -> Self {
            Self { states: States::new(Duration::from_secs(repeat)), start: Instant::now() }
        }

        /// Returns whether something is told, and whether it is bad.
        fn at(&mut self, seconds: u64, is_bad: bool) -> Option<bool> {
            let condition =
                Condition { kind: Kind::Disk, subject: "/a".to_owned(), is_bad, text: String::new() };
            let now = self.start + Duration::from_secs(seconds);
            let told = self.states.step(now, seconds as i64, vec![condition]);
            assert!(told.len() <= 1, "{told:?}");
            told.first().map(|notice| notice.is_bad)
        }
    }

    #[test]
    fn a_state_is_told_once_then_at_intervals_and_once_when_it_is_well() {
        let mut disk = Simulation::new(3600);
        assert_eq!(disk.at(0, false), None);
        assert_eq!(disk.at(10, true), Some(true));
        assert_eq!(disk.at(25, true), None);
        assert_eq!(disk.at(3609, true), None);
        assert_eq!(disk.at(3610, true), Some(true));
        assert_eq!(disk.at(3700, false), None, "it may come back");
        assert_eq!(disk.at(3910, false), Some(false));
        assert_eq!(disk.at(3920, false), None);
        assert_eq!(disk.at(3930, true), Some(true));
    }

    #[test]
    fn what_flaps_is_no_flood() {
        let mut disk = Simulation::new(86_400);
        let told = (0..86_400 / 15).filter(|look| disk.at(look * 15, look % 2 == 0).is_some()).count();
        assert_eq!(told, 1, "of 5760 looks");
    }

    #[test]
    fn without_an_interval_it_is_told_once() {
        let mut disk = Simulation::new(0);
        let told = (0..100).filter(|day| disk.at(day * 3600, true).is_some()).count();
        assert_eq!(told, 1);
    }

    #[test]
    fn a_disk_that_does_not_answer_is_not_well() {
        let mut disk = Simulation::new(3600);
        assert_eq!(disk.at(0, true), Some(true));
        let now = disk.start + Duration::from_secs(7200);
        assert_eq!(disk.states.step(now, 7200, Vec::new()), []);
        assert_eq!(disk.at(7300, true), Some(true), "it is the same state, which is due again");
        let now = disk.start + Duration::from_secs(7300) + FORGOTTEN;
        assert_eq!(disk.states.step(now, 7200, Vec::new()), []);
        assert!(disk.states.bad.is_empty());
    }
}
