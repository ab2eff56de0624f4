//! What the nodes of a cluster share of uploads: their locks, and what is known of them beside their bytes.
//!
//! The bytes lie in the tree, which all nodes serve. An upload is written under a lock of the cluster, so that no two nodes
//! write it at a time, also where the file system's own locks do not reach another machine.

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use millrace_cluster::{Cluster, KnownUpload, TableError, UploadDenied, UploadLock, UploadTable};
use millrace_http::tus::{FinishedUpload, LOCKED};
use millrace_http::{Refusal, Status};
use millrace_vfs::hash::Hashes;
use millrace_vfs::{Committed, FileError, PartialKey, ReadHandle, Readiness, Upload};

/// The answer while the database is away.
pub(crate) const AWAY: Refusal = Refusal {
    status: Status::SERVICE_UNAVAILABLE,
    reason: "Uploads cannot be gone on with at the moment; try again later.",
};

/// Asks the database of a cluster about uploads.
pub(crate) fn ask<T>(
    cluster: &Cluster,
    question: impl FnOnce(&dyn UploadTable) -> Result<T, TableError>,
) -> Result<T, Refusal> {
    cluster.uploads().and_then(|table| question(table).ok()).ok_or(AWAY)
}

/// Locks an upload on all nodes.
pub(crate) fn lock(cluster: &Arc<Cluster>, key: &PartialKey) -> Result<UploadLock, Refusal> {
    cluster.lock_upload(*key.as_bytes()).map_err(denied)
}

pub(crate) fn denied(denied: UploadDenied) -> Refusal {
    match denied {
        UploadDenied::Busy => LOCKED,
        UploadDenied::Away => AWAY,
    }
}

/// What is known of an upload that has become a file.
pub(crate) fn finished(known: &KnownUpload) -> Option<FinishedUpload> {
    let length = known.length.filter(|_| known.is_finished)?;
    let parts = known.parts.as_deref().map(Into::into);
    Some(FinishedUpload::known(length, known.is_settled, parts, Instant::now()))
}

/// An upload that is written under locks of a cluster: its own, and those of the parts that it is joined from.
#[derive(Debug)]
pub(crate) struct LockedUpload {
    /// `None` once it has ended.
    inner: Option<Box<dyn Upload>>,
    /// Given back behind the upload.
    locks: Vec<UploadLock>,
}

impl LockedUpload {
    pub(crate) fn new(inner: Box<dyn Upload>, locks: Vec<UploadLock>) -> Self {
        Self { inner: Some(inner), locks }
    }

    fn inner(&mut self) -> Result<&mut Box<dyn Upload>, FileError> {
        self.inner.as_mut().ok_or(FileError::Cancelled)
    }

    /// Ends it, and gives the locks back before the client hears: its next request may reach another node.
    fn end<T>(&mut self, end: impl FnOnce(Box<dyn Upload>) -> Result<T, FileError>) -> Result<T, FileError> {
        let ended = self.inner.take().ok_or(FileError::Cancelled).and_then(end);
        self.locks.drain(..).for_each(UploadLock::release);
        ended
    }

    /// Checks that no other node can have written it. What came stays, and the client asks where to go on.
    fn check(&self) -> Result<(), FileError> {
        for lock in &self.locks {
            match lock.holds() {
                Ok(true) => {}
                Ok(false) => return Err(FileError::Busy),
                Err(_) => return Err(FileError::Exhausted),
            }
        }
        Ok(())
    }
}

impl Upload for LockedUpload {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        self.inner()?.file()
    }

    fn with_file(&mut self, write: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
        self.inner()?.with_file(write)
    }

    fn advance(&mut self, count: u64) {
        self.inner.iter_mut().for_each(|inner| inner.advance(count));
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.inner()?.write_all(bytes)
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.inner()?.preview()
    }

    fn set_hashes(&mut self, hashes: Hashes, length: u64) {
        if let Some(inner) = &mut self.inner {
            inner.set_hashes(hashes, length);
        }
    }

    fn hashes(&self) -> Option<Hashes> {
        self.inner.as_ref()?.hashes()
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        let checked = self.check();
        self.end(|inner| match checked {
            Ok(()) => inner.commit(),
            Err(error) => inner.keep().and(Err(error)),
        })
    }

    fn abort(mut self: Box<Self>) {
        let _ = self.end(|inner| {
            inner.abort();
            Ok(())
        });
    }

    fn keep(mut self: Box<Self>) -> Result<(), FileError> {
        let checked = self.check();
        self.end(|inner| inner.keep().and(checked))
    }

    fn undo(mut self: Box<Self>) {
        let _ = self.end(|inner| {
            inner.undo();
            Ok(())
        });
    }

    fn readiness(&self) -> Readiness {
        self.inner.as_ref().map_or(Readiness::MayHang, |inner| inner.readiness())
    }

    fn commit_readiness(&self) -> Readiness {
        // The database may have to be asked.
        Readiness::MayHang
    }

    fn is_staged(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_staged())
    }
}
