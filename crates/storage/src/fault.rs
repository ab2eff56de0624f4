//! A layer of faults: any back end, failing, dawdling or hanging on chosen calls. For tests.
//!
//! Every call of [`Storage`] and of the handles that it gives out has a number, from 1 on. A test runs once to learn
//! how many calls there are, then once for each number with a fault there, and checks the reply, the old file and the
//! remains. (SQLite's tests do this to every call that it makes.)
//!
//! So that no byte passes uncounted, handles hide their descriptors: reads and writes come through
//! [`ReadStream::read_at`] and [`Upload::write_all`]; [`FaultStorage::showing_descriptors`] leaves them open
//! to `sendfile` and `splice`, which nothing here can then disturb. Streams and uploads are
//! [`Readiness::MayHang`], because here they may.

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_vfs::hash::Hashes;
use millrace_vfs::{
    Call, Committed, DirEntry, Directory, FileError, FileRange, Metadata, ReadHandle, ReadStream, Readiness,
    Resting, Storage, Upload, VirtualPath, Wait, WriteMode,
};

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `EIO`: the device failed.
    Io,
    /// `EINTR`: a signal came. (A back end retries this itself; a caller that sees it must still fail cleanly.)
    Interrupted,
    /// `ENOSPC`: the device is full.
    NoSpace,
    /// `EDQUOT`: the quota is used up.
    QuotaExceeded,
    /// `EMFILE`: no descriptors are left.
    Exhausted,
    /// No fault, but the call takes this long.
    Slow(Duration),
    /// The device is stuck: the call returns, and then succeeds, only after [`Faults::release`]. A call with
    /// [`Wait::Never`] is told [`FileError::WouldWait`], as the caches would say of a device.
    Stuck,
    /// The call panics, where it may wait: a bug, on a thread of the pool.
    Panic,
}

impl Fault {
    /// The faults that are errors.
    pub const ERRORS: [Fault; 5] =
        [Fault::Io, Fault::Interrupted, Fault::NoSpace, Fault::QuotaExceeded, Fault::Exhausted];

    /// The error that the caller sees, where it is one.
    fn error(self) -> Option<FileError> {
        const EINTR: i32 = 4;
        const EIO: i32 = 5;
        match self {
            Self::Io => Some(FileError::Io(io::Error::from_raw_os_error(EIO))),
            Self::Interrupted => Some(FileError::Io(io::Error::from_raw_os_error(EINTR))),
            Self::NoSpace => Some(FileError::NoSpace),
            Self::QuotaExceeded => Some(FileError::QuotaExceeded),
            Self::Exhausted => Some(FileError::Exhausted),
            Self::Slow(_) | Self::Stuck | Self::Panic => None,
        }
    }
}

/// The planned faults, and the calls so far. Clones share it, so a test keeps one while the server has the storage.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    stuck: u64,
    releases: u64,
    rules: Vec<Rule>,
}

/// A fault on the calls `first..=last`.
#[derive(Debug, Clone, Copy)]
struct Rule {
    first: u64,
    last: u64,
    fault: Fault,
}

impl Faults {
    /// Only call number `n`, from 1 on, counted from the last [`Faults::reset`].
    pub fn once(&self, n: u64, fault: Fault) {
        self.state().rules.push(Rule { first: n, last: n, fault });
    }

    /// Call number `n` and every one after it.
    pub fn from(&self, n: u64, fault: Fault) {
        self.state().rules.push(Rule { first: n, last: u64::MAX, fault });
    }

    /// How many calls there were since the last [`Faults::reset`].
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// How many calls are stuck now.
    pub fn stuck(&self) -> u64 {
        self.state().stuck
    }

    /// Removes planned faults, releases stuck calls, and counts from 0.
    pub fn reset(&self) {
        self.release();
        self.state().calls = 0;
    }

