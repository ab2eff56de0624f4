//! Uploads that outlive the process: staged files that keep a name between two visits of their client.
//!
//! The invariant: a partial upload holds exactly the acknowledged data, and later data in order; a power cut leaves no
//! later data, and with checksums a kill leaves none that was not verified (`mark.rs`). On another machine, whose kernel has
//! not the bytes that this one has, nothing counts but what is noted as acknowledged.
//!
//! The file is created in the target's directory, whose access lists it inherits, and named in the staging directory;
//! where it cannot be named there (another mount, a root without write permission) there are no partial uploads. An
//! open upload holds the file's lock (`flock`), and a second open fails.

mod joined;
mod mark;

#[cfg(test)]
pub(super) use mark::BOOT_OF_TEST;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use millrace_vfs::hash::Hashes;
use millrace_vfs::{
    Committed, FileError, FileRange, Partial, PartialKey, PartialMode, PartialState, ReadHandle, Readiness,
    Resting, Timestamp, Upload,
};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::disk;
use super::durability::Durable;
use super::errno::file_error;
use super::staged::{Settings, StagingFile, link, open_unnamed};
use super::staging::{StagingArea, is_kept_file, is_mark_file, kept_name};
use super::stored_hash;
use super::target::Destination;
use super::upload::{truncate, write_all_at};
use joined::Joined;
use mark::Mark;

/// How often the staging directory is searched for expired uploads.
const SWEEP: Duration = Duration::from_secs(60);

/// How long a count of a tree holds that other servers change as well.
const RECOUNT: Duration = Duration::from_secs(60);

/// The partial uploads of a tree.
#[derive(Debug, Default)]
pub(super) struct Partials {
    /// Held while one is opened or let go, and while they are counted.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until the first query.
    resting: Option<Resting>,
    counted: Option<Instant>,
    swept: Option<Instant>,
}

impl Partials {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The total of those that are not open.
    pub(super) fn resting(&self, area: &StagingArea, is_shared: bool) -> Result<Resting, FileError> {
        let mut state = self.lock();
        let is_old = is_shared && state.counted.is_none_or(|counted| counted.elapsed() >= RECOUNT);
        match state.resting {
            Some(resting) if !is_old => Ok(resting),
            _ => {
                state.counted = Some(Instant::now());
                Ok(*state.resting.insert(count(area)?))
            }
        }
    }

    /// Removes those that were not continued for so long.
    pub(super) fn sweep(&self, area: &StagingArea, age: Duration) {
        let mut state = self.lock();
        state.swept = Some(Instant::now());
        state.resting = None;
        let Some(directory) = area.existing() else { return };
        let Some(oldest) = SystemTime::now().checked_sub(age) else { return };
        for name in names(&directory, is_kept_file) {
            let Ok(file) = open_named(&directory, &name) else { continue };
            let is_old =
                file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|time| time < oldest);
            if is_old && take_lock(&file).is_ok() {
                let _ = disk::unlinkat(&*directory, &name[..], AtFlags::empty());
                release(&file);
            }
        }
        // A power cut may leave a mark without its file.
        for mark in names(&directory, is_mark_file) {
            let kept = mark.strip_suffix(b".mark").unwrap_or(&mark);
            if disk::statat(&*directory, kept, AtFlags::SYMLINK_NOFOLLOW)
                .is_err_and(|errno| errno == Errno::NOENT)
            {
                let _ = disk::unlinkat(&*directory, &mark[..], AtFlags::empty());
            }
        }
    }

    fn sweep_now_and_then(&self, area: &StagingArea, age: Duration) {
        if self.lock().swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            self.sweep(area, age);
        }
    }
}

/// Where partial uploads are, and how their files are made.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) area: Arc<StagingArea>,
    pub(super) partials: Arc<Partials>,
    pub(super) settings: Settings,
    pub(super) durable: Arc<Durable>,
    /// After this age it cannot be continued.
    pub(super) age: Duration,
    /// Another machine may go on with it, which does not know what this one's kernel has.
    pub(super) is_shared: bool,
}

impl Place {
    /// Opens one to a destination.
    pub(super) fn open(
        &self,
        mut destination: Destination,
        key: &PartialKey,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        destination.target()?;
        let taken = match mode {
            PartialMode::New => {
                self.partials.sweep_now_and_then(&self.area, self.age);
                self.make(&mut destination, key)?
            }
            PartialMode::Resume | PartialMode::Checked => self.take(key)?,
        };
        let (kept, modified) = self.keep(taken, destination, *key, mode == PartialMode::Checked)?;
        Ok(Partial { size: kept.position, modified, upload: Box::new(kept) })
    }

