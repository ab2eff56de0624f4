//! What a node knows of trees with a quota, and its locks of names in them.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// What a node knows of trees with a quota.
#[derive(Debug)]
pub(crate) struct Trees {
    /// Those that are counted, and up to which edition.
    pub(crate) known: Mutex<(HashSet<String>, i64)>,
    /// The number of the next lock of a name.
    pub(crate) next: AtomicU64,
    /// Locks to give back.
    pub(crate) ended: Mutex<Vec<u64>>,
}

impl Default for Trees {
    fn default() -> Self {
        let mut bytes = [0; 8];
        // From the kernel, which has enough since it has started.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        // No other node has these numbers: so a lock is known by its own, whichever registration it goes with.
        let next = AtomicU64::new(u64::from_be_bytes(bytes) >> 2);
        Self { known: Mutex::default(), next, ended: Mutex::default() }
    }
}
