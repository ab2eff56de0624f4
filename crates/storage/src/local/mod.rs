//! The local back end: a directory of this machine, and nothing outside it.
//!
//! Everything happens beneath one directory descriptor (`tree.rs`), so neither a path, nor a link, nor a concurrent
//! swap of links leads out of it. On a reactor thread ([`Wait::Never`]) only what the kernel has in its caches is
//! answered, and only where the file system is a local one; a download costs `openat2` and `fstat` there, and an upload
//! in place over an existing name the same.

mod copy;
#[cfg(test)]
mod crash;
mod directory;
mod disk;
mod durability;
mod errno;
mod in_place;
mod metadata;
mod opening;
mod ownership;
#[cfg(test)]
mod ownership_tests;
mod partial;
mod permissions;
mod root;
mod staged;
mod staging;
mod stored_hash;
mod sweep;
mod target;
mod tree;
mod upload;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrace_vfs::hash::{Algorithms, Hashes};
use millrace_vfs::{
    Change, DirEntry, Directory, FileError, FileKind, FileRange, Link, Metadata, Partial, PartialKey,
    PartialMode, PartialState, ReadHandle, Resting, Space, Storage, Timestamp, Upload, VirtualPath, Wait,
    WriteMode,
};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;
use thiserror::Error;

use directory::{Listing, read_link};
pub use disk::acting::as_user;
pub use durability::Durability;
use durability::Durable;
use errno::file_error;
use partial::Partials;
pub use root::{FoundDirectory, RootDirectory};
pub(crate) use staging::DIRECTORY as STAGING;
use staging::{StagingArea, refuse_reserved};
pub use sweep::SweepReport;
use tree::{Tree, descriptors_have_names};

use crate::hashed::PartialHashes;

/// How a `STOR` replaces a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uploads {
    /// Beside the name, which shows the old file or all of the new one.
    #[default]
    Staged,
    /// Into the file itself: the quickest, but what an interrupted upload leaves is its first part.
    InPlace,
}

/// The options of a [`LocalStorage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalOptions {
    /// How a `STOR` replaces a file.
    pub uploads: Uploads,
    /// What an acknowledged change survives.
    pub durability: Durability,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Permission bits of new files, less the umask of the process. A file that replaces another takes over
    /// the bits of the old one.
    pub file_mode: u32,
    /// Permission bits of new directories, less the umask of the process.
    pub directory_mode: u32,
    /// How long a partial upload is kept that is not continued.
    pub partial_age: Duration,
    /// What uploads are hashed by as their bytes pass, to be stored with their files.
    pub hashes: Algorithms,
    /// Whether servers on other machines serve the same tree, and go on with partial uploads of this one.
    pub is_shared: bool,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            uploads: Uploads::Staged,
            durability: Durability::default(),
            read_only: false,
            file_mode: 0o666,
            directory_mode: 0o777,
            partial_age: Duration::from_secs(24 * 3600),
            hashes: Algorithms::NONE,
            is_shared: false,
        }
    }
}

/// Why a directory cannot be served.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The directory cannot be opened.
    #[error("cannot serve {}: {source}", path.display())]
    Root {
        /// The path of the root.
        path: PathBuf,
        /// The system's error.
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
    partial_hashes: Arc<PartialHashes>,
    staged: staged::Settings,
    durable: Arc<Durable>,
    options: LocalOptions,
}

impl LocalStorage {
    /// Serves the directory `root`.
    pub fn open(root: &Path, options: LocalOptions) -> Result<Self, LocalError> {
        Tree::open(root).map(|tree| Self::with_tree(tree, options))
    }

    /// Serves a directory that was found by its descriptor.
    pub fn open_found(found: &FoundDirectory, options: LocalOptions) -> Result<Self, LocalError> {
        Tree::open_found(found).map(|tree| Self::with_tree(tree, options))
    }

