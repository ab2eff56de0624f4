//! Spans: transfers of FTP and requests of HTTP that have ended, for a tracer. Where there is none, they cost a look at a
//! number.
//!
//! The invariant: a tracer that is slow, or away, delays no worker. The queue is bounded, and spans that find no room are
//! counted.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use millrace_metrics::Waited;
use millrace_vfs::Timestamp;

use super::access::Request;
use super::event::{Measured, Subject, Transferred};
use super::line::readable;
use super::live::lock;

/// Spans that wait for the tracer.
const WAITING: usize = 8192;

/// So many wake the tracer, which takes no more at a time.
const BATCH: usize = 512;

/// Characters of a text that a span keeps.
const KEPT: usize = 1024;

/// An operation that has ended.
#[derive(Debug, Clone)]
pub struct Span {
    /// What it was.
    pub operation: Operation,
    /// The number of its session in the log.
    pub session: u64,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The user, once there is one.
    pub user: Option<String>,
    /// When it started, in microseconds since 1970.
    pub started: u64,
    /// When it ended.
    pub ended: u64,
    /// What it has waited for.
    pub waited: Waited,
    /// The transfer of a file or a listing, where it was one.
    pub transfer: Option<Measured>,
}

/// What an operation was.
#[derive(Debug, Clone)]
pub enum Operation {
    /// A transfer of FTP.
    Transfer {
        /// The file or directory, as clients see it.
        path: String,
        /// Why not every byte arrived.
        failure: Option<String>,
    },
    /// A request of HTTP.
    Request {
        /// Empty where the request could not be understood.
        method: String,
        /// The requested target, as the log shows it.
        target: String,
        /// `HTTP/1.1`, or what else was spoken.
        protocol: &'static str,
        /// The host that was asked for.
        host: Option<String>,
        /// The field `User-Agent`.
        agent: Option<String>,
        /// The status of the answer.
        status: u16,
        /// Bytes of the body that went out.
        bytes: u64,
    },
}

/// The spans of a server.
#[derive(Debug, Default)]
pub struct Spans {
    /// There is a span of one in so many operations; 0: of none.
    one_in: AtomicU64,
    /// Locked for each turn that has spans.
    queue: Mutex<Queue>,
    /// There are enough, or no more will come.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    spans: VecDeque<Span>,
    is_over: bool,
}

/// The spans of one turn of a worker.
#[derive(Debug, Default)]
pub(super) struct SpansOfTurn {
    /// How many operations were drawn from.
    seen: u64,
    /// What is known of the transfer of the request that is told next.
    transfer: Option<Measured>,
    ended: Vec<Span>,
}

impl SpansOfTurn {
    /// Returns whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// Notes the transfer of a request of HTTP, which is told next.
    pub(super) fn note_transfer(&mut self, transfer: &Measured) {
        self.transfer = Some(*transfer);
    }
}

impl Spans {
    /// From now on there is a span of one in so many operations.
    pub fn begin(&self, one_in: u64) {
        self.one_in.store(one_in, Ordering::Relaxed);
    }

    /// From now on there are no more, and the tracer does not wait.
    pub fn end(&self) {
        self.begin(0);
        lock(&self.queue).is_over = true;
        self.changed.notify_all();
    }

