//! Resumable uploads (tus) that nodes share: which of them may write one, and what is known of one beside its bytes, which lie
//! in the tree.
//!
//! The lock of an upload goes with the registration of its node. A node whose registration holds has its locks; after that it
//! asks, before it says that bytes are there or that the upload is a file.

use std::collections::hash_map::Entry;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::lock::lock;
use crate::places::Shared;
use crate::table::{Epoch, Locking, TableError};
use crate::upload_table::{KnownUpload, UploadKey, UploadSecret, UploadTable, UploadVerdict};

/// The tree of the locks of uploads: no path, and no name of a database or bucket.
const TREE: &str = "tus";

/// Why an upload is not locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadDenied {
    /// Another request writes it, at this node or another.
    Busy,
    /// The database cannot be asked.
    Away,
}

/// The lock of an upload. Dropping it gives it back within a second; [`UploadLock::release`] at once.
pub struct UploadLock {
    shared: Arc<Shared>,
    key: UploadKey,
    /// Under which registration it was taken; and its number. `None` until the database has given it, and once it is given back.
    held: Option<(Epoch, u64)>,
}

impl UploadLock {
    /// Returns whether no other node can have had it since it was taken. Waits only where the registration is another one by now.
    pub fn holds(&self) -> Result<bool, UploadDenied> {
        let Some((_, number)) = self.held else { return Ok(false) };
        if self.surely_holds() {
            return Ok(true);
        }
        let grants = || lock(&self.shared.book).lease.grants(Instant::now());
        let epoch = grants().ok_or(UploadDenied::Away)?;
        let holds = self.shared.table.holds_lock(&self.key, number).map_err(|_| UploadDenied::Away)?;
        // The lock went over to that registration. What was so when it was asked is so for as long as the lease lasts: the
        // process may have been stopped before it heard the answer.
        match grants() == Some(epoch) {
            true => Ok(holds),
            false => Err(UploadDenied::Away),
        }
    }

    /// Returns whether the registration under which it was taken holds: then no other node has had it. Does not wait.
    pub fn surely_holds(&self) -> bool {
        let grants = lock(&self.shared.book).lease.grants(Instant::now());
        grants.is_some() && grants == self.held.map(|(epoch, _)| epoch)
    }

    /// Gives it back now. Waits for the database, where that is there.
    pub fn release(mut self) {
        let Some((_, number)) = self.held else { return };
        let grants = lock(&self.shared.book).lease.grants(Instant::now());
        if grants.is_some() && self.shared.table.release_upload(&self.key, number).is_ok() {
            self.held = None;
        }
    }
}

impl Drop for UploadLock {
    fn drop(&mut self) {
        if let Some((_, number)) = self.held {
            lock(&self.shared.trees.ended).push(number);
        }
        lock(&self.shared.uploads.open).remove(&self.key);
    }
}

impl Debug for UploadLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadLock").finish_non_exhaustive()
    }
}

impl Shared {
    /// Learns the secret of uploads, once.
    pub(crate) fn learn_secret(&self) -> Result<(), TableError> {
        if self.uploads.secret.get().is_some() {
            return Ok(());
        }
        let mut candidate = UploadSecret::default();
        // From the kernel, which has enough since it has started.
        let filled = rustix::rand::getrandom(&mut candidate, rustix::rand::GetRandomFlags::empty());
        if filled != Ok(candidate.len()) {
            return Ok(());
        }
        let secret = self.table.secret(&candidate)?;
        let _ = self.uploads.secret.set(secret);
        Ok(())
    }
}

impl Shared {
    /// Tells what came of uploads, as far as that could not be told at the time.
    pub(crate) fn tell_verdicts(&self) -> Result<(), TableError> {
        let mut untold = std::mem::take(&mut *lock(&self.uploads.untold)).into_iter();
        while let Some((key, verdict)) = untold.next() {
            if let Err(error) = self.table.settle_upload(&key, verdict) {
                lock(&self.uploads.untold).extend([(key, verdict)].into_iter().chain(untold));
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Cluster {
    /// An upload becomes a file, which is remembered for so long; returns the number of the lock under which this is known,
    /// where the node has one: it has none behind a hook that took the file away.
    pub fn finish_upload(
        &self,
        key: &UploadKey,
        known: &KnownUpload,
        age: Duration,
    ) -> Result<Option<u64>, UploadDenied> {
        let number = lock(&self.shared().uploads.open).get(key).copied();
        let table = self.uploads().ok_or(UploadDenied::Away)?;
        match table.finish_upload(key, number, known, age) {
            Ok(is_known) if is_known || number.is_none() => Ok(number),
            Ok(_) => Err(UploadDenied::Busy),
            Err(_) => Err(UploadDenied::Away),
        }
    }

    /// Something came of an upload. May wait; where the database is away it is told later.
    pub fn settle_upload(&self, key: &UploadKey, verdict: UploadVerdict) {
        if self.uploads().is_none_or(|table| table.settle_upload(key, verdict).is_err()) {
            lock(&self.shared().uploads.untold).push((*key, verdict));
        }
    }

    /// Returns the tables of uploads, where the database can be asked now.
    pub fn uploads(&self) -> Option<&dyn UploadTable> {
        let shared = self.shared();
        lock(&shared.book).lease.grants(Instant::now())?;
        Some(&*shared.table)
    }

    /// Returns the secret of all nodes, where this one has been a member before. Does not wait.
    pub fn upload_secret(&self) -> Option<UploadSecret> {
        self.shared().uploads.secret.get().copied()
    }

    /// Locks an upload on all nodes. Waits for the database.
    pub fn lock_upload(&self, key: UploadKey) -> Result<UploadLock, UploadDenied> {
        let shared = self.shared_handle();
        let number = shared.trees.next.fetch_add(1, Ordering::Relaxed);
        match lock(&shared.uploads.open).entry(key) {
            Entry::Occupied(_) => return Err(UploadDenied::Busy),
            Entry::Vacant(entry) => entry.insert(number),
        };
        let mut taken = UploadLock { shared: Arc::clone(shared), key, held: None };
        let epoch = lock(&shared.book).lease.grants(Instant::now()).ok_or(UploadDenied::Away)?;
        // Without an answer it may be there, and is given back.
        taken.held = Some((epoch, number));
        match shared.table.lock_name(epoch, TREE, &key, number) {
            Ok(Locking::Locked) => Ok(taken),
            Ok(Locking::Busy) => {
                taken.held = None;
                Err(UploadDenied::Busy)
            }
            Ok(Locking::Fenced) => {
                taken.held = None;
                lock(&shared.book).lease.fence(epoch);
                shared.call(|call| call.is_urgent = true);
                Err(UploadDenied::Away)
            }
            Err(error) => {
                // Executed behind the next lock of this node, it would be in the place of that one.
                shared.unanswered(epoch, &error);
                Err(UploadDenied::Away)
            }
        }
    }
}
