//! The server's side of a connection, driven in memory with a clock that only the test advances.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::request::Field;
use crate::response::CONTINUE;
use crate::status::Status;

const TIMEOUTS: Timeouts = Timeouts { head: Duration::from_secs(10), idle: Duration::from_secs(60) };

/// A connection, its driver, and what came of it.
struct Pair {
    connection: ServerConnection,
    heads: Heads,
    now: Instant,
    /// The answered requests: the target and the body, or the status of a refusal.
    answered: Vec<(Vec<u8>, Vec<u8>)>,
    sent: Vec<u8>,
    acts: Vec<&'static str>,
    takes_bodies: TakesBodies,
    body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq)]
enum TakesBodies {
    Yes,
    No,
}

impl Pair {
    fn new(takes_bodies: TakesBodies) -> Self {
        let now = Instant::now();
        let (connection, heads) = (ServerConnection::new(now), Heads::default());
        let (answered, sent, acts, body) = Default::default();
        Self { connection, heads, now, answered, sent, acts, takes_bodies, body }
    }

    fn give(&mut self, input: Input<'_>) {
        let mut step = self.connection.handle(self.now, input, &mut self.heads);
        loop {
            self.sent.extend_from_slice(step.send);
            match step.act {
                Some(Act::Answer(head)) => {
                    let step = self.connection.handle(self.now, Input::BodyWanted, &mut self.heads);
                    if self.takes_bodies == TakesBodies::Yes {
                        self.sent.extend_from_slice(step.send);
                    }
                    drop(head);
                }
                Some(Act::Refuse(refusal, _)) => {
                    self.answered.push((refusal.status.0.to_string().into_bytes(), Vec::new()));
                    self.connection.handle(self.now, Input::Answered, &mut self.heads);
                }
                Some(Act::EndOutput) => self.acts.push("end"),
                Some(Act::Close) => self.acts.push("close"),
                None => {}
            }
            if !self.goes_on() {
                return;
            }
            step = self.connection.handle(self.now, Input::Ready, &mut self.heads);
        }
    }

    /// Answers what can be answered. Returns whether there may be another request.
    fn goes_on(&mut self) -> bool {
        if self.connection.is_answering() {
            if self.takes_bodies == TakesBodies::Yes {
                if self.connection.take_body(b"", &mut self.body).is_err() {
                    self.answered.push((b"400".to_vec(), Vec::new()));
                    self.connection.linger();
                    self.connection.handle(self.now, Input::Answered, &mut self.heads);
                    return false;
                }
                if !self.connection.has_whole_body() {
                    return false;
                }
            }
            let target = self.connection.request().map(|head| head.target().to_vec()).unwrap_or_default();
            self.answered.push((target, std::mem::take(&mut self.body)));
            if !self.connection.keeps_alive() {
                self.connection.close_behind(self.now);
            }
            self.connection.handle(self.now, Input::Answered, &mut self.heads);
        }
        self.connection.may_have_request()
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.give(Input::Received(bytes));
    }

    fn targets(&self) -> Vec<&str> {
        self.answered.iter().map(|(target, _)| std::str::from_utf8(target).unwrap()).collect()
    }

    fn due_in(&self) -> Option<Duration> {
        self.connection.deadline(&TIMEOUTS).map(|due| due - self.now)
    }
}

#[test]
fn requests_are_answered_in_their_order() {
    let mut pair = Pair::new(TakesBodies::Yes);
    pair.receive(
        b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nPUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
          \r\n\r\nPOST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nGET /d ",
    );
    assert_eq!(pair.targets(), ["/a", "/b", "/c"]);
    assert_eq!((&pair.answered[1].1[..], &pair.answered[2].1[..]), (&b"abc"[..], &b"x"[..]));
    pair.receive(b"HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /e HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(pair.targets(), ["/a", "/b", "/c", "/d"], "nothing behind the last one");
    pair.give(Input::Sent(Unread::Nothing));
    assert_eq!(pair.acts, ["close"]);
}

#[test]
fn a_request_waits_for_the_answer_to_the_one_before() {
    let (now, mut heads) = (Instant::now(), Heads::default());
    let mut connection = ServerConnection::new(now);
    let both = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n";
    let first = connection.handle(now, Input::Received(both), &mut heads);
    assert!(matches!(first.act, Some(Act::Answer(head)) if head.target() == b"/a"));
    assert!(connection.handle(now, Input::Ready, &mut heads).act.is_none());
    assert!(connection.handle(now, Input::Received(b"x"), &mut heads).act.is_none());
    assert_eq!(connection.request().and_then(|head| head.get(Field::Host)), Some(&b"h"[..]));
    connection.handle(now, Input::Answered, &mut heads);
    let second = connection.handle(now, Input::Ready, &mut heads);
    assert!(matches!(second.act, Some(Act::Answer(head)) if head.target() == b"/b"));
}

#[test]
fn a_kept_connection_uses_the_room_of_a_head_again() {
    let (now, mut heads) = (Instant::now(), Heads::default());
    let mut connection = ServerConnection::new(now);
    let mut places = Vec::new();
    for _ in 0..3 {
        let step = connection.handle(now, Input::Received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), &mut heads);
        let Some(Act::Answer(head)) = step.act else { panic!("a request") };
        places.push(Arc::as_ptr(&head));
        drop(head);
        connection.handle(now, Input::Answered, &mut heads);
    }
    assert!(places.iter().all(|place| *place == places[0]));
}

