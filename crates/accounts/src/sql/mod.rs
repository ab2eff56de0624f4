//! Accounts in a database that runs elsewhere: in a table of ours, or in any other that a query makes sense of.
//!
//! The query has one parameter, the name, and its columns are called as the settings of a user are; `AS` makes an
//! existing table's columns so. Nothing is written but our own table's definition, and that only where it is used.

#[cfg(any(feature = "mysql", feature = "postgres"))]
mod found;
#[cfg_attr(not(feature = "mysql"), path = "without_mysql.rs")]
mod mysql;
#[cfg_attr(not(feature = "postgres"), path = "without_postgres.rs")]
mod postgres;

use std::time::Duration;

pub use mysql::mysql;
pub use postgres::{cluster_audit, cluster_events, cluster_table, postgres};

/// A database, and how it is asked.
#[derive(Debug, Clone)]
pub struct Sql {
    /// The server's address and the user to connect as, in the form of its kind.
    pub connection: String,
    /// The password to connect with, where it is not in `connection`.
    pub password: Option<String>,
    /// Certificates in PEM that the server's has to be signed by, and a wish for TLS.
    pub roots: Option<Vec<u8>>,
    /// The query for a user; `None` for the built-in table.
    pub query: Option<String>,
    /// How long an answer may take.
    pub time: Duration,
}