    fn with_tree(tree: Tree, options: LocalOptions) -> Self {
        let tree = Arc::new(tree);
        let staging = Arc::new(StagingArea::new(Arc::clone(&tree)));
        let mode = Mode::from_raw_mode(options.file_mode & 0o7777);
        // Older kernels give a file without a name one by way of `/proc` alone.
        let unnamed = descriptors_have_names();
        let staged = staged::Settings { mode, bits: None, unnamed };
        let durable = Arc::new(Durable::new(options.durability));
        let (partials, partial_hashes) = Default::default();
        Self { tree, staging, partials, partial_hashes, staged, durable, options }
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

    /// Returns whether `found` is the directory that is served.
    pub fn is_served_from(&self, found: &FoundDirectory) -> bool {
        found.is(self.tree.root())
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

    fn hash_partial(&self, partial: Partial, key: &PartialKey) -> Partial {
        match self.options.hashes.is_empty() {
            true => partial,
            false => self.partial_hashes.follow(partial, key, self.options.hashes),
        }
    }

    fn partials(&self) -> partial::Place {
        partial::Place {
            area: Arc::clone(&self.staging),
            partials: Arc::clone(&self.partials),
            settings: self.staged,
            durable: Arc::clone(&self.durable),
            age: self.options.partial_age,
            is_shared: self.options.is_shared,
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
            // Other values of the kernel for a removed directory are of no use.
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
        disk::mkdirat(&parent, path.name(), mode).map_err(file_error)?;
        if bits.is_some() {
            widen_directory(&parent, path.name(), mode);
        }
        self.durable.name(parent)
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.writable()?;
        let parent = self.parent_of_old(path)?;
        disk::unlinkat(&parent, path.name(), AtFlags::REMOVEDIR).map_err(file_error)?;
        self.durable.name(parent)
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.writable()?;
        if path.is_root() {
            return Err(FileError::IsDirectory);
        }
        let parent = self.parent_of_old(path)?;
        disk::unlinkat(&parent, path.name(), AtFlags::empty()).map_err(file_error)?;
        self.durable.name(parent)
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        self.writable()?;
        let old_parent = self.parent_of_old(from)?;
        let new_parent = self.parent_of_new(to)?;
        let is_directory = metadata::of_entry(&old_parent, from.name())?.is_directory();
        if !is_directory || from == to {
            disk::renameat(&old_parent, from.name(), &new_parent, to.name()).map_err(file_error)?;
        } else {
            // A plain rename would replace an empty directory.
            rename_directory(&old_parent, from.name(), &new_parent, to.name())?;
        }
        self.durable.name(new_parent)?;
        match from.parent() == to.parent() {
            true => Ok(()),
            false => self.durable.name(old_parent),
        }
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        self.writable()?;
        let fd = self.tree.open_at(path, OFlags::PATH, Mode::empty(), Wait::Allowed)?;
        if change.user.is_some() || change.group.is_some() {
            let (user, group) = (change.user.map(Uid::from_raw), change.group.map(Gid::from_raw));
            disk::chownat(&fd, c"", user, group, AtFlags::EMPTY_PATH).map_err(file_error)?;
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
            let opened = match change.modified {
                Some(_) => self.open_regular(path, OFlags::RDONLY, Mode::empty(), Wait::Allowed).ok(),
                None => None,
            };
            let stored = opened.as_ref().and_then(|(file, ..)| stored_hash::fresh(file));
            disk::utimensat(&fd, c"", &times, AtFlags::EMPTY_PATH).map_err(file_error)?;
            // Hashes that held do so on; others must not because of a time that a client has chosen.
            match (&opened, stored) {
                (Some((file, ..)), Some(stored)) => stored_hash::store(file, stored.hashes, stored.size),
                (Some((file, ..)), None) => drop(stored_hash::take(file)),
                (None, _) => {}
            }
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
        disk::symlinkat(target, &parent, path.name()).map_err(file_error)?;
        self.durable.name(parent)
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

    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        let (file, _, _) = self.open_regular(path, OFlags::RDONLY, Mode::empty(), wait)?;
        Ok(stored_hash::fresh(&file).map(|stored| stored.hashes))
    }

    /// The back end has no rules of its own.
    fn may_replace(&self, _: &VirtualPath, _: bool) -> Result<(), FileError> {
        Ok(())
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        let fd = self.tree.open_at(path, OFlags::PATH, Mode::empty(), Wait::Allowed)?;
        let stat = disk::fstatvfs(&fd).map_err(file_error)?;
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
        let partial = self.partials().open(self.partial_target(path, write)?, key, mode)?;
        Ok(self.hash_partial(partial, key))
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
        let partial = self.partials().join(self.partial_target(path, write)?, &keys)?;
        Ok(match keys.first() {
            Some(key) => self.hash_partial(partial, key),
            None => partial,
        })
    }

    fn resting(&self) -> Result<Resting, FileError> {
        self.partials.resting(&self.staging, self.options.is_shared)
    }
}

/// Gives a directory that was just made the bits that the process's umask took from it.
fn widen_directory(parent: &OwnedFd, name: &[u8], bits: Mode) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = disk::openat(parent, name, flags, Mode::empty()) else { return };
    if let Ok(stat) = disk::fstat(&directory) {
        metadata::widen(&directory, stat.st_mode, bits);
    }
}

fn rename_directory(
    old_parent: &OwnedFd,
    from: &[u8],
    new_parent: &OwnedFd,
    to: &[u8],
) -> Result<(), FileError> {
    match disk::renameat_with(old_parent, from, new_parent, to, RenameFlags::NOREPLACE) {
        // Either a directory into itself, or a file system that does not know the flag.
        Err(Errno::INVAL) => match metadata::of_entry(new_parent, to) {
            Ok(_) => Err(FileError::AlreadyExists),
            Err(FileError::NotFound) => disk::renameat(old_parent, from, new_parent, to).map_err(file_error),
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
