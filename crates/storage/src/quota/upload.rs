//! An upload that reserves its bytes before they are written.

use std::fs::File;
use std::sync::Arc;

use millrace_vfs::hash::Hashes;
use millrace_vfs::{Committed, FileError, ReadHandle, Readiness, Upload, VirtualPath, Wait, WriteMode};

use super::Terms;
use super::tally::Charge;

/// How much is reserved ahead for `splice`: a pipe's capacity.
const WINDOW: u64 = 1 << 20;

/// An upload that is counted.
#[derive(Debug)]
pub(super) struct Metered {
    /// `None` once it has ended.
    inner: Option<Box<dyn Upload>>,
    terms: Arc<Terms>,
    /// `None` once it is settled.
    charge: Option<Charge>,
    path: VirtualPath,
    /// The size of the file that had the name when it began.
    before: Option<u64>,
    /// Whether what lies behind the last byte stays.
    keeps_rest: bool,
    is_staged: bool,
    /// Where the first byte went, and the next one goes.
    start: u64,
    position: u64,
    /// Up to where bytes are paid for: what was there before was paid for by another.
    paid: u64,
}

impl Metered {
    pub(super) fn new(
        inner: Box<dyn Upload>,
        terms: Arc<Terms>,
        charge: Charge,
        path: VirtualPath,
        mode: WriteMode,
        before: Option<u64>,
    ) -> Self {
        let position = match mode {
            WriteMode::At(start) => start,
            WriteMode::Append => before.unwrap_or(0),
            WriteMode::Replace | WriteMode::CreateNew => 0,
        };
        Self {
            is_staged: inner.is_staged(),
            inner: Some(inner),
            terms,
            charge: Some(charge),
            path,
            before,
            keeps_rest: matches!(mode, WriteMode::At(_) | WriteMode::Append),
            start: position,
            position,
            paid: before.unwrap_or(0),
        }
    }

    /// Continues an upload whose earlier data is already charged.
    pub(super) fn resumed(
        inner: Box<dyn Upload>,
        terms: Arc<Terms>,
        charge: Charge,
        path: VirtualPath,
        before: Option<u64>,
        position: u64,
    ) -> Self {
        let mut upload = Self::new(inner, terms, charge, path, WriteMode::At(position), before);
        (upload.paid, upload.keeps_rest) = (position.max(before.unwrap_or(0)), false);
        upload
    }

    fn inner(&mut self) -> Result<&mut Box<dyn Upload>, FileError> {
        self.inner.as_mut().ok_or(FileError::Cancelled)
    }

    fn pay_up_to(&mut self, end: u64) -> Result<(), FileError> {
        if end > self.paid
            && let Some(charge) = &mut self.charge
        {
            self.terms.pay(charge, end - self.paid, 0)?;
            self.paid = end;
        }
        Ok(())
    }

    /// Counts the upload as not begun, as far as the storage could undo it. The name shows only an increase in length:
    /// a file that was renamed keeps its bytes, and a decrease by another upload is counted by that one.
    fn settle_as_undone(&mut self) {
        let Some(charge) = self.charge.take() else { return };
        let found = self.terms.size(&self.path, Wait::Allowed).ok().flatten();
        let before = self.before.unwrap_or(0);
        let nothing_came = self.position == self.start;
        let least = if self.keeps_rest || nothing_came { before } else { before.min(self.position) };
        let left = found.unwrap_or(least).clamp(least, self.position.max(least));
        let is_there = self.before.is_some() || found.is_some();
        charge.settle(self.before, is_there.then_some(left));
    }

    /// The received data stays.
    fn settle_in_place(&mut self) {
        if let Some(charge) = self.charge.take() {
            let kept = if self.keeps_rest { self.before.unwrap_or(0) } else { 0 };
            charge.settle(self.before, Some(self.position.max(kept)));
        }
    }

