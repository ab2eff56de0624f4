//! Both sides against each other, in memory, and a server against clients that break rules.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::frame::{self, FrameHead, flag, kind};
use super::*;
use crate::Status;

const END: u8 = flag::END_STREAM | flag::END_HEADERS;

fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(kind, flags, stream, payload.as_ref(), &mut out);
    out
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = hpack::FieldEncoder::new(&mut out);
    fields.iter().for_each(|(name, value)| _ = encoder.field(name, value.as_bytes()));
    out
}

fn request(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "https"), (":path", "/a"), (":authority", "h")];
    block(&[&fields, more].concat())
}

fn get(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END, stream, request("GET", &[]))
}

/// What a client begins with.
fn greeting() -> Vec<u8> {
    [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, [])].concat()
}

/// What a server made of what a client said, in pieces of a size: events with their bytes, and how it ended.
#[derive(Debug, PartialEq)]
struct Heard {
    events: Vec<StreamEvent>,
    body: Vec<u8>,
    end: Option<ErrorCode>,
    said: Vec<u8>,
}

fn hear(server: &mut Server, input: &[u8], size: usize) -> Heard {
    let mut heard = Heard { events: Vec::new(), body: Vec::new(), end: None, said: Vec::new() };
    let now = Instant::now();
    for mut piece in input.chunks(size.max(1)) {
        loop {
            match server.receive(piece, now, &mut heard.said) {
                Err(error) => {
                    heard.end = Some(error.code);
                    return heard;
                }
                Ok(ReceivedFrames { taken, event: None }) => {
                    assert_eq!(taken, piece.len());
                    break;
                }
                Ok(ReceivedFrames { taken, event: Some(event) }) => {
                    if let StreamEvent::Data { stream, range, ends } = event {
                        heard.body.extend_from_slice(&piece[range.clone()]);
                        server.release(stream, range.len(), &mut heard.said);
                        // How it was cut is no part of what was heard.
                        if ends {
                            heard.events.push(StreamEvent::Data { stream, range: 0..0, ends });
                        }
                    } else {
                        heard.events.push(event);
                    }
                    piece = &piece[taken..];
                }
            }
        }
    }
    heard
}

fn server() -> Server {
    Server::new(ConnectionLimits::default(), &mut Vec::new())
}

fn hear_all(input: &[u8]) -> Heard {
    hear(&mut server(), &[greeting(), input.to_vec()].concat(), usize::MAX)
}

/// The frames that were said.
fn frames(mut said: &[u8]) -> Vec<(FrameHead, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = said.split_first_chunk::<FRAME_HEAD>() {
        let head = FrameHead::parse(*head);
        let (payload, rest) = rest.split_at(head.length as usize);
        frames.push((head, payload.to_vec()));
        said = rest;
    }
    assert!(said.is_empty());
    frames
}

/// The code of the `RST_STREAM` of a stream.
fn reset_of(said: &[u8], stream: u32) -> Option<ErrorCode> {
    let frames = frames(said);
    let (_, payload) =
        frames.iter().find(|(head, _)| head.kind == kind::RST_STREAM && head.stream == stream)?;
    Some(ErrorCode(u32::from_be_bytes(payload[..].try_into().unwrap())))
}

/// A client and a server, and what each has said that the other has not heard.
struct Pair {
    client: Client,
    server: Server,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

/// What a server sends on a stream: how much, and how much of it is sent.
type Bodies = Vec<(u32, usize, usize)>;

fn byte(stream: u32, at: usize) -> u8 {
    (stream as usize * 31 + at * 7 + at / 256) as u8
}

impl Pair {
    fn new(limits: ConnectionLimits) -> Self {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        let client = Client::new(limits, &mut to_server);
        let server = Server::new(ConnectionLimits::default(), &mut to_client);
        Self { client, server, to_server, to_client }
    }

