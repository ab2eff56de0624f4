//! The threads that hooks are called on: some for calls that may take long, others for those that wait for disks only,
//! or not at all.
//!
//! A program that hangs holds a thread until its time limit, and other calls that run programs wait for a thread.
//! Refusals, rewrites and queueing have threads of their own, and so have commits of uploads without a program, whose
//! disk may be slow or stuck. A session's calls keep their order across both pools, as jobs of one
//! [`Line`](millrace_blocking::Line).

use std::time::{Duration, Instant};

use super::{EventContext, Hooks};
use millrace_blocking::{BlockingPool, PoolLoad};

/// Three pools.
#[derive(Debug, Clone)]
pub struct Pools {
    /// For calls that do not wait for programs.
    brief: BlockingPool,
    /// For calls that wait for programs and receivers.
    long: BlockingPool,
    /// For uploads that take their name, which wait for a disk.
    naming: BlockingPool,
}

impl Pools {
    /// Of this many threads at most each, the last of as many as wait for disks; `pool` makes one.
    pub fn new(pool: impl Fn(usize) -> BlockingPool, threads: usize, disk_threads: usize) -> Self {
        let [brief, long, naming] = [threads, threads, disk_threads].map(pool);
        Self { brief, long, naming }
    }

    /// Returns what each has to do, by its name.
    pub fn loads(&self) -> [(&'static str, PoolLoad); 3] {
        let pools = [("hooks", &self.brief), ("hooks-long", &self.long), ("hooks-naming", &self.naming)];
        pools.map(|(name, pool)| (name, pool.load()))
    }

    /// Those for a call of these hooks.
    pub fn of(&self, hooks: &dyn Hooks, contexts: &[EventContext]) -> &BlockingPool {
        if contexts.iter().any(|context| hooks.may_take_long(context)) {
            &self.long
        } else if contexts.iter().any(|context| context.pending.is_some()) {
            &self.naming
        } else {
            &self.brief
        }
    }

    /// The same, where a reload may have taken the hooks away.
    pub fn of_any(&self, hooks: Option<&dyn Hooks>, contexts: &[EventContext]) -> &BlockingPool {
        hooks.map_or(&self.naming, |hooks| self.of(hooks, contexts))
    }

    /// Waits until all is done, but no longer than this.
    pub fn finish(&self, most: Duration) {
        let end = Instant::now() + most;
        let left = || end.saturating_duration_since(Instant::now());
        loop {
            self.long.finish(left());
            self.brief.finish(left());
            self.naming.finish(left());
            // A job of one pool may be followed by one of the other.
            let are_over = || [&self.long, &self.brief, &self.naming].iter().all(|pool| pool.is_over());
            let is_over = are_over() && are_over();
            if is_over || left().is_zero() {
                return;
            }
        }
    }
}
