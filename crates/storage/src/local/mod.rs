//! The local back end: a directory of this machine, and nothing outside it.
//!
//! Everything happens beneath one directory descriptor (`tree.rs`), so neither a path nor a link, nor
//! somebody who swaps links while we look, leads out of it. On a reactor thread ([`Wait::Never`]) only what
//! the kernel has in its caches is answered, and only where the file system is a local one; a download costs
//! `openat2` and `fstat` there, and an upload in place over an existing name the same.

mod claims;
mod copy;
mod directory;
mod errno;
mod in_place;
mod metadata;
mod partial;
mod permissions;
mod staged;
mod staging;
mod sweep;
mod target;
mod tree;
mod upload;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrace_vfs::{
    Change, DirEntry, Directory, FileError, FileKind, FileRange, Link, Metadata, Partial, PartialKey,
    PartialMode, PartialState, ReadHandle, Readiness, Resting, Space, Storage, Timestamp, Upload,
    VirtualPath, Wait, WriteMode,
};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec, Timestamps,
    UTIME_OMIT, Uid,
};
use rustix::io::Errno;
use thiserror::Error;

use claims::Claim;
use directory::{Listing, read_link};
use errno::file_error;
use in_place::{Durability, InPlace, Made};
use partial::Partials;
use staged::Staged;
use staging::{StagingArea, refuse_reserved};
pub use sweep::SweepReport;
use tree::{Tree, descriptors_have_names};

/// How a `STOR` replaces a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uploads {
    /// Beside the name, which shows the old file or all of the new one.
    #[default]
    Staged,
    /// Into the file itself: the quickest, but what an interrupted upload leaves is its first part.
    InPlace,
}

/// What is asked of a [`LocalStorage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalOptions {
    /// How a `STOR` replaces a file.
    pub uploads: Uploads,
    /// Whether a commit waits until the file and its name are on the device.
    pub fsync: bool,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Permission bits of new files, less the umask of the process. A file that replaces another takes over
    /// the bits of the old one.
    pub file_mode: u32,
    /// Permission bits of new directories, less the umask of the process.
    pub directory_mode: u32,
    /// For how long a partial upload is kept with which nobody goes on.
    pub partial_age: Duration,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            uploads: Uploads::Staged,
            fsync: false,
            read_only: false,
            file_mode: 0o666,
            directory_mode: 0o777,
            partial_age: Duration::from_secs(24 * 3600),
        }
    }
}

/// Why a directory cannot be served.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The directory cannot be opened.
    #[error("cannot serve {}: {source}", path.display())]
    Root {
        /// What was to be served.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing would keep a symbolic link from leading out of the directory.
    #[error(
        "the kernel refuses openat2 ({0}), without which symbolic links could lead out of the served directory: \
         Linux 5.10 or newer is needed, and a container's seccomp profile that allows the call"
    )]
    NoConfinement(#[source] io::Error),
}

/// A directory of this machine.
#[derive(Debug)]
pub struct LocalStorage {
    tree: Arc<Tree>,
    staging: Arc<StagingArea>,
    partials: Arc<Partials>,
    staged: staged::Settings,
    options: LocalOptions,
}

impl LocalStorage {
    /// Serves the directory `root`.
    pub fn open(root: &Path, options: LocalOptions) -> Result<Self, LocalError> {
        let tree = Arc::new(Tree::open(root)?);
        let staging = Arc::new(StagingArea::new(Arc::clone(&tree)));
        let mode = Mode::from_raw_mode(options.file_mode & 0o7777);
        // Older kernels give a file without a name one by way of `/proc` alone.
        let unnamed = descriptors_have_names();
        let staged = staged::Settings { fsync: options.fsync, mode, bits: None, unnamed };
        let partials = Arc::default();
        Ok(Self { tree, staging, partials, staged, options })
    }

    /// Removes what killed processes left in the tree; what living ones use stays. For the start of a server,
    /// beside its work: the cost is one directory that is nearly always empty, but see [`SweepReport`].
    pub fn sweep(&self) -> SweepReport {
        match self.options.read_only {
            true => SweepReport::default(),
            false => {
                self.partials.sweep(&self.staging, self.options.partial_age);
                sweep::sweep(self.tree.root())
            }
        }
    }

