//! The errors of files, in terms that a protocol can turn into an honest reply.

use std::io;

use thiserror::Error;

use crate::OverQuota;

/// Why a storage operation failed.
///
/// Every variant names a cause that a client can act on; what has no better name is [`FileError::Io`].
#[derive(Debug, Error)]
pub enum FileError {
    /// No such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// The operating system, or a link that leads out of the tree, forbids it.
    #[error("permission denied")]
    PermissionDenied,
    /// A directory where a file was expected.
    #[error("is a directory")]
    IsDirectory,
    /// A file where a directory was expected.
    #[error("not a directory")]
    NotDirectory,
    /// Neither file nor directory: a device, a socket, a pipe.
    #[error("not a regular file")]
    NotRegular,
    /// The name is taken.
    #[error("already exists")]
    AlreadyExists,
    /// A directory that still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// A name that this back end cannot hold, or one that it reserves for itself.
    #[error("name not allowed")]
    InvalidName,
    /// The name or the path is too long for this back end.
    #[error("file name too long")]
    NameTooLong,
    /// Too many symbolic links in the path.
    #[error("too many levels of symbolic links")]
    Loop,
    /// The back end, or this part of it, takes no changes.
    #[error("read-only")]
    ReadOnly,
    /// The device is full.
    #[error("no space left on device")]
    NoSpace,
    /// A quota of the device is used up.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// A quota of the server's own is used up.
    #[error("{0}")]
    OverQuota(Box<OverQuota>),
    /// The file would grow beyond what the back end can hold.
    #[error("file too large")]
    TooLarge,
    /// An offset beyond the end of the file.
    #[error("offset is beyond the end of the file")]
    OutOfRange,
    /// The process is out of descriptors or memory for now.
    #[error("server is out of resources")]
    Exhausted,
    /// The source and the target lie on different devices.
    #[error("it is in another place; copy it and delete it")]
    CrossDevice,
    /// This back end cannot do that at all.
    #[error("not supported")]
    Unsupported,
    /// Another user has it now: a later upload, or the system.
    #[error("in use; try again later")]
    Busy,
    /// The operation was cancelled by its caller.
    #[error("cancelled")]
    Cancelled,
    /// Not an error of the file: the answer is not in memory, and the caller said
    /// [`Wait::Never`](crate::Wait::Never). Ask again where waiting is allowed.
    #[error("would wait for the device")]
    WouldWait,
    /// Anything else that the system reported.
    #[error("input/output error: {0}")]
    Io(#[source] io::Error),
}

impl FileError {
    /// Returns true if the same request may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy | Self::Exhausted | Self::NoSpace | Self::Io(_) | Self::WouldWait)
    }
}

impl From<OverQuota> for FileError {
    fn from(over: OverQuota) -> Self {
        Self::OverQuota(Box::new(over))
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::NotFound => Self::NotFound,
            Kind::PermissionDenied => Self::PermissionDenied,
            Kind::AlreadyExists => Self::AlreadyExists,
            Kind::IsADirectory => Self::IsDirectory,
            Kind::NotADirectory => Self::NotDirectory,
            Kind::DirectoryNotEmpty => Self::NotEmpty,
            Kind::ReadOnlyFilesystem => Self::ReadOnly,
            Kind::StorageFull => Self::NoSpace,
            Kind::QuotaExceeded => Self::QuotaExceeded,
            Kind::FileTooLarge => Self::TooLarge,
            Kind::InvalidFilename => Self::NameTooLong,
            Kind::CrossesDevices => Self::CrossDevice,
            Kind::Unsupported => Self::Unsupported,
            Kind::OutOfMemory => Self::Exhausted,
            // A running program cannot be written to, and a mount point cannot be removed. (Other errors name their
            // cause.)
            Kind::ExecutableFileBusy | Kind::ResourceBusy if error.raw_os_error().is_some() => Self::Busy,
            Kind::WouldBlock => Self::WouldWait,
            _ => Self::Io(error),
        }
    }
}
