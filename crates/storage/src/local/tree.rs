//! The tree: one directory descriptor, and every lookup beneath it.
//!
//! The invariant: no descriptor that leaves this file lies outside the directory that was opened at the start, whatever
//! links there are, even if they are swapped meanwhile. The kernel keeps it (`openat2` with `RESOLVE_BENEATH`), not a
//! check of ours that a rename could race with. A link within the tree is followed; an absolute one or one that climbs
//! above the root is [`FileError::PermissionDenied`].
//!
//! Changes of a directory are relative to a descriptor of the parent and name one component, so the last step follows
//! no link either.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use millrace_vfs::{FileError, Metadata, Readiness, VirtualPath, Wait};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::disk;
use super::errno::{file_error, lookup_error};
use super::root::FoundDirectory;
use super::{LocalError, metadata, staging};

/// How every path is resolved.
pub(super) const CONFINED: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Added on a reactor thread: from the kernel's caches only, and only on the root's own file system, whose
/// kind is known.
const INLINE: ResolveFlags = CONFINED.union(ResolveFlags::CACHED).union(ResolveFlags::NO_XDEV);

/// How often a lookup is repeated that something disturbed. The kernel answers `EAGAIN` when a `..` (only a
/// link can hold one) raced with a rename anywhere in the system, and while another server (Samba) gives
/// back its lease of the file; so the first tries follow at once, and the later ones after a pause.
const LOOKUP_ATTEMPTS: usize = 64;

/// How many of them follow at once.
const LOOKUP_ATTEMPTS_AT_ONCE: usize = 32;

/// The pause before the others.
const LOOKUP_PAUSE: Duration = Duration::from_millis(2);

/// The served directory.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    device: u64,
    readiness: Readiness,
    answers_inline: bool,
}

impl Tree {
    /// Opens `path` as the root and finds out what the kernel can do there.
    pub(super) fn open(path: &Path) -> Result<Self, LocalError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = disk::open(path, flags, Mode::empty())
            .map_err(|errno| LocalError::Root { path: path.to_owned(), source: errno.into() })?;
        Self::with_root(root, path)
    }

    /// Takes a directory that was found by its descriptor as the root.
    pub(super) fn open_found(found: &FoundDirectory) -> Result<Self, LocalError> {
        let root_error = |source| LocalError::Root { path: found.path().to_owned(), source };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            disk::openat(found, c".", flags, Mode::empty()).map_err(|errno| root_error(errno.into()))?;
        Self::with_root(root, found.path())
    }

    fn with_root(root: OwnedFd, path: &Path) -> Result<Self, LocalError> {
        let root_error = |errno: Errno| LocalError::Root { path: path.to_owned(), source: errno.into() };
        let device = disk::fstat(&root).map_err(root_error)?.st_dev;
        require_confinement(&root)?;
        let readiness = metadata::readiness_of(&root);
        let answers_inline = readiness == Readiness::Cached && knows_cached_lookups(&root);
        Ok(Self { root, device, readiness, answers_inline })
    }

    /// The root's descriptor.
    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Returns true if the root itself has been removed.
    pub(super) fn is_removed(&self) -> bool {
        disk::fstat(&self.root).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Opens what `path` stands for, links followed.
    pub(super) fn open_at(
        &self,
        path: &VirtualPath,
        flags: OFlags,
        mode: Mode,
        wait: Wait,
    ) -> Result<OwnedFd, FileError> {
        staging::refuse_reserved(path, FileError::NotFound)?;
        self.open_relative(path.relative(), flags, mode, wait)
    }

    /// As `open_at`, for bytes that may hold `..`, as links do.
    pub(super) fn open_relative(
        &self,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
        wait: Wait,
    ) -> Result<OwnedFd, FileError> {
        match wait {
            Wait::Never => self.open_cached(path, flags, mode),
            Wait::Allowed => self.open_waiting(path, flags, mode),
        }
    }

    fn open_cached(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, FileError> {
        if !self.answers_inline {
            return Err(FileError::WouldWait);
        }
        disk::openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, INLINE).map_err(|errno| {
            match errno {
                // Not in the caches; on another file system, or out of the tree: the pool will tell which.
                Errno::AGAIN | Errno::XDEV => FileError::WouldWait,
                other => file_error(other),
            }
        })
    }

    fn open_waiting(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, FileError> {
        open_waiting(&self.root, path, flags, mode).map_err(lookup_error)
    }

    /// Opens the directory that holds `path`, for calls that name the last component themselves. The root
    /// has no such directory: nothing may replace or remove it.
    pub(super) fn parent(&self, path: &VirtualPath, wait: Wait) -> Result<OwnedFd, FileError> {
        if path.is_root() {
            return Err(FileError::PermissionDenied);
        }
        self.open_at(&path.parent(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), wait)
    }

    /// The metadata of `path`, links followed.
    pub(super) fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        if path.is_root() {
            return match self.answers_inline || wait == Wait::Allowed {
                true => metadata::of_descriptor(&self.root),
                false => Err(FileError::WouldWait),
            };
        }
        metadata::of_descriptor(self.open_at(path, OFlags::PATH, Mode::empty(), wait)?)
    }

    /// The device of the root.
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// Whether a reactor thread may touch an open file of the device `device`.
    pub(super) fn readiness(&self, fd: impl AsFd, device: u64) -> Readiness {
        match device == self.device {
            true => self.readiness,
            false => metadata::readiness_of(fd),
        }
    }
}

