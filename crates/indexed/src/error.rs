//! Why the database gives no answer.

use std::io;
use std::time::Duration;

use millrace_storage::PostgresError;
use millrace_vfs::FileError;
use thiserror::Error;
use tokio_postgres::error::SqlState;

/// An error of a question.
#[derive(Debug, Error)]
pub(crate) enum IndexError {
    /// The database, or the way there.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// No answer came in time.
    #[error("the database has not answered within {0:?}")]
    TimedOut(Duration),
    /// It was away a moment ago, for this reason.
    #[error("{0}")]
    Away(String),
    /// The tables have a form that this version does not know.
    #[error("the tables of names are of a later version of Millrace")]
    LaterTables,
    /// The question has an answer that is an error of the file.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<tokio_postgres::Error> for IndexError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(PostgresError(error))
    }
}

impl IndexError {
    fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Postgres(error) => error.0.code(),
            _ => None,
        }
    }

    /// Returns whether the connection is of no more use.
    pub(crate) fn is_loss(&self) -> bool {
        let shut_down = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
        match self {
            Self::Postgres(_) => self.code().is_none_or(|code| shut_down.contains(code)),
            Self::TimedOut(_) | Self::Away(_) => true,
            Self::LaterTables | Self::File(_) => false,
        }
    }

    /// Returns whether another change stood in the way, and none of this one was done.
    pub(crate) fn is_conflict(&self) -> bool {
        let conflicts = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
        self.code().is_some_and(|code| conflicts.contains(code))
    }
}

impl From<IndexError> for FileError {
    fn from(error: IndexError) -> Self {
        if let IndexError::File(error) = error {
            return error;
        }
        match error.code() {
            Some(code) if *code == SqlState::DISK_FULL => Self::NoSpace,
            Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::ReadOnly,
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::PermissionDenied,
            Some(_) if error.is_conflict() => Self::Exhausted,
            _ if error.is_loss() => Self::Io(io::Error::new(io::ErrorKind::NotConnected, error)),
            _ => Self::Io(io::Error::other(error)),
        }
    }
}
