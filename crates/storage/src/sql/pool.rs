//! Connections to the database: as many as calls that run at once, kept for the next.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millrace_vfs::{FileError, Space};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

/// How long a change waits for another to end.
const BUSY: Duration = Duration::from_secs(30);

/// The connections to one database.
pub(super) struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The database's error, as that of a file.
pub(super) fn failed(error: rusqlite::Error) -> FileError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => FileError::NoSpace,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OutOfMemory) => {
            FileError::Exhausted
        }
        Some(ErrorCode::ReadOnly) => FileError::ReadOnly,
        Some(ErrorCode::ConstraintViolation) => FileError::AlreadyExists,
        Some(ErrorCode::TooBig) => FileError::TooLarge,
        _ => FileError::Io(std::io::Error::other(error)),
    }
}

impl Pool {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Mutex::new(Vec::new()) }
    }

    /// Looks at the database as it is at one moment.
    pub(super) fn look<T>(
        &self,
        look: impl FnOnce(&Transaction<'_>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.within(TransactionBehavior::Deferred, look)
    }

    /// Changes the database: all that `change` does, or nothing where it fails.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        // At once: one that began by reading could not wait for another's change to end.
        self.within(TransactionBehavior::Immediate, change)
    }

    fn within<T>(
        &self,
        behavior: TransactionBehavior,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().map_err(failed)?,
        };
        let result = (|| {
            let transaction = connection.transaction_with_behavior(behavior).map_err(failed)?;
            let value = body(&transaction)?;
            transaction.commit().map_err(failed)?;
            Ok(value)
        })();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        result
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(BUSY)?;
        // Readers and the writer do not wait for each other; a commit is a write, not a wait for the disk.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(connection)
    }

    /// The room of the file system that the database is on.
    pub(super) fn space(&self) -> Result<Space, FileError> {
        let status = rustix::fs::statvfs(&self.path).map_err(std::io::Error::from)?;
        Ok(Space {
            available: status.f_bavail.saturating_mul(status.f_frsize),
            total: status.f_blocks.saturating_mul(status.f_frsize),
            held: None,
        })
    }
}
