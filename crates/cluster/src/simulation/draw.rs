//! The randomness of a simulation: every decision is drawn from one seed.

use std::time::Duration;

/// Draws numbers (xorshift64*).
#[derive(Debug)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn from_seed(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// Returns a number from 0 up to, but not including, `end`.
    pub(super) fn up_to(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Returns true in so many of a thousand draws.
    pub(super) fn permille(&mut self, times: usize) -> bool {
        self.up_to(1000) < times
    }

    /// Returns a time between these, in milliseconds.
    pub(super) fn millis(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_millis((least + self.up_to(most - least + 1)) as u64)
    }
}
