//! Uploads that are written under locks of the cluster: where a lock is not this node's for certain, nothing is changed any more.

use std::fmt;
use std::fs::File;

use millrace_vfs::hash::Hashes;
use millrace_vfs::{Committed, FileError, ReadHandle, Readiness, Upload};

use crate::uploads::{UploadDenied, UploadLock};

/// A lock as an upload asks about it.
pub trait Holding: Send + fmt::Debug {
    /// Returns whether it is this node's. May wait.
    fn holds(&self) -> Result<bool, UploadDenied>;
    /// Returns whether that is known without a question.
    fn surely_holds(&self) -> bool;
    /// Gives it back.
    fn release(self);
}

impl Holding for UploadLock {
    fn holds(&self) -> Result<bool, UploadDenied> {
        self.holds()
    }

    fn surely_holds(&self) -> bool {
        self.surely_holds()
    }

    fn release(self) {
        self.release();
    }
}

/// An upload that is written under locks of a cluster: its own, and those of the parts that it is joined from.
#[derive(Debug)]
pub struct LockedUpload<L: Holding = UploadLock> {
    /// `None` once it has ended.
    inner: Option<Box<dyn Upload>>,
    /// Given back behind the upload.
    locks: Vec<L>,
}

impl<L: Holding> Drop for LockedUpload<L> {
    fn drop(&mut self) {
        // No question: it may be dropped by a thread that must not wait.
        if let Some(inner) = self.inner.take()
            && !self.locks.iter().all(L::surely_holds)
        {
            inner.close();
        }
    }
}

impl<L: Holding> LockedUpload<L> {
    /// An upload under these locks.
    pub fn new(inner: Box<dyn Upload>, locks: Vec<L>) -> Self {
        Self { inner: Some(inner), locks }
    }

    fn inner(&mut self) -> Result<&mut Box<dyn Upload>, FileError> {
        self.inner.as_mut().ok_or(FileError::Cancelled)
    }

    /// Ends it, and gives the locks back before the client hears: its next request may reach another node. Where the locks are
    /// not this node's for certain it is only closed.
    fn end<T>(
        &mut self,
        syncs: bool,
        end: impl FnOnce(Box<dyn Upload>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let mut inner = self.inner.take().ok_or(FileError::Cancelled)?;
        let mut checked = self.check();
        if syncs && checked.is_ok() {
            // That may last for longer than the lease.
            inner.sync();
            checked = self.check();
        }
        let ended = match checked {
            Ok(()) => end(inner),
            Err(error) => {
                inner.close();
                Err(error)
            }
        };
        self.locks.drain(..).for_each(L::release);
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

impl<L: Holding> Upload for LockedUpload<L> {
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
        self.end(true, |inner| inner.commit())
    }

    fn abort(mut self: Box<Self>) {
        let _ = self.end(true, |inner| {
            inner.abort();
            Ok(())
        });
    }

    fn keep(mut self: Box<Self>) -> Result<(), FileError> {
        self.end(true, |inner| inner.keep())
    }

    fn undo(mut self: Box<Self>) {
        let _ = self.end(false, |inner| {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Holds for so many questions.
    #[derive(Debug, Clone)]
    struct Lasting(Arc<AtomicUsize>);

    impl Holding for Lasting {
        fn holds(&self) -> Result<bool, UploadDenied> {
            let fewer = |left: usize| left.checked_sub(1);
            Ok(self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok())
        }

        fn surely_holds(&self) -> bool {
            self.holds() == Ok(true)
        }

        fn release(self) {}
    }

    /// Says what is done to it.
    #[derive(Debug, Clone, Default)]
    struct Told(Arc<Mutex<Vec<&'static str>>>);

    impl Told {
        fn tell(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }
    }

    impl Upload for Told {
        fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
            Ok(None)
        }

        fn advance(&mut self, _: u64) {}

        fn write_all(&mut self, _: &[u8]) -> Result<(), FileError> {
            Ok(())
        }

        fn commit(self: Box<Self>) -> Result<Committed, FileError> {
            self.tell("commit");
            Ok(Committed { size: 0 })
        }

        fn abort(self: Box<Self>) {
            self.tell("abort");
        }

        fn keep(self: Box<Self>) -> Result<(), FileError> {
            self.tell("keep");
            Ok(())
        }

        fn sync(&mut self) {
            self.tell("sync");
        }

        fn close(self: Box<Self>) {
            self.tell("close");
        }

        fn undo(self: Box<Self>) {
            self.tell("undo");
        }

        fn readiness(&self) -> Readiness {
            Readiness::MayHang
        }

        fn commit_readiness(&self) -> Readiness {
            Readiness::MayHang
        }
    }

    /// What is done to an upload that ends in this way, where its lock holds for so many questions.
    fn done(questions: usize, end: impl FnOnce(Box<LockedUpload<Lasting>>)) -> Vec<&'static str> {
        let (told, lock) = (Told::default(), Lasting(Arc::new(questions.into())));
        end(Box::new(LockedUpload::new(Box::new(told.clone()), vec![lock])));
        let told = told.0.lock().unwrap();
        told.clone()
    }

    #[test]
    fn a_node_that_has_lost_the_lock_only_closes_the_file_also_behind_the_wait_for_the_disk() {
        assert_eq!(done(2, |upload| drop(upload.commit())), ["sync", "commit"]);
        assert_eq!(done(2, |upload| drop(upload.keep())), ["sync", "keep"]);
        assert_eq!(done(2, |upload| upload.abort()), ["sync", "abort"]);
        assert_eq!(done(1, |upload| upload.undo()), ["undo"]);
        assert_eq!(done(1, drop), [""; 0]);
        for questions in [0, 1] {
            let closed = if questions == 0 { &["close"][..] } else { &["sync", "close"] };
            assert_eq!(done(questions, |upload| assert!(upload.commit().is_err())), closed);
            assert_eq!(done(questions, |upload| assert!(upload.keep().is_err())), closed);
            assert_eq!(done(questions, |upload| upload.abort()), closed);
        }
        assert_eq!(done(0, |upload| upload.undo()), ["close"]);
        assert_eq!(done(0, drop), ["close"]);
    }
}
