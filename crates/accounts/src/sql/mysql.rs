//! MySQL and MariaDB: connections with and without TLS, the schema, and what a row holds.

use millrace_net::tls::client_config;
use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row, SslOpts};
use serde_json::Value;

use super::Sql;
use super::found::{Cells, RowError, found};
use crate::remote::{Link, Remote};
use crate::source::{Found, Source};
use crate::source_error::SetupError;

/// The migrations of the schema; the database records how many it has applied. It has no transactions for tables, so
/// each step must be repeatable.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE IF NOT EXISTS millrace_user (
        name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
        password TEXT,
        `groups` TEXT,
        profile JSON
    ) DEFAULT CHARACTER SET utf8mb4
"];

const QUERY: &str = "SELECT name, password, `groups`, profile FROM millrace_user WHERE name = ?";

/// A MySQL or MariaDB database by its URL: `mysql://USER@HOST/DATABASE`.
pub fn mysql(settings: &Sql) -> Result<impl Source + use<>, SetupError> {
    let server = Server::new(settings)?;
    Ok(Remote::new(server.name(), server, true, settings.time)?.marked(&settings.query))
}

/// A MySQL database, and how it is asked.
#[derive(Debug)]
struct Server {
    options: Opts,
    /// `None` where the table is ours.
    query: Option<String>,
}