    /// Removes partial uploads that are too old to go on.
    pub fn sweep_partials(&self) {
        if !self.options.read_only {
            self.partials.sweep(&self.staging, self.options.partial_age);
        }
    }

    /// Claims that `path` leads to the directory that is served: nobody has moved or removed it since, and put
    /// another in its place. [`FileError::WouldWait`] where the kernel's caches cannot tell.
    pub fn is_at(&self, path: &Path, wait: Wait) -> Result<bool, FileError> {
        let resolve = match wait {
            Wait::Never => ResolveFlags::CACHED,
            Wait::Allowed => ResolveFlags::empty(),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
            Ok(found) => {
                let (there, ours) =
                    (metadata::of_descriptor(found)?, metadata::of_descriptor(self.tree.root())?);
                Ok(there.identity == ours.identity)
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(Errno::AGAIN | Errno::INVAL) if wait == Wait::Never => Err(FileError::WouldWait),
            Err(errno) => Err(file_error(errno)),
        }
    }

    fn writable(&self) -> Result<(), FileError> {
        match self.options.read_only {
            true => Err(FileError::ReadOnly),
            false => Ok(()),
        }
    }

    /// The parent of a name that is to be made.
    fn parent_of_new(&self, path: &VirtualPath) -> Result<OwnedFd, FileError> {
        if staging::is_reserved(path.name()) {
            return Err(FileError::InvalidName);
        }
        self.tree.parent(path, Wait::Allowed)
    }

    /// The parent of a name that exists.
    fn parent_of_old(&self, path: &VirtualPath) -> Result<OwnedFd, FileError> {
        refuse_reserved(path, FileError::NotFound)?;
        self.tree.parent(path, Wait::Allowed)
    }

    fn open_regular(
        &self,
        path: &VirtualPath,
        flags: OFlags,
        mode: Mode,
        wait: Wait,
    ) -> Result<(File, Stat, Readiness), FileError> {
        // Without O_NONBLOCK the open of a pipe that nobody writes to would never return.
        let fd = self.tree.open_at(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, mode, wait)?;
        let stat = rustix::fs::fstat(&fd).map_err(file_error)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(FileError::IsDirectory),
            _ => return Err(FileError::NotRegular),
        }
        let readiness = self.tree.readiness(&fd, stat.st_dev);
        Ok((File::from(fd), stat, readiness))
    }

    fn open_upload(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        match (self.options.uploads, mode) {
            (Uploads::Staged, WriteMode::Replace) => Ok(Box::new(self.open_staged(path, false, bits, wait)?)),
            (Uploads::Staged, WriteMode::CreateNew) => {
                Ok(Box::new(self.open_staged(path, true, bits, wait)?))
            }
            _ => Ok(Box::new(self.open_in_place(path, mode, bits, wait)?)),
        }
    }