    /// Waits until there are enough spans to be sent, or for this time. Returns a batch, which may be empty; nothing at the
    /// end.
    pub fn take(&self, time: Duration) -> Option<Vec<Span>> {
        let is_waited_for = |queue: &mut Queue| queue.spans.len() < BATCH && !queue.is_over;
        let queue = self.changed.wait_timeout_while(lock(&self.queue), time, is_waited_for);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner).0;
        let count = queue.spans.len().min(BATCH);
        (count > 0 || !queue.is_over).then(|| queue.spans.drain(..count).collect())
    }

    /// Returns whether there are spans.
    pub(super) fn is_on(&self) -> bool {
        self.one_in.load(Ordering::Relaxed) > 0
    }

    /// Adds a transfer of FTP to the spans of a turn, if it is drawn.
    pub(super) fn note(
        &self,
        turn: &mut SpansOfTurn,
        now: Timestamp,
        subject: &Subject<'_>,
        transfer: &Transferred<'_>,
    ) {
        if self.draws(turn, now, subject) {
            let operation = Operation::Transfer {
                path: kept(transfer.path.as_bytes()),
                failure: transfer.failure.map(|failure| kept(failure.as_bytes())),
            };
            let (times, waited) = (transfer.span(now), transfer.waited);
            turn.ended.push(Span::new(operation, subject, times, waited, Some(transfer.measured())));
        }
    }

    /// Adds a request of HTTP.
    pub(super) fn note_request(
        &self,
        turn: &mut SpansOfTurn,
        now: Timestamp,
        subject: &Subject<'_>,
        request: &Request<'_>,
    ) {
        let transfer = turn.transfer.take();
        if self.draws(turn, now, subject) {
            let operation = Operation::Request {
                method: kept(request.method.as_bytes()),
                target: kept(request.target),
                protocol: request.protocol,
                host: request.host.map(kept),
                agent: request.agent.map(kept),
                status: request.status,
                bytes: request.bytes,
            };
            let ended = micros(now);
            let elapsed = u64::try_from(request.elapsed.as_micros()).unwrap_or(u64::MAX);
            let times = (ended.saturating_sub(elapsed), ended);
            turn.ended.push(Span::new(operation, subject, times, request.waited, transfer));
        }
    }

    /// Gives the spans of a turn to the tracer. Returns how many found no room.
    pub(super) fn push(&self, turn: &mut SpansOfTurn) -> u64 {
        let mut queue = lock(&self.queue);
        let before = queue.spans.len();
        queue.spans.extend(turn.ended.drain(..WAITING.saturating_sub(before).min(turn.ended.len())));
        let has_enough_now = before < BATCH && queue.spans.len() >= BATCH;
        drop(queue);
        if has_enough_now {
            self.changed.notify_one();
        }
        let dropped = turn.ended.len() as u64;
        turn.ended.clear();
        turn.ended.shrink_to(BATCH);
        dropped
    }

    /// Draws one in so many operations, by a hash of when and where each ended.
    fn draws(&self, turn: &mut SpansOfTurn, now: Timestamp, subject: &Subject<'_>) -> bool {
        let one_in = self.one_in.load(Ordering::Relaxed);
        turn.seen = turn.seen.wrapping_add(1);
        let seed =
            [micros(now), subject.session, turn.seen].into_iter().fold(0, |seed, next| mixed(seed ^ next));
        one_in > 0 && seed.is_multiple_of(one_in)
    }
}

impl Span {
    fn new(
        operation: Operation,
        subject: &Subject<'_>,
        (started, ended): (u64, u64),
        waited: Waited,
        transfer: Option<Measured>,
    ) -> Self {
        let user = subject.user.map(kept);
        let (session, peer) = (subject.session, subject.peer);
        Self { operation, session, peer, user, started, ended, waited, transfer }
    }
}

/// The beginning of a text from a client, with bytes that are no UTF-8 as `\xff`: at most [`KEPT`] characters, and all of each.
fn kept(text: &[u8]) -> String {
    // No character has more than four bytes, so that the one that may be cut here is behind the last that is kept.
    let mut text = readable(&text[..text.len().min(4 * KEPT)]);
    if let Some((end, _)) = text.char_indices().nth(KEPT) {
        text.truncate(end);
        text.shrink_to_fit();
    }
    text
}

fn micros(at: Timestamp) -> u64 {
    u64::try_from(at.seconds).unwrap_or(0).saturating_mul(1_000_000) + u64::from(at.nanoseconds / 1000)
}