    /// One whose file was opened; and when that was last changed.
    fn keep(
        &self,
        taken: Taken,
        destination: Destination,
        key: PartialKey,
        is_checked: bool,
    ) -> Result<(Kept, Timestamp), FileError> {
        let Taken { file, directory, mark } = taken;
        let PartialState { size, modified } = state(&file)?;
        let kept = Kept {
            file: Some(file),
            directory,
            place: self.clone(),
            destination,
            key,
            begun: size,
            position: size,
            is_checked,
            joined: Joined::default(),
            hashes: None,
            is_damaged: None,
        };
        let needed = Mark::new(size, is_checked);
        match mark {
            None => drop(needed.begin(&kept.directory, &key)?),
            // In another boot, or to be checked: what comes now is another matter.
            Some(mark) if !mark.treats_alike(&needed) => drop(needed.append(&kept.directory, &key)?),
            Some(_) => {}
        }
        Ok((kept, modified))
    }

    fn make(&self, destination: &mut Destination, key: &PartialKey) -> Result<Taken, FileError> {
        let target = destination.target()?;
        let (name, mode) = (kept_name(key), self.settings.mode);
        let unnamed = if self.settings.unnamed { open_unnamed(target, mode)? } else { None };
        let made = self.area.with_directory(|directory| {
            let file = match &unnamed {
                Some(file) => {
                    let file = disk::duplicate(file)?;
                    take_lock(&file)?;
                    link(&file, directory, name.as_bytes())?;
                    file
                }
                None => {
                    let flags =
                        OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let file = disk::openat(&**directory, &name, flags, mode).map(File::from)?;
                    take_lock(&file)?;
                    file
                }
            };
            Ok((file, Arc::clone(directory)))
        });
        match made {
            Ok(Some((file, directory))) => Ok(Taken { file, directory, mark: None }),
            Ok(None) | Err(Errno::XDEV | Errno::PERM | Errno::ACCESS) => Err(FileError::Unsupported),
            Err(errno) => Err(file_error(errno)),
        }
    }

    fn take(&self, key: &PartialKey) -> Result<Taken, FileError> {
        let mut state = self.partials.lock();
        let directory = self.area.existing().ok_or(FileError::NotFound)?;
        let file = open_named(&directory, kept_name(key).as_bytes()).map_err(file_error)?;
        take_lock(&file).map_err(|errno| match errno {
            Errno::WOULDBLOCK => FileError::Busy,
            errno => file_error(errno),
        })?;
        let stat = disk::fstat(&file).map_err(file_error)?;
        if stat.st_nlink == 0 {
            return Err(FileError::NotFound);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if let Some(resting) = &mut state.resting {
            *resting =
                Resting { bytes: resting.bytes.saturating_sub(size), files: resting.files.saturating_sub(1) };
        }
        let mark = Mark::read(&directory, key).map_err(file_error)?;
        if mark.counted(size) < size {
            // The process that wrote the others was killed before their check, or the power was cut.
            truncate(&file, mark.counted(size))?;
        }
        Ok(Taken { file, directory, mark: Some(mark) })
    }

    /// The state of one.
    pub(super) fn find(&self, key: &PartialKey) -> Result<PartialState, FileError> {
        let directory = self.area.existing().ok_or(FileError::NotFound)?;
        let file = open_named(&directory, kept_name(key).as_bytes()).map_err(file_error)?;
        let state = state(&file)?;
        // Bytes that are being checked do not count yet.
        Ok(PartialState {
            size: Mark::read(&directory, key).map_err(file_error)?.counted(state.size),
            ..state
        })
    }

    /// Gives one up.
    pub(super) fn remove(&self, key: &PartialKey) -> Result<(), FileError> {
        let Taken { file, directory, .. } = self.take(key)?;
        disk::unlinkat(&*directory, kept_name(key), AtFlags::empty()).map_err(file_error)?;
        mark::clear(&directory, key);
        release(&file);
        self.area.tidy();
        Ok(())
    }
}

/// The file of one, locked.
struct Taken {
    file: File,
    directory: Arc<OwnedFd>,
    /// `None` where it was just made.
    mark: Option<Mark>,
}

/// A partial upload that is open.
#[derive(Debug)]
struct Kept {
    /// `None` once it has ended.
    file: Option<File>,
    /// Where it is named.
    directory: Arc<OwnedFd>,
    place: Place,
    destination: Destination,
    key: PartialKey,
    /// Bytes that were there when it was opened.
    begun: u64,
    position: u64,
    is_checked: bool,
    /// The parts joined into it.
    joined: Joined,
    hashes: Option<(Hashes, u64)>,
    /// Its bytes could not be stored: the kernel does not report that twice.
    is_damaged: Option<FileError>,
}

impl Kept {
    fn open_file(&self) -> Result<&File, FileError> {
        self.file.as_ref().ok_or(FileError::Cancelled)
    }

