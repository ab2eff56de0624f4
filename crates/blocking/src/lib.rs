//! Threads for work that may wait, so that no reactor does.
//!
//! [`BlockingPool`] has the threads, [`Line`] does the jobs of one owner in their order, [`Turns`] lets one thread at a
//! time work on something that has a name.

mod pool;
mod turns;

/// What [`Turns`] share between threads; `tests/loom.rs` tries every order instead.
mod sync {
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
}

pub use pool::{BlockingPool, Line, PoolLoad};
pub use turns::{Turn, Turns};