    fn get(&mut self) -> Option<u32> {
        self.client.request(true, &mut self.to_server, |fields| {
            fields.field(":method", b"GET").field(":scheme", b"http").field(":path", b"/file");
            fields.field(":authority", b"localhost").field("user-agent", b"test");
        })
    }

    /// The server hears the client, and begins an answer of `length` bytes to each request.
    fn serve(&mut self, length: usize, cut: usize, bodies: &mut Bodies) {
        let input = std::mem::take(&mut self.to_server);
        for mut piece in input.chunks(cut) {
            loop {
                let received = self.server.receive(piece, Instant::now(), &mut self.to_client).unwrap();
                piece = &piece[received.taken..];
                match received.event {
                    None => break,
                    Some(StreamEvent::Head { stream, ends }) => {
                        assert!(ends);
                        assert_eq!(self.server.fields().pseudo(Pseudo::Path), Some(&b"/file"[..]));
                        assert_eq!(self.server.fields().get("user-agent"), Some(&b"test"[..]));
                        self.server.head(stream, length == 0, &mut self.to_client, |fields| {
                            fields.status(Status::OK).length(length as u64);
                        });
                        bodies.push((stream, length, 0));
                    }
                    Some(StreamEvent::Window | StreamEvent::Data { .. }) => {}
                    event => panic!("{event:?}"),
                }
            }
        }
        while let Some((stream, room)) = self.server.next_body() {
            let (_, length, sent) = bodies.iter_mut().find(|(other, ..)| *other == stream).unwrap();
            let count = room.min(*length - *sent);
            self.server.data_head(stream, count, *sent + count == *length, &mut self.to_client);
            self.to_client.extend((*sent..*sent + count).map(|at| byte(stream, at)));
            *sent += count;
        }
    }

    /// The client hears the server: each body has to be right so far. Returns how many have ended.
    fn fetch(&mut self, cut: usize, got: &mut [usize]) -> usize {
        self.server.note_taken(self.to_client.len());
        let (input, mut ended) = (std::mem::take(&mut self.to_client), 0);
        for mut piece in input.chunks(cut) {
            loop {
                let received = self.client.receive(piece, &mut self.to_server).unwrap();
                match received.event {
                    None => break,
                    Some(StreamEvent::Head { ends, .. }) => {
                        assert_eq!(self.client.fields().status(), Some(200));
                        ended += usize::from(ends);
                    }
                    Some(StreamEvent::Data { stream, range, ends }) => {
                        let count = &mut got[stream as usize / 2];
                        for at in range.clone() {
                            assert_eq!(piece[at], byte(stream, *count));
                            *count += 1;
                        }
                        self.client.release(stream, range.len(), &mut self.to_server);
                        ended += usize::from(ends);
                    }
                    Some(StreamEvent::Window) => {}
                    event => panic!("{event:?}"),
                }
                piece = &piece[received.taken..];
            }
        }
        ended
    }
}

proptest! {
    #[test]
    fn bodies_come_whole_whatever_the_windows_and_the_cuts(
        length in prop_oneof![Just(0_usize), 1..200_usize, 30_000..120_000_usize],
        count in 1..20_usize,
        window in prop_oneof![1_000..70_000_u32, Just(1 << 30)],
        cut in prop_oneof![1..50_usize, 1_000..70_000_usize],
    ) {
        let limits = ConnectionLimits { stream_window: window, connection_window: 65_535, ..Default::default() };
        let (mut pair, mut bodies, mut got) = (Pair::new(limits), Bodies::new(), vec![0; count]);
        (0..count).for_each(|_| _ = pair.get().unwrap());
        let mut ended = 0;
        for _ in 0..10_000 {
            pair.serve(length, cut, &mut bodies);
            ended += pair.fetch(cut, &mut got);
            if ended == count {
                break;
            }
        }
        prop_assert_eq!(ended, count);
        prop_assert!(got.iter().all(|got| *got == length));
        prop_assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (0, 0));
    }

