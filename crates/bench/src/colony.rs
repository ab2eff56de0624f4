//! Users who begin one after the other and may die: the rules of dkftpbench, as a value without a clock.
//!
//! A user is *started* when it connects, *born* when it has logged in, and *dies* at its first failure or when it
//! is too slow. Every birth and every death puts the end off by the quiet time.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::plan::OnDeath;

/// How a load with a death rule ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Users that began.
    pub started: u32,
    /// Users that were left when it was over.
    pub left: u32,
    /// The first death, if anyone died.
    pub first_death: Option<Death>,
    /// Claims that it ended because nothing changed any more, and not because the time was over.
    pub is_settled: bool,
}

/// A death.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// Since the first user began, in seconds.
    pub at_s: f64,
    /// How many were alive just before.
    pub alive: u32,
    /// What it died of.
    pub why: String,
}

/// Who has begun, and who is alive.
#[derive(Debug)]
pub(crate) struct Colony {
    rule: OnDeath,
    quiet: Duration,
    most: u32,
    /// How many may log in at once.
    at_once: u32,
    started: u32,
    connecting: u32,
    alive: u32,
    begun: Instant,
    changed: Instant,
    first_death: Option<Death>,
}

impl Colony {
    /// Nobody has begun; at most `most` will.
    pub(crate) fn new(rule: OnDeath, quiet: Duration, most: u32, at_once: u32, now: Instant) -> Self {
        Self {
            rule,
            quiet,
            most,
            at_once,
            started: 0,
            connecting: 0,
            alive: 0,
            begun: now,
            changed: now,
            first_death: None,
        }
    }

    /// Lets the next user begin, if it may: answers its number.
    pub(crate) fn start(&mut self) -> Option<u32> {
        let may_grow = self.rule != OnDeath::StopGrowth || self.first_death.is_none();
        if !may_grow || self.started == self.most || self.connecting == self.at_once {
            return None;
        }
        self.started += 1;
        self.connecting += 1;
        self.alive += 1;
        Some(self.started - 1)
    }

    /// A user has logged in.
    pub(crate) fn note_birth(&mut self, now: Instant) {
        self.connecting -= 1;
        self.changed = now;
    }

    /// A user has failed.
    pub(crate) fn note_death(&mut self, was_connecting: bool, now: Instant, why: &str) {
        let alive = self.alive;
        self.connecting -= u32::from(was_connecting);
        self.alive -= 1;
        self.changed = now;
        self.first_death.get_or_insert_with(|| Death {
            at_s: (now - self.begun).as_secs_f64(),
            alive,
            why: why.to_owned(),
        });
    }

    /// Nothing has changed for the quiet time, or nobody is left and nobody comes.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let grows = self.started < self.most
            && (self.rule == OnDeath::DropOut || self.first_death.is_none() && self.rule != OnDeath::Off);
        now - self.changed >= self.quiet || (self.alive == 0 && self.started > 0 && !grows)
    }

    pub(crate) fn standing(self, now: Instant) -> Standing {
        let is_settled = self.is_over(now);
        Standing { started: self.started, left: self.alive, first_death: self.first_death, is_settled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(180);

    fn colony(rule: OnDeath) -> (Colony, Instant) {
        let now = Instant::now();
        (Colony::new(rule, QUIET, 3, 1, now), now)
    }

    #[test]
    fn one_user_connects_at_a_time() {
        let (mut colony, now) = colony(OnDeath::StopGrowth);
        assert_eq!((colony.start(), colony.start()), (Some(0), None));
        colony.note_birth(now);
        assert_eq!((colony.start(), colony.start()), (Some(1), None));
    }

    #[test]
    fn a_death_stops_the_growth_or_does_not() {
        for (rule, next) in [(OnDeath::StopGrowth, None), (OnDeath::DropOut, Some(1))] {
            let (mut colony, now) = colony(rule);
            colony.start();
            colony.note_birth(now);
            colony.note_death(false, now + Duration::from_secs(2), "too slow");
            assert_eq!(colony.start(), next, "{rule:?}");
            let death = colony.standing(now + QUIET).first_death.unwrap();
            assert_eq!((death.at_s, death.alive, &death.why[..]), (2.0, 1, "too slow"));
        }
    }

    #[test]
    fn every_birth_and_death_puts_the_end_off() {
        let (mut colony, now) = colony(OnDeath::DropOut);
        colony.start();
        colony.note_birth(now + QUIET / 2);
        assert!(!colony.is_over(now + QUIET));
        assert!(colony.is_over(now + QUIET * 3 / 2));
        let standing = colony.standing(now + QUIET * 2);
        assert_eq!((standing.started, standing.left, standing.is_settled), (1, 1, true));
    }

    #[test]
    fn it_is_over_at_once_when_all_are_dead_and_nobody_comes() {
        let (mut colony, now) = colony(OnDeath::StopGrowth);
        assert!(!colony.is_over(now));
        colony.start();
        colony.note_death(true, now, "421");
        assert!(colony.is_over(now));
    }
}
