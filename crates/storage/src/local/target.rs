//! Where a staged upload will land: the directory and the name, links followed.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_vfs::{FileError, FileKind, Metadata, VirtualPath, Wait};
use rustix::fs::{Access, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::directory::read_link;
use super::disk;
use super::errno::file_error;
use super::metadata;
use super::staging::{is_reserved, refuse_reserved};
use super::tree::Tree;

/// How many links a name may lead through (the kernel's own limit).
const MOST_LINKS: usize = 40;

/// Where a finished upload goes.
#[derive(Debug)]
pub(super) struct Target {
    /// The directory, held open: renaming it meanwhile does no harm.
    pub(super) directory: Arc<OwnedFd>,
    /// The name in it.
    pub(super) name: Vec<u8>,
    /// The name's entry when the upload began.
    pub(super) old: Option<Metadata>,
    /// Whether the name must still be free at the end.
    pub(super) exclusive: bool,
}

impl Target {
    /// Why something failed here. In a directory that was removed under us the kernel gives other reasons.
    pub(super) fn reason(&self, error: FileError) -> FileError {
        match disk::fstat(&*self.directory) {
            Ok(stat) if stat.st_nlink == 0 => FileError::NotFound,
            _ => error,
        }
    }
}

/// The target of an upload, as far as it is known.
#[derive(Debug)]
pub(super) enum Destination {
    /// Everything.
    Found(Target),
    /// That its directory is there and may be written to; whether the name is taken is not in the kernel's
    /// caches, and is looked up with the first byte, where waiting is allowed. Nearly always: a new name.
    Unseen(Arc<Tree>, VirtualPath, bool),
}

/// Finds out where an upload to `path` goes, and that it may; where the caller cannot wait, as far as that is
/// in the kernel's caches.
pub(super) fn find(
    tree: &Arc<Tree>,
    path: &VirtualPath,
    exclusive: bool,
    wait: Wait,
) -> Result<Destination, FileError> {
    refuse_reserved(&path.parent(), FileError::NotFound)?;
    let mut parent = path.parent().relative().to_vec();
    let mut name = path.name().to_vec();
    for _ in 0..MOST_LINKS {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = tree.open_relative(&parent, flags, Mode::empty(), wait)?;
        let old = match look_up(&directory, &name, wait) {
            Err(FileError::WouldWait) => {
                require_access(&directory, c".", Access::WRITE_OK | Access::EXEC_OK)?;
                return Ok(Destination::Unseen(Arc::clone(tree), path.clone(), exclusive));
            }
            old => old?,
        };
        match old.map(|old| old.kind) {
            Some(_) if exclusive => return Err(FileError::AlreadyExists),
            Some(FileKind::Directory) => return Err(FileError::IsDirectory),
            Some(FileKind::Other(_)) => return Err(FileError::NotRegular),
            // The text of a long link lies on the device.
            Some(FileKind::Symlink) if wait == Wait::Never => return Err(FileError::WouldWait),
            Some(FileKind::Symlink) => (parent, name) = follow(&directory, &parent, &name)?,
            Some(FileKind::File) | None => {
                require_access(&directory, c".", Access::WRITE_OK | Access::EXEC_OK)?;
                if old.is_some() {
                    require_access(&directory, &name[..], Access::WRITE_OK)?;
                }
                return Ok(Destination::Found(Target {
                    directory: Arc::new(directory),
                    name,
                    old,
                    exclusive,
                }));
            }
        }
    }
    Err(FileError::Loop)
}

/// The directory that holds what `path` leads to.
pub(super) fn directory_of(tree: &Tree, path: &VirtualPath, wait: Wait) -> Result<OwnedFd, FileError> {
    let (mut parent, mut name) = (path.parent().relative().to_vec(), path.name().to_vec());
    for _ in 0..MOST_LINKS {
        let directory = tree.open_relative(&parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), wait)?;
        match look_up(&directory, &name, wait)?.map(|found| found.kind) {
            Some(FileKind::Symlink) if wait == Wait::Never => return Err(FileError::WouldWait),
            Some(FileKind::Symlink) => (parent, name) = follow(&directory, &parent, &name)?,
            _ => return Ok(directory),
        }
    }
    Err(FileError::Loop)
}

impl Destination {
    /// The target, looked up now if it was not before.
    pub(super) fn target(&mut self) -> Result<&Target, FileError> {
        if let Self::Unseen(tree, path, exclusive) = self {
            *self = find(tree, path, *exclusive, Wait::Allowed)?;
        }
        match self {
            Self::Found(target) => Ok(target),
            Self::Unseen(..) => Err(FileError::WouldWait),
        }
    }
}

/// The entry itself, from the caches only where the caller cannot wait.
fn look_up(directory: &OwnedFd, name: &[u8], wait: Wait) -> Result<Option<Metadata>, FileError> {
    let mut resolve = ResolveFlags::BENEATH;
    if wait == Wait::Never {
        resolve |= ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match disk::openat2(directory, name, flags, Mode::empty(), resolve) {
        Ok(fd) => metadata::of_descriptor(fd).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::AGAIN | Errno::XDEV) if wait == Wait::Never => Err(FileError::WouldWait),
        Err(errno) => Err(file_error(errno)),
    }
}

/// One link further: the directory and name that the link's text means, relative to the root.
fn follow(directory: &OwnedFd, parent: &[u8], name: &[u8]) -> Result<(Vec<u8>, Vec<u8>), FileError> {
    let text = read_link(directory, name)?;
    if text.first() == Some(&b'/') {
        return Err(FileError::PermissionDenied);
    }
    let split = text.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (way, last) = text.split_at(split);
    match last {
        b"" | b"." | b".." => Err(FileError::IsDirectory),
        _ if is_reserved(last) => Err(FileError::PermissionDenied),
        _ => Ok(([parent, b"/", way].concat(), last.to_vec())),
    }
}

fn require_access<P: rustix::path::Arg>(
    directory: &OwnedFd,
    name: P,
    access: Access,
) -> Result<(), FileError> {
    disk::accessat(directory, name, access, AtFlags::EACCESS).map_err(file_error)
}