    #[test]
    fn uploads_come_whole_whatever_the_windows_and_the_cuts(
        lengths in prop::collection::vec(prop_oneof![Just(0_usize), 1..200_usize, 10_000..90_000_usize], 1..8),
        window in 1_000..70_000_u32,
        cut in prop_oneof![1..50_usize, 1_000..70_000_usize],
    ) {
        let limits = ConnectionLimits { stream_window: window, connection_window: 65_535, ..Default::default() };
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        let mut client = Client::new(ConnectionLimits::default(), &mut to_server);
        let mut server = Server::new(limits, &mut to_client);
        // A client that has not heard the settings may send more than they allow, and is reset: it waits for them.
        while !to_client.is_empty() {
            let input = std::mem::take(&mut to_client);
            prop_assert!(client.receive(&input, &mut to_server).unwrap().taken > 0);
        }
        let streams: Vec<u32> = lengths
            .iter()
            .map(|length| {
                let length = length.to_string();
                client
                    .request(false, &mut to_server, |fields| {
                        fields.field(":method", b"PUT").field(":scheme", b"http").field(":path", b"/up");
                        fields.field(":authority", b"h").field("content-length", length.as_bytes());
                    })
                    .unwrap()
            })
            .collect();
        let (mut sent, mut got, mut ended) = (vec![0; lengths.len()], vec![0; lengths.len()], 0);
        let mut is_over = vec![false; lengths.len()];
        for _ in 0..10_000 {
            for (at, &stream) in streams.iter().enumerate() {
                loop {
                    let count = client.room(stream).min(lengths[at] - sent[at]);
                    let ends = sent[at] + count == lengths[at];
                    if is_over[at] || (count == 0 && !ends) {
                        break;
                    }
                    client.data_head(stream, count, ends, &mut to_server);
                    to_server.extend((sent[at]..sent[at] + count).map(|at| byte(stream, at)));
                    (sent[at], is_over[at]) = (sent[at] + count, ends);
                }
            }
            let input = std::mem::take(&mut to_server);
            for mut piece in input.chunks(cut) {
                loop {
                    let received = server.receive(piece, Instant::now(), &mut to_client).unwrap();
                    match received.event {
                        None => break,
                        Some(StreamEvent::Data { stream, range, ends }) => {
                            let count = &mut got[stream as usize / 2];
                            prop_assert!(range.clone().enumerate().all(|(n, at)| piece[at] == byte(stream, *count + n)));
                            *count += range.len();
                            ended += usize::from(ends);
                            server.release(stream, range.len(), &mut to_client);
                        }
                        Some(StreamEvent::Head { ends: false, .. } | StreamEvent::Window) => {}
                        event => panic!("{event:?}"),
                    }
                    piece = &piece[received.taken..];
                }
            }
            if ended == lengths.len() {
                break;
            }
            let input = std::mem::take(&mut to_client);
            let mut rest = &input[..];
            while !rest.is_empty() {
                rest = &rest[client.receive(rest, &mut to_server).unwrap().taken..];
            }
        }
        prop_assert_eq!(got, lengths);
    }

    #[test]
    fn what_a_client_says_means_the_same_however_it_is_cut(cut in 1..40_usize, padding in 0..5_u8) {
        let padded = [&[padding][..], b"hello", &vec![0; padding.into()]].concat();
        let up = request("PUT", &[("content-length", "10")]);
        let (first, rest) = up.split_at(5);
        let said = [
            greeting(),
            frame(kind::HEADERS, 0, 1, first),
            frame(kind::CONTINUATION, flag::END_HEADERS, 1, rest),
            frame(kind::DATA, flag::PADDED, 1, &padded),
            get(3),
            frame(kind::PING, 0, 0, [7; 8]),
            frame(kind::DATA, flag::PADDED | flag::END_STREAM, 1, &padded),
            frame(0x42, 0, 9, [0; 20]),
            frame(kind::WINDOW_UPDATE, 0, 3, 5_u32.to_be_bytes()),
            frame(kind::RST_STREAM, 0, 3, 8_u32.to_be_bytes()),
        ]
        .concat();
        let heard = hear(&mut server(), &said, cut);
        prop_assert_eq!(&heard.body, b"hellohello");
        let events = [
            StreamEvent::Head { stream: 1, ends: false },
            StreamEvent::Head { stream: 3, ends: true },
            StreamEvent::Data { stream: 1, range: 0..0, ends: true },
            StreamEvent::Window,
            StreamEvent::Reset { stream: 3, code: ErrorCode::CANCEL },
        ];
        prop_assert_eq!(&heard.events[..], &events);
        prop_assert_eq!(heard.said, [frame(kind::SETTINGS, flag::ACK, 0, []), frame(kind::PING, 1, 0, [7; 8])].concat());
    }

