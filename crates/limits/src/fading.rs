//! Counts of failures that fade, and maps of them that are bounded.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// In this time a count becomes half of what it was.
pub(crate) const FADE: Duration = Duration::from_secs(600);

/// Entries of each kind at most; those that say least go first.
pub(crate) const MOST: usize = 32 * 1024;

/// How many bytes of a user's name are kept, because clients choose its length.
pub(crate) const NAME: usize = 64;

/// Failures that fade.
#[derive(Debug, Clone)]
pub(crate) struct Count {
    pub(crate) failures: f64,
    counted: Instant,
    pub(crate) succeeded: Option<Instant>,
    pub(crate) banned_until: Option<Instant>,
    /// Of a banned user.
    pub(crate) name: Option<Box<[u8]>>,
}

impl Count {
    pub(crate) fn new(now: Instant) -> Self {
        Self { failures: 0.0, counted: now, succeeded: None, banned_until: None, name: None }
    }

    pub(crate) fn at(&self, now: Instant) -> f64 {
        let halves = now.saturating_duration_since(self.counted).as_secs_f64() / FADE.as_secs_f64();
        self.failures * 0.5f64.powf(halves)
    }

    pub(crate) fn add(&mut self, failures: f64, now: Instant) -> f64 {
        self.failures = self.at(now) + failures;
        self.counted = now;
        self.failures
    }
}

/// Makes room for one more: what has faded goes, and if that is not enough, the half that says least.
pub(crate) fn make_room<K: Hash + Eq + Copy>(counts: &mut HashMap<K, Count>, now: Instant) {
    if counts.len() < MOST {
        return;
    }
    let is_banned = |count: &Count| count.banned_until.is_some_and(|until| now < until);
    counts.retain(|_, count| is_banned(count) || count.at(now) > 0.5);
    if counts.len() >= MOST {
        let mut worth: Vec<f64> = counts.values().map(|count| count.at(now)).collect();
        let (_, middle, _) = worth.select_nth_unstable_by(MOST / 2, f64::total_cmp);
        let middle = *middle;
        counts.retain(|_, count| count.at(now) > middle);
    }
}
