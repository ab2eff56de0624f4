//! The files of a simulated user: in memory, slow or failing as is drawn, with a journal of every version of every file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::MemoryStorage;
use crate::vfs::{
    Call, Committed, FileError, Layer, Metadata, ReadHandle, ReadStream, Readiness, Storage, Upload,
    VirtualPath, Wait, WriteMode,
};

use super::draw::Draw;

/// Everything that a user's files have ever held, by path.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal(Arc<Mutex<BTreeMap<String, Vec<Vec<u8>>>>>);

impl Journal {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Vec<u8>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &str, content: Vec<u8>) {
        self.lock().entry(path.to_owned()).or_default().push(content);
    }

    /// Returns whether a file of this path ever had this content.
    pub(super) fn has(&self, path: &str, content: &[u8]) -> bool {
        self.any(path, |version| version == content)
    }

    /// Returns whether this is true of any content that a file of this path ever had.
    pub(super) fn any(&self, path: &str, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        self.lock().get(path).is_some_and(|versions| versions.iter().any(|version| is_meant(version)))
    }
}

/// One user's files.
#[derive(Debug, Clone)]
pub(super) struct SimulatedFiles {
    memory: MemoryStorage,
    pub(super) journal: Journal,
    draw: Draw,
}

impl SimulatedFiles {
    pub(super) fn new(draw: &Draw) -> Self {
        Self { memory: MemoryStorage::new(), journal: Journal::default(), draw: draw.clone() }
    }

    /// Makes a file.
    pub(super) fn insert(&self, path: &str, content: Vec<u8>) {
        self.memory.insert(path, &content);
        self.journal.add(path, content);
    }

    fn readiness(&self) -> Readiness {
        if self.draw.chance(50) { Readiness::MayHang } else { Readiness::Cached }
    }
}

impl Layer for SimulatedFiles {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn admit(&self, _: Call, wait: Wait) -> Result<(), FileError> {
        match wait {
            Wait::Never if self.draw.chance(40) => Err(FileError::WouldWait),
            _ if self.draw.fault(2) => Err(device_error()),
            _ => Ok(()),
        }
    }

    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        self.admit(Call::Read, wait)?;
        match Storage::open_read(&self.memory, path, wait)? {
            ReadHandle::Stream(inner) => {
                let (readiness, draw) = (self.readiness(), self.draw.clone());
                Ok(ReadHandle::Stream(Box::new(SimulatedStream { inner, readiness, draw })))
            }
            file => Ok(file),
        }
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        self.admit(Call::Change, wait)?;
        Ok(Box::new(SimulatedUpload {
            inner: Storage::open_write_with(&self.memory, path, mode, bits, wait)?,
            path: path.to_string(),
            content: Vec::new(),
            readiness: self.readiness(),
            files: self.clone(),
        }))
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        self.admit(Call::Read, wait)?;
        Storage::metadata(&self.memory, path, wait)
    }
}

fn device_error() -> FileError {
    FileError::Io(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()))
}

/// An open file, which may be slow, and may fail.
#[derive(Debug)]
struct SimulatedStream {
    inner: Box<dyn ReadStream>,
    readiness: Readiness,
    draw: Draw,
}

impl ReadStream for SimulatedStream {
    fn size(&self) -> Option<u64> {
        self.inner.size()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        if self.draw.fault(1) {
            return Err(device_error());
        }
        self.inner.read_at(offset, buffer)
    }

    fn readiness(&self) -> Readiness {
        self.readiness
    }
}

/// A staged upload, which may be slow, and may fail at any call.
#[derive(Debug)]
struct SimulatedUpload {
    inner: Box<dyn Upload>,
    path: String,
    content: Vec<u8>,
    readiness: Readiness,
    files: SimulatedFiles,
}

impl Upload for SimulatedUpload {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if self.files.draw.fault(3) {
            return Err(FileError::NoSpace);
        }
        self.inner.write_all(bytes)?;
        self.content.extend_from_slice(bytes);
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        if self.files.draw.fault(15) {
            let is_full = self.files.draw.chance(50);
            return Err(if is_full { FileError::NoSpace } else { device_error() });
        }
        let committed = self.inner.commit()?;
        self.files.journal.add(&self.path, self.content);
        Ok(committed)
    }

    fn abort(self: Box<Self>) {}

    fn undo(self: Box<Self>) {}

    fn readiness(&self) -> Readiness {
        self.readiness
    }

    fn commit_readiness(&self) -> Readiness {
        self.readiness
    }

    fn is_staged(&self) -> bool {
        self.inner.is_staged()
    }
}