    #[test]
    fn no_bytes_make_it_panic(frames in prop::collection::vec(
        (0..11_u8, any::<u8>(), 0..8_u32, prop::collection::vec(any::<u8>(), 0..30)), 0..30), cut in 1..50_usize
    ) {
        let said: Vec<u8> = frames.iter().flat_map(|(kind, flags, id, payload)| frame(*kind, *flags, *id, payload)).collect();
        let said = [greeting(), get(1), said].concat();
        let (whole, cut) = (hear(&mut server(), &said, usize::MAX), hear(&mut server(), &said, cut));
        prop_assert_eq!((whole.events, whole.body, whole.end), (cut.events, cut.body, cut.end));
    }
}

#[test]
fn a_client_opens_no_more_streams_than_the_server_allows() {
    let mut pair = Pair::new(ConnectionLimits::default());
    pair.fetch(usize::MAX, &mut []);
    let opened = (0..200).map_while(|_| pair.get()).count();
    assert_eq!(opened, 100);
    let mut bodies = Bodies::new();
    pair.serve(0, usize::MAX, &mut bodies);
    assert_eq!(pair.fetch(usize::MAX, &mut [0; 200]), 100);
    assert_eq!(pair.get(), Some(201));
}

#[test]
fn a_server_that_leaves_serves_what_it_has_and_no_more() {
    let mut server = server();
    let mut said = Vec::new();
    hear(&mut server, &[greeting(), get(1)].concat(), usize::MAX);
    server.shut_down(ErrorCode::NO_ERROR, &mut said);
    assert_eq!(frames(&said)[0].1, [0, 0, 0, 1, 0, 0, 0, 0]);
    let later = hear(&mut server, &[get(3), get(5)].concat(), usize::MAX);
    assert_eq!((later.events.len(), later.end), (0, None));
    assert!(server.head(1, true, &mut said, |fields| _ = fields.status(Status::OK)));
    assert_eq!(server.open_streams(), 0);
    // A client hears of it, and asks no more.
    let mut pair = Pair::new(ConnectionLimits::default());
    pair.to_client.extend(frame(kind::GOAWAY, 0, 0, [0; 8]));
    let mut input = &pair.to_client[..];
    while let Some(event) = {
        let received = pair.client.receive(input, &mut Vec::new()).unwrap();
        input = &input[received.taken..];
        received.event
    } {
        let goaway = StreamEvent::GoAway { last: 0, code: ErrorCode::NO_ERROR };
        assert!([StreamEvent::Window, goaway].contains(&event), "{event:?}");
    }
    assert!(!pair.client.is_usable() && pair.get().is_none());
}

