//! The server's side of a connection of HTTP/1.1 or 1.0, as a value.
//!
//! ```text
//!       first byte          head whole               answered, persistent
//!  Idle ----------> Head ----------------> Exchange ---------------------> Idle
//!   |                 |  malformed, late      |
//!   |                 +---------------------> | answered, and the last
//!   |                                         v
//!   |                                     Flushing --sent, request whole--> Closed
//!   |                                         | sent, more may come           ^
//!   |                                         v                               |
//!   |                                     Lingering --end of input, deadline--+
//!   +-- deadline --------------------------------------------------------> Closed
//! ```
//!
//! [`ServerConnection::handle`] is given one [`Input`] at a time and answers with a [`Step`]: bytes to send, then at
//! most one [`Act`]. The head of a request is parsed once; the value owns it until the answer is complete. While a
//! request is open, further input waits: the body until the driver takes it ([`ServerConnection::take_body`]), later
//! requests until they may be answered.
//!
//! The invariant: every request gets exactly one answer, in the order of the requests, and nothing behind a body that
//! was not taken whole is understood as a request. How the input is cut into pieces changes nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::body::BodyDecoder;
use super::chunked::ChunkError;
use super::heads::Heads;
use super::step::{Act, Input, Step, Timeouts, Unread};
use crate::request::{self, Framing, Head, Refusal};
use crate::response::CONTINUE;
use crate::status::Status;

/// How long a client that is being closed may take to read its last answer, or to send more that is thrown away. Many
/// programs read an answer only when all of their request is sent; closing a socket with unread input resets the
/// connection, and the client loses the answer.
pub const LINGER: Duration = Duration::from_secs(5);

/// For how long such a client may go on sending.
pub const MAX_LINGER: Duration = Duration::from_secs(30);

/// The server's side of one connection.
#[derive(Debug)]
pub struct ServerConnection {
    phase: Phase,
    /// Received bytes that were not taken yet: part of a head, a body, or pipelined requests.
    input: Option<Box<Pending>>,
    /// When the phase began, or bytes last moved: what deadlines count from.
    since: Instant,
    scan: Scan,
    peer: Peer,
    future: Future,
}

/// Bytes that wait.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
}

/// The state of a connection.
#[derive(Debug)]
enum Phase {
    /// Between requests.
    Idle,
    /// Part of a head has come.
    Head,
    /// A request is open.
    Exchange(Exchange),
    /// The last answer is complete, and being sent, until this time at most.
    Flushing(Instant, Rest),
    /// Our side was ended, and what still comes is thrown away until this time.
    Lingering(Instant),
    /// Nothing more is done.
    Closed,
}

/// A request that is answered.
#[derive(Debug)]
struct Exchange {
    /// `None` for what was no request.
    head: Option<Arc<Head>>,
    body: Body,
    expectation: Expectation,
    after: After,
}

/// Whether the client waits for `100 Continue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expectation {
    None,
    Waits,
}

/// The state of the end of the open request.
#[derive(Debug)]
enum Body {
    /// It ends where this says.
    Framed(BodyDecoder),
    /// It was malformed, so its end is not known.
    Unframed,
}

/// What follows the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The next request.
    KeepAlive,
    /// The connection closes.
    Close,
    /// The same, and more may come that is thrown away.
    Linger,
}

/// Whether a client that is closed may be sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Its request came whole.
    None,
    /// More of it is on the way, or may be.
    Expected,
}

/// Whether the input needs another scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// There may be a whole head.
    Due,
    /// The head is not whole.
    Starved,
}

/// The state of the client's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// It has sent nothing.
    Silent,
    /// It has sent something.
    Spoke,
    /// It has ended its side.
    Ended,
}

/// Whether the connection may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Future {
    /// As long as client and server like.
    Open,
    /// The next answer says that it is the last.
    Retiring,
    /// The open request is the last; none is taken any more.
    Last,
}

impl Pending {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }
}

