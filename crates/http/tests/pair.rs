//! A client's and a server's side of HTTP/1.1 against each other, in memory, with a clock that only the test advances.

#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use millrace_http::h1::client::{PreparedRequest, ResponseEvent};
use millrace_http::h1::{
    Act, AnswerFraming, ClientConnection, Heads, Input, LINGER, ServerConnection, Step, Timeouts, Unread,
};
use millrace_http::{Head, Status, Version};
use proptest::prelude::*;

const TIMEOUTS: Timeouts = Timeouts { head: Duration::from_secs(10), idle: Duration::from_secs(60) };

/// A request of the client's, and how the server answers it.
#[derive(Debug, Clone)]
struct Exchange {
    method: &'static str,
    /// Bytes of the request's body, in chunks of a size where that is not 0.
    body: usize,
    chunk: usize,
    /// Bytes of the answer, whose length is told or not.
    answer: usize,
    tells_length: bool,
    /// The client says that it is its last one.
    closes: bool,
}

/// What a client has received: the status and the body.
type Response = (u16, Vec<u8>);

/// Both sides, the bytes between them, and what each has heard.
struct Pair {
    now: Instant,
    client: ClientConnection,
    server: ServerConnection,
    heads: Heads,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// How the server answers, by the number in the target.
    exchanges: Vec<Exchange>,
    /// The target and the body of each request that was answered.
    requests: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    responses: Vec<Response>,
    response: Response,
    /// Whether the server takes the bodies of requests.
    takes_bodies: bool,
    output_ended: bool,
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 256 + seed * 31) as u8).collect()
}

fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let chunk = |part: &[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
    body.chunks(size).map(chunk).chain([b"0\r\n\r\n".to_vec()]).flatten().collect()
}

impl Pair {
    fn new(exchanges: Vec<Exchange>) -> Self {
        let now = Instant::now();
        Self {
            now,
            client: ClientConnection::default(),
            server: ServerConnection::new(now),
            heads: Heads::default(),
            to_server: Vec::new(),
            to_client: Vec::new(),
            exchanges,
            requests: Vec::new(),
            body: Vec::new(),
            responses: Vec::new(),
            response: Response::default(),
            takes_bodies: true,
            output_ended: false,
        }
    }

    /// The client sends the request of this number.
    fn send(&mut self, number: usize) {
        let Exchange { method, body, chunk, closes, .. } = self.exchanges[number].clone();
        let length = body.to_string();
        let mut fields = vec![("Host", "h")];
        match (body, chunk) {
            (0, _) => {}
            (_, 0) => fields.push(("Content-Length", &length)),
            _ => fields.push(("Transfer-Encoding", "chunked")),
        }
        if closes {
            fields.push(("Connection", "close"));
        }
        let request = PreparedRequest::new(method, &format!("/{number}"), Version::Http11, &fields);
        self.to_server.extend_from_slice(self.client.send(&request));
        let body = bytes(body, number);
        match (body.len(), chunk) {
            (0, _) => {}
            (_, 0) => self.to_server.extend_from_slice(&body),
            _ => self.to_server.extend_from_slice(&chunked(&body, chunk)),
        }
    }

    /// The server hears this many of the bytes that the client has sent.
    fn hear(&mut self, count: usize) {
        let count = count.min(self.to_server.len());
        let heard: Vec<u8> = self.to_server.drain(..count).collect();
        self.give(Input::Received(&heard));
    }

    fn give(&mut self, input: Input<'_>) {
        let mut step = self.server.handle(self.now, input, &mut self.heads);
        while self.perform(step) {
            step = self.server.handle(self.now, Input::Ready, &mut self.heads);
        }
    }

    /// Performs a step. Returns whether there may be another request.
    fn perform(&mut self, step: Step) -> bool {
        self.to_client.extend_from_slice(step.send);
        match step.act {
            Some(Act::Answer(head)) => {
                drop(head);
                if self.takes_bodies {
                    let step = self.server.handle(self.now, Input::BodyWanted, &mut self.heads);
                    self.to_client.extend_from_slice(step.send);
                }
            }
            Some(Act::Refuse(refusal, _)) => {
                self.write(None, refusal.status, Some(b""), false);
                self.server.handle(self.now, Input::Answered, &mut self.heads);
            }
            Some(Act::EndOutput | Act::Close) => self.output_ended = true,
            None => {}
        }
        if self.server.is_answering() && !self.answer() {
            return false;
        }
        self.server.may_have_request()
    }

    /// Answers the open request, once its body is whole. Returns whether it has.
    fn answer(&mut self) -> bool {
        if self.takes_bodies {
            self.server.take_body(b"", &mut self.body).expect("a body as the client writes it");
            if !self.server.has_whole_body() {
                return false;
            }
        }
        let head = self.server.request().expect("a request").clone();
        let target = String::from_utf8(head.target().to_vec()).unwrap();
        let number: usize = target[1..].parse().unwrap();
        self.requests.push((target, std::mem::take(&mut self.body)));
        let Exchange { answer, tells_length, .. } = self.exchanges[number];
        let (status, answer) = match self.takes_bodies {
            true => (Status::OK, bytes(answer, number + 100)),
            false => (Status::CONTENT_TOO_LARGE, Vec::new()),
        };
        let keeps_alive = self.server.keeps_alive();
        self.write_framed(&head, status, &answer, tells_length, keeps_alive);
        if !keeps_alive {
            self.server.close_behind(self.now);
        }
        self.server.handle(self.now, Input::Answered, &mut self.heads);
        true
    }

