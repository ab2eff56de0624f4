//! Credits an upload to a user with a ratio: the bytes of the resulting file.
//!
//! Which of the two is known first differs: the pool may have named the file before the worker has counted its last
//! bytes. Of an upload in place that is cut, what was written stays, and no more is earned.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_vfs::hash::Hashes;
use millrace_vfs::{Committed, FileError, ReadHandle, Readiness, Upload};

use super::traffic::Traffic;

/// The credit of an upload.
#[derive(Debug)]
pub(super) struct Credit {
    traffic: Arc<Traffic>,
    /// Guarded for an addition.
    earned: Mutex<Earned>,
}

#[derive(Debug, Default)]
struct Earned {
    /// Its received bytes.
    came: u64,
    /// How much of that is there to stay.
    stays: u64,
    /// The credited bytes.
    given: u64,
}

impl Credit {
    /// One of which so much has come by earlier requests.
    pub(super) fn new(traffic: Arc<Traffic>, before: u64) -> Arc<Self> {
        Arc::new(Self { traffic, earned: Mutex::new(Earned { came: before, ..Earned::default() }) })
    }

    /// More has come.
    pub(super) fn came(&self, bytes: u64) {
        self.settle(|earned| earned.came = earned.came.saturating_add(bytes));
    }

    /// At most so much of it is in the file.
    fn stays(&self, most: u64) {
        self.settle(|earned| earned.stays = most);
    }

    fn settle(&self, change: impl FnOnce(&mut Earned)) {
        let mut earned = self.earned.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut earned);
        let due = earned.came.min(earned.stays).saturating_sub(earned.given);
        if due > 0 {
            earned.given += due;
            self.traffic.credit(due);
        }
    }
}

/// An upload that earns something.
#[derive(Debug)]
pub(super) struct Earning {
    /// `None` once it has ended.
    inner: Option<Box<dyn Upload>>,
    credit: Arc<Credit>,
    written: u64,
}

impl Earning {
    pub(super) fn new(inner: Box<dyn Upload>, credit: Arc<Credit>) -> Self {
        Self { inner: Some(inner), credit, written: 0 }
    }

    fn inner(&mut self) -> Result<&mut Box<dyn Upload>, FileError> {
        self.inner.as_mut().ok_or(FileError::Cancelled)
    }

    fn leave(&mut self) {
        let _ = self.end(|inner| {
            inner.abort();
            Ok(())
        });
    }

    fn end(&mut self, end: impl FnOnce(Box<dyn Upload>) -> Result<(), FileError>) -> Result<(), FileError> {
        let Some(inner) = self.inner.take() else { return Ok(()) };
        let is_staged = inner.is_staged();
        let ended = end(inner);
        if !is_staged {
            self.credit.stays(self.written);
        }
        ended
    }
}

impl Upload for Earning {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        self.inner()?.file()
    }

    fn with_file(&mut self, write: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
        self.inner()?.with_file(write)
    }

    fn advance(&mut self, count: u64) {
        self.written += count;
        if let Some(inner) = &mut self.inner {
            inner.advance(count);
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.inner()?.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.inner()?.preview()
    }

    fn hashes(&self) -> Option<Hashes> {
        self.inner.as_ref()?.hashes()
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        let committed = self.inner.take().ok_or(FileError::Cancelled)?.commit()?;
        self.credit.stays(u64::MAX);
        Ok(committed)
    }

    fn abort(mut self: Box<Self>) {
        self.leave();
    }

    fn keep(mut self: Box<Self>) -> Result<(), FileError> {
        self.end(|inner| inner.keep())
    }

    fn undo(mut self: Box<Self>) {
        if let Some(inner) = self.inner.take() {
            inner.undo();
        }
    }

    fn readiness(&self) -> Readiness {
        self.inner.as_ref().map_or(Readiness::MayHang, |inner| inner.readiness())
    }

    fn commit_readiness(&self) -> Readiness {
        self.inner.as_ref().map_or(Readiness::MayHang, |inner| inner.commit_readiness())
    }

    fn is_staged(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_staged())
    }
}

impl Drop for Earning {
    fn drop(&mut self) {
        // The upload itself handles a drop.
        match self.is_staged() {
            true => drop(self.inner.take()),
            false => self.leave(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upload that hands out its file only while no other upload can take it over.
    #[derive(Debug)]
    struct Claimed;

    impl Upload for Claimed {
        fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
            Err(FileError::Unsupported)
        }

        fn with_file(&mut self, _: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
            Ok(true)
        }

        fn advance(&mut self, _: u64) {}

        fn write_all(&mut self, _: &[u8]) -> Result<(), FileError> {
            Ok(())
        }

        fn commit(self: Box<Self>) -> Result<Committed, FileError> {
            Err(FileError::Unsupported)
        }

        fn abort(self: Box<Self>) {}

        fn undo(self: Box<Self>) {}

        fn readiness(&self) -> Readiness {
            Readiness::Cached
        }

        fn commit_readiness(&self) -> Readiness {
            Readiness::Cached
        }
    }

    #[test]
    fn an_upload_that_earns_credit_holds_its_file_while_it_writes() {
        let credit = Credit::new(Arc::default(), 0);
        let mut earning = Earning::new(Box::new(Claimed), credit);
        assert!(earning.with_file(&mut |_, _| ()).unwrap());
    }
}
