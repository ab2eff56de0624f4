//! Converts the kernel's errors to [`FileError`].
//!
//! The only place where an errno is given a meaning. `EXDEV` has two: from a lookup it is a link that leads
//! out of the tree, from a rename or a link it is another device.

use millrace_vfs::FileError;
use rustix::io::Errno;

/// The meaning of an error of any call but a lookup.
pub(super) fn file_error(errno: Errno) -> FileError {
    match errno {
        Errno::LOOP => FileError::Loop,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => FileError::Exhausted,
        Errno::NXIO | Errno::NODEV => FileError::NotRegular,
        Errno::OPNOTSUPP | Errno::NOSYS => FileError::Unsupported,
        // A file system that takes fewer names than ours: vfat refuses `:`, casefolded ext4 refuses names that are not
        // UTF-8.
        Errno::INVAL | Errno::ILSEQ => FileError::InvalidName,
        // Never `WouldWait`: that is a promise about lookups, and this was none.
        Errno::AGAIN => FileError::Io(errno.into()),
        other => std::io::Error::from(other).into(),
    }
}

/// The meaning of an error of `openat2` where waiting was allowed.
pub(super) fn lookup_error(errno: Errno) -> FileError {
    match errno {
        Errno::XDEV => FileError::PermissionDenied,
        other => file_error(other),
    }
}

/// The meaning of an error of `read`, `write` and their kin, where no name is involved.
pub(super) fn transfer_error(errno: Errno) -> FileError {
    match errno {
        Errno::INVAL => FileError::Io(errno.into()),
        other => file_error(other),
    }
}
