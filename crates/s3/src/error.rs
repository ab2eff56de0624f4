//! What can go wrong between here and the store.

use std::io;
use std::time::Duration;

use millrace_vfs::FileError;
use thiserror::Error;

/// Why a request has failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store refused it.
    #[error("the store answered {status} {code}{}{message}", if .message.is_empty() { "" } else { ": " })]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// The code, such as `NoSuchKey`.
        code: String,
        /// The store's words.
        message: String,
    },
    /// There was no connection, or it broke.
    #[error("{0}")]
    Connection(#[source] io::Error),
    /// No answer came in time.
    #[error("the store has not answered within {0:?}")]
    TimedOut(Duration),
    /// What came is no answer of S3.
    #[error("the store's answer cannot be read: {0}")]
    Malformed(&'static str),
}

impl StoreError {
    /// The status of a refusal.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns whether there is no such object.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, code, .. } if code != "NoSuchBucket")
    }

    /// Returns whether a condition of the request did not hold.
    pub(crate) fn is_failed_condition(&self) -> bool {
        self.status() == Some(412)
    }

    /// Returns whether the same request may succeed soon.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Refused { status, code, .. } => {
                matches!(status, 429 | 500 | 502 | 503 | 504)
                    || matches!(
                        &**code,
                        "RequestTimeout"
                            | "SlowDown"
                            | "InternalError"
                            | "OperationAborted"
                            | "ServiceUnavailable"
                    )
            }
            Self::Connection(_) | Self::TimedOut(_) => true,
            Self::Malformed(_) => false,
        }
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<hyper::Error> for StoreError {
    fn from(error: hyper::Error) -> Self {
        Self::Connection(io::Error::other(error))
    }
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        match &error {
            _ if error.is_missing() => Self::NotFound,
            StoreError::Refused { status: 403, .. } => Self::PermissionDenied,
            StoreError::Refused { status: 409, .. } => Self::Busy,
            StoreError::Refused { status: 412, .. } => Self::AlreadyExists,
            StoreError::Refused { status: 416, .. } => Self::OutOfRange,
            StoreError::Refused { status: 501, .. } => Self::Unsupported,
            StoreError::Refused { code, .. } => match &**code {
                "EntityTooLarge" => Self::TooLarge,
                "KeyTooLongError" => Self::NameTooLong,
                _ => Self::Io(io::Error::other(error)),
            },
            _ => Self::Io(io::Error::other(error)),
        }
    }
}
