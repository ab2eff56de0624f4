//! Why PostgreSQL gives no answer, as the driver says it.

use millrace_storage::PostgresError;
use thiserror::Error;

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

impl From<tokio_postgres::Error> for ClusterError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(PostgresError(error))
    }
}

impl From<ClusterError> for TableError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::LaterTables => Self::LaterTables,
            error => Self::Backend(Box::new(error)),
        }
    }
}
