//! Users who begin one after the other and may die: the rules of dkftpbench, as a value without a clock.
//!
//! A user is *started* when it connects, *born* when it has logged in, and *dies* at its first failure or when it
//! is too slow. Every birth and every death puts the end off by the quiet time. Several workers share one [`RampState`].

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::moment;
use crate::plan::{OnDeath, Settings};

/// How a load with a death rule ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RampOutcome {
    /// Users that began.
    pub started: u32,
    /// Users that were left when it was over.
    pub left: u32,
    /// The first death, if anyone died.
    pub first_death: Option<Death>,
    /// Whether it ended because nothing changed any more, and not because the time was over.
    pub is_settled: bool,
}

/// A death.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// Since the first user began, in seconds.
    pub at_s: f64,
    /// How many were alive just before.
    pub alive: u32,
    /// The cause of the death.
    pub why: String,
}

impl RampOutcome {
    /// The same of more users of the same load.
    pub(crate) fn and(self, other: Self) -> Self {
        let deaths = [self.first_death, other.first_death].into_iter().flatten();
        Self {
            started: self.started + other.started,
            left: self.left + other.left,
            first_death: deaths.min_by(|a, b| a.at_s.total_cmp(&b.at_s)),
            is_settled: self.is_settled && other.is_settled,
        }
    }
}

/// The state of all users that the workers of a load share: one worker's users begin when all of the one before have
/// begun.
///
/// Threads share it. Of a worker that is a process there are two, which tell each other ten times a second what they
/// know ([`RampSnapshot`]): a death is known to all within that time.
#[derive(Debug)]
pub(crate) struct RampState {
    /// The same moment since the machine started, and as this process has it.
    origin: (Duration, Instant),
    /// The worker whose users begin.
    turn: AtomicUsize,
    has_death: AtomicBool,
    /// When a user was last born or died, in nanoseconds since the machine started.
    changed: AtomicU64,
    /// Of each worker.
    alive: Vec<AtomicU32>,
}

/// The content of a [`RampState`] at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RampSnapshot {
    turn: usize,
    has_death: bool,
    changed: u64,
    alive: Vec<u32>,
}

impl RampState {
    /// The state before any user begins.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            origin: moment::now(),
            turn: AtomicUsize::new(0),
            has_death: AtomicBool::new(false),
            changed: AtomicU64::new(0),
            alive: (0..workers).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(crate) fn snapshot(&self) -> RampSnapshot {
        RampSnapshot {
            // Before the living: who knows that it is its turn knows all who have begun before.
            turn: self.turn.load(Ordering::Acquire),
            has_death: self.has_death.load(Ordering::Relaxed),
            changed: self.changed.load(Ordering::Relaxed),
            alive: self.alive.iter().map(|alive| alive.load(Ordering::Relaxed)).collect(),
        }
    }

    /// Merges the state of the workers that the snapshot's sender is responsible for.
    pub(crate) fn learn(&self, snapshot: &RampSnapshot, knows: impl Fn(usize) -> bool) {
        for (at, (own, &theirs)) in self.alive.iter().zip(&snapshot.alive).enumerate() {
            if knows(at) {
                own.store(theirs, Ordering::Relaxed);
            }
        }
        self.turn.fetch_max(snapshot.turn, Ordering::Release);
        self.has_death.fetch_or(snapshot.has_death, Ordering::Relaxed);
        self.changed.fetch_max(snapshot.changed, Ordering::Relaxed);
    }

    fn note_change(&self, now: Instant) {
        self.changed.fetch_max(self.nanoseconds(now), Ordering::Relaxed);
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        (self.origin.0 + now.saturating_duration_since(self.origin.1)).as_nanos() as u64
    }

    /// How long no user was born or died.
    fn quiet(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.nanoseconds(now).saturating_sub(self.changed.load(Ordering::Relaxed)))
    }

    fn alive(&self) -> u32 {
        self.alive.iter().map(|alive| alive.load(Ordering::Relaxed)).sum()
    }
}