impl ServerConnection {
    /// A connection that has just been accepted.
    pub fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Idle,
            input: None,
            since: now,
            scan: Scan::Due,
            peer: Peer::Silent,
            future: Future::Open,
        }
    }

    /// One request on a stream of HTTP/2, whose head was read there: it is answered as if it had come on a connection of
    /// its own, which ends behind the answer.
    pub fn of_stream(head: Arc<Head>, now: Instant) -> Self {
        let body = Body::Framed(BodyDecoder::Stream(head.framing == Framing::None));
        let (expectation, after) = (Expectation::None, After::Close);
        Self {
            phase: Phase::Exchange(Exchange { head: Some(head), body, expectation, after }),
            peer: Peer::Spoke,
            future: Future::Last,
            ..Self::new(now)
        }
    }

    /// The same of a request that was refused when its head was read.
    pub fn of_refused_stream(now: Instant) -> Self {
        let exchange = Exchange {
            head: None,
            body: Body::Unframed,
            expectation: Expectation::None,
            after: After::Close,
        };
        Self { phase: Phase::Exchange(exchange), peer: Peer::Spoke, future: Future::Last, ..Self::new(now) }
    }

    /// Notes that the body of a stream's request came whole.
    pub fn end_stream_body(&mut self) {
        if let Phase::Exchange(Exchange { body: Body::Framed(BodyDecoder::Stream(has_ended)), .. }) =
            &mut self.phase
        {
            *has_ended = true;
        }
    }

    /// Takes what happened and says what to do about it. `heads` has room for a request's head.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, heads: &mut Heads) -> Step {
        match input {
            Input::Received(bytes) => self.receive(now, bytes, heads),
            Input::PeerClosed => self.peer_closed(),
            Input::Ready if self.takes_requests() => self.next_request(now, heads),
            Input::Ready => Step::default(),
            Input::BodyWanted => self.body_wanted(),
            Input::Answered => self.answered(now, heads),
            Input::Sent(unread) => self.sent(unread),
            Input::Deadline => self.expired(),
        }
    }

    /// When [`Input::Deadline`] is due; `None` while a request is open, which others keep the time of.
    pub fn deadline(&self, timeouts: &Timeouts) -> Option<Instant> {
        match &self.phase {
            Phase::Idle if self.peer != Peer::Silent && self.pending().is_empty() => {
                Some(self.since + timeouts.idle)
            }
            Phase::Idle | Phase::Head => Some(self.since + timeouts.head),
            Phase::Exchange(_) | Phase::Closed => None,
            Phase::Flushing(until, _) | Phase::Lingering(until) => Some(*until),
        }
    }

    fn receive(&mut self, now: Instant, bytes: &[u8], heads: &mut Heads) -> Step {
        if self.peer == Peer::Silent {
            self.peer = Peer::Spoke;
        }
        let parses = self.takes_requests() && self.pending().is_empty();
        match &mut self.phase {
            Phase::Lingering(until) => {
                *until = (*until).max((self.since + MAX_LINGER).min(now + LINGER));
                Step::default()
            }
            Phase::Flushing(..) | Phase::Closed => Step::default(),
            Phase::Exchange(_) => {
                self.keep(bytes);
                Step::default()
            }
            Phase::Idle | Phase::Head if parses => self.take_head(now, bytes, heads),
            Phase::Idle | Phase::Head => {
                // A line that is not whole cannot end a head: no use in parsing it again for every byte.
                let is_telling =
                    bytes.contains(&b'\n') || self.pending().len() + bytes.len() > request::MAX_REQUEST_LINE;
                self.keep(bytes);
                if self.scan == Scan::Starved && !is_telling {
                    return Step::default();
                }
                self.scan = Scan::Due;
                if self.takes_requests() { self.next_request(now, heads) } else { Step::default() }
            }
        }
    }

    fn pending(&self) -> &[u8] {
        self.input.as_deref().map_or(&[], Pending::rest)
    }

    fn keep(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.input.get_or_insert_default().bytes.extend_from_slice(bytes);
        }
    }

    /// Takes the next head from the received bytes, if it is complete.
    fn next_request(&mut self, now: Instant, heads: &mut Heads) -> Step {
        if self.scan == Scan::Starved {
            return Step::default();
        }
        let Some(mut input) = self.input.take() else { return Step::default() };
        let (step, length) = self.parse(now, input.rest(), heads);
        input.taken += length;
        self.input = Some(input).filter(|input| !input.rest().is_empty());
        step
    }

    /// The same for newly received bytes, of which only those after the head are kept.
    fn take_head(&mut self, now: Instant, bytes: &[u8], heads: &mut Heads) -> Step {
        let (step, length) = self.parse(now, bytes, heads);
        self.keep(&bytes[length..]);
        step
    }

    /// Parses a head at the beginning of `bytes`. Returns what to do, and how many of the bytes were taken.
    fn parse(&mut self, now: Instant, bytes: &[u8], heads: &mut Heads) -> (Step, usize) {
        // Empty lines before a request are ignored (RFC 9112 section 2.2).
        let empty = 2 * bytes.chunks(2).take_while(|line| *line == b"\r\n").count();
        let rest = &bytes[empty..];
        if rest.is_empty() {
            return (Step::default(), empty);
        }
        let mut head = heads.take();
        let read = Arc::get_mut(&mut head).map_or(Ok(None), |head| head.read(rest));
        match read {
            Ok(None) => {
                heads.put_back(head);
                if !matches!(self.phase, Phase::Head) {
                    // A head has its time from its first byte on, however many pieces it comes in.
                    (self.phase, self.since) = (Phase::Head, now);
                }
                self.scan = Scan::Starved;
                (Step::default(), empty)
            }
            Ok(Some(length)) => {
                self.scan = Scan::Due;
                let after = if head.persistent { After::KeepAlive } else { After::Close };
                let body = Body::Framed(BodyDecoder::of(head.framing));
                let expectation = if head.expects_continue { Expectation::Waits } else { Expectation::None };
                self.phase =
                    Phase::Exchange(Exchange { head: Some(Arc::clone(&head)), body, expectation, after });
                (Step::act(Act::Answer(head)), empty + length)
            }
            Err(refusal) => {
                heads.put_back(head);
                (self.refuse(refusal, rest), bytes.len())
            }
        }
    }

    /// Has the driver answer a malformed request, and closes afterwards.
    fn refuse(&mut self, refusal: Refusal, bytes: &[u8]) -> Step {
        const SHOWN: usize = 256;
        self.phase = Phase::Exchange(Exchange {
            head: None,
            body: Body::Unframed,
            expectation: Expectation::None,
            after: After::Linger,
        });
        Step::act(Act::Refuse(refusal, bytes[..bytes.len().min(SHOWN)].to_vec()))
    }

    fn peer_closed(&mut self) -> Step {
        self.peer = Peer::Ended;
        match self.phase {
            Phase::Lingering(_) => self.close(),
            _ => Step::default(),
        }
    }

    fn body_wanted(&mut self) -> Step {
        match &mut self.phase {
            Phase::Exchange(Exchange { expectation: expectation @ Expectation::Waits, .. }) => {
                *expectation = Expectation::None;
                Step { send: CONTINUE, act: None }
            }
            _ => Step::default(),
        }
    }

    fn answered(&mut self, now: Instant, heads: &mut Heads) -> Step {
        let is_whole = self.has_whole_body();
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Exchange(exchange) => {
                if let Some(head) = exchange.head {
                    heads.put_back(head);
                }
                self.since = now;
                match exchange.after {
                    After::KeepAlive if is_whole => {}
                    After::Close if is_whole => self.begin_close(now, Rest::None),
                    _ => self.begin_close(now, Rest::Expected),
                }
            }
            phase => self.phase = phase,
        }
        Step::default()
    }

    fn begin_close(&mut self, now: Instant, rest: Rest) {
        self.phase = Phase::Flushing(now + LINGER, rest);
        self.input = None;
    }

    fn sent(&mut self, unread: Unread) -> Step {
        match self.phase {
            Phase::Flushing(_, Rest::None) if unread == Unread::Nothing => self.close(),
            Phase::Flushing(..) if self.peer == Peer::Ended => self.close(),
            Phase::Flushing(until, _) => {
                self.phase = Phase::Lingering(until);
                Step::act(Act::EndOutput)
            }
            _ => Step::default(),
        }
    }

    fn expired(&mut self) -> Step {
        match self.phase {
            Phase::Head => {
                let reason = "The head did not come in time.";
                let input = self.input.take().unwrap_or_default();
                self.refuse(Refusal { status: Status::REQUEST_TIMEOUT, reason }, input.rest())
            }
            Phase::Exchange(_) => Step::default(),
            _ => self.close(),
        }
    }

    fn close(&mut self) -> Step {
        self.phase = Phase::Closed;
        Step::act(Act::Close)
    }

    /// Decodes the body of the open request, from the bytes received before and then from `wire`, and appends it to
    /// `body`. Bytes after the body wait as the next request.
    pub fn take_body(&mut self, wire: &[u8], body: &mut Vec<u8>) -> Result<(), ChunkError> {
        let Phase::Exchange(Exchange { body: Body::Framed(decoder), .. }) = &mut self.phase else {
            self.keep(wire);
            return Ok(());
        };
        let (mut decoded, mut behind) = (Ok(()), wire);
        if let Some(input) = &mut self.input {
            let mut rest = input.rest();
            let before = rest.len();
            decoded = decoder.take(&mut rest, body);
            input.taken += before - rest.len();
        }
        if self.input.as_ref().is_some_and(|input| input.rest().is_empty()) {
            self.input = None;
        }
        if decoded.is_ok() && !wire.is_empty() {
            decoded = decoder.take(&mut behind, body);
        }
        self.keep(behind);
        decoded
    }

    /// Returns whether the body of the open request was taken whole.
    pub fn has_whole_body(&self) -> bool {
        match &self.phase {
            // What was told of the end of a stream may be known before all of it is taken.
            Phase::Exchange(Exchange { body: Body::Framed(decoder @ BodyDecoder::Stream(_)), .. }) => {
                decoder.has_ended() && !self.has_input()
            }
            Phase::Exchange(Exchange { body: Body::Framed(decoder), .. }) => decoder.has_ended(),
            Phase::Exchange(_) => false,
            _ => true,
        }
    }

    /// Returns whether bytes wait that the driver has given.
    pub fn has_input(&self) -> bool {
        !self.pending().is_empty()
    }

    /// How many bytes wait that the driver has given.
    pub fn buffered(&self) -> usize {
        self.pending().len()
    }

    /// Returns whether the next request may be taken.
    pub fn takes_requests(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Head) && self.future != Future::Last
    }

    /// Returns whether [`Input::Ready`] may lead to a request.
    pub fn may_have_request(&self) -> bool {
        self.takes_requests() && self.scan == Scan::Due && self.has_input()
    }

    /// Returns whether a request is open.
    pub fn is_answering(&self) -> bool {
        matches!(self.phase, Phase::Exchange(_))
    }

    /// The request that is open.
    pub fn request(&self) -> Option<&Arc<Head>> {
        match &self.phase {
            Phase::Exchange(exchange) => exchange.head.as_ref(),
            _ => None,
        }
    }

    /// Returns whether a further request may follow the answer to the open one, as far as is known now: a body that was
    /// not taken is in the way. Where the answer has told the client that none may, the driver calls
    /// [`Self::close_behind`].
    pub fn keeps_alive(&self) -> bool {
        let is_whole = self.has_whole_body();
        match &self.phase {
            Phase::Exchange(exchange) => {
                exchange.after == After::KeepAlive && is_whole && self.future == Future::Open
            }
            _ => false,
        }
    }

    /// Returns whether a further request may follow once the body of the open one is taken whole.
    pub fn may_keep_alive(&self) -> bool {
        match &self.phase {
            Phase::Exchange(exchange) => exchange.after == After::KeepAlive && self.future != Future::Last,
            _ => false,
        }
    }

    /// Closes the connection behind the open answer, or now where none is open. Input that comes is thrown away.
    pub fn close_behind(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Exchange(exchange) if exchange.after == After::KeepAlive => {
                exchange.after = After::Close;
            }
            Phase::Idle | Phase::Head => self.begin_close(now, Rest::None),
            _ => {}
        }
    }

    /// Has what the client still sends thrown away for a while when the connection is closed.
    pub fn linger(&mut self) {
        match &mut self.phase {
            Phase::Exchange(exchange) => exchange.after = After::Linger,
            Phase::Flushing(_, rest) => *rest = Rest::Expected,
            _ => {}
        }
    }

    /// Makes the next answer the last.
    pub fn retire(&mut self) {
        if self.future == Future::Open {
            self.future = Future::Retiring;
        }
    }

    /// Has no further request be taken.
    pub fn shut_down(&mut self) {
        self.future = Future::Last;
    }

    /// Notes that bytes were sent, or that waiting begins anew for another reason.
    pub fn moved(&mut self, now: Instant) {
        self.since = now;
    }

    /// When bytes last moved, or the phase began.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Returns whether the client has sent anything.
    pub fn has_spoken(&self) -> bool {
        self.peer != Peer::Silent
    }

    /// Returns whether the client has ended its side, and that was read.
    pub fn has_peer_closed(&self) -> bool {
        self.peer == Peer::Ended
    }

    /// Returns whether the last answer is complete: what remains is to send it, and to close.
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Flushing(..) | Phase::Lingering(_) | Phase::Closed)
    }

    /// Returns whether the connection is to be closed now.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Returns whether our side of the stream was ended.
    pub fn has_ended_output(&self) -> bool {
        matches!(self.phase, Phase::Lingering(_) | Phase::Closed)
    }

    /// Returns whether no further request is taken because the server is closing.
    pub fn is_last(&self) -> bool {
        self.future == Future::Last
    }

    /// Returns whether a closing client may be sending more that is to be read first.
    pub fn expects_rest(&self) -> bool {
        matches!(self.phase, Phase::Flushing(_, Rest::Expected))
    }
}
