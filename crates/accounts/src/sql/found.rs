//! Converts a database row to a user.

use serde_json::Value;

use crate::columns;
use crate::password::Password;
use crate::source::{Found, Proof};

/// Column names and values.
pub(super) type Cells = Vec<(String, Value)>;

/// Makes a user and the proof of a password of a row; without a row there is no such user.
pub(super) fn found(name: &str, row: Option<Cells>) -> Result<Found, String> {
    let of = |why| format!("of {name}: {why}");
    let Some((user, hash)) = row.map(|cells| columns::user(name, cells)).transpose().map_err(of)?.flatten()
    else {
        return Ok(Found::Unknown);
    };
    let proof = match hash.as_deref().map(Password::hashed) {
        None => Proof::Wrong,
        Some(Ok(password)) => Proof::Password(password),
        Some(Err(error)) => return Err(format!("the password of {name}: {error}")),
    };
    Ok(Found::User(Box::new(user), proof))
}
