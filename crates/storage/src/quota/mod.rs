//! Quotas: any back end with its bytes and files counted, and bounded.
//!
//! ```text
//! Quota (an allowance)  ->  Tally (what a tree holds)  ->  Ledger (tallies that outlive the process)
//!                                                     ->  SharedCounts (tallies of several servers; share.rs)
//! ```
//!
//! A tree's content is counted once, by a walk; from then on every change adds or takes away. An upload reserves its
//! bytes before they are written, so concurrent uploads never exceed the quota together. Replacing a file counts the
//! difference in length only. After a change by another program the count is wrong until [`Ledger::recount`];
//! concurrent changes of one name count rather too much than too little.

mod ledger;
mod share;
mod shared;
mod tally;
mod upload;

use std::fmt;
use std::sync::Arc;

use millrace_vfs::{
    Call, Counted, FileError, FileKind, Held, OverQuota, Partial, PartialKey, PartialMode, QuotaScope, Space,
    Storage, Upload, VirtualPath, Wait, WriteMode,
};

pub use ledger::{Ledger, LedgerError};
pub use shared::{Share, SharedCountError, SharedCounts, Telling, TreeState, Wish};
pub use tally::{Tally, TallyReport};

use share::Unpaid;
use tally::Charge;
use upload::Metered;

/// How much a tree may hold; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes of all files together.
    pub bytes: Option<u64>,
    /// Files, without folders.
    pub files: Option<u64>,
}

/// The allowed amount. It is queried before each addition, and may change.
pub trait Allowances: fmt::Debug + Send + Sync {
    /// How much that is now.
    fn now(&self) -> Allowance;
}

/// The same at any time.
impl Allowances for Allowance {
    fn now(&self) -> Allowance {
        *self
    }
}

/// Another back end, held to an [`Allowance`].
#[derive(Debug)]
pub struct Quota(Arc<Terms>);

/// The parts of a quota that uploads need as well.
#[derive(Debug)]
struct Terms {
    inner: Arc<dyn Storage>,
    tally: Arc<Tally>,
    allowances: Box<dyn Allowances>,
    scope: QuotaScope,
}

impl Quota {
    /// Limits `storage`, whose content `tally` counts, to an allowance that may change.
    pub fn new(
        storage: Arc<dyn Storage>,
        tally: Arc<Tally>,
        allowances: impl Allowances + 'static,
        scope: QuotaScope,
    ) -> Self {
        Self(Arc::new(Terms { inner: storage, tally, allowances: Box::new(allowances), scope }))
    }
}