#[test]
fn a_client_that_expects_it_is_told_to_go_on() {
    let mut pair = Pair::new(TakesBodies::Yes);
    pair.receive(b"PUT /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    assert_eq!((&pair.sent[..], pair.answered.len()), (CONTINUE, 0));
    pair.receive(b"x");
    assert_eq!(pair.targets(), ["/a"]);
    assert!(pair.connection.deadline(&TIMEOUTS).is_some(), "it goes on");
}

#[test]
fn an_upload_that_is_refused_early_is_read_for_a_while() {
    let mut pair = Pair::new(TakesBodies::No);
    pair.receive(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nGET /smuggled HTTP/1.1\r\n");
    assert_eq!(pair.targets(), ["/a"]);
    pair.receive(b"Host: h\r\n\r\n");
    pair.give(Input::Sent(Unread::Nothing));
    assert_eq!(pair.acts, ["end"], "our side only");
    assert_eq!(pair.due_in(), Some(LINGER));
    for _ in 0..100 {
        pair.now += Duration::from_secs(1);
        pair.receive(b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    assert_eq!(pair.connection.deadline(&TIMEOUTS).map(|due| due < pair.now), Some(true), "not without end");
    pair.give(Input::Deadline);
    assert_eq!((pair.targets(), &pair.acts[..]), (vec!["/a"], &["end", "close"][..]));
}

#[test]
fn a_client_that_has_ended_is_not_waited_for() {
    let mut pair = Pair::new(TakesBodies::No);
    pair.receive(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n");
    pair.give(Input::PeerClosed);
    pair.give(Input::Sent(Unread::Nothing));
    assert_eq!(pair.acts, ["close"]);
    let mut pair = Pair::new(TakesBodies::No);
    pair.receive(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n");
    pair.give(Input::Sent(Unread::Possible));
    pair.give(Input::PeerClosed);
    assert_eq!(pair.acts, ["end", "close"]);
}

#[test]
fn heads_and_pauses_have_their_time() {
    let mut pair = Pair::new(TakesBodies::Yes);
    assert_eq!(pair.due_in(), Some(TIMEOUTS.head), "from the first on");
    pair.now += Duration::from_secs(3);
    pair.receive(b"GET /a HTTP/1.1\r\n");
    assert_eq!(pair.due_in(), Some(TIMEOUTS.head));
    pair.now += Duration::from_secs(4);
    pair.receive(b"Host: h\r\n");
    assert_eq!(
        pair.due_in(),
        Some(TIMEOUTS.head.saturating_sub(Duration::from_secs(4))),
        "not for each line"
    );
    pair.receive(b"\r\n");
    assert_eq!(pair.due_in(), Some(TIMEOUTS.idle));
    pair.receive(b"GET");
    pair.now += TIMEOUTS.head;
    pair.give(Input::Deadline);
    assert_eq!(pair.targets(), ["/a", "408"]);
    let mut pair = Pair::new(TakesBodies::Yes);
    pair.give(Input::Deadline);
    assert_eq!((pair.targets().len(), &pair.acts[..]), (0, &["close"][..]));
}

#[test]
fn no_deadline_is_in_force_while_a_request_is_open() {
    let (now, mut heads) = (Instant::now(), Heads::default());
    let mut connection = ServerConnection::new(now);
    connection.handle(now, Input::Received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), &mut heads);
    assert_eq!(connection.deadline(&TIMEOUTS), None);
    assert!(connection.handle(now, Input::Deadline, &mut heads).act.is_none());
    assert!(connection.is_answering());
}

#[test]
fn the_version_and_the_server_say_whether_it_goes_on() {
    for (text, is_kept) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", true),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false),
        ("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n", false),
    ] {
        let (now, mut heads) = (Instant::now(), Heads::default());
        let mut connection = ServerConnection::new(now);
        connection.handle(now, Input::Received(text.as_bytes()), &mut heads);
        assert_eq!(connection.keeps_alive(), is_kept, "{text:?}");
        connection.retire();
        assert!(!connection.keeps_alive(), "{text:?}");
    }
}

#[test]
fn nothing_is_taken_once_the_server_closes() {
    let mut pair = Pair::new(TakesBodies::Yes);
    pair.connection.shut_down();
    pair.receive(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(pair.answered.is_empty() && pair.connection.is_last());
}

#[test]
fn answers_are_framed_as_the_version_allows() {
    use AnswerFraming::{Bodiless, Chunked, Length, UntilClose};
    for (version, is_head, status, length, expected) in [
        (Version::Http11, false, Status::OK, Some(3), Length(3)),
        (Version::Http11, false, Status::OK, None, Chunked),
        (Version::Http10, false, Status::OK, None, UntilClose),
        (Version::Http10, false, Status::OK, Some(0), Length(0)),
        (Version::Http11, true, Status::OK, None, Bodiless),
        (Version::Http11, false, Status::NOT_MODIFIED, Some(3), Bodiless),
        (Version::Http10, false, Status::NO_CONTENT, None, Bodiless),
    ] {
        assert_eq!(AnswerFraming::of(version, is_head, status, length), expected);
    }
}

#[test]
fn a_connection_is_small() {
    assert!(size_of::<ServerConnection>() <= 80, "{}", size_of::<ServerConnection>());
}

/// Pieces of conversations, sound and not.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        &b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"[..],
        b"HEAD /b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"PUT /c HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nGET /",
        b"PUT /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n0\r\nT: x\r\n\r\n",
        b"PUT /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
        b"\r\n",
        b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"PUT /g HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"G(T / HTTP/1.1\r\n\r\n",
        b"GET /h HTTP/1.1\r\n",
    ])
    .prop_map(<[u8]>::to_vec)
}

proptest! {
    #[test]
    fn the_cuts_make_no_difference(
        pieces in prop::collection::vec(piece(), 0..6),
        cuts in prop::collection::vec(1..40_usize, 1..8),
        takes in any::<bool>(),
    ) {
        let wire = pieces.concat();
        let takes = if takes { TakesBodies::Yes } else { TakesBodies::No };
        let mut whole = Pair::new(takes);
        whole.receive(&wire);
        let mut cut = Pair::new(takes);
        let (mut rest, mut cuts) = (&wire[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (bytes, behind) = rest.split_at(rest.len().min(*cuts.next().unwrap_or(&1)));
            cut.receive(bytes);
            rest = behind;
        }
        prop_assert_eq!(&whole.answered, &cut.answered);
        prop_assert_eq!(&whole.sent, &cut.sent);
        prop_assert_eq!(whole.connection.is_closing(), cut.connection.is_closing());
        for pair in [&mut whole, &mut cut] {
            pair.give(Input::PeerClosed);
            pair.give(Input::Sent(Unread::Nothing));
            prop_assert!(!pair.connection.is_closing() || pair.connection.is_closed());
        }
    }
}

/// A stream of HTTP/2 has one request, whose body comes without any framing of its own.
#[test]
fn a_stream_is_a_connection_with_one_request() {
    let (now, mut heads) = (Instant::now(), Heads::default());
    let text = b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n";
    let head = crate::request::parse(text).unwrap().unwrap().0;
    let mut stream = ServerConnection::of_stream(Arc::new(head), now);
    assert!(stream.is_answering() && !stream.has_whole_body() && !stream.keeps_alive());
    stream.handle(now, Input::Received(b"one"), &mut heads);
    let mut body = Vec::new();
    stream.take_body(&[], &mut body).unwrap();
    assert_eq!((&body[..], stream.has_whole_body()), (&b"one"[..], false));
    stream.handle(now, Input::Received(b"two"), &mut heads);
    stream.end_stream_body();
    assert_eq!((stream.has_whole_body(), stream.buffered()), (false, 3), "it is not taken yet");
    stream.take_body(&[], &mut body).unwrap();
    assert_eq!((&body[..], stream.has_whole_body()), (&b"onetwo"[..], true));
    stream.handle(now, Input::Answered, &mut heads);
    assert!(stream.is_closing() && !stream.takes_requests());
    // Nothing more is a request.
    assert!(stream.handle(now, Input::Received(text), &mut heads).act.is_none());
}
