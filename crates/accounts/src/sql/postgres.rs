//! PostgreSQL as a source of accounts: the schema, and what a row holds.

use std::sync::Arc;

use millrace_cluster::{AuditTable, EventTable, PostgresAudit, PostgresEvents, PostgresTable, Table};
use millrace_storage::PostgresError;
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::Sql;
use super::found::{Cells, RowError, found};
use crate::postgres::Server as Database;
use crate::remote::{Link, Remote};
use crate::source::{Found, Source};
use crate::source_error::SetupError;

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
pub fn postgres(settings: &Sql) -> Result<impl Source + use<>, SetupError> {
    let server = Server::new(settings)?;
    Ok(Remote::new(server.name(), server, true, settings.time)?.marked(&settings.query))
}

/// The tables of a cluster in a PostgreSQL database, which is not asked yet. The query of the settings is ignored.
pub fn cluster_table(settings: &Sql) -> Result<Box<dyn Table>, SetupError> {
    let server = Arc::new(Database::new(settings)?);
    Ok(Box::new(PostgresTable::new(server, settings.time)?))
}

/// The tables of a cluster's events in the same database, which is not asked yet.
pub fn cluster_events(settings: &Sql) -> Result<Arc<dyn EventTable>, SetupError> {
    let server = Arc::new(Database::new(settings)?);
    Ok(Arc::new(PostgresEvents::new(server, settings.time)?))
}

/// The copies of a cluster's audit logs in the same database, which is not asked yet.
pub fn cluster_audit(settings: &Sql) -> Result<Arc<dyn AuditTable>, SetupError> {
    let server = Arc::new(Database::new(settings)?);
    Ok(Arc::new(PostgresAudit::new(server, settings.time)?))
}

/// A PostgreSQL database, and how it is asked.
#[derive(Debug)]
struct Server {
    server: Database,
    /// `None` where the table is ours.
    query: Option<String>,
}

/// Why the database gives no answer.
#[derive(Debug, thiserror::Error)]
enum QueryError {
    /// The server, or the way there.
    #[error(transparent)]
    Server(#[from] PostgresError),
    /// The tables cannot be made.
    #[error("its schema cannot be brought up to date: {0}")]
    Schema(PostgresError),
    /// The tables are newer than this program.
    #[error("its schema is of a later version of Millrace")]
    LaterSchema,
    /// A column has a type that no setting has.
    #[error("the column {column} is of type {found}; cast it to text")]
    Type { column: String, found: Type },
    /// The value of a column cannot be read.
    #[error("the column {column}: {source}")]
    Value { column: String, source: tokio_postgres::Error },
    /// The row is no user.
    #[error(transparent)]
    Row(#[from] RowError),
}

impl Server {
    fn new(settings: &Sql) -> Result<Self, SetupError> {
        let server = Database::new(settings)?;
        if settings.query.as_ref().is_some_and(|query| !query.contains("$1")) {
            return Err(SetupError::NoParameter("$1"));
        }
        Ok(Self { server, query: settings.query.clone() })
    }

    /// How the log names it; nothing of its password.
    fn name(&self) -> String {
        self.server.name()
    }

    /// The row of a name.
    async fn row(&self, client: &Client, name: &str) -> Result<Option<Cells>, QueryError> {
        let query = self.query.as_deref().unwrap_or(QUERY);
        let rows = client.query_typed(query, &[(&name, Type::TEXT)]).await.map_err(PostgresError)?;
        match &rows[..] {
            [] => Ok(None),
            [row] => (0..row.len()).map(|index| cell(row, index)).collect::<Result<_, _>>().map(Some),
            _ => Err(RowError::Ambiguous(name.to_owned()).into()),
        }
    }
}

impl Link for Server {
    type Connection = Client;
    type Error = QueryError;

    async fn connect(&self) -> Result<Client, QueryError> {
        let client = self.server.connect().await?;
        if self.query.is_none() {
            migrate(&client).await?;
        }
        Ok(client)
    }

    async fn find(&self, connection: &mut Client, name: &str, _: Option<&str>) -> Result<Found, QueryError> {
        Ok(found(name, self.row(connection, name).await?)?)
    }
}

/// Brings our schema up to date, all or nothing.
async fn migrate(client: &Client) -> Result<(), QueryError> {
    match migration(client).await {
        Ok(taken) if taken > MIGRATIONS.len() => Err(QueryError::LaterSchema),
        Ok(_) => Ok(()),
        Err(error) => Err(QueryError::Schema(error.into())),
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

fn cell(row: &Row, index: usize) -> Result<(String, Value), QueryError> {
    let column = &row.columns()[index];
    let name = || column.name().to_owned();
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
        ref other => return Err(QueryError::Type { column: name(), found: other.clone() }),
    };
    let value = value.map_err(|source| QueryError::Value { column: name(), source })?;
    Ok((name(), value))
}
