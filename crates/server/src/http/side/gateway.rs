//! A connection of HTTP/2, each of its streams a request of HTTP/1.1 to the worker.
//!
//! The invariant: a stream ends as its request's connection did. An answer that is cut there resets the stream here,
//! and a client that resets a stream cuts the request, so nothing is taken for whole that is not.
//!
//! What one client can hold is bounded: in requests ([`REQUESTS`]), in bytes of each that it does not take ([`KEPT`]),
//! and in time, since a connection all of whose streams wait for the client ends as one of HTTP/1.1 does. What it says
//! besides requests is bounded by `census.rs`.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::body::{Body, Buf, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Builder as Client, SendRequest};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use millrace_net::tls::Channel;
use millrace_runtime::sessions::Admission;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::places::Places;
use super::runtime::Ending;
use super::secured::Secured;
use super::wire::Wire;
use super::{Adopted, Carried};
use crate::http::hooking::Parting;
use crate::http::who::names_of;
use crate::limits::Member;
use crate::worker::{Sender, Worker, WorkerMessage};

/// Streams that a client may have open; what is beyond [`REQUESTS`] waits.
const STREAMS: u32 = 100;

/// Requests that run at a time for one client; browsers take six by HTTP/1.1.
const REQUESTS: usize = 16;

/// Bytes of an answer that are read ahead of what the client takes, and that are given to it at a time: as long as a
/// client takes one piece in the time for which it may stall, it goes on.
const KEPT: usize = 64 * 1024;
const PIECE: usize = 16 * 1024;

/// Bytes of a request's fields, names and all, as HTTP/1.1 has them.
const FIELDS: u32 = 16 * 1024;

/// Streams that a client may have reset before we have come to them; and that we may have reset for its faults.
const RESETS: usize = 20;
const FAULTS: usize = 100;

/// The verdict over a client that does not answer `PING` is ours, so hyper's comes never: see `wire.rs`.
const OURS: Duration = Duration::from_secs(365 * 24 * 3600);

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
    pub(in crate::http) inbox: Sender,
    pub(in crate::http) admission: Admission,
    /// Its place among those that limits are for.
    pub(in crate::http) member: Member,
    /// What hooks are told at its end.
    pub(in crate::http) parting: Option<Parting>,
}

/// For how long a connection may be of no use.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Patience {
    /// Nothing is asked.
    pub(in crate::http) idle: Duration,
    /// What was asked for is not taken.
    pub(in crate::http) stall: Duration,
    /// Nothing is said at all, or not that it is still there when it was asked.
    pub(in crate::http) ping: Duration,
}

/// Serves a connection until it ends, or was of no use for too long.
pub(in crate::http) fn serve(handed: Handed, patience: Patience) -> impl FnOnce(Ending) -> Serving {
    move |ending| Box::pin(run(handed, patience, ending))
}

/// A connection being served.
pub(in crate::http) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn run(handed: Handed, patience: Patience, mut ending: Ending) {
    let Handed { socket, channel, peer, local, bound, inbox, member, .. } = handed;
    let (_admission, _parting) = (handed.admission, handed.parting);
    let names = names_of(&channel);
    let Ok(secured) = Secured::new(socket, channel) else { return };
    let wire = secured.wire();
    let carried = Carried {
        local,
        names,
        dismissal: Arc::default(),
        relayed: Arc::default(),
        wire: Arc::downgrade(&wire),
        places: Arc::new(Places::new(bound, member)),
        place: None,
    };
    let origin = Arc::new(Origin::new((peer, bound), carried, inbox, patience));
    let service = {
        let origin = Arc::clone(&origin);
        service_fn(move |request| Arc::clone(&origin).answer(request))
    };
    let mut connection = pin!(
        Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(FIELDS)
            .max_pending_accept_reset_streams(RESETS)
            .max_local_error_reset_streams(FAULTS)
            .max_send_buf_size(KEPT)
            .keep_alive_interval(patience.ping)
            .keep_alive_timeout(OURS)
            .serve_connection(secured, service)
    );
    loop {
        // What is waited for may be something else before that time is over; and who is slow is looked at in time.
        let look = origin.rest(patience).min(patience.stall / 2).min(patience.ping / 2);
        let end = tokio::time::timeout(look, is_to_end(&mut ending, &origin.carried));
        match meanwhile(connection.as_mut(), end).await {
            None => return,
            Some(Err(_)) if origin.is_lost(&wire, patience) => return,
            Some(Err(_)) if !origin.rest(patience).is_zero() => {}
            // Nobody takes what would have to be sent first.
            Some(Err(_)) if origin.streams.load(Ordering::Relaxed) > 0 => return,
            Some(_) => break,
        }
    }
    connection.as_mut().graceful_shutdown();
    see_off(connection, &origin, &wire, patience).await;
}

