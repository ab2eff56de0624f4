//! The system calls of the local back end, in one place: the list of what it does to a disk, for an audit.
//!
//! Everything else in this back end makes its calls by these names (a test looks). In the server they are the functions
//! of `rustix`, those that take rights by way of `acting.rs`; in the tests of this crate they are those of `observed.rs`,
//! which record each call and can have it fail.

#[cfg_attr(test, allow(dead_code, reason = "those calls are observed"))]
pub(super) mod acting;
#[cfg(test)]
pub(super) mod observed;
#[cfg(test)]
pub(super) mod recorder;
#[cfg(test)]
mod tests;

use std::fs::File;

use rustix::io::Errno;

#[cfg(not(test))]
use self::acting as calls_with_rights;
#[cfg(test)]
use self::{observed as calls, observed as calls_with_rights, observed as transfers};
#[cfg(not(test))]
use rustix::{fs as calls, io as transfers};

/// What a user's process does in another way than this one.
pub(super) use acting::{link_file, owner, set_mode};
/// The calls that take no right of the user's, or look for the server itself.
pub(super) use calls::{access, copy_file_range, flock, fstat, fstatfs, fstatvfs, ftruncate, open};
/// The calls that wait for the device.
pub(super) use calls::{fdatasync, fsync};
/// The calls for attributes of open files. They take the server's own rights: a user's files have no hashes.
pub(super) use calls::{fgetxattr, fremovexattr, fsetxattr};
/// The calls that look at names.
pub(super) use calls_with_rights::{accessat, readlinkat, statat, statx};
/// The calls that open, and those that change files and names.
pub(super) use calls_with_rights::{
    chmodat, chownat, fchmod, fchown, linkat, mkdirat, openat, openat2, renameat, renameat_with, symlinkat,
    unlinkat, utimensat,
};
/// The calls that move bytes. (`splice` and `sendfile` are the transfer's, on descriptors that it was given.)
pub(super) use transfers::{pread, pwrite};

/// Makes a second descriptor of an open file.
pub(super) fn duplicate(file: &File) -> rustix::io::Result<File> {
    #[cfg(test)]
    observed::watch("dup")?;
    rustix::io::fcntl_dupfd_cloexec(file, 3).map(File::from)
}

/// Closes a descriptor, and tells what went wrong: `close` of the standard library does not.
pub(super) fn close(file: File) -> rustix::io::Result<()> {
    #[cfg(test)]
    observed::watch("close")?;
    match nix::unistd::close(file) {
        Ok(()) | Err(nix::Error::EINTR) => Ok(()),
        Err(errno) => Err(Errno::from_raw_os_error(errno as i32)),
    }
}
