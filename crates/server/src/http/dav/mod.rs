//! WebDAV, classes 1 and 2 (RFC 4918), over the same files: properties, locks, and what they forbid.
//!
//! - `requests.rs` answers `PROPFIND`, `PROPPATCH`, `LOCK` and `UNLOCK`; `members.rs` writes what is in a directory.
//! - `claim.rs` says whether a request may change something: the `If` field, and locks that others hold.
//! - `locks.rs` and `properties.rs` hold what clients have told, by [`place`].
//!
//! All of it runs on the pool. Who uses none of it pays one look at a counter for a change.

mod claim;
mod locks;
mod members;
mod place;
mod properties;
mod requests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use locks::Locks;
use properties::Properties;

pub(super) use claim::{Claim, Touch};
pub(crate) use members::Answer;
pub(super) use requests::Collecting;

/// What WebDAV's clients have told, of all users.
#[derive(Debug, Default)]
pub(crate) struct Dav {
    /// Locked for some look-ups, never while a file is waited for.
    told: Mutex<Told>,
    /// How much there is of it.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Told {
    locks: Locks,
    properties: Properties,
}

impl Dav {
    /// Claims that nobody has locked anything or keeps properties.
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Looks at it, or changes it; locks whose time is over are gone before.
    fn with<T>(&self, work: impl FnOnce(&mut Told) -> T) -> T {
        let mut told: MutexGuard<'_, Told> = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.locks.expire(Instant::now());
        let result = work(&mut told);
        self.count.store(told.locks.len() + told.properties.len(), Ordering::Release);
        result
    }
}