    fn write_framed(
        &mut self,
        head: &Head,
        status: Status,
        body: &[u8],
        tells_length: bool,
        keeps_alive: bool,
    ) {
        let length = tells_length.then_some(body.len() as u64);
        match AnswerFraming::of(head.version, head.wants_head_only(), status, length) {
            AnswerFraming::Bodiless => self.write(Some(body.len()), status, None, keeps_alive),
            AnswerFraming::Length(_) => self.write(None, status, Some(body), keeps_alive),
            AnswerFraming::Chunked => {
                self.to_client.extend_from_slice(
                    format!("HTTP/1.1 {} x\r\nTransfer-Encoding: chunked\r\n", status.0).as_bytes(),
                );
                self.end_head(keeps_alive);
                self.to_client.extend_from_slice(&chunked(body, 1000));
            }
            AnswerFraming::UntilClose => panic!("the request was of HTTP/1.1"),
        }
    }

    fn write(&mut self, length: Option<usize>, status: Status, body: Option<&[u8]>, keeps_alive: bool) {
        let length = length.or(body.map(<[u8]>::len)).unwrap_or(0);
        self.to_client
            .extend_from_slice(format!("HTTP/1.1 {} x\r\nContent-Length: {length}\r\n", status.0).as_bytes());
        self.end_head(keeps_alive);
        self.to_client.extend_from_slice(body.unwrap_or_default());
    }

    fn end_head(&mut self, keeps_alive: bool) {
        self.to_client.extend_from_slice(if keeps_alive { b"\r\n" } else { b"Connection: close\r\n\r\n" });
    }

    /// The client hears this many of the bytes that the server has sent; with the last of them the server has sent all.
    fn fetch(&mut self, count: usize) {
        let count = count.min(self.to_client.len());
        let heard: Vec<u8> = self.to_client.drain(..count).collect();
        let mut rest = &heard[..];
        loop {
            let received = self.client.receive(rest).expect("answers as the server writes them");
            let taken = received.taken;
            match received.event {
                None => break assert_eq!(taken, rest.len()),
                Some(ResponseEvent::Interim(head)) => assert_eq!(head.status, Status::CONTINUE),
                Some(ResponseEvent::Head(head)) => self.response.0 = head.status.0,
                Some(ResponseEvent::Body(range)) => self.response.1.extend_from_slice(&rest[range]),
                Some(ResponseEvent::End { .. }) => self.responses.push(std::mem::take(&mut self.response)),
            }
            rest = &rest[taken..];
        }
        if self.to_client.is_empty() && self.server.is_closing() && !self.output_ended {
            self.give(Input::Sent(Unread::Nothing));
        }
    }

    /// The next deadline comes, if there is one.
    fn expire(&mut self) -> bool {
        let Some(due) = self.server.deadline(&TIMEOUTS) else { return false };
        assert!(due >= self.now, "a deadline is not in the past");
        self.now = due;
        self.give(Input::Deadline);
        true
    }

    fn get(answer: usize) -> Exchange {
        Exchange { method: "GET", body: 0, chunk: 0, answer, tells_length: true, closes: false }
    }
}

fn exchanges() -> impl Strategy<Value = Vec<Exchange>> {
    let size = || prop_oneof![2 => Just(0_usize), 3 => 1..300_usize, 1 => 1000..20_000_usize];
    let exchange = (
        prop::sample::select(&["GET", "HEAD", "PUT", "POST", "OPTIONS"][..]),
        size(),
        prop_oneof![Just(0_usize), 1..500_usize],
        size(),
        any::<bool>(),
        prop::bool::weighted(0.15),
    );
    let exchange = exchange.prop_map(|(method, body, chunk, answer, tells_length, closes)| {
        let body = if matches!(method, "PUT" | "POST") { body } else { 0 };
        Exchange { method, body, chunk, answer, tells_length, closes }
    });
    prop::collection::vec(exchange, 1..8)
}

