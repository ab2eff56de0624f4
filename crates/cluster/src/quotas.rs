//! The counts of quotas that nodes share: questions about trees under the epoch of this node.

use std::sync::atomic::Ordering;
use std::time::Instant;

use millrace_storage::{SharedCountError, SharedCounts, Telling, TreeState, Wish};

use crate::cluster::Cluster;
use crate::lock::lock;
use crate::places::Shared;
use crate::table::{Epoch, Locking, TableError, Told};

impl Shared {
    /// Returns the epoch under which the database may be asked about trees.
    fn asks_under(&self) -> Result<Epoch, SharedCountError> {
        lock(&self.book).lease.grants(Instant::now()).ok_or(SharedCountError::Away)
    }

    fn fenced(&self, epoch: Epoch) -> SharedCountError {
        lock(&self.book).lease.fence(epoch);
        self.call(|call| call.is_urgent = true);
        SharedCountError::Away
    }

    /// Gives locks of names back that have ended.
    pub(crate) fn give_locks_back(&self) -> Result<(), TableError> {
        let ended = std::mem::take(&mut *lock(&self.trees.ended));
        let Some(epoch) = lock(&self.book).lease.epoch().filter(|_| !ended.is_empty()) else { return Ok(()) };
        self.table.unlock_names(epoch, &ended).inspect_err(|_| lock(&self.trees.ended).extend(&ended))
    }

    /// Learns which trees are counted.
    pub(crate) fn learn_trees(&self) -> Result<(), TableError> {
        let since = lock(&self.trees.known).1;
        let (trees, edition) = self.table.pull_trees(since)?;
        let mut known = lock(&self.trees.known);
        known.0.extend(trees);
        known.1 = edition;
        Ok(())
    }
}

/// Returns what a question without an answer means.
fn unheard(error: &TableError) -> SharedCountError {
    match error.is_undone() {
        true => SharedCountError::Away,
        false => SharedCountError::Unanswered,
    }
}

/// An answer that does not come may have been done: what is told is told again, and a lock ends with its number or with the
/// registration.
impl SharedCounts for Cluster {
    fn is_in_use(&self) -> bool {
        self.is_begun()
    }

    fn tell(&self, tree: &str, telling: Telling, wish: Option<Wish>) -> Result<TreeState, SharedCountError> {
        let shared = self.shared();
        let epoch = shared.asks_under()?;
        match shared.table.tell_share(epoch, tree, telling, wish) {
            Ok(Told::Known(state)) => Ok(state),
            Ok(Told::Ended) => Err(SharedCountError::Ended),
            Ok(Told::Fenced) => Err(shared.fenced(epoch)),
            Err(error) => {
                // One that is executed behind the next one says what was so before, until the one behind that. But behind the
                // end of the share, one that begins it would stay.
                if telling.is_new {
                    shared.unanswered(epoch, &error);
                }
                Err(unheard(&error))
            }
        }
    }

    fn lock(&self, tree: &str, name: &[u8]) -> Result<Option<u64>, SharedCountError> {
        let shared = self.shared();
        let epoch = shared.asks_under()?;
        let number = shared.trees.next.fetch_add(1, Ordering::Relaxed);
        match shared.table.lock_name(epoch, tree, name, number) {
            Ok(Locking::Locked) => Ok(Some(number)),
            Ok(Locking::Busy) => Ok(None),
            Ok(Locking::Fenced) => Err(shared.fenced(epoch)),
            Err(error) => {
                // Executed when it was given back, it would stay.
                shared.unanswered(epoch, &error);
                self.unlock(number);
                Err(unheard(&error))
            }
        }
    }

    fn unlock(&self, number: u64) {
        lock(&self.shared().trees.ended).push(number);
    }

    fn counted(&self, tree: &str, found: (u64, u64), changes: u64) -> Result<bool, SharedCountError> {
        let shared = self.shared();
        let epoch = shared.asks_under()?;
        shared.table.count_tree(epoch, tree, found, changes).map_err(|error| unheard(&error))
    }

    fn knows(&self, tree: &str) -> bool {
        lock(&self.shared().trees.known).0.contains(tree)
    }
}
