//! PostgreSQL: where a database is, and connections to it with and without TLS. Accounts and files are asked over them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrace_net::tls::client_config;
use millrace_storage::{Connecting, PostgresError, PostgresServer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, NoTls, Socket};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Tunnel;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::Sql;
use crate::source_error::SetupError;

/// A PostgreSQL database, and the way there.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    config: Box<Config>,
    /// `None` where nothing is encrypted.
    tls: Option<Tls>,
}

impl Server {
    /// Ignores the query of the settings.
    pub(crate) fn new(settings: &Sql) -> Result<Self, SetupError> {
        const FORM: &str = "\"host=... user=... dbname=...\" or \"postgres://USER@HOST/DATABASE\"";
        let parsed = settings.connection.parse::<Config>().map_err(PostgresError);
        let mut config =
            parsed.map_err(|source| SetupError::Connection { form: FORM, source: source.into() })?;
        if config.get_hosts().is_empty() {
            return Err(SetupError::Unnamed("host"));
        }
        config.application_name("millrace").connect_timeout(settings.time);
        if let Some(password) = &settings.password {
            config.password(password);
        }
        // Like libpq's default: TLS without verification would not protect the connection.
        let wants_tls = settings.roots.is_some() || config.get_ssl_mode() == SslMode::Require;
        config.ssl_mode(if wants_tls { SslMode::Require } else { SslMode::Disable });
        let tls = wants_tls.then(|| client_config(settings.roots.as_deref())).transpose();
        Ok(Self { config: Box::new(config), tls: tls?.map(Tls) })
    }

    /// How the log names it; nothing of its password.
    pub(crate) fn name(&self) -> String {
        let host = match &self.config.get_hosts()[0] {
            Host::Tcp(host) => host.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        };
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or("");
        format!("the PostgreSQL database {database} at {host}")
    }

    pub(crate) async fn connect(&self) -> Result<Client, PostgresError> {
        let client = match &self.tls {
            None => start(self.config.connect(NoTls).await),
            Some(tls) => start(self.config.connect(tls.clone()).await),
        };
        client.map_err(PostgresError)
    }
}

impl PostgresServer for Server {
    /// The connecting user is part of it, because users may see different tables.
    fn place(&self) -> String {
        let Self { config, .. } = self;
        let (hosts, ports, addresses) = (config.get_hosts(), config.get_ports(), config.get_hostaddrs());
        let (user, database) = (config.get_user(), config.get_dbname());
        format!("{hosts:?} {addresses:?} {ports:?} {user:?} {database:?}")
    }

    fn connect(&self) -> Connecting {
        let server = self.clone();
        Box::pin(async move { server.connect().await })
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
    // The client's next query returns the error that it ended with.
    tokio::spawn(async { drop(connection.await) });
    Ok(client)
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
