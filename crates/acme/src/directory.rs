//! How a CA is talked to: HTTP/1.1 in TLS, a connection for each request, of which an order needs a dozen.
//!
//! The invariant: the time and the size of an answer are limited, and so is the pause that it may ask for (a week).
//! Requests go over `https://` only, to servers with a valid certificate.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use millrace_net::tls::{RootsError, client_config};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::settings::{Acme, Clock};

/// Bytes of an answer. A chain of certificates has some thousand.
const LONGEST: usize = 256 * 1024;

/// The longest pause that a CA can ask for, the period in which Let's Encrypt counts duplicates. A longer one is a
/// mistake, and would overflow where instant-acme adds it to the time.
const PAUSE: Duration = Duration::from_secs(7 * 86_400);

/// A CA, as it is talked to. Clones are the same.
#[derive(Clone)]
pub(super) struct Directory {
    tls: TlsConnector,
    patience: Duration,
    clock: Clock,
    /// Locked for a copy.
    last: Arc<Mutex<Last>>,
}

/// The state of the last answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Last {
    /// Its status; `None` where none came.
    pub(super) status: Option<u16>,
    /// When the CA allows the next request, if its refusal said so.
    pub(super) retry_after: Option<Duration>,
}

/// Why the trusted certificates cannot be used.
#[derive(Debug, Error)]
pub(super) enum DirectoryError {
    /// Their file cannot be read.
    #[error("{}: {source}", path.display())]
    Authorities { path: PathBuf, source: io::Error },
    /// The file holds something else.
    #[error(transparent)]
    Roots(#[from] RootsError),
}

impl Directory {
    pub(super) fn new(settings: &Acme) -> Result<Self, DirectoryError> {
        let roots = match &settings.authorities {
            None => None,
            Some(path) => Some(
                fs::read(path)
                    .map_err(|source| DirectoryError::Authorities { path: path.clone(), source })?,
            ),
        };
        let tls = TlsConnector::from(client_config(roots.as_deref())?);
        let (patience, clock) = (settings.patience, settings.clock.clone());
        Ok(Self { tls, patience, clock, last: Arc::default() })
    }

    /// The state of the last answer.
    pub(super) fn last(&self) -> Last {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        self.remember(Last::default());
        let asked = tokio::time::timeout(self.patience, ask(&self.tls, request));
        let (mut parts, body) = match asked.await {
            Ok(answer) => answer.map_err(|error| Error::Other(error.into()))?,
            Err(_) => return Err(Error::Other("it takes too long to answer".into())),
        };
        let pause = retry_after(&parts.headers, self.clock.now());
        parts.headers.remove(header::RETRY_AFTER);
        if let Some(pause) = pause {
            parts.headers.insert(header::RETRY_AFTER, HeaderValue::from(pause.as_secs()));
        }
        let is_refusal = parts.status.is_client_error() || parts.status.is_server_error();
        let retry_after = pause.filter(|_| is_refusal);
        self.remember(Last { status: Some(parts.status.as_u16()), retry_after });
        Ok(BytesResponse { parts, body: Box::new(body) })
    }

    fn remember(&self, last: Last) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

impl HttpClient for Directory {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().ask(request))
    }
}

/// One request on a connection of its own.
async fn ask(
    tls: &TlsConnector,
    mut request: Request<BodyWrapper<Bytes>>,
) -> io::Result<(hyper::http::response::Parts, Bytes)> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    let uri = request.uri().clone();
    let host = uri.host().ok_or_else(|| wrong("its URL names no host"))?;
    if uri.scheme_str() != Some("https") {
        return Err(wrong("its URL does not begin with https://"));
    }
    let plain = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(plain.clone()).map_err(|_| wrong("its URL names no host"))?;
    let socket = TcpStream::connect((plain, uri.port_u16().unwrap_or(443))).await?;
    socket.set_nodelay(true)?;
    let socket = tls.connect(name, socket).await?;
    let (mut sender, connection) = handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let fields = request.headers_mut();
    fields.insert(header::HOST, HeaderValue::try_from(authority).map_err(io::Error::other)?);
    fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    *request.uri_mut() = Uri::try_from(path).map_err(io::Error::other)?;
    let answer = sender.send_request(request).await.map_err(io::Error::other)?;
    let (parts, body) = answer.into_parts();
    let body = read(body).await;
    connection.abort();
    Ok((parts, body?))
}

/// The body, to its end.
async fn read(mut body: Incoming) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(more) = frame.map_err(io::Error::other)?.into_data() {
            bytes.extend_from_slice(&more);
        }
        if bytes.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
        }
    }
    Ok(bytes.into())
}

/// Seconds, or a date (RFC 9110 section 10.2.3).
fn retry_after(fields: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = fields.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let seconds = millrace_http::date::parse(text.as_bytes())?;
            let date = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?);
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(pause.min(PAUSE))
}