    fn open_staged(
        &self,
        path: &VirtualPath,
        exclusive: bool,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Staged, FileError> {
        let target = target::find(&self.tree, path, exclusive, wait)?;
        let settings = staged::Settings { bits: bits.map(Mode::from_raw_mode), ..self.staged };
        Ok(Staged::new(target, Arc::clone(&self.staging), settings))
    }

    fn partials(&self) -> partial::Place {
        partial::Place {
            area: Arc::clone(&self.staging),
            partials: Arc::clone(&self.partials),
            settings: self.staged,
            age: self.options.partial_age,
        }
    }

    /// Where a partial upload goes when it is whole.
    fn partial_target(&self, path: &VirtualPath, write: WriteMode) -> Result<target::Destination, FileError> {
        self.writable()?;
        if path.is_root() {
            return Err(FileError::IsDirectory);
        }
        if staging::is_reserved(path.name()) {
            return Err(FileError::InvalidName);
        }
        target::find(&self.tree, path, write == WriteMode::CreateNew, Wait::Allowed)
    }

    fn open_in_place(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<InPlace, FileError> {
        let Opened { file, stat, readiness, is_new, is_ours } = self.open_to_write(path, mode, bits, wait)?;
        let made = if is_ours { Made::new(&self.tree, &self.staging, path, &file) } else { None };
        let claim = Claim::take((stat.st_dev, stat.st_ino), wait)?;
        // Whoever had it may have cut it meanwhile; what is replaced is cut anyway.
        let stat = match mode {
            WriteMode::Replace | WriteMode::CreateNew => stat,
            WriteMode::Append | WriteMode::At(_) => rustix::fs::fstat(&file).map_err(file_error)?,
        };
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let position = match mode {
            WriteMode::Replace | WriteMode::CreateNew => 0,
            WriteMode::Append => size,
            WriteMode::At(offset) if offset > size => return Err(FileError::OutOfRange),
            WriteMode::At(offset) => offset,
        };
        let durability = match (self.options.fsync, is_new) {
            (false, _) => Durability::Cached,
            (true, false) => Durability::File,
            (true, true) => Durability::FileAndName(self.tree.parent(path, wait)?),
        };
        let replaces = mode == WriteMode::Replace;
        let upload = InPlace::new(file, claim, position, size, replaces, readiness, durability).of(made);
        Ok(if mode == WriteMode::Append { upload.appending() } else { upload })
    }

    /// Opens the file to write in place.
    fn open_to_write(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Opened, FileError> {
        let how = OFlags::WRONLY | if mode == WriteMode::Append { OFlags::APPEND } else { OFlags::empty() };
        if mode != WriteMode::CreateNew {
            match self.open_regular(path, how, Mode::empty(), wait) {
                Err(FileError::NotFound) if !matches!(mode, WriteMode::At(1..)) => {}
                result => return result.map(|opened| Opened::new(opened, false, false)),
            }
        }
        if wait == Wait::Never {
            return Err(FileError::WouldWait);
        }
        let bits = bits.map(Mode::from_raw_mode);
        let make = |flags| {
            self.open_regular(path, how | OFlags::CREATE | flags, bits.unwrap_or(self.staged.mode), wait)
        };
        let opened = match make(OFlags::EXCL) {
            // Made by another meanwhile, or a link that leads to nothing yet.
            Err(FileError::AlreadyExists) if mode != WriteMode::CreateNew => {
                Opened::new(make(OFlags::empty())?, true, false)
            }
            made => Opened::new(made?, true, true),
        };
        if let Some(bits) = bits {
            metadata::widen(&opened.file, opened.stat.st_mode, bits);
        }
        Ok(opened)
    }
}

/// A file that is open to be written to in place.
struct Opened {
    file: File,
    stat: Stat,
    readiness: Readiness,
    /// The opening made it, or may have: with several writers nobody can tell.
    is_new: bool,
    /// It surely did.
    is_ours: bool,
}

impl Opened {
    fn new((file, stat, readiness): (File, Stat, Readiness), is_new: bool, is_ours: bool) -> Self {
        Self { file, stat, readiness, is_new, is_ours }
    }
}

impl Storage for LocalStorage {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        let (file, stat, readiness) = self.open_regular(path, OFlags::RDONLY, Mode::empty(), wait)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(ReadHandle::File(FileRange { file: Arc::new(file), size, readiness }))
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        self.writable()?;
        if path.is_root() {
            return Err(FileError::IsDirectory);
        }
        if staging::is_reserved(path.name()) {
            return Err(FileError::InvalidName);
        }
        self.open_upload(path, mode, bits, wait).map_err(|error| match error {
            // What else the kernel says of a directory that was removed leads nobody there.
            FileError::PermissionDenied if self.tree.is_removed() => FileError::NotFound,
            error => error,
        })
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        self.tree.metadata(path, wait)
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        if path.is_root() {
            let metadata = self.tree.metadata(path, Wait::Allowed)?;
            return Ok(DirEntry { name: Vec::new(), metadata, link: None });
        }
        let parent = self.parent_of_old(path)?;
        let metadata = metadata::of_entry(&parent, path.name())?;
        let link = match metadata.kind {
            FileKind::Symlink => Some(Link { text: read_link(&parent, path.name())?, metadata }),
            _ => None,
        };
        Ok(DirEntry { name: path.name().to_owned(), metadata, link })
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        Ok(Box::new(Listing::open(&self.tree, path)?))
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        self.writable()?;
        if path.is_root() {
            return Err(FileError::AlreadyExists);
        }
        let parent = self.parent_of_new(path)?;
        let mode = Mode::from_raw_mode(bits.unwrap_or(self.options.directory_mode) & 0o7777);
        rustix::fs::mkdirat(&parent, path.name(), mode).map_err(file_error)?;
        if bits.is_some() {
            widen_directory(&parent, path.name(), mode);
        }
        Ok(())
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.writable()?;
        let parent = self.parent_of_old(path)?;
        rustix::fs::unlinkat(&parent, path.name(), AtFlags::REMOVEDIR).map_err(file_error)
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.writable()?;
        if path.is_root() {
            return Err(FileError::IsDirectory);
        }
        let parent = self.parent_of_old(path)?;
        rustix::fs::unlinkat(&parent, path.name(), AtFlags::empty()).map_err(file_error)
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        self.writable()?;
        let old_parent = self.parent_of_old(from)?;
        let new_parent = self.parent_of_new(to)?;
        let is_directory = metadata::of_entry(&old_parent, from.name())?.is_directory();
        if !is_directory || from == to {
            return rustix::fs::renameat(&old_parent, from.name(), &new_parent, to.name())
                .map_err(file_error);
        }
        // A plain rename would replace an empty directory.
        rename_directory(&old_parent, from.name(), &new_parent, to.name())
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        self.writable()?;
        let fd = self.tree.open_at(path, OFlags::PATH, Mode::empty(), Wait::Allowed)?;
        if change.user.is_some() || change.group.is_some() {
            let (user, group) = (change.user.map(Uid::from_raw), change.group.map(Gid::from_raw));
            rustix::fs::chownat(&fd, c"", user, group, AtFlags::EMPTY_PATH).map_err(file_error)?;
        }
        if let Some(mode) = change.mode {
            if mode & metadata::SET_ID != 0 && metadata::of_descriptor(&fd)?.is_file() {
                return Err(FileError::PermissionDenied);
            }
            permissions::change(&self.tree, path, &fd, Mode::from_raw_mode(mode & 0o7777))?;
        }
        if change.modified.is_some() || change.accessed.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed),
                last_modification: timespec(change.modified),
            };
            rustix::fs::utimensat(&fd, c"", &times, AtFlags::EMPTY_PATH).map_err(file_error)?;
        }
        Ok(())
    }

    fn make_symlink(&self, target: &[u8], path: &VirtualPath) -> Result<(), FileError> {
        self.writable()?;
        // A link could otherwise name what no path may.
        if target.is_empty()
            || target.contains(&0)
            || target.split(|&byte| byte == b'/').any(staging::is_reserved)
        {
            return Err(FileError::InvalidName);
        }
        let parent = self.parent_of_new(path)?;
        rustix::fs::symlinkat(target, &parent, path.name()).map_err(file_error)
    }

    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        self.writable()?;
        let (source, _, _) = self.open_regular(from, OFlags::RDONLY, Mode::empty(), Wait::Allowed)?;
        if to.is_root() {
            return Err(FileError::IsDirectory);
        }
        if staging::is_reserved(to.name()) {
            return Err(FileError::InvalidName);
        }
        copy::copy(&source, self.open_staged(to, false, None, Wait::Allowed)?, progress)
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        let fd = self.tree.open_at(path, OFlags::PATH, Mode::empty(), Wait::Allowed)?;
        let stat = rustix::fs::fstatvfs(&fd).map_err(file_error)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let (available, total) = (bytes(stat.f_bavail), bytes(stat.f_blocks));
        Ok(Space { available, total, held: None, quota: None })
    }

    fn open_partial(
        &self,
        path: &VirtualPath,
        key: &PartialKey,
        write: WriteMode,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        self.partials().open(self.partial_target(path, write)?, key, mode)
    }

    fn find_partial(&self, _: &VirtualPath, key: &PartialKey) -> Result<PartialState, FileError> {
        self.partials().find(key)
    }

    fn remove_partial(&self, _: &VirtualPath, key: &PartialKey) -> Result<(), FileError> {
        self.writable()?;
        self.partials().remove(key)
    }

    fn join_partials(
        &self,
        path: &VirtualPath,
        parts: &[(VirtualPath, PartialKey)],
        write: WriteMode,
    ) -> Result<Partial, FileError> {
        let keys: Vec<_> = parts.iter().map(|(_, key)| *key).collect();
        self.partials().join(self.partial_target(path, write)?, &keys)
    }

    fn resting(&self) -> Result<Resting, FileError> {
        self.partials.resting(&self.staging)
    }
}

