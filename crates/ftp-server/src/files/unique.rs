//! `STOU`: an upload to a name of its own.
//!
//! The invariant: a name that a 150 has announced is reserved until that upload has ended, in any tree, by any path: a
//! staged upload takes its name only at its end, and would be lost otherwise. (A `STOR` of the same name may still be
//! first. The upload then fails, and the other's file stays.)

use std::collections::HashSet;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_vfs::hash::Hashes;
use millrace_vfs::{
    Committed, FileError, ReadHandle, Readiness, Storage, Upload, VirtualPath, Wait, WriteMode,
};

/// Names that are tried: `upload`, `upload.1`, ...
const TRIES: u32 = 1000;

/// The names that are promised, by the directory's identity and the name in it. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Promises(Arc<Mutex<HashSet<Name>>>);

type Name = ((u64, u64), Vec<u8>);

impl Promises {
    fn names(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if the name is reserved.
    fn promise(&self, name: Name) -> Option<Promised> {
        self.names().insert(name.clone()).then(|| Promised { promises: self.clone(), name })
    }
}

/// A promise, which ends when it is dropped.
#[derive(Debug)]
struct Promised {
    promises: Promises,
    name: Name,
}

impl Drop for Promised {
    fn drop(&mut self) {
        self.promises.names().remove(&self.name);
    }
}

/// Opens an upload to a name that nothing has: the path's, or one like it.
pub(super) fn open(
    storage: &dyn Storage,
    path: &VirtualPath,
    bits: Option<u32>,
    promises: &Promises,
) -> Result<(Box<dyn Upload>, VirtualPath), FileError> {
    let directory = storage.metadata(&path.parent(), Wait::Allowed)?.identity;
    for number in 0..TRIES {
        let name = match number {
            0 => path.name().to_vec(),
            number => [path.name(), format!(".{number}").as_bytes()].concat(),
        };
        let candidate = path.parent().join(&name).map_err(|_| FileError::NameTooLong)?;
        let Some(promised) = promises.promise((directory, name)) else { continue };
        // A staged upload takes its name at the end only: look first, so that 150 can promise one.
        match storage.metadata(&candidate, Wait::Allowed) {
            // In a place that shows nothing there is no looking: the opening knows what has the name.
            // What has the name of a conversion only has no file of its own.
            Err(FileError::NotFound | FileError::PermissionDenied | FileError::Unsupported) => {}
            Ok(_) => continue,
            Err(error) => return Err(error),
        }
        match storage.open_write_with(&candidate, WriteMode::CreateNew, bits, Wait::Allowed) {
            Err(FileError::AlreadyExists) => {}
            opened => {
                let inner = opened?;
                return Ok((Box::new(Unique { inner, promised }), candidate));
            }
        }
    }
    Err(FileError::AlreadyExists)
}

/// An upload whose name is promised.
#[derive(Debug)]
struct Unique {
    inner: Box<dyn Upload>,
    promised: Promised,
}

impl Upload for Unique {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        self.inner.file()
    }

    fn with_file(&mut self, write: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
        self.inner.with_file(write)
    }

    fn advance(&mut self, count: u64) {
        self.inner.advance(count);
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.inner.write_all(bytes)
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.inner.preview()
    }

    fn hashes(&self) -> Option<Hashes> {
        self.inner.hashes()
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        // The promise is kept until the name is there.
        let Self { inner, promised } = *self;
        let committed = inner.commit();
        drop(promised);
        committed
    }

    fn abort(self: Box<Self>) {
        self.inner.abort();
    }

    fn undo(self: Box<Self>) {
        self.inner.undo();
    }

    fn readiness(&self) -> Readiness {
        self.inner.readiness()
    }

    fn commit_readiness(&self) -> Readiness {
        self.inner.commit_readiness()
    }

    fn is_staged(&self) -> bool {
        self.inner.is_staged()
    }
}