    /// Waits for its bytes.
    fn store(&mut self, file: &File) -> Result<(), FileError> {
        self.is_damaged.take().map_or_else(|| self.place.durable.bytes(file), Err)
    }

    /// Notes that all that came is sure; returns what is to be waited for.
    fn mark_sure(&self) -> Result<Option<File>, FileError> {
        match self.is_checked || self.place.is_shared || self.place.durable.survives_power_cuts() {
            true => Mark::new(self.position, false).append(&self.directory, &self.key).map(Some),
            false => Ok(None),
        }
    }

    /// Waits for the note, and for the names without which it would be lost.
    fn wait_for(&self, mark: Option<File>) -> Result<(), FileError> {
        if let Some(mark) = mark {
            self.place.durable.mark(&mark)?;
        }
        match self.begun {
            0 => self.name_durably(),
            _ => Ok(()),
        }
    }

    /// The names in the staging directory, and its own.
    fn name_durably(&self) -> Result<(), FileError> {
        let durable = &self.place.durable;
        // Without bytes there is nothing to lose but the name.
        if self.position == 0 && !durable.keeps_names() {
            return Ok(());
        }
        durable.name_of_whole(&*self.directory)?;
        self.place.area.name_once(&self.directory, |root| durable.name_of_whole(root))
    }

    /// Nothing is left of it.
    fn give_up(&self, file: &File) {
        let _ = disk::unlinkat(&*self.directory, kept_name(&self.key), AtFlags::empty());
        mark::clear(&self.directory, &self.key);
        release(file);
    }

    /// Returns true if its name is gone, or another file's: a hook that saw its content has moved it.
    fn was_moved_away(&self, file: &File) -> bool {
        let named = disk::statat(&*self.directory, kept_name(&self.key), AtFlags::SYMLINK_NOFOLLOW);
        match (named, disk::fstat(file)) {
            (Ok(named), Ok(own)) => (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino),
            (Err(errno), _) => errno == Errno::NOENT,
            (Ok(_), Err(_)) => false,
        }
    }

    /// Abandons a file that a hook has moved away, with its content.
    fn let_it_be(&mut self, file: &File) {
        mark::clear(&self.directory, &self.key);
        self.joined.remove(&self.directory);
        release(file);
        self.place.area.tidy();
    }

    /// Reports a failed write once: the upload cannot be continued.
    fn lose(&mut self, file: &File) {
        self.give_up(file);
        self.joined.let_go(self.place.partials.lock().resting.as_mut());
        self.place.area.tidy();
    }

    /// Lets go of it; what came is kept or not.
    fn leave(&mut self, keeps: bool) -> Result<(), FileError> {
        let Some(file) = self.file.take() else { return Ok(()) };
        if self.was_moved_away(&file) {
            self.let_it_be(&file);
            return Ok(());
        }
        let keeps = keeps && self.joined.is_empty();
        let mut result = Ok(());
        if keeps {
            if let Err(error) = self.store(&file) {
                self.lose(&file);
                return Err(error);
            }
            match self.mark_sure() {
                Ok(mark) => {
                    if let Err(error) = self.wait_for(mark) {
                        self.lose(&file);
                        return Err(error);
                    }
                }
                // Without a note the piece is not acknowledged, but those before it are there.
                Err(error) => result = Err(error),
            }
        } else if truncate(&file, self.begun).is_ok() {
            self.position = self.begun;
        } else {
            // The bytes cannot be removed, so they are not to count.
            let _ = Mark::new(self.begun, true).append(&self.directory, &self.key);
        }
        let mut state = self.place.partials.lock();
        if let Some(resting) = &mut state.resting {
            *resting = Resting { bytes: resting.bytes + self.position, files: resting.files + 1 };
        }
        self.joined.let_go(state.resting.as_mut());
        release(&file);
        result
    }
}

impl Upload for Kept {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(self.file.as_ref().map(|file| (file, self.position)))
    }

