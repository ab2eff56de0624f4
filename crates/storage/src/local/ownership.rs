//! Ownership of files that are written in place: of several uploads to a file, the last one to begin owns it.
//!
//! An aborted upload still has work to do: it writes the rest of its buffer, and cuts off the tail of the old file. By
//! then the client may have begun the next upload, of which nothing may be overwritten or cut. So a new upload takes
//! the file over, and the previous owner changes nothing any more: each write holds the file's lock, and a takeover
//! happens between two writes. Appends always go to the end, and need no lock.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{PoisonError, TryLockError};

use millrace_vfs::{FileError, Wait};

use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};

/// A file system, and a file of it.
pub(super) type Identity = (u64, u64);

/// Files that are being written in place.
#[derive(Debug, Default)]
pub(super) struct OwnedFiles(Mutex<BTreeMap<Identity, Owners>>);

#[derive(Debug)]
struct Owners {
    file: Arc<OwnedFile>,
    /// How many uploads have owned it.
    count: usize,
}

/// A file that is being written.
#[derive(Debug, Default)]
struct OwnedFile {
    /// The owner: the last upload that began.
    owner: AtomicU64,
    /// Locked by the owner during a write.
    turn: Mutex<()>,
}

/// An upload's ownership of a file, until it is dropped or a later upload takes over.
#[derive(Debug)]
pub(super) struct Ownership {
    files: &'static OwnedFiles,
    identity: Identity,
    file: Arc<OwnedFile>,
    number: u64,
}

impl OwnedFiles {
    /// Takes a file over. Waits, where that is allowed, while its owner writes.
    pub(super) fn take(&'static self, identity: Identity, wait: Wait) -> Result<Ownership, FileError> {
        let file = {
            let mut files = lock(&self.0);
            let unknown = || Owners { file: Arc::default(), count: 0 };
            let claimed = files.entry(identity).or_insert_with(unknown);
            claimed.count += 1;
            Arc::clone(&claimed.file)
        };
        // From here on dropping it gives it back, also after a failed takeover.
        let mut ownership = Ownership { files: self, identity, file, number: 0 };
        ownership.number = ownership.take_over(wait)?;
        Ok(ownership)
    }

    /// Returns whether an upload to a file is remembered.
    #[cfg(test)]
    pub(super) fn is_known(&self, identity: Identity) -> bool {
        lock(&self.0).contains_key(&identity)
    }
}

impl Ownership {
    fn take_over(&self, wait: Wait) -> Result<u64, FileError> {
        let _turn = match (wait, self.file.turn.try_lock()) {
            (_, Ok(turn)) => turn,
            (_, Err(TryLockError::Poisoned(error))) => error.into_inner(),
            (Wait::Allowed, Err(TryLockError::WouldBlock)) => lock(&self.file.turn),
            (Wait::Never, Err(TryLockError::WouldBlock)) => return Err(FileError::WouldWait),
        };
        Ok(self.file.owner.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// [`FileError::Busy`] once another upload has the file.
    pub(super) fn check(&self) -> Result<(), FileError> {
        match self.file.owner.load(Ordering::Acquire) == self.number {
            true => Ok(()),
            false => Err(FileError::Busy),
        }
    }

    /// Does work on the file if it is still owned, and holds off a takeover meanwhile.
    pub(super) fn hold<T>(&self, work: impl FnOnce() -> Result<T, FileError>) -> Result<T, FileError> {
        let _turn = lock(&self.file.turn);
        self.check()?;
        work()
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        let mut files = lock(&self.files.0);
        if let Entry::Occupied(mut claimed) = files.entry(self.identity) {
            claimed.get_mut().count -= 1;
            if claimed.get().count == 0 {
                claimed.remove();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
