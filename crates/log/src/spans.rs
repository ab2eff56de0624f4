//! Spans: sessions and transfers of FTP, requests of HTTP and logins that have ended, for a tracer. Where there is none, they
//! cost a look at a number.
//!
//! The invariant: a tracer that is slow, or away, delays no worker. The queue is bounded, and spans that find no room are
//! counted.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use millrace_metrics::{LoginResult, Waited};
use millrace_vfs::Timestamp;

use super::access::Request;
use super::event::{Event, Measured, Subject, Transferred};
use super::line::readable;
use super::live::lock;
use super::span::{Operation, Span};
use super::within::{RequestTrace, Tried, Within};

/// Spans that wait for the tracer.
const WAITING: usize = 8192;

/// Bytes of their texts. An ordinary span has a quarter of a KiB, and one that a client makes long more than ten.
const WAITING_TEXT: usize = WAITING * 1024;

/// This many wake the tracer, which takes no more at a time.
const BATCH: usize = 512;

/// Characters of a text that a span keeps.
const KEPT: usize = 1024;

/// The spans of a server.
#[derive(Debug, Default)]
pub struct Spans {
    /// One in this many sessions of FTP and requests of HTTP is traced; 0: none.
    one_in: AtomicU64,
    /// Draws them: no client can tell which.
    draw: RandomState,
    /// Locked for each turn that has spans.
    queue: Mutex<Queue>,
    /// There are enough, or no more will come.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    spans: VecDeque<Span>,
    /// Bytes of the texts of these.
    text: usize,
    is_over: bool,
}

/// The spans of one turn of a worker.
#[derive(Debug, Default)]
pub(super) struct SpansOfTurn {
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
    /// From now on one in this many sessions and requests is traced.
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
        let batch: Vec<Span> = queue.spans.drain(..count).collect();
        queue.text -= batch.iter().map(Span::text_bytes).sum::<usize>();
        (count > 0 || !queue.is_over).then_some(batch)
    }

    /// Returns whether there are spans.
    pub fn is_on(&self) -> bool {
        self.one_in.load(Ordering::Relaxed) > 0
    }

    /// Adds what an event tells to the spans of a turn, if it is drawn.
    pub(super) fn note(
        &self,
        turn: &mut SpansOfTurn,
        now: Timestamp,
        subject: &Subject<'_>,
        event: &Event<'_>,
    ) {
        match *event {
            Event::Transferred(transfer) => self.note_transfer(turn, now, subject, transfer),
            Event::LoggedIn { tried, .. } => {
                self.note_login(turn, now, subject, (LoginResult::Success, None), tried);
            }
            Event::LoginFailed { tried, .. } => {
                self.note_login(turn, now, subject, (LoginResult::Failed, None), tried);
            }
            Event::LoginRefused { reason, tried, .. } => {
                self.note_login(turn, now, subject, (LoginResult::Refused, Some(reason)), tried);
            }
            Event::Disconnected { reason, lasted } if self.draws(now, subject, &Within::Session) => {
                let operation = Operation::Session { reason: kept(reason.as_bytes()) };
                turn.ended.push(Span::new(operation, Within::Session, subject, times(now, lasted)));
            }
            _ => {}
        }
    }

    fn note_login(
        &self,
        turn: &mut SpansOfTurn,
        now: Timestamp,
        subject: &Subject<'_>,
        (result, reason): (LoginResult, Option<&str>),
        Tried { took, within }: Tried,
    ) {
        if self.draws(now, subject, &within) {
            let operation = Operation::Login { result, reason: reason.map(|reason| kept(reason.as_bytes())) };
            turn.ended.push(Span::new(operation, within, subject, times(now, took)));
        }
    }

    fn note_transfer(
        &self,
        turn: &mut SpansOfTurn,
        now: Timestamp,
        subject: &Subject<'_>,
        transfer: &Transferred<'_>,
    ) {
        if self.draws(now, subject, &Within::Session) {
            let operation = Operation::Transfer {
                path: kept(transfer.path.as_bytes()),
                failure: transfer.failure.map(|failure| kept(failure.as_bytes())),
            };
            let span = Span::new(operation, Within::Session, subject, transfer.span(now));
            let (waited, transfer) = (transfer.waited, Some(transfer.measured()));
            turn.ended.push(Span { waited, transfer, ..span });
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
        let within = request.trace.map_or(Within::Nothing, Within::Request);
        if self.draws(now, subject, &within) {
            let operation = Operation::Request {
                method: kept(request.method.as_bytes()),
                target: kept(request.target),
                protocol: request.protocol,
                host: request.host.map(kept),
                agent: request.agent.map(kept),
                status: request.status,
                bytes: request.bytes,
            };
            // It began with its head, whatever was asked before it was answered.
            let age = request.trace.map_or(Duration::ZERO, |trace| trace.age);
            let span = Span::new(operation, within, subject, times(now, request.elapsed.max(age)));
            turn.ended.push(Span { waited: request.waited, transfer, ..span });
        }
    }

    /// Gives the spans of a turn to the tracer. Returns how many found no room.
    pub(super) fn push(&self, turn: &mut SpansOfTurn) -> u64 {
        let mut queue = lock(&self.queue);
        let before = queue.spans.len();
        let mut dropped = 0;
        for span in turn.ended.drain(..) {
            let text = queue.text + span.text_bytes();
            if queue.spans.len() < WAITING && text <= WAITING_TEXT {
                queue.text = text;
                queue.spans.push_back(span);
            } else {
                dropped += 1;
            }
        }
        let has_enough_now = before < BATCH && queue.spans.len() >= BATCH;
        drop(queue);
        if has_enough_now {
            self.changed.notify_one();
        }
        turn.ended.shrink_to(BATCH);
        dropped
    }

    /// Draws one in this many sessions of FTP and requests of HTTP, with all that is a part of them; of requests that are part
    /// of a trace those that their callers record.
    fn draws(&self, now: Timestamp, subject: &Subject<'_>, within: &Within) -> bool {
        let one_in = self.one_in.load(Ordering::Relaxed);
        let number = match within {
            _ if one_in == 0 => return false,
            Within::Request(RequestTrace { caller: Some(caller), .. }) => return caller.is_sampled,
            Within::Session => 0,
            Within::Request(request) => request.number,
            Within::Nothing => micros(now),
        };
        one_in == 1 || self.draw.hash_one((subject.session, number)).is_multiple_of(one_in)
    }
}