#[test]
fn what_breaks_a_rule_of_the_connection_ends_it() {
    let long = vec![0; FRAME_SIZE + 1];
    let open = frame(kind::HEADERS, flag::END_HEADERS, 1, request("PUT", &[]));
    let then = |frame: Vec<u8>| [open.clone(), frame].concat();
    for (what, said, code) in [
        ("a long frame", frame(0x42, 0, 0, long), ErrorCode::FRAME_SIZE_ERROR),
        ("DATA on no stream", frame(kind::DATA, 0, 0, [1]), ErrorCode::PROTOCOL_ERROR),
        ("DATA on an idle stream", frame(kind::DATA, 0, 5, [1]), ErrorCode::PROTOCOL_ERROR),
        ("padding", then(frame(kind::DATA, flag::PADDED, 1, [3, 1, 1])), ErrorCode::PROTOCOL_ERROR),
        ("an even stream", get(2), ErrorCode::PROTOCOL_ERROR),
        ("a smaller stream", [get(5), get(3)].concat(), ErrorCode::PROTOCOL_ERROR),
        ("broken fields", frame(kind::HEADERS, END, 1, [0x80]), ErrorCode::COMPRESSION_ERROR),
        ("an interruption", [frame(kind::HEADERS, 1, 1, []), get(3)].concat(), ErrorCode::PROTOCOL_ERROR),
        ("CONTINUATION alone", frame(kind::CONTINUATION, 4, 1, []), ErrorCode::PROTOCOL_ERROR),
        ("PUSH_PROMISE", frame(kind::PUSH_PROMISE, 4, 1, [0; 8]), ErrorCode::PROTOCOL_ERROR),
        ("a short PING", frame(kind::PING, 0, 0, [0; 7]), ErrorCode::FRAME_SIZE_ERROR),
        ("SETTINGS on a stream", frame(kind::SETTINGS, 0, 1, []), ErrorCode::PROTOCOL_ERROR),
        ("cut SETTINGS", frame(kind::SETTINGS, 0, 0, [0; 5]), ErrorCode::FRAME_SIZE_ERROR),
        ("a window", frame(kind::SETTINGS, 0, 0, [0, 4, 128, 0, 0, 0]), ErrorCode::FLOW_CONTROL_ERROR),
        ("a size", frame(kind::SETTINGS, 0, 0, [0, 5, 0, 0, 0, 1]), ErrorCode::PROTOCOL_ERROR),
        ("push", frame(kind::SETTINGS, 0, 0, [0, 2, 0, 0, 0, 2]), ErrorCode::PROTOCOL_ERROR),
        ("no increment", frame(kind::WINDOW_UPDATE, 0, 0, [0; 4]), ErrorCode::PROTOCOL_ERROR),
        ("all", frame(kind::WINDOW_UPDATE, 0, 0, [0x7f, 255, 255, 255]), ErrorCode::FLOW_CONTROL_ERROR),
        ("an idle reset", frame(kind::RST_STREAM, 0, 1, [0; 4]), ErrorCode::PROTOCOL_ERROR),
        ("a short reset", then(frame(kind::RST_STREAM, 0, 1, [0; 3])), ErrorCode::FRAME_SIZE_ERROR),
        ("PRIORITY on no stream", frame(kind::PRIORITY, 0, 0, [0; 5]), ErrorCode::PROTOCOL_ERROR),
    ] {
        let heard = hear_all(&said);
        assert_eq!(heard.end, Some(code), "{what}");
        let goaway = frames(&heard.said).pop().unwrap();
        assert_eq!((goaway.0.kind, goaway.1[7]), (kind::GOAWAY, code.0 as u8), "{what}");
    }
    for begun in [&b"GET / HTTP/1.1\r\n"[..], &[&PREFACE[..], &frame(kind::PING, 0, 0, [0; 8])].concat()] {
        assert_eq!(hear(&mut server(), begun, 3).end, Some(ErrorCode::PROTOCOL_ERROR));
    }
}