/// Gives a directory that was just made the bits that the process's umask took from it.
fn widen_directory(parent: &OwnedFd, name: &[u8], bits: Mode) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return };
    if let Ok(stat) = rustix::fs::fstat(&directory) {
        metadata::widen(&directory, stat.st_mode, bits);
    }
}

fn rename_directory(
    old_parent: &OwnedFd,
    from: &[u8],
    new_parent: &OwnedFd,
    to: &[u8],
) -> Result<(), FileError> {
    match rustix::fs::renameat_with(old_parent, from, new_parent, to, RenameFlags::NOREPLACE) {
        // Either a directory into itself, or a file system that does not know the flag.
        Err(Errno::INVAL) => match metadata::of_entry(new_parent, to) {
            Ok(_) => Err(FileError::AlreadyExists),
            Err(FileError::NotFound) => {
                rustix::fs::renameat(old_parent, from, new_parent, to).map_err(file_error)
            }
            Err(error) => Err(error),
        },
        result => result.map_err(file_error),
    }
}

fn timespec(time: Option<Timestamp>) -> Timespec {
    match time {
        Some(time) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that vanishes with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("millrace-unit-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn is_empty(&self) -> bool {
            std::fs::read_dir(&self.0).unwrap().next().is_none()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_system_without_unnamed_files_conforms() {
        let scratch = Scratch::new("named");
        let mut storage = LocalStorage::open(&scratch.0, LocalOptions::default()).unwrap();
        storage.staged.unnamed = false;
        millrace_vfs::conformance::run(&storage);
        drop(storage);
        let storage = LocalStorage::open(&scratch.0, LocalOptions::default()).unwrap();
        let report = storage.sweep();
        assert_eq!((report.removed, report.failed), (0, 0));
        assert!(report.walked > 0, "a mark says that hidden names were beside their targets");
        assert!(scratch.is_empty());
    }

    /// Each with its whole lines, whoever else writes: a session, or a program of this machine with its log.
    #[test]
    fn two_who_append_at_once_overwrite_nobody() {
        use std::io::Write;
        for uploads in [Uploads::Staged, Uploads::InPlace] {
            let scratch = Scratch::new("appends");
            let storage =
                LocalStorage::open(&scratch.0, LocalOptions { uploads, ..LocalOptions::default() }).unwrap();
            let path: VirtualPath = VirtualPath::root().resolve(b"/log").unwrap();
            let open = || storage.open_write(&path, WriteMode::Append, Wait::Allowed).unwrap();
            let (mut one, mut other) = (open(), open());
            let log = scratch.0.join("log");
            let mut local = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
            for _ in 0..3 {
                one.write_all(b"1").unwrap();
                other.write_all(b"22").unwrap();
                local.write_all(b"3").unwrap();
            }
            other.undo();
            assert_eq!(one.commit().unwrap().size, 12);
            assert_eq!(std::fs::read(&log).unwrap(), b"122312231223");
        }
    }

    #[test]
    fn a_root_that_cannot_hold_the_staging_directory_conforms() {
        let scratch = Scratch::new("no-staging");
        let in_the_way = scratch.0.join(staging::DIRECTORY);
        std::fs::write(&in_the_way, "not a directory").unwrap();
        let storage = LocalStorage::open(&scratch.0, LocalOptions::default()).unwrap();
        millrace_vfs::conformance::run(&storage);
        std::fs::write(scratch.0.join(".millrace-1-2-3.part"), "dead").unwrap();
        let report = storage.sweep();
        assert_eq!((report.removed, report.failed, report.walked), (1, 0, 1));
        std::fs::remove_file(in_the_way).unwrap();
        assert!(scratch.is_empty());
    }
}
