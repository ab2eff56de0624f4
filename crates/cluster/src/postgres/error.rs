//! Why PostgreSQL gives no answer, as the driver says it.

use millrace_storage::PostgresError;
use thiserror::Error;
use tokio_postgres::error::SqlState;

use crate::table::TableError;

/// An error of a question.
#[derive(Debug, Error)]
pub(super) enum ClusterError {
    #[error(transparent)]
    Server(#[from] PostgresError),
    #[error("{0} is no answer")]
    Answer(String),
    #[error("the tables are of a later version")]
    LaterTables,
}

impl ClusterError {
    /// Returns whether it is about what the database was given: a value that it cannot have, or what a function of ours refuses.
    fn is_about_data(&self) -> bool {
        let Self::Server(PostgresError(error)) = self else { return false };
        let class = error.code().and_then(|code| code.code().get(..2));
        matches!(class, Some("22" | "23" | "P0"))
    }
}

impl ClusterError {
    /// Returns whether the database has waited for a lock as long as a function of ours may.
    fn is_about_a_lock(&self) -> bool {
        let Self::Server(PostgresError(error)) = self else { return false };
        error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }
}

impl From<tokio_postgres::Error> for ClusterError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(PostgresError(error))
    }
}

impl From<ClusterError> for TableError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::LaterTables => Self::LaterTables,
            error if error.is_about_a_lock() => Self::Locked(Box::new(error)),
            error if error.is_about_data() => Self::Refused(Box::new(error)),
            error => Self::Backend(Box::new(error)),
        }
    }
}
