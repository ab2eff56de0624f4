//! The randomness of a simulation: every decision is drawn from one seed.

use std::sync::{Arc, Mutex, PoisonError};

/// Draws numbers (SplitMix64). Clones draw from the same sequence.
#[derive(Debug, Clone)]
pub(super) struct Draw(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    seed: u64,
    /// Whether storage, hooks and ports may fail.
    faults: bool,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State { seed, faults: true })))
    }

    /// Returns the next number.
    pub(super) fn number(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.seed = state.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state.seed ^ (state.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to, but not including, `end`.
    pub(super) fn below(&self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// Returns a number of this range.
    pub(super) fn between(&self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// Returns true in this percentage of draws.
    pub(super) fn chance(&self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns true in this percentage of draws, until [`Draw::end_faults`].
    pub(super) fn fault(&self, percent: usize) -> bool {
        let may_fail = self.0.lock().unwrap_or_else(PoisonError::into_inner).faults;
        may_fail && self.chance(percent)
    }

    /// Has nothing fail from now on.
    pub(super) fn end_faults(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).faults = false;
    }

    /// Returns one of these.
    pub(super) fn one_of<T: Copy>(&self, some: &[T]) -> T {
        some[self.below(some.len())]
    }
}