#[test]
fn what_breaks_a_rule_of_a_stream_resets_it_alone() {
    let put = |length: &str| {
        frame(kind::HEADERS, flag::END_HEADERS, 1, request("PUT", &[("content-length", length)]))
    };
    let itself = [&[0, 0, 0, 1, 0][..], &request("GET", &[])].concat();
    let large = [0; 4];
    for (what, said, code) in [
        (
            "malformed",
            frame(kind::HEADERS, END, 1, request("GET", &[("te", "y")])),
            ErrorCode::PROTOCOL_ERROR,
        ),
        ("too long a body", [put("1"), frame(kind::DATA, 0, 1, b"ab")].concat(), ErrorCode::PROTOCOL_ERROR),
        ("too short a body", [put("3"), frame(kind::DATA, 1, 1, b"ab")].concat(), ErrorCode::PROTOCOL_ERROR),
        ("a body behind its end", [get(1), frame(kind::DATA, 0, 1, b"a")].concat(), ErrorCode::STREAM_CLOSED),
        ("fields behind the end", [get(1), get(1)].concat(), ErrorCode::STREAM_CLOSED),
        (
            "no increment",
            [get(1), frame(kind::WINDOW_UPDATE, 0, 1, large)].concat(),
            ErrorCode::PROTOCOL_ERROR,
        ),
        ("itself", frame(kind::HEADERS, END | flag::PRIORITY, 1, itself), ErrorCode::PROTOCOL_ERROR),
        ("PRIORITY of itself", frame(kind::PRIORITY, 0, 1, [0, 0, 0, 1, 0]), ErrorCode::PROTOCOL_ERROR),
        ("trailers without an end", [put("0"), put("0")].concat(), ErrorCode::PROTOCOL_ERROR),
    ] {
        let heard = hear_all(&[said, get(7)].concat());
        assert_eq!((heard.end, reset_of(&heard.said, 1)), (None, Some(code)), "{what}");
        assert_eq!(heard.events.last(), Some(&StreamEvent::Head { stream: 7, ends: true }), "{what}");
    }
}

#[test]
fn more_than_a_window_is_not_taken() {
    let limits = ConnectionLimits { stream_window: 10, ..ConnectionLimits::default() };
    let mut server = Server::new(limits, &mut Vec::new());
    let put = frame(kind::HEADERS, flag::END_HEADERS, 1, request("PUT", &[]));
    // What was sent before the settings were heard is within the window that streams begin with.
    let early = [greeting(), put, frame(kind::DATA, 0, 1, [0; 11])].concat();
    let heard = hear(&mut server, &early, 5);
    assert_eq!((heard.end, heard.body.len(), reset_of(&heard.said, 1)), (None, 11, None));
    let put = frame(kind::HEADERS, flag::END_HEADERS, 3, request("PUT", &[]));
    let late = [frame(kind::SETTINGS, flag::ACK, 0, []), put, frame(kind::DATA, 0, 3, [0; 11])].concat();
    let heard = hear(&mut server, &late, 5);
    assert_eq!(reset_of(&heard.said, 3), Some(ErrorCode::FLOW_CONTROL_ERROR));
    assert_eq!((heard.end, heard.body.len()), (None, 0));
}

#[test]
fn frames_for_a_stream_that_this_side_has_reset_are_passed_over() {
    let mut server = server();
    let put = frame(kind::HEADERS, flag::END_HEADERS, 1, request("PUT", &[]));
    hear(&mut server, &[greeting(), put].concat(), usize::MAX);
    let mut said = Vec::new();
    server.reset(1, ErrorCode::NO_ERROR, &mut said);
    assert_eq!(reset_of(&said, 1), Some(ErrorCode::NO_ERROR));
    // More than the connection's window, which is opened again for ignored data.
    for _ in 0..100 {
        let late =
            [frame(kind::DATA, 0, 1, [0; 16_000]), frame(kind::WINDOW_UPDATE, 0, 1, [0, 0, 0, 1])].concat();
        let heard = hear(&mut server, &late, 7_000);
        assert_eq!((heard.end, heard.events.len(), heard.body.len()), (None, 0, 0));
    }
    let heard = hear(&mut server, &[frame(kind::HEADERS, END, 1, block(&[("a", "b")])), get(3)].concat(), 9);
    assert_eq!(heard.events, [StreamEvent::Head { stream: 3, ends: true }]);
}

