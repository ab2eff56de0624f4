//! Converts a database row to a user.

use serde_json::Value;

use crate::columns::{self, CellError};
use crate::password::{Password, PasswordError};
use crate::source::{Found, Proof};

/// Column names and values.
pub(super) type Cells = Vec<(String, Value)>;

/// Why a row is no user.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    /// The query has found more than one row.
    #[error("there is more than one row of {0}")]
    Ambiguous(String),
    /// A column has a value that its setting cannot have.
    #[error("of {user}: {source}")]
    Cell { user: String, source: CellError },
    /// The stored hash cannot be used.
    #[error("the password of {user}: {source}")]
    Password { user: String, source: PasswordError },
}

/// Makes a user and the proof of a password of a row; without a row there is no such user.
pub(super) fn found(name: &str, row: Option<Cells>) -> Result<Found, RowError> {
    let of = |source| RowError::Cell { user: name.to_owned(), source };
    let Some((user, hash)) = row.map(|cells| columns::user(name, cells)).transpose().map_err(of)?.flatten()
    else {
        return Ok(Found::Unknown);
    };
    let proof = match hash.as_deref().map(Password::hashed) {
        None => Proof::Wrong,
        Some(Ok(password)) => Proof::Password(password),
        Some(Err(source)) => return Err(RowError::Password { user: name.to_owned(), source }),
    };
    Ok(Found::User(Box::new(user), proof))
}