    fn advance(&mut self, count: u64) {
        self.position += count;
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let mut position = self.position;
        let result = write_all_at(self.open_file()?, &mut position, bytes);
        self.position = position;
        result
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        let file = Arc::new(disk::duplicate(self.open_file()?).map_err(file_error)?);
        Ok(Some(ReadHandle::File(FileRange { file, size: self.position, readiness: Readiness::MayHang })))
    }

    fn set_hashes(&mut self, hashes: Hashes, length: u64) {
        self.hashes = Some((hashes, length));
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        if let Some((hashes, length)) = self.hashes.take() {
            stored_hash::store(self.open_file()?, hashes, length);
        }
        let durable = Arc::clone(&self.place.durable);
        let file = self.file.take().ok_or(FileError::Cancelled)?;
        if let Err(error) = self.store(&file) {
            self.lose(&file);
            return Err(error);
        }
        // The file of that name may be newer than this upload.
        let target = match self.destination.target() {
            Ok(target) => target,
            Err(error) => {
                self.file = Some(file);
                return Err(error);
            }
        };
        let published = StagingFile::kept(file, &self.directory, kept_name(&self.key));
        if let Err((error, file)) = published.publish_over(target, &self.place.area) {
            let error = target.reason(error);
            // A name in use is a permanent error.
            match matches!(error, FileError::AlreadyExists) && self.joined.is_empty() {
                true => self.give_up(&file),
                false => self.file = Some(file),
            }
            return Err(error);
        }
        mark::clear(&self.directory, &self.key);
        self.joined.remove(&self.directory);
        self.place.area.tidy();
        durable.name(&*self.destination.target()?.directory)?;
        Ok(Committed { size: self.position })
    }

    fn abort(mut self: Box<Self>) {
        let _ = self.leave(true);
    }

    fn keep(mut self: Box<Self>) -> Result<(), FileError> {
        self.leave(true)
    }

    fn sync(&mut self) {
        let Some(file) = &self.file else { return };
        self.is_damaged = self.place.durable.bytes(file).err();
    }

    fn close(mut self: Box<Self>) {
        let Some(file) = self.file.take() else { return };
        self.joined.let_go(None);
        release(&file);
        // What is there now, others have made.
        self.place.partials.lock().resting = None;
    }

    fn undo(mut self: Box<Self>) {
        let _ = self.leave(false);
    }

    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn is_staged(&self) -> bool {
        true
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.leave(!self.is_checked);
    }
}

fn state(file: &File) -> Result<PartialState, FileError> {
    let stat = disk::fstat(file).map_err(file_error)?;
    let modified =
        Timestamp { seconds: stat.st_mtime, nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) };
    Ok(PartialState { size: u64::try_from(stat.st_size).unwrap_or(0), modified })
}

fn open_named(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    disk::openat(directory, name, flags, Mode::empty()).map(File::from)
}

fn take_lock(file: &File) -> rustix::io::Result<()> {
    rustix::io::retry_on_intr(|| disk::flock(file, FlockOperation::NonBlockingLockExclusive))
}

/// Not by closing it: a process that is just being started may have a copy for a moment.
fn release(file: &File) {
    let _ = disk::flock(file, FlockOperation::Unlock);
}

/// The names in the staging directory that are of a kind.
fn names(directory: &OwnedFd, is_wanted: fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let Ok(directory) = super::tree::reopen_directory(directory) else { return Vec::new() };
    let (mut buffer, mut names) = (vec![std::mem::MaybeUninit::uninit(); 8192], Vec::new());
    let mut entries = RawDir::new(&directory, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        if is_wanted(name) {
            names.push(name.to_vec());
        }
    }
    names
}

/// Counts those that are not open.
fn count(area: &StagingArea) -> Result<Resting, FileError> {
    let mut resting = Resting::default();
    let Some(directory) = area.existing() else { return Ok(resting) };
    for name in names(&directory, is_kept_file) {
        let Ok(file) = open_named(&directory, &name) else { continue };
        if take_lock(&file).is_ok() {
            resting = Resting { bytes: resting.bytes + state(&file)?.size, files: resting.files + 1 };
            release(&file);
        }
    }
    Ok(resting)
}

#[cfg(test)]
mod tests;
