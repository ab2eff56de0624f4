//! The sweep: removes what killed processes left behind.
//!
//! The invariant: only hidden files that no living process holds are removed (see `staging.rs`).
//!
//! The usual cost is that of reading one directory, in which there is an entry for every process that was killed
//! in the microseconds between a link and a rename. The tree is walked only where hidden names may lie elsewhere:
//! a mark says so, or the root is not ours to write a mark to. A walk reads every directory (about a
//! million names a second from the caches, and as the disk allows otherwise), with at most 2 MiB of memory and a
//! descriptor a level, down to a depth of [`MOST_LEVELS`]. It follows no links, but crosses into other mounts, since
//! those are what cannot be staged from the root.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{Access, AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::disk;
use super::staging;
use super::tree::reopen_directory;

/// How deep a walk goes.
const MOST_LEVELS: usize = 128;

/// The buffer of one level.
const BUFFER: usize = 16 << 10;

/// The result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Leftovers that were removed.
    pub removed: u64,
    /// Hidden files that a living process uses.
    pub living: u64,
    /// Leftovers that could not be removed.
    pub failed: u64,
    /// Directories that could not be looked through: they are others' to read.
    pub unseen: u64,
    /// Directories that were walked; 0 where the staging directory told everything.
    pub walked: u64,
}

/// Sweeps the tree beneath `root`.
pub(super) fn sweep(root: &OwnedFd) -> SweepReport {
    let mut report = SweepReport::default();
    match staging::open(root) {
        Ok(directory) => {
            remove_leftovers(&directory, &mut report);
            sweep_elsewhere(root, &directory, &mut report);
            staging::remove_unused(root, &directory);
        }
        // Without a staging directory there was no place for a mark, unless there could have been one.
        Err(Errno::NOENT) if is_writable(root) => {}
        Err(_) => walk(root, MOST_LEVELS, &mut report),
    }
    report
}

/// Walks if the mark is set, and takes it away if it was a dead process's.
fn sweep_elsewhere(root: &OwnedFd, directory: &OwnedFd, report: &mut SweepReport) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(mark) = disk::openat(directory, staging::ELSEWHERE, flags, Mode::empty()) else { return };
    let is_dead = disk::flock(&mark, FlockOperation::NonBlockingLockExclusive).is_ok();
    let before = (report.failed, report.unseen);
    walk(root, MOST_LEVELS, report);
    if is_dead && (report.failed, report.unseen) == before {
        let _ = disk::unlinkat(directory, staging::ELSEWHERE, AtFlags::empty());
    }
}

fn is_writable(directory: &OwnedFd) -> bool {
    disk::accessat(directory, c".", Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Removes the leftovers of one directory.
fn remove_leftovers(directory: &OwnedFd, report: &mut SweepReport) {
    visit(directory, report, |name, _, report| {
        if staging::is_hidden_file(name.to_bytes()) {
            remove(directory, name, report);
        }
    });
}

/// Removes the leftovers of a directory and of those beneath it.
fn walk(directory: &OwnedFd, levels: usize, report: &mut SweepReport) {
    report.walked += 1;
    // A second descriptor has a position of its own.
    let Ok(directory) = reopen_directory(directory) else {
        report.unseen += 1;
        return;
    };
    visit(&directory, report, |name, kind, report| {
        if staging::is_hidden_file(name.to_bytes()) {
            remove(&directory, name, report);
        } else if matches!(kind, FileType::Directory | FileType::Unknown) && levels > 0 {
            descend(&directory, name, levels - 1, report);
        }
    });
}

fn descend(directory: &OwnedFd, name: &std::ffi::CStr, levels: usize, report: &mut SweepReport) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match disk::openat2(directory, name, flags, Mode::empty(), ResolveFlags::BENEATH) {
        Ok(child) => walk(&child, levels, report),
        // Gone, or no directory after all.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
        Err(_) => report.unseen += 1,
    }
}

fn visit(
    directory: &OwnedFd,
    report: &mut SweepReport,
    mut visit: impl FnMut(&std::ffi::CStr, FileType, &mut SweepReport),
) {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            Ok(entry) => visit(entry.file_name(), entry.file_type(), report),
            Err(Errno::INTR) => {}
            Err(_) => {
                report.unseen += 1;
                return;
            }
        }
    }
}

/// Removes a hidden file unless it is locked.
fn remove(directory: &OwnedFd, name: &std::ffi::CStr, report: &mut SweepReport) {
    match remove_unheld(directory, name) {
        Ok(()) => report.removed += 1,
        Err(Errno::WOULDBLOCK) => report.living += 1,
        // Its process took it away meanwhile.
        Err(Errno::NOENT) => {}
        Err(_) => report.failed += 1,
    }
}

fn remove_unheld(directory: &OwnedFd, name: &std::ffi::CStr) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = disk::openat(directory, name, flags, Mode::empty())?;
    disk::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    disk::unlinkat(directory, name, AtFlags::empty())
}