/// What still runs may go on; where nothing does, the client has some seconds to close.
async fn see_off(mut connection: Pin<&mut impl Future>, origin: &Origin, wire: &Wire, patience: Patience) {
    loop {
        let ended = meanwhile(connection.as_mut(), tokio::time::sleep(FAREWELL)).await.is_none();
        // Who has gone without a word, or takes nothing, is waited for no longer than while it was served.
        if ended || origin.streams.load(Ordering::Relaxed) == 0 || origin.is_lost(wire, patience) {
            return;
        }
        if origin.rest(patience).is_zero() {
            return;
        }
    }
}

/// Waits until the server, or somebody who may, wants the connection to end.
async fn is_to_end(ending: &mut Ending, carried: &Carried) {
    let (mut all, mut this) = (pin!(ending.wait_for(|ending| *ending)), pin!(carried.dismissal.notified()));
    poll_fn(|cx| match (all.as_mut().poll(cx), this.as_mut().poll(cx)) {
        (Poll::Pending, Poll::Pending) => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
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
    inbox: Sender,
    /// Connections to the worker that nobody uses, and since when. Locked for a push or a pop.
    idle: Mutex<Vec<(Instant, Link)>>,
    /// How long one may be used again: the worker closes it at twice this age.
    kept_for: Duration,
    places: Arc<Semaphore>,
    /// How many there are now; and for how many of them the worker has to do something next, and not the client.
    streams: AtomicUsize,
    working: AtomicUsize,
    began: Instant,
    /// When one of them last moved or ended, in milliseconds since it began.
    moved: AtomicU64,
}

/// A connection to the worker.
#[derive(Debug)]
struct Link {
    sender: SendRequest<Incoming>,
    /// Bytes of the body of its last answer that were given on.
    relayed: Arc<AtomicU64>,
}

impl Origin {
    /// One from its peer to the address that a listener is bound to.
    fn new(
        (peer, bound): (SocketAddr, SocketAddr),
        carried: Carried,
        inbox: Sender,
        patience: Patience,
    ) -> Self {
        Self {
            peer,
            bound,
            carried,
            inbox,
            idle: Mutex::default(),
            kept_for: patience.idle / 2,
            places: Arc::new(Semaphore::new(REQUESTS)),
            streams: AtomicUsize::new(0),
            working: AtomicUsize::new(0),
            began: Instant::now(),
            moved: AtomicU64::new(0),
        }
    }

    /// Claims that nobody is there any more: a client has not said so when it was asked, and takes nothing either.
    fn is_lost(&self, wire: &Wire, patience: Patience) -> bool {
        if wire.takes() && self.streams.load(Ordering::Relaxed) > 0 {
            self.note_movement();
        }
        wire.silence() >= patience.ping * 2
    }

    /// How long nothing may happen yet.
    fn rest(&self, patience: Patience) -> Duration {
        let time = match (self.streams.load(Ordering::Relaxed), self.working.load(Ordering::Relaxed)) {
            (0, _) => patience.idle,
            (_, 0) => patience.stall,
            // The worker has deadlines of its own.
            _ => return patience.idle.min(patience.stall),
        };
        let moved = self.began + Duration::from_millis(self.moved.load(Ordering::Relaxed));
        time.saturating_sub(moved.elapsed())
    }

    fn note_movement(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Relaxed);
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
        stream.is_worked_on(true);
        let Some(request) = as_http_1(request) else {
            return Ok(stream.refusal(StatusCode::BAD_REQUEST));
        };
        let Some(mut link) = self.connect().await else {
            return Ok(stream.refusal(StatusCode::SERVICE_UNAVAILABLE));
        };
        link.relayed.store(0, Ordering::Relaxed);
        let answer = link.sender.send_request(request).await?;
        stream.is_worked_on(false);
        let (mut head, body) = answer.into_parts();
        head.version = Version::HTTP_2;
        OF_CONNECTIONS.iter().for_each(|name| drop(head.headers.remove(name)));
        let link = Some(link);
        let relayed = Relayed { body: Some(body), has_ended: false, rest: Bytes::new(), link, stream };
        Ok(Response::from_parts(head, relayed))
    }

    fn unused(&self) -> Option<(Instant, Link)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// A connection to the worker, one that was used before if there is one.
    async fn connect(&self) -> Option<Link> {
        while let Some((since, mut link)) = self.unused() {
            if since.elapsed() < self.kept_for && link.sender.ready().await.is_ok() {
                return Some(link);
            }
        }
        let (ours, theirs) = UnixStream::pair().ok()?;
        ours.set_nonblocking(true).and_then(|()| theirs.set_nonblocking(true)).ok()?;
        let (peer, bound, relayed) = (self.peer, self.bound, Arc::<AtomicU64>::default());
        let carried = Carried { relayed: Arc::clone(&relayed), ..self.carried.clone() };
        let adopted = Adopted { socket: theirs.into(), peer, bound, carried };
        let adopt = move |worker: &mut Worker| worker.adopt(|key, core| adopted.into_client(key, core));
        self.inbox.send(WorkerMessage::Worker(Box::new(adopt)));
        let ours = TokioIo::new(tokio::net::UnixStream::from_std(ours).ok()?);
        let (sender, connection) = Client::new().max_buf_size(KEPT).handshake(ours).await.ok()?;
        tokio::spawn(connection);
        Some(Link { sender, relayed })
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
    /// The worker has to do something next.
    is_worked_on: bool,
}

impl Stream {
    fn new(origin: &Arc<Origin>) -> Self {
        // Whoever takes nothing does not go on by asking for more.
        if origin.streams.fetch_add(1, Ordering::Relaxed) == 0 {
            origin.note_movement();
        }
        Self { origin: Arc::clone(origin), place: None, is_worked_on: false }
    }

    /// Whose turn it is now.
    fn is_worked_on(&mut self, worker: bool) {
        match (self.is_worked_on, worker) {
            (false, true) => _ = self.origin.working.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.origin.working.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        self.is_worked_on = worker;
        self.origin.note_movement();
    }

    /// An answer that comes from here.
    fn refusal(self, status: StatusCode) -> Response<Relayed> {
        let relayed = Relayed { body: None, has_ended: true, rest: Bytes::new(), link: None, stream: self };
        let mut answer = Response::new(relayed);
        *answer.status_mut() = status;
        answer
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.is_worked_on(false);
        self.origin.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer on its way from the worker to the client.
#[derive(Debug)]
struct Relayed {
    body: Option<Incoming>,
    has_ended: bool,
    /// Of the last frame of the body, what is not given on yet.
    rest: Bytes,
    /// The connection that it comes by.
    link: Option<Link>,
    stream: Stream,
}

impl Body for Relayed {
    type Data = Piece;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, hyper::Error>>> {
        let Self { body: Some(body), rest, stream, has_ended, link } = &mut *self else {
            return Poll::Ready(None);
        };
        if rest.is_empty() {
            let frame = Pin::new(body).poll_frame(cx);
            stream.is_worked_on(frame.is_pending());
            match ready!(frame).transpose()?.map(Frame::into_data) {
                Some(Ok(bytes)) => *rest = bytes,
                // There are no trailers behind answers of the worker's.
                Some(Err(_)) => return Poll::Ready(None),
                None => {
                    *has_ended = true;
                    return Poll::Ready(None);
                }
            }
        }
        stream.origin.note_movement();
        let relayed = link.as_ref().map(|link| Arc::clone(&link.relayed)).unwrap_or_default();
        let bytes = rest.split_to(rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(Piece { bytes, relayed }))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        if let Some(exact) = hint.exact() {
            hint.set_exact(exact + self.rest.len() as u64);
        }
        hint
    }
}

/// Part of the body of an answer, which tells how much of it has left.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    relayed: Arc<AtomicU64>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.relayed.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl Drop for Relayed {
    /// A connection whose answer was taken whole can have another request.
    fn drop(&mut self) {
        if (self.has_ended || self.is_end_stream())
            && let Some(link) = self.link.take()
        {
            let mut idle = self.stream.origin.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((Instant::now(), link));
        }
    }
}
