//! Why a request is refused: the status and the reason for the client, and the limit for the log.

use millrace_http::{Refusal, Status};
use millrace_limits::Reached;
use millrace_vfs::{Counted, FileError, OverQuota, QuotaScope};

/// Why a change was not made.
#[derive(Debug)]
pub struct Refused {
    /// For the client.
    pub(crate) refusal: Refusal,
    /// For the log: which limit is in its way.
    pub(crate) reached: Option<Box<Reached>>,
}

impl Refused {
    /// It is a limit.
    pub(crate) fn because(status: Status, reason: &'static str, reached: Reached) -> Self {
        Self { refusal: Refusal { status, reason }, reached: Some(Box::new(reached)) }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, reached: None }
    }
}

impl From<FileError> for Refused {
    fn from(error: FileError) -> Self {
        let (status, reason) = status_of(&error);
        Self { refusal: Refusal { status, reason }, reached: Reached::by(&error).map(Box::new) }
    }
}

/// What a request is refused with.
pub(crate) fn refuse<T>(status: Status, reason: &'static str) -> Result<T, Refused> {
    Err(Refusal { status, reason }.into())
}

/// What a client is told of a change that failed.
pub(crate) fn status_of(error: &FileError) -> (Status, &'static str) {
    match error {
        FileError::NotFound | FileError::NotDirectory => {
            (Status::CONFLICT, "There is no such directory to put it in.")
        }
        FileError::InvalidName | FileError::NameTooLong | FileError::Loop => {
            (Status::FORBIDDEN, "This name cannot be used.")
        }
        FileError::PermissionDenied | FileError::NotRegular | FileError::ReadOnly => {
            (Status::FORBIDDEN, "This may not be changed.")
        }
        FileError::CrossDevice => (Status::FORBIDDEN, "It is in another place; copy it and delete it."),
        FileError::IsDirectory | FileError::NotEmpty => (Status::CONFLICT, "It is a directory."),
        FileError::AlreadyExists => (Status::PRECONDITION_FAILED, "It exists already."),
        FileError::OverQuota(over) => match over.counted {
            Counted::Bytes | Counted::Files => (Status::INSUFFICIENT_STORAGE, quota_reason(over)),
            _ => (Status::FORBIDDEN, quota_reason(over)),
        },
        FileError::NoSpace | FileError::QuotaExceeded => {
            (Status::INSUFFICIENT_STORAGE, "There is no room for it.")
        }
        FileError::TooLarge => (Status::CONTENT_TOO_LARGE, "It is too large."),
        FileError::Busy => (Status::LOCKED, "The resource is locked."),
        FileError::Exhausted => (Status::SERVICE_UNAVAILABLE, "The server is out of resources for now."),
        FileError::Unsupported => (Status::NOT_IMPLEMENTED, "This cannot be done with these files."),
        _ => (Status::INTERNAL_SERVER_ERROR, "The file system failed."),
    }
}

/// Which quota it is that is used up.
pub(crate) fn quota_reason(over: &OverQuota) -> &'static str {
    match (over.counted, &over.scope) {
        (Counted::Files, QuotaScope::Account) => "The quota of files of this account is used up.",
        (Counted::Files, QuotaScope::Folder(_)) => "The quota of files of this folder is used up.",
        (Counted::Bytes, QuotaScope::Account) => "The quota of bytes of this account is used up.",
        (Counted::Bytes, QuotaScope::Folder(_)) => "The quota of bytes of this folder is used up.",
        (Counted::Uploaded, _) => "This account may upload no more for now.",
        (Counted::Downloaded, _) => "This account may download no more for now.",
        (Counted::Moved, _) => "This account may transfer no more for now.",
        (Counted::Ratio, _) => "This account has to upload before it may download more.",
    }
}
