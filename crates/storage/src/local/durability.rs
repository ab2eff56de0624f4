//! The durability of acknowledged changes, and the system calls that ensure it.
//!
//! The order is what promises: a file's bytes are on the device before its name leads to them, and the name is on the
//! device before the change is acknowledged, as far as the level asks for either. A failed call fails the change for
//! good: the kernel reports an error of the device once, and a repeated call would succeed without the bytes.
//!
//! Many changes share a wait: those of one directory that come while it is being written to the device wait for one
//! further call together. Calls for different files are made side by side, and the file systems commit them together.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use millrace_vfs::{FileError, Readiness};
use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};

use super::errno::transfer_error;
use super::{disk, metadata};

/// What an acknowledged change survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A crash of the server. A power cut may undo the change, and leave a new file empty or half.
    None,
    /// Of a power cut: an acknowledged file is never empty or half. The change of a name may be undone.
    #[default]
    Whole,
    /// A power cut, with its name.
    Full,
}

/// Makes the changes of one tree durable.
#[derive(Debug, Default)]
pub(super) struct Durable {
    level: Durability,
    directories: GroupCommit,
}

impl Durable {
    /// Keeps to a level.
    pub(super) fn new(level: Durability) -> Self {
        Self { level, directories: GroupCommit::default() }
    }

    /// Returns whether [`Durable::bytes`] or [`Durable::name`] may wait for a file on such a file system.
    pub(super) fn waits(&self, readiness: Readiness) -> bool {
        self.level != Durability::None || readiness == Readiness::MayHang
    }

    /// Returns whether a file without a name has to get one before [`Durable::bytes`].
    ///
    /// btrfs logs nothing of a file that has no link (`btrfs_log_inode_parent`). The name that it gets later may reach the
    /// log by the synchronisation of a directory, and then leads to an empty file after a power cut, acknowledged or not:
    /// seen on Linux 6.1. Of ext4 and XFS it is known that they keep the size; others are not asked to.
    pub(super) fn wants_name(&self, file: &File) -> bool {
        self.level != Durability::None && !metadata::keeps_unnamed(file)
    }

    /// Waits until a file's bytes are where the level wants them. A file system that is not known to be a local one
    /// (NFS, CIFS, FUSE) may tell only now that it has no room for them: there every level waits.
    pub(super) fn bytes(&self, file: &File) -> Result<(), FileError> {
        // Such a file system may tell at the end of a file only that it cannot hold it.
        let is_remote = metadata::readiness_of(file) == Readiness::MayHang;
        if self.level != Durability::None || is_remote {
            retry_on_intr(|| disk::fdatasync(file)).map_err(transfer_error)?;
        }
        if is_remote {
            close_copy(file)?;
        }
        Ok(())
    }

    /// Returns whether anything is promised of power cuts.
    pub(super) fn survives_power_cuts(&self) -> bool {
        self.level != Durability::None
    }

    /// Returns whether the names of changes are promised.
    pub(super) fn keeps_names(&self) -> bool {
        self.level == Durability::Full
    }

    /// As [`Durable::bytes`], of a file of the server's own that says that others' bytes are there.
    pub(super) fn mark(&self, file: &File) -> Result<(), FileError> {
        match self.survives_power_cuts() {
            true => retry_on_intr(|| disk::fdatasync(file)).map_err(transfer_error),
            false => Ok(()),
        }
    }

    /// Waits until the names in a directory are where the level wants them.
    pub(super) fn name(&self, directory: impl AsFd) -> Result<(), FileError> {
        match self.keeps_names() {
            true => self.synchronise(directory),
            false => Ok(()),
        }
    }

    /// The same of names without which acknowledged bytes would be lost: that is not `whole`, either.
    pub(super) fn name_of_whole(&self, directory: impl AsFd) -> Result<(), FileError> {
        match self.survives_power_cuts() {
            true => self.synchronise(directory),
            false => Ok(()),
        }
    }

    fn synchronise(&self, directory: impl AsFd) -> Result<(), FileError> {
        let stat = disk::fstat(&directory).map_err(transfer_error)?;
        let synchronise = || synchronise_directory(&directory);
        self.directories.run((stat.st_dev, stat.st_ino), synchronise).map_err(transfer_error)
    }
}

/// Some file systems write when a descriptor is closed, and tell what went wrong only then.
fn close_copy(file: &File) -> Result<(), FileError> {
    disk::duplicate(file).and_then(disk::close).map_err(transfer_error)
}

/// Waits until the names in a directory are on the device.
pub(super) fn synchronise_directory(directory: impl AsFd) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = disk::openat(directory, c".", flags, rustix::fs::Mode::empty())?;
    match retry_on_intr(|| disk::fsync(&opened)) {
        // A file system that has nothing to do for a directory.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}

/// Calls for the same thing, of which those that wait meanwhile share the next one.
#[derive(Debug, Default)]
struct GroupCommit {
    groups: Mutex<HashMap<(u64, u64), Group>>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Group {
    is_running: bool,
    /// The round that has not begun.
    next: Option<Arc<Round>>,
}

/// The result of one call.
type Round = OnceLock<rustix::io::Result<()>>;

impl GroupCommit {
    /// Makes a call, or waits for one that another thread begins after now, and returns what came of it.
    fn run(&self, key: (u64, u64), call: impl FnOnce() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let round = Arc::clone(groups.entry(key).or_default().next.get_or_insert_default());
        loop {
            if let Some(result) = round.get() {
                return *result;
            }
            let group = groups.entry(key).or_default();
            if !group.is_running {
                group.is_running = true;
                group.next = None;
                break;
            }
            groups = self.ended.wait(groups).unwrap_or_else(PoisonError::into_inner);
        }
        drop(groups);
        let result = *round.get_or_init(call);
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get_mut(&key) {
            group.is_running = false;
            if group.next.is_none() {
                groups.remove(&key);
            }
        }
        self.ended.notify_all();
        result
    }
}

#[cfg(test)]
mod tests;