/// CVE-2023-44487, CVE-2024-27316, CVE-2019-9512, -9515, -9518 and their kin.
#[test]
fn floods_end_the_connection() {
    let open = frame(kind::HEADERS, flag::END_HEADERS, 1, request("PUT", &[]));
    let both = |at: u32| [get(3 + 2 * at), frame(kind::RST_STREAM, 0, 3 + 2 * at, [0, 0, 0, 8])].concat();
    let many = |frame: Vec<u8>| frame.repeat(2_000);
    let continued = |payload: &[u8]| {
        [frame(kind::HEADERS, 1, 3, request("GET", &[])), frame(kind::CONTINUATION, 0, 3, payload).repeat(20)]
            .concat()
    };
    let bomb = {
        let mut block = request("GET", &[]);
        block.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0xb1, 0x1e]);
        block.extend_from_slice(&[b'y'; 4_000]);
        block.extend(std::iter::repeat_n(0x80 | 62, 8_000));
        frame(kind::HEADERS, END, 3, block)
    };
    for (what, flood) in [
        ("PING", many(frame(kind::PING, 0, 0, [7; 8]))),
        ("SETTINGS", many(frame(kind::SETTINGS, 0, 0, [0, 4, 0, 0, 255, 255]))),
        ("PRIORITY", many(frame(kind::PRIORITY, 0, 3, [0, 0, 0, 0, 16]))),
        ("WINDOW_UPDATE", many(frame(kind::WINDOW_UPDATE, 0, 0, [0, 0, 0, 1]))),
        ("empty DATA", many(frame(kind::DATA, 0, 1, []))),
        ("unknown frames", many(frame(0x42, 0, 0, [1, 2, 3]))),
        ("requests taken back", (0..60).flat_map(both).collect()),
        ("streams refused", (0..300).flat_map(|at| get(3 + 2 * at)).collect()),
        ("fields without an end", continued(&block(&[("x-filler", &"x".repeat(8_000))]))),
        ("empty frames of fields", continued(&[])),
        ("fields that unfold", bomb),
    ] {
        assert_eq!(
            hear_all(&[open.clone(), flood].concat()).end,
            Some(ErrorCode::ENHANCE_YOUR_CALM),
            "{what}"
        );
    }
}

#[test]
fn bytes_that_a_client_takes_pay_for_what_it_says() {
    let mut server = server();
    hear(&mut server, &greeting(), usize::MAX);
    let both = [frame(kind::PING, 0, 0, [7; 8]), frame(kind::WINDOW_UPDATE, 0, 0, [0, 0, 0, 1])].concat();
    for _ in 0..10_000 {
        server.note_taken(1_024);
        assert_eq!(hear(&mut server, &both, usize::MAX).end, None);
    }
    let later = Instant::now() + Duration::from_secs(60);
    assert!(server.receive(&both.repeat(400), later, &mut Vec::new()).is_ok());
}

#[test]
fn too_many_fields_are_answered_by_431() {
    let filler = "x".repeat(4_000);
    let many: Vec<(&str, &str)> = ["a", "b", "c", "d", "e", "f"].map(|name| (name, &*filler)).to_vec();
    let fields = request("GET", &many);
    let (first, rest) = fields.split_at(16_000.min(fields.len() / 2));
    let heard = hear_all(
        &[frame(kind::HEADERS, flag::END_STREAM, 1, first), frame(kind::CONTINUATION, 4, 1, rest), get(3)]
            .concat(),
    );
    assert_eq!(heard.events, [StreamEvent::Head { stream: 3, ends: true }]);
    let (head, payload) = frames(&heard.said).pop().unwrap();
    assert_eq!((head.kind, head.flags, head.stream), (kind::HEADERS, END, 1));
    let mut fields = Fields::new(1_000);
    hpack::FieldDecoder::new(0).decode(&payload, |name, value| fields.push(name, value)).unwrap();
    assert_eq!(fields.status(), Some(431));
}

/// An idle connection of the server has to stay below 1 KiB, without what the allocator holds for its fields.
#[test]
fn a_connection_is_small() {
    assert!(size_of::<Server>() <= 768, "{}", size_of::<Server>());
}