/// One worker's users: how many have begun, and how many are alive.
#[derive(Debug)]
pub(crate) struct RampUp<'a> {
    rule: OnDeath,
    quiet: Duration,
    most: u32,
    /// How many may log in at once.
    at_once: u32,
    started: u32,
    connecting: u32,
    begun: Instant,
    first_death: Option<Death>,
    /// Which worker this is, and what all know.
    index: usize,
    ramp_state: &'a RampState,
}

impl<'a> RampUp<'a> {
    /// A worker before its first user; at most `most` of its users will begin.
    pub(crate) fn new(
        settings: &Settings,
        most: u32,
        now: Instant,
        index: usize,
        ramp_state: &'a RampState,
    ) -> Self {
        ramp_state.note_change(now);
        Self {
            rule: settings.on_death,
            quiet: settings.quiet,
            most,
            at_once: settings.connecting,
            started: 0,
            connecting: 0,
            begun: now,
            first_death: None,
            index,
            ramp_state,
        }
    }

    /// Lets the next user begin, if it may: answers its number in its worker.
    pub(crate) fn start(&mut self) -> Option<u32> {
        if self.started == self.most {
            let (own, next) = (self.index, self.index + 1);
            let _ = self.ramp_state.turn.compare_exchange(own, next, Ordering::Release, Ordering::Relaxed);
            return None;
        }
        let is_its_turn = self.ramp_state.turn.load(Ordering::Relaxed) == self.index;
        if !is_its_turn || !self.may_grow() || self.connecting == self.at_once {
            return None;
        }
        self.started += 1;
        self.connecting += 1;
        self.ramp_state.alive[self.index].fetch_add(1, Ordering::Relaxed);
        Some(self.started - 1)
    }

    fn may_grow(&self) -> bool {
        self.rule != OnDeath::StopGrowth || !self.ramp_state.has_death.load(Ordering::Relaxed)
    }

    /// A user has logged in.
    pub(crate) fn note_birth(&mut self, now: Instant) {
        self.connecting -= 1;
        self.ramp_state.note_change(now);
    }

    /// A user has failed.
    pub(crate) fn note_death(&mut self, was_connecting: bool, now: Instant, why: &str) {
        let alive = self.ramp_state.alive();
        self.connecting -= u32::from(was_connecting);
        self.ramp_state.alive[self.index].fetch_sub(1, Ordering::Relaxed);
        self.ramp_state.has_death.store(true, Ordering::Relaxed);
        self.ramp_state.note_change(now);
        self.first_death.get_or_insert_with(|| Death {
            at_s: (now - self.begun).as_secs_f64(),
            alive,
            why: why.to_owned(),
        });
    }

