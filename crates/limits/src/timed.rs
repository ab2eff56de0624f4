//! A limit that is looked at often: what it is now is known without a look at its schedule.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Limit;

/// A limit, and what it is now.
#[derive(Debug)]
pub struct Timed {
    limit: Limit,
    now: AtomicU64,
}

impl Timed {
    /// A limit at this moment, in seconds since 1970.
    pub fn new(limit: Limit, wall: i64) -> Self {
        let now = AtomicU64::new(limit.at(wall));
        Self { limit, now }
    }

    /// The present value; 0 for no limit.
    pub fn value(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Returns true if there never is one.
    pub fn is_none(&self) -> bool {
        self.limit.is_none()
    }

    /// It is this moment now. To be called on the minute.
    pub fn tick(&self, wall: i64) {
        self.now.store(self.limit.at(wall), Relaxed);
    }
}
