//! PostgreSQL as a source of accounts: the schema, and what a row holds.

use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::Sql;
use super::found::{Cells, found};
use crate::postgres::{self, told};
use crate::remote::{Link, Remote};
use crate::source::{Found, Source};

/// The migrations of the schema; the database records how many it has applied.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE millrace_user (
        name text PRIMARY KEY,
        password text,
        groups text[] NOT NULL DEFAULT '{}',
        profile jsonb NOT NULL DEFAULT '{}'
    )
"];

const QUERY: &str = "SELECT name, password, groups, profile FROM millrace_user WHERE name = $1";

/// Keeps two servers from migrating concurrently; the number is arbitrary.
const LOCK: i64 = 0x6d69_6c6c_7261_6365;

/// A PostgreSQL database by its connection string (`host=... user=... dbname=...`, or a URL).
pub fn postgres(settings: &Sql) -> Result<impl Source + use<>, String> {
    let server = Server::new(settings)?;
    Ok(Remote::new(server.name(), server, true, settings.time)?.marked(&settings.query))
}

/// A PostgreSQL database, and how it is asked.
#[derive(Debug)]
struct Server {
    server: postgres::Server,
    /// `None` where the table is ours.
    query: Option<String>,
}

impl Server {
    fn new(settings: &Sql) -> Result<Self, String> {
        let server = postgres::Server::new(settings)?;
        if settings.query.as_ref().is_some_and(|query| !query.contains("$1")) {
            return Err("the query has no $1, where the name goes".to_owned());
        }
        Ok(Self { server, query: settings.query.clone() })
    }

    /// How the log names it; nothing of its password.
    fn name(&self) -> String {
        self.server.name()
    }

    /// The row of a name.
    async fn row(&self, client: &Client, name: &str) -> Result<Option<Cells>, String> {
        let query = self.query.as_deref().unwrap_or(QUERY);
        let rows = client.query_typed(query, &[(&name, Type::TEXT)]).await.map_err(|error| told(&error))?;
        match &rows[..] {
            [] => Ok(None),
            [row] => (0..row.len()).map(|index| cell(row, index)).collect::<Result<_, _>>().map(Some),
            _ => Err(format!("there is more than one row of {name}")),
        }
    }
}

impl Link for Server {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let client = self.server.connect().await?;
        if self.query.is_none() {
            migrate(&client).await?;
        }
        Ok(client)
    }

    async fn find(&self, connection: &mut Client, name: &str, _: Option<&str>) -> Result<Found, String> {
        found(name, self.row(connection, name).await?)
    }
}

/// Brings our schema up to date, all or nothing.
async fn migrate(client: &Client) -> Result<(), String> {
    match migration(client).await {
        Ok(taken) if taken > MIGRATIONS.len() => {
            Err("its schema is of a later version of Millrace".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(format!("its schema cannot be brought up to date: {}", told(&error))),
    }
}

/// The number of steps that the schema has taken now.
async fn migration(client: &Client) -> Result<usize, tokio_postgres::Error> {
    const TAKEN: &str = "SELECT taken FROM millrace_schema";
    const KNOWN: &str = "SELECT to_regclass('millrace_schema') IS NOT NULL";
    let taken = async || {
        let row = client.query_typed_opt(TAKEN, &[]).await?;
        let taken = row.map(|row| row.try_get::<_, i32>(0)).transpose()?;
        Ok(taken.map(|taken| usize::try_from(taken).unwrap_or(0)))
    };
    // A user with read access only has no changes to make.
    let is_known: bool = client.query_typed_one(KNOWN, &[]).await?.try_get(0)?;
    if is_known && let Some(taken) = taken().await?.filter(|taken| *taken >= MIGRATIONS.len()) {
        return Ok(taken);
    }
    client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})")).await?;
    client.batch_execute("CREATE TABLE IF NOT EXISTS millrace_schema (taken integer NOT NULL)").await?;
    let before = taken().await?;
    if before.is_none() {
        client.batch_execute("INSERT INTO millrace_schema VALUES (0)").await?;
    }
    let before = before.unwrap_or(0);
    for step in MIGRATIONS.iter().skip(before) {
        client.batch_execute(step).await?;
        client.batch_execute("UPDATE millrace_schema SET taken = taken + 1").await?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(before.max(MIGRATIONS.len()))
}

fn cell(row: &Row, index: usize) -> Result<(String, Value), String> {
    let column = &row.columns()[index];
    let value = match *column.type_() {
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => {
            row.try_get::<_, Option<String>>(index).map(Value::from)
        }
        Type::BOOL => row.try_get::<_, Option<bool>>(index).map(Value::from),
        Type::INT2 => row.try_get::<_, Option<i16>>(index).map(Value::from),
        Type::INT4 => row.try_get::<_, Option<i32>>(index).map(Value::from),
        Type::INT8 => row.try_get::<_, Option<i64>>(index).map(Value::from),
        Type::TEXT_ARRAY | Type::VARCHAR_ARRAY => {
            row.try_get::<_, Option<Vec<Option<String>>>>(index).map(Value::from)
        }
        Type::JSON | Type::JSONB => row.try_get::<_, Option<Value>>(index).map(Value::from),
        ref other => return Err(format!("the column {} is of type {other}; cast it to text", column.name())),
    };
    let value = value.map_err(|error| format!("the column {}: {error}", column.name()))?;
    Ok((column.name().to_owned(), value))
}