    /// Removes planned faults and releases stuck calls. The count goes on.
    pub fn release(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.releases += 1;
        self.shared.1.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and does to it what was planned.
    fn call(&self, wait: Wait) -> Result<(), FileError> {
        let mut state = self.state();
        state.calls += 1;
        let call = state.calls;
        let Some(rule) = state.rules.iter().find(|rule| (rule.first..=rule.last).contains(&call)).copied()
        else {
            return Ok(());
        };
        match rule.fault {
            Fault::Stuck | Fault::Slow(_) | Fault::Panic if wait == Wait::Never => {
                return Err(FileError::WouldWait);
            }
            Fault::Stuck => self.hang(state),
            Fault::Panic => {
                drop(state);
                panic!("on purpose: a storage that is wrong");
            }
            Fault::Slow(time) => {
                drop(state);
                std::thread::sleep(time);
            }
            _ => {}
        }
        rule.fault.error().map_or(Ok(()), Err)
    }

    fn hang(&self, mut state: MutexGuard<'_, State>) {
        let releases = state.releases;
        state.stuck += 1;
        while state.releases == releases {
            state = self.shared.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.stuck -= 1;
    }
}

/// Another back end behind [`Faults`].
#[derive(Debug)]
pub struct FaultStorage<S> {
    inner: S,
    faults: Faults,
    shows_descriptors: bool,
}

impl<S: Storage> FaultStorage<S> {
    /// Puts the layer over `storage`. Nothing goes wrong until [`FaultStorage::faults`] is told.
    pub fn new(storage: S) -> Self {
        Self { inner: storage, faults: Faults::default(), shows_descriptors: false }
    }

    /// Lets handles show their descriptors.
    #[must_use]
    pub fn showing_descriptors(self) -> Self {
        Self { shows_descriptors: true, ..self }
    }

    /// Where to say what shall go wrong.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The back end itself.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn waiting_call(&self) -> Result<(), FileError> {
        self.faults.call(Wait::Allowed)
    }
}

impl<S: Storage> millrace_vfs::Layer for FaultStorage<S> {
    fn inner(&self) -> &dyn Storage {
        &self.inner
    }

    /// Counts the call, and fails where a fault is due.
    fn admit(&self, call: Call, wait: Wait) -> Result<(), FileError> {
        match call {
            Call::Read | Call::Change => self.faults.call(wait),
            Call::OpenPartial => Err(FileError::Unsupported),
            Call::FindPartial => Err(FileError::NotFound),
        }
    }

    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        self.faults.call(wait)?;
        let faults = self.faults();
        Ok(match self.inner.open_read(path, wait)? {
            ReadHandle::File(range) if self.shows_descriptors => ReadHandle::File(range),
            ReadHandle::File(range) => ReadHandle::Stream(Box::new(FaultyFile { range, faults })),
            ReadHandle::Stream(inner) => ReadHandle::Stream(Box::new(FaultyStream { inner, faults })),
        })
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        self.faults.call(wait)?;
        let inner = self.inner.open_write_with(path, mode, bits, wait)?;
        Ok(Box::new(FaultyUpload { inner, faults: self.faults(), shows_descriptor: self.shows_descriptors }))
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        self.waiting_call()?;
        let inner = self.inner.open_directory(path)?;
        Ok(Box::new(FaultyDirectory { inner, faults: self.faults() }))
    }

    /// No call to a device, so none that is counted.
    fn may_replace(&self, path: &VirtualPath, all_beneath: bool) -> Result<(), FileError> {
        self.inner.may_replace(path, all_beneath)
    }

    /// As `may_replace` here: not counted.
    fn resting(&self) -> Result<Resting, FileError> {
        self.inner.resting()
    }
}

#[derive(Debug)]
struct FaultyFile {
    range: FileRange,
    faults: Faults,
}

impl ReadStream for FaultyFile {
    fn size(&self) -> Option<u64> {
        Some(self.range.size)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.faults.call(Wait::Allowed)?;
        use std::os::unix::fs::FileExt;
        self.range.file.read_at(buffer, offset).map_err(FileError::from)
    }
}