/// Spreads a number over all of 64 bits (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    const NOW: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 5_000_000 };

    fn subject(session: u64) -> Subject<'static> {
        Subject { session, peer: "192.0.2.1:1025".parse().unwrap(), user: Some(b"ann\xff") }
    }

    fn request(target: &[u8]) -> Request<'_> {
        Request {
            method: "PUT",
            target,
            protocol: "HTTP/1.1",
            host: None,
            status: 201,
            bytes: 0,
            referer: None,
            agent: None,
            elapsed: Duration::from_millis(2),
            waited: Waited::default(),
        }
    }

    fn uploaded(bytes: u64) -> Measured {
        Measured {
            direction: Direction::Upload,
            bytes,
            elapsed: Duration::from_millis(2),
            first_byte: None,
            waited: Waited::default(),
            has_failed: false,
        }
    }

    #[test]
    fn a_request_has_its_transfer_and_the_next_one_has_not() {
        let (spans, mut turn) = (Spans::default(), SpansOfTurn::default());
        spans.begin(1);
        turn.note_transfer(&uploaded(7));
        spans.note_request(&mut turn, NOW, &subject(1), &request(b"/a"));
        spans.note_request(&mut turn, NOW, &subject(2), &request(&[b'x'; 2 * KEPT]));
        assert_eq!(spans.push(&mut turn), 0);
        let taken = spans.take(Duration::ZERO).unwrap();
        let bytes: Vec<_> = taken.iter().map(|span| span.transfer.map(|transfer| transfer.bytes)).collect();
        assert_eq!(bytes, [Some(7), None]);
        assert_eq!((taken[0].started, taken[0].ended), (1_000_000_000_003_000, 1_000_000_000_005_000));
        assert_eq!((taken[0].session, taken[0].user.as_deref()), (1, Some("ann\\xff")));
        let Operation::Request { target, .. } = &taken[1].operation else { panic!("{:?}", taken[1]) };
        assert_eq!(target.len(), KEPT);
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        for character in ["a", "ä", "€", "🜁"] {
            for before in 0..4 {
                let text = format!("{}{}", "x".repeat(before), character.repeat(2 * KEPT));
                let expected = format!("{}{}", "x".repeat(before), character.repeat(KEPT - before));
                assert_eq!(kept(text.as_bytes()), expected, "{character}, {before} bytes from the start");
            }
        }
        let escapes = kept(&[0xff; 2 * KEPT]);
        assert_eq!((escapes.len(), escapes.starts_with("\\xff\\xff")), (KEPT, true));
        assert_eq!(kept("ä".repeat(KEPT).as_bytes()), "ä".repeat(KEPT), "what fits is whole");
    }

    #[test]
    fn a_full_queue_counts_what_it_drops_and_is_taken_in_batches() {
        let (spans, mut turn) = (Spans::default(), SpansOfTurn::default());
        spans.begin(1);
        (0..WAITING + 3).for_each(|_| spans.note_request(&mut turn, NOW, &subject(1), &request(b"/")));
        assert_eq!(spans.push(&mut turn), 3);
        assert!(turn.is_empty());
        assert_eq!(spans.take(Duration::MAX).unwrap().len(), BATCH);
        spans.end();
        assert!(!spans.is_on());
        let rest: usize = std::iter::from_fn(|| spans.take(Duration::MAX)).map(|batch| batch.len()).sum();
        assert_eq!(rest, WAITING - BATCH);
        assert!(spans.take(Duration::MAX).is_none());
    }

    #[test]
    fn one_in_so_many_is_drawn() {
        let (spans, mut turn) = (Spans::default(), SpansOfTurn::default());
        spans.begin(10);
        (0..5000).for_each(|_| spans.note_request(&mut turn, NOW, &subject(1), &request(b"/")));
        assert!((400..600).contains(&turn.ended.len()), "{}", turn.ended.len());
        spans.begin(0);
        let before = turn.ended.len();
        spans.note_request(&mut turn, NOW, &subject(1), &request(b"/"));
        assert_eq!(turn.ended.len(), before);
    }
}
