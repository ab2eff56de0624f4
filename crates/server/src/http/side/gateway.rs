//! A connection of HTTP/2, each of its streams a request of HTTP/1.1 to the worker.
//!
//! The invariant: a stream ends as its request's connection did. An answer that is cut there resets the stream here,
//! and a client that resets a stream cuts the request, so nothing is taken for whole that is not.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use millrace_net::inbox::Sender;
use millrace_net::tls::Channel;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::runtime::Ending;
use super::secured::Secured;
use super::{Adopted, Carried};
use crate::http::who::names_of;
use crate::state::Admission;
use crate::worker::Message;

/// Streams that a client may have open; what is beyond [`REQUESTS`] waits.
const STREAMS: u32 = 100;

/// Requests that run at a time for one client; browsers take six by HTTP/1.1.
const REQUESTS: usize = 16;

/// Silence after which a client is asked whether it is still there, and for how long it may think about it.
const PING: Duration = Duration::from_secs(30);

/// How long a connection that is being ended may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// Fields that are about one connection only (RFC 9113 section 8.2.2).
const OF_CONNECTIONS: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    HeaderName::from_static("keep-alive"),
];

/// A connection as a worker hands it over.
#[derive(Debug)]
pub(in crate::http) struct Handed {
    pub(in crate::http) socket: OwnedFd,
    pub(in crate::http) channel: Box<Channel>,
    pub(in crate::http) peer: SocketAddr,
    pub(in crate::http) local: SocketAddr,
    pub(in crate::http) bound: SocketAddr,
    /// The worker's.
    pub(in crate::http) inbox: Sender<Message>,
    pub(in crate::http) admission: Admission,
}

/// Serves a connection until it ends, or has been idle for this time.
pub(in crate::http) fn serve(handed: Handed, idle: Duration) -> impl FnOnce(Ending) -> Serving {
    move |ending| Box::pin(run(handed, idle, ending))
}

/// A connection being served.
pub(in crate::http) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn run(handed: Handed, idle: Duration, mut ending: Ending) {
    let Handed { socket, channel, peer, local, bound, inbox, admission: _admission } = handed;
    let names = names_of(&channel);
    let Ok(secured) = Secured::new(socket, channel) else { return };
    let origin = Arc::new(Origin {
        peer,
        bound,
        carried: Carried { local, names },
        inbox,
        idle: Mutex::default(),
        kept_for: idle / 2,
        places: Arc::new(Semaphore::new(REQUESTS)),
        streams: AtomicUsize::new(0),
        began: Instant::now(),
        quiet_since: AtomicU64::new(0),
    });
    let service = {
        let origin = Arc::clone(&origin);
        service_fn(move |request| Arc::clone(&origin).answer(request))
    };
    let mut connection = pin!(
        Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .serve_connection(secured, service)
    );
    loop {
        let end = tokio::time::timeout(origin.rest(idle), ending.wait_for(|ending| *ending));
        match meanwhile(connection.as_mut(), end).await {
            None => return,
            Some(Err(_)) if !origin.rest(idle).is_zero() => {}
            Some(_) => break,
        }
    }
    connection.as_mut().graceful_shutdown();
    // What still runs may go on; where nothing does, the client has some seconds to close.
    loop {
        let ended = meanwhile(connection.as_mut(), tokio::time::sleep(FAREWELL)).await.is_none();
        if ended || origin.streams.load(Ordering::Relaxed) == 0 {
            return;
        }
    }
}

/// Lets a connection go on while something is waited for; `None` where it ended before that.
async fn meanwhile<P: Future>(mut connection: Pin<&mut impl Future>, waited_for: P) -> Option<P::Output> {
    let mut waited_for = pin!(waited_for);
    poll_fn(|cx| match (connection.as_mut().poll(cx), waited_for.as_mut().poll(cx)) {
        (Poll::Ready(_), _) => Poll::Ready(None),
        (Poll::Pending, Poll::Ready(output)) => Poll::Ready(Some(output)),
        (Poll::Pending, Poll::Pending) => Poll::Pending,
    })
    .await
}

/// What the streams of a connection share: where their answers come from.
#[derive(Debug)]
struct Origin {
    peer: SocketAddr,
    bound: SocketAddr,
    carried: Carried,
    inbox: Sender<Message>,
    /// Connections to the worker that nobody uses, and since when. Locked for a push or a pop.
    idle: Mutex<Vec<(Instant, SendRequest<Incoming>)>>,
    /// How long one may be used again: the worker closes it at twice this age.
    kept_for: Duration,
    places: Arc<Semaphore>,
    /// How many there are now.
    streams: AtomicUsize,
    began: Instant,
    /// When the last of them ended, in milliseconds since it began.
    quiet_since: AtomicU64,
}

