//! Uploads that are hashed as their bytes pass: every byte goes through [`Upload::write_all`], none by `splice`.
//!
//! What is hashed is exactly what was written, in order from the first byte of the file on. Where that cannot be said of
//! an upload, it gets no hashes, unless it is small and can be read back before its commit.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_vfs::hash::{Algorithms, Hashers, Hashes};
use millrace_vfs::{Committed, FileError, Partial, PartialKey, ReadHandle, Readiness, Upload};

use crate::through;

/// Up to this many bytes are read again where their hash is not known: about 5 ms of SHA-256.
pub(crate) const READ_AGAIN: u64 = 8 << 20;

/// This many partial uploads have their hashes kept between two visits, in some 2 MiB at most.
const MOST_KEPT: usize = 1024;

/// An upload that is hashed.
#[derive(Debug)]
pub struct Hashed {
    /// `None` once it has ended.
    inner: Option<Box<dyn Upload>>,
    algorithms: Algorithms,
    /// `None` where what came is not known from the first byte on.
    hashers: Option<Hashers>,
    /// Where the hashes wait for the next piece, if it is a partial upload.
    waits: Option<(Arc<PartialHashes>, PartialKey)>,
}

impl Hashed {
    /// Hashes what comes after what `hashers` have taken, the start of the file.
    pub fn begin(inner: Box<dyn Upload>, algorithms: Algorithms, hashers: Hashers) -> Box<dyn Upload> {
        Box::new(Self { inner: Some(inner), algorithms, hashers: Some(hashers), waits: None })
    }

    fn inner(&mut self) -> Result<&mut Box<dyn Upload>, FileError> {
        self.inner.as_mut().ok_or(FileError::Cancelled)
    }

    /// Keeps the hashes of a partial upload for its next piece.
    fn park(&mut self) {
        if let (Some((kept, key)), Some(hashers)) = (&self.waits, self.hashers.take()) {
            let mut kept = kept.lock();
            if kept.len() >= MOST_KEPT {
                kept.clear();
            }
            kept.insert(*key, hashers);
        }
    }
}

impl Upload for Hashed {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let written = self.inner()?.write_all(bytes);
        match (&written, &mut self.hashers) {
            (Ok(()), Some(hashers)) => hashers.update(bytes),
            // Some of them may be there.
            (Err(_), hashers) => *hashers = None,
            (Ok(()), None) => {}
        }
        written
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.inner()?.preview()
    }

    fn hashes(&self) -> Option<Hashes> {
        self.hashers.clone().map(Hashers::finish)
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        let mut inner = self.inner.take().ok_or(FileError::Cancelled)?;
        let hashers = match self.hashers.take() {
            None if self.waits.is_some() => read_again(&mut *inner, self.algorithms),
            hashers => hashers,
        };
        if let Some(hashers) = hashers {
            let length = hashers.length();
            inner.set_hashes(hashers.finish(), length);
        }
        inner.commit()
    }

    fn abort(mut self: Box<Self>) {
        self.park();
        if let Some(inner) = self.inner.take() {
            inner.abort();
        }
    }

    fn keep(mut self: Box<Self>) -> Result<(), FileError> {
        self.park();
        self.inner.take().map_or(Ok(()), |inner| inner.keep())
    }

    fn sync(&mut self) {
        self.inner.iter_mut().for_each(|inner| inner.sync());
    }

    fn close(mut self: Box<Self>) {
        if let Some(inner) = self.inner.take() {
            inner.close();
        }
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

/// A connection that is cut leaves what came of a partial upload.
impl Drop for Hashed {
    fn drop(&mut self) {
        if self.inner.is_some() {
            self.park();
        }
    }
}

/// Hashes a whole upload that can be looked at, where it is small.
fn read_again(upload: &mut dyn Upload, algorithms: Algorithms) -> Option<Hashers> {
    let mut handle = upload.preview().ok()??;
    let size = handle.size().filter(|size| *size <= READ_AGAIN)?;
    hash(&mut handle, size, algorithms).ok().filter(|hashers| hashers.length() == size)
}

/// Hashes the first `size` bytes of a file.
pub(crate) fn hash(handle: &mut ReadHandle, size: u64, algorithms: Algorithms) -> Result<Hashers, FileError> {
    let (mut hashers, mut buffer) = (Hashers::new(algorithms), vec![0; 64 << 10]);
    while hashers.length() < size {
        let most = buffer.len().min(usize::try_from(size - hashers.length()).unwrap_or(usize::MAX));
        match through::read_at(handle, hashers.length(), &mut buffer[..most])? {
            0 => break,
            count => hashers.update(&buffer[..count]),
        }
    }
    Ok(hashers)
}

/// The hashes of partial uploads that wait for their next piece. They are lost with the process.
#[derive(Debug, Default)]
pub(crate) struct PartialHashes(Mutex<HashMap<PartialKey, Hashers>>);

impl PartialHashes {
    fn lock(&self) -> MutexGuard<'_, HashMap<PartialKey, Hashers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hashes a partial upload from where it stands.
    pub(crate) fn follow(
        self: &Arc<Self>,
        partial: Partial,
        key: &PartialKey,
        algorithms: Algorithms,
    ) -> Partial {
        let kept = self.lock().remove(key);
        let hashers = match partial.size {
            0 => Some(Hashers::new(algorithms)),
            size => kept.filter(|hashers| hashers.length() == size),
        };
        let waits = Some((Arc::clone(self), *key));
        let upload = Hashed { inner: Some(partial.upload), algorithms, hashers, waits };
        Partial { upload: Box::new(upload), ..partial }
    }
}