/// Opens what `path` stands for beneath `root`, repeated where something disturbed the lookup.
fn open_waiting<P: rustix::path::Arg + Copy>(
    root: &OwnedFd,
    path: P,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    for attempt in 0.. {
        match disk::openat2(root, path, flags | OFlags::CLOEXEC, mode, CONFINED) {
            Err(Errno::AGAIN | Errno::INTR) if attempt < LOOKUP_ATTEMPTS => {}
            result => return result,
        }
        if attempt >= LOOKUP_ATTEMPTS_AT_ONCE {
            std::thread::sleep(LOOKUP_PAUSE);
        }
    }
    unreachable!("the last attempt is answered, whatever it says")
}

/// Opens what `path` stands for beneath `root`; with [`Wait::Never`] from the kernel's caches, or `EAGAIN`.
pub(super) fn open_confined(
    root: &OwnedFd,
    path: &Path,
    flags: OFlags,
    wait: Wait,
) -> rustix::io::Result<OwnedFd> {
    match wait {
        Wait::Allowed => open_waiting(root, path, flags, Mode::empty()),
        Wait::Never => {
            let cached = CONFINED | ResolveFlags::CACHED;
            match disk::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), cached) {
                // A kernel that knows no cached lookups; or a link of which only a wait can tell where it leads.
                Err(Errno::INVAL | Errno::XDEV) => Err(Errno::AGAIN),
                found => found,
            }
        }
    }
}

/// Without `openat2` (Linux 5.6) nothing keeps a link from leading out; then there is no serving at all.
fn require_confinement(root: &OwnedFd) -> Result<(), LocalError> {
    disk::openat2(root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), CONFINED)
        .map(drop)
        .map_err(|errno| LocalError::NoConfinement(errno.into()))
}

/// `RESOLVE_CACHED` came with Linux 5.12; before that every lookup goes to the pool.
fn knows_cached_lookups(root: &OwnedFd) -> bool {
    disk::openat2(root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), INLINE).is_ok()
}

/// Opens a second descriptor of the directory behind an `O_PATH` one, to read or to synchronise.
pub(super) fn reopen_directory(directory: impl AsFd) -> Result<OwnedFd, FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    disk::openat(directory, c".", flags, Mode::empty()).map_err(file_error)
}

/// Where the kernel has names for open descriptors, if `/proc` is mounted.
pub(super) const DESCRIPTORS: &str = "/proc/self/fd";

/// The path by which the kernel names an open descriptor, for the calls that take no `O_PATH` descriptor.
pub(super) fn magic_link(fd: impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("{DESCRIPTORS}/{}", fd.as_fd().as_raw_fd())
}

/// Returns true if `/proc` is mounted.
pub(super) fn descriptors_have_names() -> bool {
    disk::access(DESCRIPTORS, rustix::fs::Access::EXISTS).is_ok()
}