proptest! {
    /// However requests are pipelined, and both directions are cut, the server hears each request with its body, up to the
    /// one that says that it is the last, and the client each answer, in order; no deadline comes while bytes move; and
    /// when nothing moves any more, the connection ends by itself.
    #[test]
    fn each_request_has_its_answer(
        exchanges in exchanges(),
        cuts in prop::collection::vec((0..4_u8, 1..3000_usize, 0..3000_u64), 0..60),
        cut in 1..5000_usize,
    ) {
        let mut pair = Pair::new(exchanges.clone());
        let last = exchanges.iter().position(|exchange| exchange.closes).unwrap_or(exchanges.len() - 1);
        let mut unsent = 0..=last;
        for (what, count, milliseconds) in cuts {
            match what {
                0 => unsent.next().into_iter().for_each(|number| pair.send(number)),
                1 => pair.hear(count),
                2 => pair.fetch(count),
                _ => {
                    pair.now += Duration::from_millis(milliseconds);
                    unsent.next().into_iter().for_each(|number| pair.send(number));
                    pair.hear(usize::MAX);
                    pair.fetch(usize::MAX);
                }
            }
            prop_assert!(pair.server.deadline(&TIMEOUTS).is_none_or(|due| due > pair.now));
        }
        unsent.for_each(|number| pair.send(number));
        while !pair.to_server.is_empty() || !pair.to_client.is_empty() {
            pair.hear(cut);
            pair.fetch(cut);
        }
        prop_assert_eq!(pair.requests.len(), last + 1);
        prop_assert_eq!(pair.responses.len(), last + 1);
        for (number, exchange) in exchanges[..=last].iter().enumerate() {
            let (target, body) = &pair.requests[number];
            prop_assert_eq!((target, body), (&format!("/{number}"), &bytes(exchange.body, number)));
            let answer = if exchange.method == "HEAD" { 0 } else { exchange.answer };
            prop_assert_eq!(&pair.responses[number], &(200, bytes(answer, number + 100)));
        }
        prop_assert_eq!(pair.client.is_usable() && !pair.output_ended, !exchanges[last].closes);
        while !pair.server.is_closed() {
            prop_assert!(pair.expire());
        }
        prop_assert!(pair.output_ended && pair.client.close() == Ok(None));
    }
}

#[test]
fn an_idle_client_is_let_go_after_its_time() {
    let mut pair = Pair::new(vec![Pair::get(5)]);
    pair.send(0);
    pair.hear(usize::MAX);
    pair.fetch(usize::MAX);
    assert_eq!(pair.responses, [(200, bytes(5, 100))]);
    let answered = pair.now;
    assert!(pair.client.is_usable() && pair.expire());
    assert_eq!((pair.now - answered, pair.server.is_closed()), (TIMEOUTS.idle, true));
    assert_eq!(pair.client.close(), Ok(None));
}

#[test]
fn a_head_that_drips_is_refused_when_its_time_is_over() {
    let mut pair = Pair::new(vec![Pair::get(5)]);
    pair.send(0);
    let began = pair.now;
    for _ in 0..9 {
        pair.hear(1);
        pair.now += Duration::from_secs(1);
    }
    assert!(pair.expire());
    assert_eq!(pair.now - began, TIMEOUTS.head);
    pair.fetch(usize::MAX);
    assert_eq!(pair.responses, [(408, Vec::new())]);
    assert!(!pair.client.is_usable() && pair.output_ended);
}

/// A client that reads an answer only when it has sent all of its body hears the answer: what it sends is thrown away,
/// for as long as it may take.
#[test]
fn a_client_whose_body_is_refused_hears_why() {
    for ends_in_time in [true, false] {
        let put = Exchange { method: "PUT", body: 100_000, ..Pair::get(0) };
        let mut pair = Pair::new(vec![put]);
        pair.takes_bodies = false;
        pair.send(0);
        pair.hear(10_000);
        pair.fetch(usize::MAX);
        assert_eq!(pair.responses, [(413, Vec::new())]);
        assert!(pair.output_ended && !pair.server.is_closed(), "it may be sending");
        pair.hear(50_000);
        assert!(!pair.server.is_closed());
        if ends_in_time {
            pair.hear(usize::MAX);
            pair.give(Input::PeerClosed);
        } else {
            let before = pair.now;
            assert!(pair.expire());
            assert_eq!(pair.now - before, LINGER);
        }
        assert!(pair.server.is_closed());
        assert_eq!(pair.requests, [("/0".to_owned(), Vec::new())], "the body is no request");
        assert_eq!(pair.client.close(), Ok(None));
    }
}

#[test]
fn a_client_that_waits_with_its_body_is_told_to_go_on() {
    let mut pair = Pair::new(vec![Exchange { method: "PUT", body: 5, ..Pair::get(3) }]);
    let fields = [("Host", "h"), ("Content-Length", "5"), ("Expect", "100-continue")];
    let request = PreparedRequest::new("PUT", "/0", Version::Http11, &fields);
    pair.to_server.extend_from_slice(pair.client.send(&request));
    pair.hear(usize::MAX);
    assert!(pair.to_client.starts_with(b"HTTP/1.1 100 "));
    pair.fetch(usize::MAX);
    assert!(pair.responses.is_empty());
    pair.to_server.extend_from_slice(&bytes(5, 0));
    pair.hear(usize::MAX);
    pair.fetch(usize::MAX);
    assert_eq!(pair.requests, [("/0".to_owned(), bytes(5, 0))]);
    assert_eq!(pair.responses, [(200, bytes(3, 100))]);
}