    /// Returns true if nothing has changed for the quiet time, or if no user is left and none will begin.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let has_grown = self.ramp_state.turn.load(Ordering::Relaxed) == self.ramp_state.alive.len();
        let grows = !has_grown && self.may_grow();
        self.ramp_state.quiet(now) >= self.quiet || (self.ramp_state.alive() == 0 && !grows)
    }

    pub(crate) fn standing(self, now: Instant) -> RampOutcome {
        let is_settled = self.is_over(now);
        let left = self.ramp_state.alive[self.index].load(Ordering::Relaxed);
        RampOutcome { started: self.started, left, first_death: self.first_death, is_settled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(180);

    fn settings(rule: OnDeath) -> Settings {
        Settings { on_death: rule, quiet: QUIET, connecting: 1, ..Settings::default() }
    }

    /// The only worker, with three users.
    fn ramp(rule: OnDeath, ramp_state: &RampState) -> (RampUp<'_>, Instant) {
        let now = Instant::now();
        (RampUp::new(&settings(rule), 3, now, 0, ramp_state), now)
    }

    #[test]
    fn one_user_connects_at_a_time() {
        let ramp_state = RampState::new(1);
        let (mut ramp, now) = ramp(OnDeath::StopGrowth, &ramp_state);
        assert_eq!((ramp.start(), ramp.start()), (Some(0), None));
        ramp.note_birth(now);
        assert_eq!((ramp.start(), ramp.start()), (Some(1), None));
    }

    #[test]
    fn a_death_stops_the_growth_or_does_not() {
        for (rule, next) in [(OnDeath::StopGrowth, None), (OnDeath::DropOut, Some(1))] {
            let ramp_state = RampState::new(1);
            let (mut ramp, now) = ramp(rule, &ramp_state);
            ramp.start();
            ramp.note_birth(now);
            ramp.note_death(false, now + Duration::from_secs(2), "too slow");
            assert_eq!(ramp.start(), next, "{rule:?}");
            let death = ramp.standing(now + QUIET).first_death.unwrap();
            assert_eq!((death.at_s, death.alive, &death.why[..]), (2.0, 1, "too slow"));
        }
    }

    #[test]
    fn every_birth_and_death_puts_the_end_off() {
        let ramp_state = RampState::new(1);
        let (mut ramp, now) = ramp(OnDeath::DropOut, &ramp_state);
        ramp.start();
        ramp.note_birth(now + QUIET / 2);
        assert!(!ramp.is_over(now + QUIET));
        assert!(ramp.is_over(now + QUIET * 3 / 2));
        let standing = ramp.standing(now + QUIET * 2);
        assert_eq!((standing.started, standing.left, standing.is_settled), (1, 1, true));
    }

    #[test]
    fn it_is_over_at_once_when_all_are_dead_and_none_will_begin() {
        let ramp_state = RampState::new(1);
        let (mut ramp, now) = ramp(OnDeath::StopGrowth, &ramp_state);
        assert!(!ramp.is_over(now));
        ramp.start();
        ramp.note_death(true, now, "421");
        assert!(ramp.is_over(now));
    }

    #[test]
    fn the_next_worker_begins_when_all_of_the_one_before_have() {
        let (ramp_state, now) = (RampState::new(2), Instant::now());
        let settings = settings(OnDeath::StopGrowth);
        let mut first = RampUp::new(&settings, 1, now, 0, &ramp_state);
        let mut second = RampUp::new(&settings, 5, now, 1, &ramp_state);
        assert_eq!((second.start(), first.start()), (None, Some(0)));
        first.note_birth(now);
        assert_eq!((first.start(), second.start()), (None, Some(0)));
        second.note_birth(now + QUIET / 2);
        assert!(!first.is_over(now + QUIET), "it is not quiet elsewhere");
        second.note_death(false, now + QUIET / 2, "too slow");
        assert_eq!((second.start(), second.first_death.as_ref().unwrap().alive), (None, 2));
        let both = first.standing(now + QUIET).and(second.standing(now + QUIET));
        assert_eq!((both.started, both.left, both.first_death.is_some()), (2, 1, true));
    }

    #[test]
    fn snapshots_merge_the_state_of_processes() {
        let (run, child, now) = (RampState::new(2), RampState::new(2), Instant::now());
        let mut ramp = RampUp::new(&settings(OnDeath::StopGrowth), 1, now, 0, &child);
        ramp.start();
        ramp.note_birth(now);
        ramp.start();
        run.learn(&child.snapshot(), |worker| worker == 0);
        assert_eq!(run.snapshot(), child.snapshot());
        let mut other = RampUp::new(&settings(OnDeath::StopGrowth), 1, now, 1, &run);
        assert_eq!(other.start(), Some(0));
        other.note_death(true, now + QUIET, "421");
        child.learn(&run.snapshot(), |worker| worker != 0);
        assert!(!ramp.may_grow() && !ramp.is_over(now + QUIET * 3 / 2));
        assert_eq!(child.snapshot(), run.snapshot());
    }
}
