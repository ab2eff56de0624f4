//! Why the queue of events does not take one, or does not do what an administrator asks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_cluster::TableError;

/// Why the queue of events failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QueueError {
    /// Its files cannot be opened or locked, or its thread cannot be started.
    #[error("the queue of hooks {}: {error}", path.display())]
    Io {
        /// Where the queue is kept.
        path: PathBuf,
        /// What the system says.
        error: Arc<io::Error>,
    },
    /// SQLite failed.
    #[error("the queue of hooks {}: {error}", path.display())]
    Database {
        /// Where the queue is kept.
        path: PathBuf,
        /// What SQLite says.
        error: Arc<rusqlite::Error>,
    },
    /// The database that the nodes of a cluster share gives no answer.
    #[error("the queue of events of the cluster: {0}")]
    Shared(Arc<TableError>),
    /// There is no event of this id.
    #[error("there is no event {0} in the queue")]
    NoEvent(String),
    /// The server ends.
    #[error("the queue of hooks is closed")]
    Closed,
}

impl QueueError {
    /// Returns the error of the queue at this path.
    pub(super) fn at(path: &Path, error: impl Into<Cause>) -> Self {
        let path = path.to_owned();
        match error.into() {
            Cause::Io(error) => Self::Io { path, error: Arc::new(error) },
            Cause::Database(error) => Self::Database { path, error: Arc::new(error) },
        }
    }
}

impl From<TableError> for QueueError {
    fn from(error: TableError) -> Self {
        Self::Shared(Arc::new(error))
    }
}

/// What fails beneath the queue.
pub(super) enum Cause {
    Io(io::Error),
    Database(rusqlite::Error),
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<std::fs::TryLockError> for Cause {
    fn from(error: std::fs::TryLockError) -> Self {
        Self::Io(error.into())
    }
}

impl From<rusqlite::Error> for Cause {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}
