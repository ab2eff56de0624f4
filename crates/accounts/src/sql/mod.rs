//! Accounts in a database that runs elsewhere: in a table of ours, or in any other that a query makes sense of.
//!
//! The query has one parameter, the name, and its columns are called as the settings of a user are; `AS` makes an
//! existing table's columns so. Nothing is written but our own table's definition, and that only where it is used.

mod mysql;
mod postgres;

use std::time::Duration;

use serde_json::Value;

use super::columns;
use super::password::Password;
use super::remote::{Link, Remote};
use super::source::{Found, Proof, Source};

/// A database, and how it is asked. Errors are full sentences without their full stop.
#[derive(Debug, Clone)]
pub struct Sql {
    /// Where it is and who asks, in the form of its kind.
    pub connection: String,
    /// The password of who asks, where it does not stand in `connection`.
    pub password: Option<String>,
    /// Certificates in PEM that the server's has to be signed by, and a wish for TLS.
    pub roots: Option<Vec<u8>>,
    /// What to ask about users; `None` for a table of ours.
    pub query: Option<String>,
    /// How long an answer may take.
    pub time: Duration,
}

/// A PostgreSQL database by its connection string (`host=... user=... dbname=...`, or a URL).
pub fn postgres(settings: &Sql) -> Result<impl Source + use<>, String> {
    let server = postgres::Server::new(settings)?;
    let remote = Remote::new(server.name(), Asked(Server::Postgres(server)), true, settings.time);
    Ok(remote?.marked(&settings.query))
}

/// A MySQL or MariaDB database by its URL: `mysql://USER@HOST/DATABASE`.
pub fn mysql(settings: &Sql) -> Result<impl Source + use<>, String> {
    let server = mysql::Server::new(settings)?;
    let remote = Remote::new(server.name(), Asked(Server::Mysql(server)), true, settings.time);
    Ok(remote?.marked(&settings.query))
}

/// What is under which name.
type Cells = Vec<(String, Value)>;

/// The databases that can be asked.
#[derive(Debug)]
enum Server {
    Postgres(postgres::Server),
    Mysql(mysql::Server),
}

/// A connection to one of them.
enum Connection {
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
}

#[derive(Debug)]
struct Asked(Server);

impl Link for Asked {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        match &self.0 {
            Server::Postgres(server) => server.connect().await.map(Connection::Postgres),
            Server::Mysql(server) => server.connect().await.map(Connection::Mysql),
        }
    }

    async fn find(&self, connection: &mut Connection, name: &str, _: Option<&str>) -> Result<Found, String> {
        let row = match (&self.0, connection) {
            (Server::Postgres(server), Connection::Postgres(client)) => server.row(client, name).await?,
            (Server::Mysql(server), Connection::Mysql(client)) => server.row(client, name).await?,
            _ => unreachable!("a connection is of the kind of its server"),
        };
        let of = |why| format!("of {name}: {why}");
        let Some((user, hash)) =
            row.map(|cells| columns::user(name, cells)).transpose().map_err(of)?.flatten()
        else {
            return Ok(Found::Nobody);
        };
        let proof = match hash.as_deref().map(Password::hashed) {
            None => Proof::Wrong,
            Some(Ok(password)) => Proof::Password(password),
            Some(Err(error)) => return Err(format!("the password of {name}: {error}")),
        };
        Ok(Found::User(Box::new(user), proof))
    }
}