impl Span {
    /// One that has waited for nothing that was measured.
    fn new(
        operation: Operation,
        within: Within,
        subject: &Subject<'_>,
        (started, ended): (u64, u64),
    ) -> Self {
        let user = subject.user.map(kept);
        let Subject { session, peer, .. } = *subject;
        Self {
            operation,
            within,
            session,
            peer,
            user,
            started,
            ended,
            waited: Waited::default(),
            transfer: None,
        }
    }
}

/// When something started that ends now, and when it ended.
fn times(now: Timestamp, took: Duration) -> (u64, u64) {
    let ended = micros(now);
    (ended.saturating_sub(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)), ended)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Proved};
    use millrace_http::traceparent::TraceParent;
    use millrace_limits::Protocol;

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
            trace: None,
        }
    }

    /// A request whose head came 10 ms ago.
    fn numbered(number: u64, caller: Option<TraceParent>) -> RequestTrace {
        RequestTrace { number, age: Duration::from_millis(10), caller }
    }

    fn logged_in(within: Within) -> Event<'static> {
        let tried = Tried { took: Duration::from_millis(4), within };
        Event::LoggedIn { protocol: Protocol::Http, tls: None, by: Proved::Password, source: None, tried }
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
    fn long_texts_fill_the_queue_earlier_and_make_room_when_they_are_taken() {
        let (spans, mut turn) = (Spans::default(), SpansOfTurn::default());
        spans.begin(1);
        let long = "€".repeat(KEPT);
        let fit = WAITING_TEXT / (long.len() + "PUT".len() + "ann\\xff".len());
        assert!(BATCH < fit && fit < WAITING);
        let mut push = |count: usize| {
            (0..count)
                .for_each(|_| spans.note_request(&mut turn, NOW, &subject(1), &request(long.as_bytes())));
            spans.push(&mut turn)
        };
        assert_eq!((push(fit + 3), push(1)), (3, 1));
        assert_eq!(spans.take(Duration::ZERO).unwrap().len(), BATCH);
        assert_eq!(push(BATCH + 1), 1);
    }

    #[test]
    fn logins_and_sessions_have_spans_of_their_length() {
        let (spans, mut turn) = (Spans::default(), SpansOfTurn::default());
        spans.begin(1);
        let tried = Tried { took: Duration::from_millis(4), within: Within::Session };
        for event in [
            logged_in(Within::Session),
            Event::LoginFailed { user: b"name that may be a password", tried },
            Event::LoginRefused { user: b"ann", reason: "banned", tried },
            Event::Disconnected { reason: "closed", lasted: Duration::from_secs(9) },
            Event::Kicked,
        ] {
            spans.note(&mut turn, NOW, &Subject { user: None, ..subject(1) }, &event);
        }
        assert_eq!(spans.push(&mut turn), 0);
        let taken = spans.take(Duration::ZERO).unwrap();
        let told: Vec<_> = taken
            .iter()
            .map(|span| match &span.operation {
                Operation::Login { result, reason } => {
                    (Some(*result), reason.as_deref(), span.ended - span.started)
                }
                Operation::Session { reason } => (None, Some(&**reason), span.ended - span.started),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            (Some(LoginResult::Success), None, 4_000),
            (Some(LoginResult::Failed), None, 4_000),
            (Some(LoginResult::Refused), Some("banned"), 4_000),
            (None, Some("closed"), 9_000_000),
        ];
        assert_eq!(told, expected);
        assert!(taken.iter().all(|span| span.user.is_none() && span.within == Within::Session));
    }

    #[test]
    fn a_request_is_as_old_as_its_head() {
        let (spans, mut turn) = (Spans::default(), SpansOfTurn::default());
        spans.begin(1);
        let request = Request { trace: Some(numbered(3, None)), ..request(b"/") };
        spans.note_request(&mut turn, NOW, &subject(1), &request);
        assert_eq!(turn.ended[0].ended - turn.ended[0].started, 10_000);
        assert_eq!(turn.ended[0].within, Within::Request(numbered(3, None)));
    }

    #[test]
    fn one_in_so_many_is_drawn_with_all_its_parts() {
        let (spans, mut turn) = (Spans::default(), SpansOfTurn::default());
        spans.begin(10);
        for number in 0..5000 {
            let trace = numbered(number, None);
            let before = turn.ended.len();
            spans.note(&mut turn, NOW, &subject(1), &logged_in(Within::Request(trace)));
            spans.note_request(&mut turn, NOW, &subject(1), &Request { trace: Some(trace), ..request(b"/") });
            let count = turn.ended.len() - before;
            assert!(count == 0 || count == 2, "{count} spans of one request");
        }
        assert!((800..1200).contains(&turn.ended.len()), "{}", turn.ended.len());
        turn.ended.clear();
        for session in 0..5000 {
            let before = turn.ended.len();
            spans.note(&mut turn, NOW, &subject(session), &logged_in(Within::Session));
            let end = Event::Disconnected { reason: "closed", lasted: Duration::ZERO };
            spans.note(&mut turn, NOW, &subject(session), &end);
            assert_ne!(turn.ended.len() - before, 1, "half of a session");
        }
        assert!((800..1200).contains(&turn.ended.len()), "{}", turn.ended.len());
    }

    #[test]
    fn a_request_of_a_trace_is_drawn_by_its_caller_unless_none_is() {
        let (spans, mut turn) = (Spans::default(), SpansOfTurn::default());
        for (one_in, is_sampled, count) in [(1_000_000, true, 2), (1, false, 0), (0, true, 0)] {
            spans.begin(one_in);
            let trace = numbered(1, Some(TraceParent { trace: [1; 16], span: [2; 8], is_sampled }));
            spans.note(&mut turn, NOW, &subject(1), &logged_in(Within::Request(trace)));
            spans.note_request(&mut turn, NOW, &subject(1), &Request { trace: Some(trace), ..request(b"/") });
            assert_eq!(turn.ended.len(), count, "{one_in} {is_sampled}");
            turn.ended.clear();
        }
    }
}
