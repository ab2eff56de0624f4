//! The threads that hooks are called on: some for calls that may take long, others for those that cannot.
//!
//! A program that hangs holds a thread until its time is over, and whoever runs programs waits for a thread. Nobody
//! else does: what is refused, rewritten, or put into the queue has threads of its own. A session's calls go from
//! the ones to the others and keep their order, for they are jobs of one [`Line`](crate::blocking::Line).

use std::time::{Duration, Instant};

use super::{Hooks, Moment};
use crate::blocking::BlockingPool;

/// Two pools.
#[derive(Debug, Clone)]
pub(crate) struct Pools {
    /// For calls that wait for nobody.
    brief: BlockingPool,
    /// For calls that wait for programs and receivers.
    long: BlockingPool,
}

impl Pools {
    /// Each of so many threads at most.
    pub(crate) fn new(threads: usize) -> Self {
        Self { brief: BlockingPool::new(threads), long: BlockingPool::new(threads) }
    }

    /// Those for a call of these hooks.
    pub(crate) fn of(&self, hooks: &dyn Hooks, moments: &[Moment]) -> &BlockingPool {
        match moments.iter().any(|moment| hooks.may_take_long(moment)) {
            true => &self.long,
            false => &self.brief,
        }
    }

    /// Those for what is no call after all.
    pub(crate) fn brief(&self) -> &BlockingPool {
        &self.brief
    }

    /// Waits until all is done, but no longer than this.
    pub(crate) fn finish(&self, most: Duration) {
        let end = Instant::now() + most;
        let left = || end.saturating_duration_since(Instant::now());
        loop {
            self.long.finish(left());
            self.brief.finish(left());
            // What one has done may be followed by something for the other.
            let is_over = self.long.is_over() && self.brief.is_over() && self.long.is_over();
            if is_over || left().is_zero() {
                return;
            }
        }
    }
}
