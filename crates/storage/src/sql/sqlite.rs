//! SQLite: connections, as many as calls that run at once, kept for the next.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millrace_vfs::{FileError, Space};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params_from_iter};

use super::rows::{Cell, Row, Statements, Value};
use super::sole::{Lock, Others};
use super::tree;

/// How long a change waits for another to end.
const BUSY: Duration = Duration::from_secs(30);

/// The tables, as they are made and as an older server left them. A later form gets a number of its own in
/// `user_version`.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS content (
        id      INTEGER PRIMARY KEY AUTOINCREMENT,
        size    INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS chunk (
        content INTEGER NOT NULL REFERENCES content (id),
        number  INTEGER NOT NULL,
        data    BLOB NOT NULL,
        PRIMARY KEY (content, number)
    );
    CREATE TABLE IF NOT EXISTS node (
        id      INTEGER PRIMARY KEY AUTOINCREMENT,
        parent  INTEGER REFERENCES node (id),
        name    BLOB NOT NULL,
        content INTEGER REFERENCES content (id),
        mode    INTEGER NOT NULL,
        user    INTEGER NOT NULL DEFAULT 0,
        grp     INTEGER NOT NULL DEFAULT 0,
        modified_seconds     INTEGER NOT NULL,
        modified_nanoseconds INTEGER NOT NULL,
        created_seconds      INTEGER NOT NULL,
        created_nanoseconds  INTEGER NOT NULL,
        UNIQUE (parent, name)
    );
    CREATE INDEX IF NOT EXISTS node_content ON node (content);
";

/// The connections to one database.
#[derive(Debug)]
pub(super) struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Held to keep other servers out. The last field: it goes when the connections have gone.
    lock: Lock,
}

/// The database's error, as that of a file.
fn failed(error: rusqlite::Error) -> FileError {
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
    /// Opens a database, made if it is not there, and removes what a killed server left in it.
    pub(super) fn open(path: &Path, others: Others) -> Result<Self, FileError> {
        let pool = Self { path: path.to_owned(), idle: Mutex::default(), lock: Lock::new(path)? };
        pool.within(TransactionBehavior::Immediate, |change| {
            pool.lock.take(others)?;
            let version = set_up(change).map_err(failed)?;
            if version > tree::FORM {
                return Err(FileError::Io(std::io::Error::other(tree::LaterForm(version))));
            }
            tree::make_root(change)?;
            if others == Others::None {
                tree::SWEEP.iter().try_for_each(|sql| change.execute(sql, &[i64::MAX.into()]))?;
            }
            Ok(pool.lock.share()?)
        })?;
        Ok(pool)
    }

    /// The lock that keeps other servers out.
    pub(super) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Looks at the database as it is at one moment.
    pub(super) fn look<T>(
        &self,
        look: impl FnOnce(&dyn Statements) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.within(TransactionBehavior::Deferred, |transaction| look(transaction))
    }

    /// Changes the database: all that `change` does, or nothing where it fails.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&dyn Statements) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        // At once: one that began by reading could not wait for another's change to end.
        self.within(TransactionBehavior::Immediate, |transaction| change(transaction))
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
        // The sandbox has no folder for temporary files.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(connection)
    }

    /// The room of the file system that the database is on.
    pub(super) fn space(&self) -> Result<Space, FileError> {
        let status = rustix::fs::statvfs(&self.path).map_err(std::io::Error::from)?;
        Ok(Space {
            available: status.f_bavail.saturating_mul(status.f_frsize),
            total: status.f_blocks.saturating_mul(status.f_frsize),
            held: None,
            quota: None,
        })
    }
}

/// Makes the tables that are not there; answers the form that they had.
fn set_up(change: &Transaction<'_>) -> rusqlite::Result<i64> {
    let version = change.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version <= tree::FORM {
        change.execute_batch(TABLES)?;
        change.pragma_update(None, "user_version", tree::FORM)?;
    }
    Ok(version)
}

impl Statements for Transaction<'_> {
    fn rows(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, FileError> {
        let mut statement = self.prepare_cached(sql).map_err(failed)?;
        let count = statement.column_count();
        let rows = statement.query_map(params_from_iter(values), |row| {
            (0..count).map(|index| cell(row, index)).collect::<rusqlite::Result<_>>().map(Row)
        });
        rows.and_then(Iterator::collect).map_err(failed)
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Number(None) => ValueRef::Null,
            Self::Number(Some(number)) => ValueRef::Integer(number),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn cell(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<Cell> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Number(number),
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Cell::Bytes(bytes.to_owned()),
        ValueRef::Real(_) => return Err(rusqlite::Error::InvalidQuery),
    })
}
