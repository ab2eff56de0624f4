//! PostgreSQL: connections with and without TLS, the schema, and what a row holds.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, Row, Socket};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Tunnel;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{Cells, Sql};
use crate::auth::tls;

/// What has become of the schema, step by step; the database remembers how many of them it has taken.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE millrace_user (
        name text PRIMARY KEY,
        password text,
        groups text[] NOT NULL DEFAULT '{}',
        profile jsonb NOT NULL DEFAULT '{}'
    )
"];

const QUERY: &str = "SELECT name, password, groups, profile FROM millrace_user WHERE name = $1";

/// Keeps two servers that start at once from migrating at once; any number will do.
const LOCK: i64 = 0x6d69_6c6c_7261_6365;

/// A PostgreSQL database, and how it is asked.
#[derive(Debug)]
pub(super) struct Server {
    config: Box<Config>,
    /// `None` where nothing is encrypted.
    tls: Option<Tls>,
    /// `None` where the table is ours.
    query: Option<String>,
}

impl Server {
    pub(super) fn new(settings: &Sql) -> Result<Self, String> {
        let mut config: Config = settings.connection.parse().map_err(|error| {
            format!(
                "write \"host=... user=... dbname=...\" or \"postgres://USER@HOST/DATABASE\": {}",
                told(&error)
            )
        })?;
        if config.get_hosts().is_empty() {
            return Err("it names no host".to_owned());
        }
        if settings.query.as_ref().is_some_and(|query| !query.contains("$1")) {
            return Err("the query has no $1, where the name goes".to_owned());
        }
        config.application_name("millrace").connect_timeout(settings.time);
        if let Some(password) = &settings.password {
            config.password(password);
        }
        // As a client of libpq would have it by default, TLS that is not verified protects from nobody.
        let wants_tls = settings.roots.is_some() || config.get_ssl_mode() == SslMode::Require;
        config.ssl_mode(if wants_tls { SslMode::Require } else { SslMode::Disable });
        let tls = wants_tls.then(|| tls::client(settings.roots.as_deref())).transpose()?.map(Tls);
        Ok(Self { config: Box::new(config), tls, query: settings.query.clone() })
    }

    /// How the log names it; nothing of its password.
    pub(super) fn name(&self) -> String {
        let host = match &self.config.get_hosts()[0] {
            Host::Tcp(host) => host.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        };
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or("");
        format!("the PostgreSQL database {database} at {host}")
    }

    pub(super) async fn connect(&self) -> Result<Client, String> {
        let client = match &self.tls {
            None => start(self.config.connect(NoTls).await),
            Some(tls) => start(self.config.connect(tls.clone()).await),
        };
        let client = client.map_err(|error| told(&error))?;
        if self.query.is_none() {
            migrate(&client).await?;
        }
        Ok(client)
    }

    /// What is known of a name.
    pub(super) async fn row(&self, client: &Client, name: &str) -> Result<Option<Cells>, String> {
        let query = self.query.as_deref().unwrap_or(QUERY);
        let rows = client.query_typed(query, &[(&name, Type::TEXT)]).await.map_err(|error| told(&error))?;
        match &rows[..] {
            [] => Ok(None),
            [row] => (0..row.len()).map(|index| cell(row, index)).collect::<Result<_, _>>().map(Some),
            _ => Err(format!("there is more than one row of {name}")),
        }
    }
}

/// Lets a task drive the connection, for as long as there is a client.
fn start<S, T>(
    connected: Result<(Client, tokio_postgres::Connection<S, T>), tokio_postgres::Error>,
) -> Result<Client, tokio_postgres::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: TlsStream + Unpin + Send + 'static,
{
    let (client, connection) = connected?;
    // Why it ended, the client is told with its next question.
    tokio::spawn(async { drop(connection.await) });
    Ok(client)
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
    // Whoever may only read finds nothing to do.
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

/// With what the database itself says, which the error alone leaves out.
fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
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

/// Makes TLS connections. There are crates for this, each with a certificate parser for channel binding, which
/// SCRAM does without where the certificate was verified.
#[derive(Clone)]
struct Tls(Arc<ClientConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = TlsTo;
    type Error = std::io::Error;

    fn make_tls_connect(&mut self, host: &str) -> std::io::Result<TlsTo> {
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        Ok(TlsTo(Arc::clone(&self.0), name))
    }
}

/// TLS to one host.
struct TlsTo(Arc<ClientConfig>, ServerName<'static>);

impl TlsConnect<Socket> for TlsTo {
    type Stream = Encrypted;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async { TlsConnector::from(self.0).connect(self.1, socket).await.map(Encrypted) })
    }
}

struct Encrypted(Tunnel<Socket>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
