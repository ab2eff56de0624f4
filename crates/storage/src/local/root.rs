//! A directory that is held open, and directories found beneath it to be served as trees of their own.
//!
//! The invariant: no descriptor that leaves this file lies outside the root, whatever links there are, even if they are
//! swapped meanwhile. The kernel resolves every name beneath the root's descriptor (`openat2` with `RESOLVE_BENEATH`),
//! and the file is served by its descriptor, never looked up again.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_vfs::Wait;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::disk;
use super::tree::{CONFINED, open_confined};

/// How a directory is opened that is only looked up.
const LOOKED_UP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How the root's own path is resolved: it had no links, so a link in it now was added since.
const WITHOUT_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

/// A directory, held by its descriptor, that other directories are found beneath.
#[derive(Debug)]
pub struct RootDirectory {
    path: PathBuf,
    /// `None` while the directory could never be opened. Guarded for a comparison.
    held: Mutex<Option<Arc<OwnedFd>>>,
}

/// A directory beneath a [`RootDirectory`], held by its descriptor.
#[derive(Debug)]
pub struct FoundDirectory {
    directory: OwnedFd,
    path: PathBuf,
}

impl RootDirectory {
    /// Opens `path`, which is absolute and has no links in it. If it does not exist yet, it is opened when it is
    /// needed.
    pub fn new(path: PathBuf) -> Self {
        let held = open_root(&path, Wait::Allowed).ok().map(Arc::new);
        Self { path, held: Mutex::new(held) }
    }

    /// Where the directory was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finds `folder` beneath the root; the empty path is the root itself. A link is followed as long as it stays
    /// beneath; [`io::ErrorKind::CrossesDevices`] is the error of one that leads out, and
    /// [`io::ErrorKind::WouldBlock`] that of what only a wait could tell.
    pub fn find(&self, folder: &Path, wait: Wait) -> io::Result<FoundDirectory> {
        let root = self.root(wait)?;
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let directory = match open_confined(&root, folder, LOOKED_UP, wait) {
            Err(Errno::XDEV) if wait == Wait::Allowed => self.find_by_absolute_link(&root, folder)?,
            found => found?,
        };
        Ok(FoundDirectory { directory, path: self.path.join(folder) })
    }

    /// For the kernel, an absolute link leads out of the root, even if its target is within. Its target is only a hint:
    /// that place is looked up beneath the root in turn, with no link left to follow.
    fn find_by_absolute_link(&self, root: &OwnedFd, folder: &Path) -> io::Result<OwnedFd> {
        let named = self.path.join(folder).canonicalize()?;
        let within = named.strip_prefix(&self.path).map_err(|_| Errno::XDEV)?;
        let within = if within.as_os_str().is_empty() { Path::new(".") } else { within };
        Ok(disk::openat2(root, within, LOOKED_UP, Mode::empty(), CONFINED | ResolveFlags::NO_SYMLINKS)?)
    }

    /// The root's descriptor: the one that is held, unless the operator has put another directory in its place.
    fn root(&self, wait: Wait) -> io::Result<Arc<OwnedFd>> {
        let there = open_root(&self.path, wait);
        // Compared without the lock, which every use of the tree takes.
        let held = self.lock().clone();
        match (held, there) {
            (Some(ours), Ok(there)) if is_same(&ours, &there)? => Ok(ours),
            (_, Ok(there)) => Ok(Arc::clone(self.lock().insert(Arc::new(there)))),
            (_, Err(errno @ (Errno::AGAIN | Errno::INVAL))) if wait == Wait::Never => {
                Err(if errno == Errno::INVAL { Errno::AGAIN } else { errno }.into())
            }
            // Moved away, or a link is in its place: the directory is still the one that was named.
            (Some(ours), Err(_)) => Ok(ours),
            (None, Err(errno)) => Err(errno.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FoundDirectory {
    /// Makes the directory `name` in this one, unless the name is taken.
    pub fn make(&self, name: &OsStr) -> io::Result<()> {
        match disk::mkdirat(&self.directory, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Where it was found, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether `other` is the same directory.
    pub(super) fn is(&self, other: impl AsFd) -> bool {
        is_same(&self.directory, other).unwrap_or(false)
    }
}

impl AsFd for FoundDirectory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

fn open_root(path: &Path, wait: Wait) -> rustix::io::Result<OwnedFd> {
    let cached = if wait == Wait::Never { ResolveFlags::CACHED } else { ResolveFlags::empty() };
    rustix::io::retry_on_intr(|| disk::openat2(CWD, path, LOOKED_UP, Mode::empty(), WITHOUT_LINKS | cached))
}

fn is_same(one: impl AsFd, other: impl AsFd) -> rustix::io::Result<bool> {
    let (one, other) = (disk::fstat(one)?, disk::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