/// Why the database gives no answer.
#[derive(Debug, thiserror::Error)]
enum MysqlError {
    /// The server, or the way there.
    #[error("{}", message(.0))]
    Server(#[source] Error),
    /// The tables cannot be made.
    #[error("its schema cannot be brought up to date: {}", message(.0))]
    Schema(#[source] Error),
    /// The tables are newer than this program.
    #[error("its schema is of a later version of Millrace")]
    LaterSchema,
    /// The query does not return the name.
    #[error("the query has no column `name`, by which to tell Alice from alice")]
    NoName,
    /// A column has a type that no setting has.
    #[error("the column {column} is {found}; cast it to CHAR")]
    Column { column: String, found: &'static str },
    /// The row is no user.
    #[error(transparent)]
    Row(#[from] RowError),
}

impl Server {
    fn new(settings: &Sql) -> Result<Self, SetupError> {
        let options = Opts::from_url(&settings.connection).map_err(|source| SetupError::Connection {
            form: "\"mysql://USER@HOST/DATABASE\"",
            source: source.into(),
        })?;
        if settings.query.as_ref().is_some_and(|query| !query.contains('?')) {
            return Err(SetupError::NoParameter("?"));
        }
        if options.db_name().is_none() {
            return Err(SetupError::Unnamed("database"));
        }
        let mut builder = OptsBuilder::from_opts(options.clone()).prefer_socket(false);
        if let Some(password) = &settings.password {
            builder = builder.pass(Some(password));
        }
        if let Some(pem) = &settings.roots {
            // An invalid certificate is reported now.
            client_config(Some(pem))?;
            let tls = options.ssl_opts().cloned().unwrap_or_default().with_disable_built_in_roots(true);
            builder = builder.ssl_opts(SslOpts::with_root_certs(tls, vec![pem.clone().into()]));
        }
        Ok(Self { options: builder.into(), query: settings.query.clone() })
    }

    /// How the log names it; nothing of its password.
    fn name(&self) -> String {
        let (database, host) = (self.options.db_name().unwrap_or_default(), self.options.ip_or_hostname());
        format!("the MySQL database {database} at {}", self.options.socket().unwrap_or(host))
    }

    /// The row of a name.
    async fn row(&self, connection: &mut Conn, name: &str) -> Result<Option<Cells>, MysqlError> {
        let query = self.query.as_deref().unwrap_or(QUERY);
        let rows: Vec<Row> = connection.exec(query, (name,)).await.map_err(MysqlError::Server)?;
        let row = match &rows[..] {
            [] => return Ok(None),
            [row] => row,
            _ => return Err(RowError::Ambiguous(name.to_owned()).into()),
        };
        let cells: Cells = (0..row.len()).map(|index| cell(row, index)).collect::<Result<_, _>>()?;
        // It compares without case, and without the blanks at the end.
        match cells.iter().any(|(column, _)| column == "name") {
            true => Ok(Some(cells)),
            false => Err(MysqlError::NoName),
        }
    }
}

impl Link for Server {
    type Connection = Conn;
    type Error = MysqlError;

    async fn connect(&self) -> Result<Conn, MysqlError> {
        let mut connection = Conn::new(self.options.clone()).await.map_err(MysqlError::Server)?;
        if self.query.is_none() {
            migrate(&mut connection).await?;
        }
        Ok(connection)
    }

    async fn find(&self, connection: &mut Conn, name: &str, _: Option<&str>) -> Result<Found, MysqlError> {
        Ok(found(name, self.row(connection, name).await?)?)
    }
}

/// Brings our schema up to date.
async fn migrate(connection: &mut Conn) -> Result<(), MysqlError> {
    match migration(connection).await {
        Ok(taken) if taken > MIGRATIONS.len() => Err(MysqlError::LaterSchema),
        Ok(_) => Ok(()),
        Err(error) => Err(MysqlError::Schema(error)),
    }
}

/// The number of steps that the schema has taken now.
async fn migration(connection: &mut Conn) -> Result<usize, Error> {
    const KNOWN: &str = "SELECT COUNT(*) FROM information_schema.tables \
                         WHERE table_schema = DATABASE() AND table_name = 'millrace_schema'";
    const TAKEN: &str = "SELECT taken FROM millrace_schema";
    // A user with read access only has no changes to make.
    let is_known = connection.query_first::<u64, _>(KNOWN).await?.is_some_and(|count| count > 0);
    if is_known && let Some(taken) = connection.query_first::<u32, _>(TAKEN).await? {
        let taken = taken as usize;
        if taken >= MIGRATIONS.len() {
            return Ok(taken);
        }
    }
    // A lock keeps two servers from migrating concurrently; it ends with the connection, too.
    connection.query_drop("DO GET_LOCK('millrace_schema', 60)").await?;
    connection.query_drop("CREATE TABLE IF NOT EXISTS millrace_schema (taken INT UNSIGNED NOT NULL)").await?;
    let before = connection.query_first::<u32, _>(TAKEN).await?;
    if before.is_none() {
        connection.query_drop("INSERT INTO millrace_schema VALUES (0)").await?;
    }
    let before = before.unwrap_or(0) as usize;
    for step in MIGRATIONS.iter().skip(before) {
        connection.query_drop(*step).await?;
        connection.query_drop("UPDATE millrace_schema SET taken = taken + 1").await?;
    }
    connection.query_drop("DO RELEASE_LOCK('millrace_schema')").await?;
    Ok(before.max(MIGRATIONS.len()))
}

/// Returns the server's message, or the innermost cause: each layer of a failed connection repeats its words.
fn message(error: &Error) -> String {
    match error {
        Error::Server(said) => said.message.clone(),
        error => {
            let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
            causes.last().map_or_else(|| error.to_string(), ToString::to_string)
        }
    }
}

fn cell(row: &Row, index: usize) -> Result<(String, Value), MysqlError> {
    let columns = row.columns_ref();
    let column = &columns[index];
    let name = column.name_str().into_owned();
    let wrong = |found| MysqlError::Column { column: name.clone(), found };
    let value = match row.as_ref(index) {
        None | Some(mysql_async::Value::NULL) => Value::Null,
        Some(mysql_async::Value::Int(number)) => (*number).into(),
        Some(mysql_async::Value::UInt(number)) => (*number).into(),
        Some(mysql_async::Value::Bytes(bytes)) if column.column_type() == ColumnType::MYSQL_TYPE_BIT => {
            bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)).into()
        }
        Some(mysql_async::Value::Bytes(bytes)) => match str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => return Err(wrong("not in UTF-8")),
        },
        Some(_) => return Err(wrong("neither text nor a whole number")),
    };
    Ok((name, value))
}