impl Origin {
    /// How long nothing may happen yet.
    fn rest(&self, idle: Duration) -> Duration {
        if self.streams.load(Ordering::Relaxed) > 0 {
            return idle;
        }
        let quiet = self.began + Duration::from_millis(self.quiet_since.load(Ordering::Relaxed));
        idle.saturating_sub(quiet.elapsed())
    }

    /// Has a stream's request answered.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Relayed>, hyper::Error> {
        let mut stream = Stream::new(&self);
        if request.method() == Method::CONNECT {
            return Ok(stream.refusal(StatusCode::NOT_IMPLEMENTED));
        }
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
            return Ok(stream.refusal(StatusCode::SERVICE_UNAVAILABLE));
        };
        stream.place = Some(place);
        let Some(request) = as_http_1(request) else {
            return Ok(stream.refusal(StatusCode::BAD_REQUEST));
        };
        let Some(mut sender) = self.connect().await else {
            return Ok(stream.refusal(StatusCode::SERVICE_UNAVAILABLE));
        };
        let answer = sender.send_request(request).await?;
        let (mut head, body) = answer.into_parts();
        head.version = Version::HTTP_2;
        OF_CONNECTIONS.iter().for_each(|name| drop(head.headers.remove(name)));
        Ok(Response::from_parts(
            head,
            Relayed { body: Some(body), has_ended: false, sender: Some(sender), stream },
        ))
    }

    fn unused(&self) -> Option<(Instant, SendRequest<Incoming>)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// A connection to the worker, one that was used before if there is one.
    async fn connect(&self) -> Option<SendRequest<Incoming>> {
        while let Some((since, mut sender)) = self.unused() {
            if since.elapsed() < self.kept_for && sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
        let (ours, theirs) = UnixStream::pair().ok()?;
        ours.set_nonblocking(true).and_then(|()| theirs.set_nonblocking(true)).ok()?;
        let (peer, bound, carried) = (self.peer, self.bound, self.carried.clone());
        let adopted = Adopted { socket: theirs.into(), peer, bound, carried };
        self.inbox.send(Message::Adopt(Box::new(adopted)));
        let ours = TokioIo::new(tokio::net::UnixStream::from_std(ours).ok()?);
        let (sender, connection) = handshake(ours).await.ok()?;
        tokio::spawn(connection);
        Some(sender)
    }
}

/// The request as HTTP/1.1 has it; `None` where it says nowhere what it is for.
fn as_http_1(request: Request<Incoming>) -> Option<Request<Incoming>> {
    let (mut head, body) = request.into_parts();
    if let Some(authority) = head.uri.authority() {
        let host = HeaderValue::from_str(authority.as_str()).ok()?;
        head.headers.insert(header::HOST, host);
    }
    head.headers.get(header::HOST)?;
    head.uri = match (head.uri.path_and_query(), &head.method) {
        (Some(path), &Method::OPTIONS) if path.as_str() == "*" => Uri::from_static("*"),
        (path, _) => Uri::from(path?.clone()),
    };
    head.version = Version::HTTP_11;
    OF_CONNECTIONS.iter().for_each(|name| drop(head.headers.remove(name)));
    // The stream is open: nobody has to be told to go on.
    head.headers.remove(header::EXPECT);
    join_cookies(&mut head.headers)?;
    Some(Request::from_parts(head, body))
}

/// Cookies may come as several fields, which are one elsewhere (RFC 9113 section 8.2.3).
fn join_cookies(fields: &mut hyper::HeaderMap) -> Option<()> {
    let crumbs: Vec<&[u8]> = fields.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1 {
        let whole = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).ok()?;
        fields.insert(header::COOKIE, whole);
    }
    Some(())
}

/// A stream that is open, and its place among the requests that run.
#[derive(Debug)]
struct Stream {
    origin: Arc<Origin>,
    place: Option<OwnedSemaphorePermit>,
}

impl Stream {
    fn new(origin: &Arc<Origin>) -> Self {
        origin.streams.fetch_add(1, Ordering::Relaxed);
        Self { origin: Arc::clone(origin), place: None }
    }

    /// An answer that comes from here.
    fn refusal(self, status: StatusCode) -> Response<Relayed> {
        let mut answer = Response::new(Relayed { body: None, has_ended: true, sender: None, stream: self });
        *answer.status_mut() = status;
        answer
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let now = u64::try_from(self.origin.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.origin.quiet_since.store(now, Ordering::Relaxed);
        self.origin.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer on its way from the worker to the client.
#[derive(Debug)]
struct Relayed {
    body: Option<Incoming>,
    has_ended: bool,
    /// The connection that it comes by.
    sender: Option<SendRequest<Incoming>>,
    stream: Stream,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        self.has_ended |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Relayed {
    /// A connection whose answer was taken whole can have another request.
    fn drop(&mut self) {
        if (self.has_ended || self.is_end_stream())
            && let Some(sender) = self.sender.take()
        {
            let mut idle = self.stream.origin.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((Instant::now(), sender));
        }
    }
}
