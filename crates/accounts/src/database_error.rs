//! Errors of the database of users in SQLite.

use std::io;
use std::path::PathBuf;

/// Why a database cannot be used; full sentences without their full stop.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The file, or what SQLite says of it.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error.
        source: rusqlite::Error,
    },
    /// The file cannot be made.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is a user of this name already.
    #[error("there is a user named {0} already")]
    Taken(String),
    /// There is no user of this name.
    #[error("there is no user named {0}")]
    Missing(String),
    /// It is a database of something else, or of a later version.
    #[error("{} is no database of users that this version can read", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}