impl Terms {
    /// The size of the file at a path; `None` if it does not exist.
    fn size(&self, path: &VirtualPath, wait: Wait) -> Result<Option<u64>, FileError> {
        match self.inner.metadata(path, wait) {
            Ok(found) if found.kind == FileKind::File => Ok(Some(found.size)),
            Ok(_) | Err(FileError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The size of the file that has this name itself, which may be removed or replaced.
    fn own_size(&self, path: &VirtualPath) -> Option<u64> {
        let entry = self.inner.entry(path).ok()?;
        (entry.link.is_none() && entry.metadata.kind == FileKind::File).then_some(entry.metadata.size)
    }

    fn begin(&self, wait: Wait) -> Result<Charge, FileError> {
        Charge::begin(&self.tally, self.allowances.now(), wait)
    }

    fn pay(&self, charge: &mut Charge, bytes: u64, files: u64) -> Result<(), FileError> {
        self.pay_if(charge, bytes, files, Wait::Allowed)
    }

    /// Reserves more, unless other servers would have to be asked, and must not.
    fn pay_if(&self, charge: &mut Charge, bytes: u64, files: u64, wait: Wait) -> Result<(), FileError> {
        charge.pay(bytes, files, self.rest_allowed()?, wait).map_err(|unpaid| match unpaid {
            Unpaid::Over(counted) => self.over(counted),
            Unpaid::Waits => FileError::WouldWait,
        })
    }

    /// The allowance minus the partial uploads that are not open; an open one is charged to its owner.
    fn rest_allowed(&self) -> Result<Allowance, FileError> {
        let (allowed, resting) = (self.allowances.now(), self.inner.resting()?);
        Ok(Allowance {
            bytes: allowed.bytes.map(|most| most.saturating_sub(resting.bytes)),
            files: allowed.files.map(|most| most.saturating_sub(resting.files)),
        })
    }

    /// Returns whether not a byte more may be held. Others may have given room back since they were last asked.
    fn is_full(&self, wait: Wait) -> Result<bool, FileError> {
        let most = self.rest_allowed()?;
        let is_full = self.tally.is_full(most);
        match self.tally.shared() {
            Some(_) if is_full && wait == Wait::Never => Err(FileError::WouldWait),
            Some(shared) if is_full => {
                self.tally.refresh(shared);
                Ok(self.tally.is_full(most))
            }
            _ => Ok(is_full),
        }
    }

    fn over(&self, counted: Counted) -> FileError {
        let allowed = self.allowances.now();
        let most = match counted {
            Counted::Files => allowed.files,
            _ => allowed.bytes,
        };
        OverQuota { scope: self.scope.clone(), counted, most: most.unwrap_or(0) }.into()
    }
}

impl millrace_vfs::Layer for Quota {
    fn inner(&self) -> &dyn Storage {
        &*self.0.inner
    }

    fn admit(&self, _: Call, _: Wait) -> Result<(), FileError> {
        Ok(())
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        let mut charge = self.0.begin(wait)?;
        let before = match mode {
            WriteMode::CreateNew => None,
            _ => self.0.size(path, wait)?,
        };
        self.0.pay_if(&mut charge, 0, u64::from(before.is_none()), wait)?;
        let replaces = mode == WriteMode::Replace && before.is_some_and(|size| size > 0);
        if !replaces && self.0.is_full(wait)? {
            // Told now, not when the client has sent its first bytes.
            return Err(self.0.over(Counted::Bytes));
        }
        let inner = self.0.inner.open_write_with(path, mode, bits, wait)?;
        Ok(Box::new(Metered::new(inner, Arc::clone(&self.0), charge, path.clone(), mode, before)))
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        let charge = self.0.begin(Wait::Allowed)?;
        let mut shard = self.0.tally.shard(path);
        let size = self.0.own_size(path);
        self.0.inner.remove_file(path)?;
        *shard.turn += 1;
        if let Some(size) = size {
            charge.settle(Some(size), None);
        }
        Ok(())
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        let charge = self.0.begin(Wait::Allowed)?;
        let mut shard = self.0.tally.shard(to);
        let replaced = if from == to { None } else { self.0.own_size(to) };
        self.0.inner.rename(from, to)?;
        *shard.turn += 1;
        if let Some(size) = replaced {
            charge.settle(Some(size), None);
        }
        Ok(())
    }

    /// The growth by the copy is reserved before it begins.
    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        let mut charge = self.0.begin(Wait::Allowed)?;
        let _name = self.0.tally.name(to);
        let turn = *self.0.tally.turn(to);
        let mut paid = self.0.inner.metadata(from, Wait::Allowed)?.size;
        let before = self.0.size(to, Wait::Allowed)?;
        self.0.pay(&mut charge, paid.saturating_sub(before.unwrap_or(0)), u64::from(before.is_none()))?;
        let mut over = None;
        let copied = self.0.inner.copy(from, to, &mut |copied| {
            // Another upload may be extending it.
            if copied > paid
                && let Err(error) = self.0.pay(&mut charge, copied - paid, 0)
            {
                over = Some(error);
                return false;
            }
            paid = paid.max(copied);
            progress(copied)
        });
        let copied = copied.map_err(|error| over.unwrap_or(error))?;
        let mut now = self.0.tally.turn(to);
        // The size of the replaced file, unless another upload has replaced and counted it.
        let replaced = before.filter(|_| *now == turn);
        if *now != turn {
            self.0.tally.doubt();
        }
        *now += 1;
        charge.settle(replaced, Some(copied));
        Ok(copied)
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        let inner = self.0.inner.space(path)?;
        let allowed = self.0.allowances.now();
        if allowed == Allowance::default() {
            return Ok(inner);
        }
        drop(self.0.begin(Wait::Allowed)?);
        let ((bytes, files), Allowance { bytes: most_bytes, files: most_files }) =
            (self.0.tally.held(), allowed);
        let most = most_bytes.unwrap_or(u64::MAX);
        let resting = self.0.inner.resting()?.bytes;
        let left = most.saturating_sub(self.0.tally.used().0).saturating_sub(resting);
        let own = OverQuota { scope: self.0.scope.clone(), counted: Counted::Bytes, most };
        Ok(Space {
            available: inner.available.min(left),
            total: inner.total.min(most),
            quota: if left <= inner.available { Some(own) } else { inner.quota },
            held: Some(Held { bytes, most_bytes, files, most_files }),
        })
    }

    fn open_partial(
        &self,
        path: &VirtualPath,
        key: &PartialKey,
        write: WriteMode,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        let mut charge = self.0.begin(Wait::Allowed)?;
        let before = self.0.size(path, Wait::Allowed)?;
        let partial = self.0.inner.open_partial(path, key, write, mode)?;
        let Partial { size, modified, upload } = partial;
        let paid = before.unwrap_or(0);
        if let Err(error) = self.0.pay(&mut charge, size.saturating_sub(paid), u64::from(before.is_none())) {
            match mode {
                PartialMode::New => {
                    drop(upload);
                    let _ = self.0.inner.remove_partial(path, key);
                }
                PartialMode::Resume | PartialMode::Checked => upload.undo(),
            }
            return Err(error);
        }
        let upload = Metered::resumed(upload, Arc::clone(&self.0), charge, path.clone(), before, size);
        Ok(Partial { size, modified, upload: Box::new(upload) })
    }

    fn join_partials(
        &self,
        path: &VirtualPath,
        parts: &[(VirtualPath, PartialKey)],
        write: WriteMode,
    ) -> Result<Partial, FileError> {
        let mut charge = self.0.begin(Wait::Allowed)?;
        let before = self.0.size(path, Wait::Allowed)?;
        // Paid for once they are open: until then they count as what waits.
        let Partial { size, modified, upload } = self.0.inner.join_partials(path, parts, write)?;
        let longer = size.saturating_sub(before.unwrap_or(0));
        if let Err(error) = self.0.pay(&mut charge, longer, u64::from(before.is_none())) {
            upload.undo();
            return Err(error);
        }
        let upload = Metered::resumed(upload, Arc::clone(&self.0), charge, path.clone(), before, size);
        Ok(Partial { size, modified, upload: Box::new(upload) })
    }
}

#[cfg(test)]
mod tests;
