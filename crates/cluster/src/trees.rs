//! What a node knows of trees with a quota, and its locks of names in them.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// What a node knows of trees with a quota.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    /// Those that are counted, and up to which edition.
    pub(crate) known: Mutex<(HashSet<String>, i64)>,
    /// The number of the next lock of a name.
    pub(crate) next: AtomicU64,
    /// Locks to give back.
    pub(crate) ended: Mutex<Vec<u64>>,
}