#[derive(Debug)]
struct FaultyStream {
    inner: Box<dyn ReadStream>,
    faults: Faults,
}

impl ReadStream for FaultyStream {
    fn size(&self) -> Option<u64> {
        self.inner.size()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.faults.call(Wait::Allowed)?;
        self.inner.read_at(offset, buffer)
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn Upload>,
    faults: Faults,
    shows_descriptor: bool,
}

impl Upload for FaultyUpload {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        self.faults.call(Wait::Allowed)?;
        match self.shows_descriptor {
            true => self.inner.file(),
            false => Ok(None),
        }
    }

    fn with_file(&mut self, write: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
        self.faults.call(Wait::Allowed)?;
        match self.shows_descriptor {
            true => self.inner.with_file(write),
            false => Ok(false),
        }
    }

    fn advance(&mut self, count: u64) {
        self.inner.advance(count);
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.faults.call(Wait::Allowed)?;
        self.inner.write_all(bytes)
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.faults.call(Wait::Allowed)?;
        self.inner.preview()
    }

    fn hashes(&self) -> Option<Hashes> {
        self.inner.hashes()
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        self.faults.call(Wait::Allowed)?;
        self.inner.commit()
    }

    fn abort(self: Box<Self>) {
        self.inner.abort();
    }

    fn keep(self: Box<Self>) -> Result<(), FileError> {
        self.faults.call(Wait::Allowed)?;
        self.inner.keep()
    }

    fn sync(&mut self) {
        self.inner.sync();
    }

    fn close(self: Box<Self>) {
        self.inner.close();
    }

    fn undo(self: Box<Self>) {
        self.inner.undo();
    }

    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn is_staged(&self) -> bool {
        self.inner.is_staged()
    }
}

#[derive(Debug)]
struct FaultyDirectory {
    inner: Box<dyn Directory>,
    faults: Faults,
}

impl Directory for FaultyDirectory {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        self.faults.call(Wait::Allowed)?;
        self.inner.next_batch(entries, most)
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        self.faults.call(Wait::Allowed)?;
        self.inner.next_names(visit, most)
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        self.faults.call(Wait::Allowed)?;
        self.inner.metadata()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text.as_bytes()).unwrap()
    }

    fn upload(storage: &dyn Storage, content: &[u8]) -> Result<(), FileError> {
        let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed)?;
        upload.write_all(content)?;
        upload.commit().map(drop)
    }

    #[test]
    fn every_call_can_fail_and_the_old_file_stays() {
        let storage = FaultStorage::new(MemoryStorage::new());
        let faults = storage.faults();
        upload(&storage, b"old").unwrap();
        let calls = faults.calls();
        assert_eq!(calls, 3);
        for fault in Fault::ERRORS {
            for n in 1..=calls {
                faults.reset();
                faults.once(n, fault);
                upload(&storage, b"new").unwrap_err();
                assert_eq!(faults.calls(), n);
                assert_eq!(storage.inner().read("/f").unwrap(), b"old");
            }
        }
        faults.reset();
        upload(&storage, b"new").unwrap();
        assert_eq!(storage.inner().read("/f").unwrap(), b"new");
    }

    #[test]
    fn a_stuck_call_goes_on_when_released_and_a_reactor_is_never_held() {
        let storage = FaultStorage::new(MemoryStorage::new());
        let faults = storage.faults();
        faults.from(1, Fault::Stuck);
        let error = storage.metadata(&path("/"), Wait::Never).unwrap_err();
        assert!(matches!(error, FileError::WouldWait), "{error}");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| storage.metadata(&path("/"), Wait::Allowed));
            while faults.stuck() == 0 {
                std::thread::yield_now();
            }
            faults.release();
            waiting.join().unwrap().unwrap();
        });
    }
}