    /// It takes its name now, and what has the name meanwhile is gone with that.
    fn commit_staged(&mut self, inner: Box<dyn Upload>) -> Result<Committed, FileError> {
        let Some(mut charge) = self.charge.take() else { return Err(FileError::Cancelled) };
        let mut shard = self.terms.tally.shard(&self.path);
        let replaced = self.terms.size(&self.path, Wait::Allowed)?;
        // More than was paid for, if what it was to replace has been removed.
        let (bytes, files) = charge.paid();
        let longer = self.position.saturating_sub(replaced.unwrap_or(0));
        let missing = (longer.saturating_sub(bytes), u64::from(replaced.is_none()).saturating_sub(files));
        self.terms.pay(&mut charge, missing.0, missing.1)?;
        let committed = inner.commit()?;
        *shard.turn += 1;
        charge.settle(replaced, Some(committed.size));
        Ok(committed)
    }

    fn leave(&mut self) {
        let _ = self.end(|inner| {
            inner.abort();
            Ok(())
        });
    }

    fn end(&mut self, end: impl FnOnce(Box<dyn Upload>) -> Result<(), FileError>) -> Result<(), FileError> {
        let Some(inner) = self.inner.take() else { return Ok(()) };
        let ended = end(inner);
        match (self.is_staged, self.position == self.start) {
            (true, _) => {}
            (false, true) => self.settle_as_undone(),
            (false, false) => self.settle_in_place(),
        }
        ended
    }
}

impl Upload for Metered {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        // Close to the end, bytes come through `write_all`, which counts each.
        match self.pay_up_to(self.position.saturating_add(WINDOW)) {
            Ok(()) => self.inner()?.file(),
            Err(FileError::OverQuota(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn with_file(&mut self, write: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
        match self.file()? {
            Some(_) => self.inner()?.with_file(write),
            None => Ok(false),
        }
    }

    fn advance(&mut self, count: u64) {
        self.position += count;
        if let Some(inner) = &mut self.inner {
            inner.advance(count);
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let end = self.position.saturating_add(bytes.len() as u64);
        self.pay_up_to(end)?;
        // Also where it fails: some of it may be there.
        self.position = end;
        self.inner()?.write_all(bytes)
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.inner()?.preview()
    }

    fn hashes(&self) -> Option<Hashes> {
        self.inner.as_ref()?.hashes()
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        let inner = self.inner.take().ok_or(FileError::Cancelled)?;
        match self.is_staged {
            true => self.commit_staged(inner),
            false => {
                let committed = inner.commit();
                self.settle_in_place();
                committed
            }
        }
    }

    fn abort(mut self: Box<Self>) {
        self.leave();
    }

    fn keep(mut self: Box<Self>) -> Result<(), FileError> {
        self.end(|inner| inner.keep())
    }

    fn sync(&mut self) {
        self.inner.iter_mut().for_each(|inner| inner.sync());
    }

    fn close(mut self: Box<Self>) {
        let _ = self.end(|inner| {
            inner.close();
            Ok(())
        });
    }

    fn undo(mut self: Box<Self>) {
        if let Some(inner) = self.inner.take() {
            inner.undo();
            if !self.is_staged {
                self.settle_as_undone();
            }
        }
    }

    /// To ask other servers is to wait.
    fn readiness(&self) -> Readiness {
        let inner = self.inner.as_ref().filter(|_| self.terms.tally.shared().is_none());
        inner.map_or(Readiness::MayHang, |inner| inner.readiness())
    }

    fn commit_readiness(&self) -> Readiness {
        let inner = self.inner.as_ref().filter(|_| self.terms.tally.shared().is_none());
        inner.map_or(Readiness::MayHang, |inner| inner.commit_readiness())
    }

    fn is_staged(&self) -> bool {
        self.is_staged
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        match self.is_staged {
            // The upload itself handles that.
            true => drop(self.inner.take()),
            false => self.leave(),
        }
    }
}
