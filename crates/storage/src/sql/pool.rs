//! The databases that there are, as one.

use millrace_vfs::{FileError, Space};

#[cfg(feature = "postgres")]
use super::postgres;
use super::rows::Statements;
use super::sole::Lock;
use super::sqlite;

/// A database, and the connections to it.
#[derive(Debug)]
pub(super) enum Pool {
    Sqlite(sqlite::Pool),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Pool),
}

impl Pool {
    /// Reads from the database. A consistent read is one statement: in PostgreSQL each statement has its own snapshot.
    pub(super) fn look<T>(
        &self,
        look: impl Fn(&dyn Statements) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let look = observed(look);
        match self {
            Self::Sqlite(pool) => pool.look(look),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.look(look),
        }
    }

    /// Changes contents: all that `change` does, or nothing where it fails.
    pub(super) fn change<T>(
        &self,
        change: impl Fn(&dyn Statements) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let change = observed(change);
        match self {
            Self::Sqlite(pool) => pool.change(change),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.change(postgres::Of::Contents, change),
        }
    }

    /// Changes the tree: one change after another, all that `change` does, or nothing where it fails.
    pub(super) fn change_tree<T>(
        &self,
        change: impl Fn(&dyn Statements) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let change = observed(change);
        match self {
            Self::Sqlite(pool) => pool.change(change),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.change(postgres::Of::Tree, change),
        }
    }

    /// The lock of a database that two processes may have open.
    pub(super) fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Sqlite(pool) => Some(pool.lock()),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// The room that there is, where that can be told.
    pub(super) fn space(&self) -> Result<Space, FileError> {
        match self {
            Self::Sqlite(pool) => pool.space(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Err(FileError::Unsupported),
        }
    }
}

/// What a transaction does, as tests want it: each of its statements, and its end, may fail.
#[cfg(test)]
fn observed<T>(
    body: impl Fn(&dyn Statements) -> Result<T, FileError>,
) -> impl Fn(&dyn Statements) -> Result<T, FileError> {
    move |statements| {
        let value = body(&super::faults::Observed(statements))?;
        super::faults::step()?;
        Ok(value)
    }
}

/// What a transaction does.
#[cfg(not(test))]
fn observed<T>(
    body: impl Fn(&dyn Statements) -> Result<T, FileError>,
) -> impl Fn(&dyn Statements) -> Result<T, FileError> {
    body
}
