//! A secret that all nodes have.

use std::fmt;
use std::time::{Duration, Instant};

/// How long one is kept.
const KEPT: Duration = Duration::from_secs(13 * 3600);

/// Random bytes that all nodes have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedSecret {
    /// The bytes.
    pub bytes: [u8; 32],
    /// When it was made.
    pub made: Instant,
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSecret").field("made", &self.made).finish_non_exhaustive()
    }
}

impl SharedSecret {
    /// Returns whether it may still be used.
    pub(crate) fn is_young(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.made) < KEPT
    }
}
