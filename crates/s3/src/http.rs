//! Connections to the store: HTTP/1.1, plain or in TLS, kept while they are idle.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::StoreError;

/// How long an idle connection is kept; stores close theirs after 10 to 60 s.
const KEPT: Duration = Duration::from_secs(8);
/// Idle connections that are kept.
const MOST_KEPT: usize = 64;
/// Bytes of a request's body that take no longer than a second to be sent.
const SLOWEST: u64 = 128 << 10;

/// Where the store is.
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// TLS, unless the store is asked in plain HTTP.
    pub(crate) tls: Option<TlsConnector>,
    /// How long the store may take for an answer, or for the next bytes of one.
    pub(crate) time: Duration,
    /// Idle connections, the latest last. Locked for a push or a pop.
    idle: Mutex<Vec<(Instant, SendRequest<Whole>)>>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// A request's body: bytes that are there.
#[derive(Debug)]
pub(crate) struct Whole(Option<Bytes>);

impl Whole {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, Bytes::len) as u64)
    }
}

/// An answer whose body is still to be read. Its connection is kept once the body has ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) parts: hyper::http::response::Parts,
    body: Incoming,
    /// `None` once the body has ended.
    sender: Option<SendRequest<Whole>>,
    endpoint: Arc<Endpoint>,
}

impl Answer {
    /// Returns the next bytes of the body; `None` at its end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        loop {
            let body = &mut self.body;
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
            let time = self.endpoint.time;
            match timeout(time, frame).await.map_err(|_| StoreError::TimedOut(time))? {
                Some(frame) => {
                    if let Ok(bytes) = frame?.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                None => {
                    self.sender.take().into_iter().for_each(|sender| self.endpoint.keep(sender));
                    return Ok(None);
                }
            }
        }
    }

    /// Reads the body to its end, which is not to have more than `most` bytes.
    pub(crate) async fn read(&mut self, most: usize) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        while let Some(more) = self.next().await? {
            bytes.extend_from_slice(&more);
            if bytes.len() > most {
                return Err(StoreError::Malformed("it is too long"));
            }
        }
        Ok(bytes)
    }

    /// A header of the answer, as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name)?.to_str().ok()
    }
}

impl Endpoint {
    pub(crate) fn new(host: String, port: u16, tls: Option<TlsConnector>, time: Duration) -> Self {
        Self { host, port, tls, time, idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Instant, SendRequest<Whole>)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, sender: SendRequest<Whole>) {
        let mut idle = self.idle();
        idle.retain(|(since, _)| since.elapsed() < KEPT);
        if idle.len() < MOST_KEPT && !sender.is_closed() {
            idle.push((Instant::now(), sender));
        }
    }

    /// An idle connection that can take a request.
    async fn kept(&self) -> Option<SendRequest<Whole>> {
        loop {
            let (since, mut sender) = self.idle().pop()?;
            let is_ready = async { sender.ready().await.is_ok() };
            if since.elapsed() < KEPT && timeout(Duration::from_secs(1), is_ready).await == Ok(true) {
                return Some(sender);
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Whole>, StoreError> {
        let socket = TcpStream::connect((self.host.trim_matches(['[', ']']), self.port)).await?;
        socket.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return started(socket).await };
        let name = ServerName::try_from(self.host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        started(tls.connect(name, socket).await?).await
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        request: impl Fn() -> Result<Request<Whole>, StoreError>,
    ) -> Result<Answer, StoreError> {
        // A kept connection may have been closed just now: then once more on a new one.
        if let Some(sender) = self.kept().await {
            match self.send(sender, request()?).await {
                Err(StoreError::Connection(_)) => {}
                answer => return answer,
            }
        }
        let connected = timeout(self.time, self.connect()).await;
        let sender = connected.map_err(|_| StoreError::TimedOut(self.time))??;
        self.send(sender, request()?).await
    }

    async fn send(
        self: &Arc<Self>,
        mut sender: SendRequest<Whole>,
        request: Request<Whole>,
    ) -> Result<Answer, StoreError> {
        let length = request.body().size_hint().lower();
        let time = self.time + Duration::from_secs(length / SLOWEST);
        let answered = timeout(time, sender.send_request(request)).await;
        let answer: Response<Incoming> = answered.map_err(|_| StoreError::TimedOut(time))??;
        let (parts, body) = answer.into_parts();
        Ok(Answer { parts, body, sender: Some(sender), endpoint: Arc::clone(self) })
    }
}

/// Begins HTTP on a socket.
async fn started(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Whole>, StoreError> {
    let (sender, connection) = handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
