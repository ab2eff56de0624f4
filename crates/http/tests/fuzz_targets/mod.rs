//! The bodies of the fuzz targets, one function each: what must hold of any input.
//!
//! `fuzz/` runs them under libFuzzer for as long as one likes; `fuzz_smoke.rs` runs them briefly with every
//! `cargo test`.

#![allow(clippy::disallowed_methods)]
#![allow(dead_code)]

use std::time::{Duration, Instant};

use millrace_http::cgi;
use millrace_http::change::{self, ChangeRequest};
use millrace_http::conditional::{self, Validators};
use millrace_http::dav::{body, condition};
use millrace_http::fastcgi;
use millrace_http::h1::client::{PreparedRequest, ResponseEvent};
use millrace_http::h1::{Act, ClientConnection, Heads, Input, ServerConnection, Timeouts, Unread};
use millrace_http::h2;
use millrace_http::request;
use millrace_http::traceparent::TraceParent;
use millrace_http::tus::{self, UploadKind, UploadProgress};
use millrace_http::{
    Field, Head, Refusal, Status, Version, authorization, link, negotiate, range, redirect, target,
};
use millrace_vfs::{Permissions, Timestamp, WriteMode};

/// One head: an accepted head has one meaning only, and its properties are consistent.
pub(crate) fn head(input: &[u8]) {
    let (head, length) = match request::parse(input) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return assert!(input.len() <= request::MAX_HEAD),
        Err(refusal) => return assert!((400..600).contains(&refusal.status.0)),
    };
    let bytes = &input[..length];
    assert!(bytes.ends_with(b"\r\n\r\n") && length <= request::MAX_HEAD);
    assert_eq!(memchr(b'\n', bytes), bytes.windows(2).filter(|pair| pair == b"\r\n").count(), "a bare LF");
    let both = head.get(Field::TransferEncoding).is_some() && head.get(Field::ContentLength).is_some();
    assert!(!both, "two lengths");
    // Nothing but the head counts: a proxy that sends more behind it must not change it.
    let extended = [bytes, b"GET / HTTP/1.1\r\n\r\n"].concat();
    let again = request::parse(&extended).expect("accepted before").expect("whole before");
    assert_eq!((again.1, again.0.framing, again.0.method), (length, head.framing, head.method));

    if let Ok(target) = target::parse(head.target()) {
        assert!(target.path.components().all(|name| name != b".." && !name.contains(&0)));
    }
    let validators = Validators::new(1, 1000, Timestamp { seconds: 1_704_110_400, nanoseconds: 0 }, None);
    let _ = conditional::evaluate(&head, Some(&validators));
    let _ = conditional::evaluate(&head, None);
    let _ = conditional::range_applies(&head, &validators, 0);
    let _ = (negotiate::codings(&head), negotiate::prefers_json(&head));
    let _ = head.get(Field::Authorization).map(authorization::basic);
    let said = head.get(Field::TraceParent).unwrap_or_default();
    assert!(TraceParent::of(&head).is_none_or(|parent| Some(parent) == TraceParent::parse(said)));
    // Whatever begins a head may stand in the field.
    let _ = TraceParent::parse(input);
    let _ = head.get(Field::ContentRange).map(range::content_range);
    if let Some(field) = head.get(Field::Range) {
        parts_lie_within(field);
    }
    decisions(&head);
    let request = cgi::Request {
        script: b"/x",
        path_info: b"",
        path_translated: None,
        query: b"",
        user: None,
        peer: [192, 0, 2, 1].into(),
        local: ([192, 0, 2, 2], 80).into(),
        encrypted: false,
        protocol: "HTTP/1.1",
    };
    let environment = cgi::environment(&head, &request);
    assert!(environment.iter().all(|(name, _)| name != b"HTTP_PROXY" && !name.is_empty()));
}

/// What is decided about a request, wherever it leads: a refusal has the status of an error, and what has a secret in it is
/// not written down.
fn decisions(head: &Head) {
    let is_error = |refusal: Refusal| assert!((400..600).contains(&refusal.status.0));
    let Ok(target) = target::parse(head.target()) else { return };
    let request = ChangeRequest {
        head,
        path: &target.path,
        is_directory: target.is_directory,
        permissions: Permissions::READ_WRITE,
    };
    if let Ok(put) = request.put(None).map_err(is_error) {
        assert!(
            matches!(put.mode, WriteMode::Replace | WriteMode::CreateNew),
            "there is nothing to go on with"
        );
    }
    let _ = request.make_collection(None).map_err(is_error);
    let _ = change::check_body(head).map_err(is_error);
    let _ = change::destination(head).map_err(is_error);
    let _ = tus::creation(head).map_err(is_error);
    let _ = tus::first_piece(head, Some(5)).map_err(is_error);
    if let Ok(piece) = tus::piece(head).map_err(is_error) {
        let mut upload = UploadProgress { kind: UploadKind::File, length: None, received: Some(5) };
        let action = upload.append(&piece, head.framing).map_err(is_error);
        assert!(action.is_err() || (piece.offset == 5 && upload.length.is_none_or(|length| length >= 5)));
    }
    let granted = link::verify(&target.path, target.query, head.method, 0, |_, _| true);
    assert!(granted.is_err() || link::is_link(target.query));
    let written = link::without_signature(head.target());
    let query = written.splitn(2, |&byte| byte == b'?').nth(1).unwrap_or_default();
    let mut values =
        query.split(|byte| matches!(byte, b'&' | b';')).filter_map(|pair| pair.strip_prefix(b"signature="));
    assert!(values.all(|value| value == b"..."), "{}", written.escape_ascii());
    assert!(redirect::directory_location(&target).bytes().all(|byte| byte >= b' '));
}

fn memchr(byte: u8, bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&other| other == byte).count()
}

fn parts_lie_within(field: &[u8]) {
    const SIZE: u64 = 1000;
    let parts = match range::parse(field, SIZE) {
        range::Ranges::One(part) => vec![part],
        range::Ranges::Many(parts) => parts,
        range::Ranges::Whole | range::Ranges::Unsatisfiable => vec![],
    };
    assert!(parts.len() <= range::MAX_PARTS);
    assert!(parts.iter().all(|part| part.start < part.end && part.end <= SIZE));
    assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= SIZE);
}

/// A sequence of requests with their bodies, given to the server's side of a connection: the same however the network
/// cuts it, and every request is answered once, in order. The first byte says where it is cut, and whether bodies are
/// taken.
pub(crate) fn sequence(input: &[u8]) {
    let Some((&size, input)) = input.split_first() else { return };
    let takes_bodies = size & 1 == 1;
    let whole = conversation(input, input.len().max(1), takes_bodies);
    assert_eq!(whole, conversation(input, usize::from(size) + 1, takes_bodies));
    assert_eq!(whole, conversation(input, 1, takes_bodies));
}

/// What a connection came to: each request's target and body; and whether something was refused. With which status
/// may depend on how much of a line had come.
type Conversation = (Vec<Exchange>, bool);

/// A request's target and its body.
type Exchange = (Vec<u8>, Vec<u8>);

fn conversation(input: &[u8], piece: usize, takes_bodies: bool) -> Conversation {
    let (now, mut heads) = (Instant::now(), Heads::default());
    let mut connection = ServerConnection::new(now);
    let (mut exchanges, mut body) = (Vec::<Exchange>::new(), Vec::new());
    // A line is looked at when it has ended, or at once where it came with an end before it: so the last one ends.
    for bytes in input.chunks(piece).chain([&b"\n"[..]]) {
        let mut step = connection.handle(now, Input::Received(bytes), &mut heads);
        loop {
            match step.act {
                Some(Act::Refuse(refusal, _)) => {
                    assert!((400..600).contains(&refusal.status.0));
                    return (exchanges, true);
                }
                Some(Act::Answer(_)) => assert!(connection.is_answering() && body.is_empty()),
                Some(Act::EndOutput | Act::Close) => panic!("nothing was said to be sent"),
                None => {}
            }
            if connection.is_answering() {
                if takes_bodies {
                    if connection.take_body(b"", &mut body).is_err() {
                        return (exchanges, true);
                    }
                    if !connection.has_whole_body() {
                        break;
                    }
                }
                let target = connection.request().map(|head| head.target().to_vec()).unwrap_or_default();
                exchanges.push((target, std::mem::take(&mut body)));
                connection.handle(now, Input::Answered, &mut heads);
            }
            if !connection.may_have_request() {
                break;
            }
            step = connection.handle(now, Input::Ready, &mut heads);
        }
    }
    if connection.is_closing() {
        let step = connection.handle(now, Input::Sent(Unread::Nothing), &mut heads);
        assert!(matches!(step.act, Some(Act::EndOutput | Act::Close)));
        connection.handle(now, Input::Deadline, &mut heads);
        assert!(connection.is_closed());
    }
    (exchanges, false)
}

/// Inputs of the server's side of a connection, in any order and at any time: a byte says which, and how many bytes of the
/// rest the client sends. Whatever the driver does, one request is open at a time, until it is answered; a connection that
/// waits has a deadline; nothing follows the end, and when the client is gone the connection comes to its end.
pub(crate) fn inputs(mut input: &[u8]) {
    let timeouts = Timeouts { head: Duration::from_secs(10), idle: Duration::from_secs(60) };
    let (mut now, mut heads, mut body) = (Instant::now(), Heads::default(), Vec::new());
    let mut connection = ServerConnection::new(now);
    // What ends every connection, also one whose head is refused only then.
    let ending = [Input::PeerClosed, Input::Answered, Input::Sent(Unread::Nothing), Input::Deadline];
    let mut ending = [ending, ending].into_iter().flatten();
    while !connection.is_closed() {
        let was_answering = connection.is_answering();
        let given = match input.split_first() {
            None => ending.next().expect("the connection has ended"),
            Some((&what, rest)) => {
                let (bytes, rest) = rest.split_at(rest.len().min(usize::from(what >> 4) * 8));
                input = rest;
                match what & 15 {
                    0..=3 => Input::Received(bytes),
                    4 => Input::PeerClosed,
                    5 | 6 => Input::Ready,
                    7 => Input::BodyWanted,
                    8 | 9 => Input::Answered,
                    10 => Input::Sent(Unread::Nothing),
                    11 => Input::Sent(Unread::Possible),
                    12 => {
                        // A driver gives a deadline when it is due.
                        now = connection.deadline(&timeouts).unwrap_or(now).max(now);
                        Input::Deadline
                    }
                    other => {
                        now += Duration::from_secs(u64::from(what >> 4));
                        match (other, bytes.len() % 5) {
                            (13, _) => _ = connection.take_body(bytes, &mut body),
                            (_, 0) => connection.retire(),
                            (_, 1) => connection.shut_down(),
                            (_, 2) => connection.close_behind(now),
                            (_, 3) => connection.linger(),
                            _ => connection.moved(now),
                        }
                        continue;
                    }
                }
            }
        };
        let (was_whole, was_lingering) = (connection.has_whole_body(), connection.has_ended_output());
        let step = connection.handle(now, given, &mut heads);
        match given {
            Input::Answered => assert!(was_whole || connection.is_closing(), "a body is no request"),
            Input::PeerClosed => {
                assert!(!was_lingering || connection.is_closed(), "there is no more to come")
            }
            _ => {}
        }
        match step.act {
            Some(Act::Answer(head)) => {
                assert!(!was_answering && connection.is_answering(), "one request at a time");
                assert_eq!(connection.request().map(|open| open.target()), Some(head.target()));
            }
            Some(Act::Refuse(refusal, shown)) => {
                assert!(!was_answering && connection.is_answering(), "one request at a time");
                assert!((400..600).contains(&refusal.status.0) && shown.len() <= 256);
            }
            Some(Act::EndOutput) => assert!(connection.is_closing() && !connection.is_closed()),
            Some(Act::Close) => assert!(connection.is_closed()),
            None => assert!(!connection.is_closed(), "the driver is told"),
        }
        assert!(connection.is_answering() || !was_answering || given == Input::Answered);
        assert!(
            connection.is_answering() != connection.deadline(&timeouts).is_some() || connection.is_closed()
        );
    }
    for given in [Input::Received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), Input::Ready, Input::PeerClosed] {
        assert!(connection.handle(now, given, &mut heads).act.is_none(), "nothing follows the end");
    }
}

/// Responses, the first byte of the input aside: the same events and the same bytes however the network cuts them.
pub(crate) fn response(input: &[u8]) {
    let Some((&size, input)) = input.split_first() else { return };
    let whole = responses(input, input.len().max(1));
    assert!(whole.1.len() <= input.len());
    assert_eq!(whole, responses(input, usize::from(size) + 1));
    assert_eq!(whole, responses(input, 1));
}

/// What a connection told of the responses to three requests: its events without the bodies' pieces; all bodies; whether
/// it ended in an error. With which error may depend on how much of a head had come.
fn responses(input: &[u8], piece: usize) -> (Vec<(u16, bool)>, Vec<u8>, bool) {
    let (mut connection, mut events, mut bodies) = (ClientConnection::default(), Vec::new(), Vec::new());
    for method in ["GET", "HEAD", "GET"] {
        connection.send(&PreparedRequest::new(method, "/", Version::Http11, &[]));
    }
    for mut bytes in input.chunks(piece) {
        loop {
            let Ok(received) = connection.receive(bytes) else { return (events, bodies, true) };
            match received.event {
                None => break assert_eq!(received.taken, bytes.len()),
                Some(ResponseEvent::Interim(head) | ResponseEvent::Head(head)) => {
                    events.push((head.status.0, head.persistent))
                }
                Some(ResponseEvent::Body(range)) => bodies.extend_from_slice(&bytes[range]),
                Some(ResponseEvent::End { persistent }) => events.push((0, persistent)),
            }
            bytes = &bytes[received.taken..];
        }
    }
    match connection.close() {
        Ok(end) => events.extend(end.map(|_| (0, false))),
        Err(_) => return (events, bodies, true),
    }
    (events, bodies, false)
}

/// What a client of HTTP/2 says behind its preface, the first byte of the input aside: the server hears the same however the
/// network cuts it, and says no more than what it hears is worth.
pub(crate) fn http2(input: &[u8]) {
    let Some((&size, input)) = input.split_first() else { return };
    let whole = frames(input, input.len().max(1));
    assert!(whole.2 <= 1_000 + 4 * input.len(), "{} for {}", whole.2, input.len());
    let cut = frames(input, usize::from(size) + 1);
    assert_eq!((whole.0, whole.1), (cut.0, cut.1));
}

/// The events and the bodies that a server heard, and how many bytes it said.
fn frames(input: &[u8], piece: usize) -> (Vec<String>, Vec<u8>, usize) {
    let (mut out, now) = (Vec::new(), Instant::now());
    let mut server = h2::Server::new(h2::ConnectionLimits::default(), &mut out);
    server.receive(h2::PREFACE, now, &mut out).expect("the preface");
    let (mut events, mut bodies) = (Vec::new(), Vec::new());
    for mut bytes in input.chunks(piece) {
        loop {
            let received = match server.receive(bytes, now, &mut out) {
                Ok(received) => received,
                Err(error) => {
                    events.push(error.to_string());
                    return (events, bodies, out.len());
                }
            };
            match received.event {
                None => break assert_eq!(received.taken, bytes.len()),
                Some(h2::StreamEvent::Data { stream, range, ends }) => {
                    server.release(stream, range.len(), &mut out);
                    bodies.extend_from_slice(&bytes[range]);
                    events.extend(ends.then(|| format!("{stream} ends")));
                }
                Some(event) => {
                    if let h2::StreamEvent::Head { stream, .. } = event {
                        let fields = server.fields();
                        assert!(fields.iter().all(|(name, value)| is_line(name, value)));
                        events.push(format!("{:?}", fields.pseudo(h2::Pseudo::Path)));
                        server
                            .head(stream, stream % 4 == 1, &mut out, |fields| _ = fields.status(Status::OK));
                    }
                    events.push(format!("{event:?}"));
                }
            }
            bytes = &bytes[received.taken..];
        }
    }
    (events, bodies, out.len())
}

/// What a server of HTTP/2 is given by its driver, between pieces of what a client says: a byte says which, and how long the
/// next piece is. What it says are whole frames, and only a stream that is open has a turn.
pub(crate) fn http2_inputs(mut input: &[u8]) {
    let (mut out, now) = (Vec::new(), Instant::now());
    let mut server = h2::Server::new(h2::ConnectionLimits::default(), &mut out);
    server.receive(h2::PREFACE, now, &mut out).expect("the preface");
    let (mut answered, mut unreleased) = (Vec::new(), Vec::new());
    while let Some((&what, rest)) = input.split_first() {
        let stream = 1 + 2 * u32::from(what >> 5);
        input = rest;
        match what & 31 {
            0 | 1 if !answered.contains(&stream) => {
                let ends = what & 1 == 1;
                if server.head(stream, ends, &mut out, |fields| _ = fields.status(Status::OK)) {
                    answered.push(stream);
                }
            }
            2 | 3 if answered.contains(&stream) => server.set_body_ready(stream, what & 1 == 0),
            0..=3 => {}
            4 => server.reset(stream, h2::ErrorCode::CANCEL, &mut out),
            5 => server.ping(&mut out),
            6 => server.shut_down(h2::ErrorCode::NO_ERROR, &mut out),
            7 => server.note_taken(out.len()),
            8 | 9 => {
                if let Some((stream, room)) = server.next_body() {
                    assert!(room <= h2::FRAME_SIZE && server.is_open(stream));
                    server.data_head(stream, room, what & 1 == 1, &mut out);
                    out.resize(out.len() + room, 0);
                }
            }
            10 => unreleased.drain(..).for_each(|(stream, count)| server.release(stream, count, &mut out)),
            length => {
                let (mut piece, rest) = rest.split_at(rest.len().min(usize::from(length) * 2));
                input = rest;
                while let Ok(received) = server.receive(piece, now, &mut out) {
                    piece = &piece[received.taken..];
                    match received.event {
                        None => {
                            assert!(piece.is_empty());
                            break;
                        }
                        Some(h2::StreamEvent::Data { stream, range, .. }) => {
                            unreleased.push((stream, range.len()))
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }
    let mut rest = &out[..];
    while let Some((head, behind)) = rest.split_first_chunk::<{ h2::FRAME_HEAD }>() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        assert!(length <= h2::FRAME_SIZE && length <= behind.len(), "a frame that is not whole");
        rest = &behind[length..];
    }
    assert!(rest.is_empty(), "a frame that is not whole");
}

/// Returns whether a field is one line of HTTP/1.1.
fn is_line(name: &[u8], value: &[u8]) -> bool {
    !name.is_empty()
        && !name.iter().any(|byte| byte.is_ascii_uppercase() || matches!(byte, b':' | b' ' | b'\r' | b'\n'))
        && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

/// Records of FastCGI: they say the same however they are cut, no more than came, and nothing of the request behind its end.
pub(crate) fn fastcgi_records(input: &[u8]) {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let whole = fastcgi_said([bytes]);
    assert!(whole.text.len() <= bytes.len());
    let pieces = bytes.chunks(usize::from(cut).max(1));
    assert_eq!(fastcgi_said(pieces), whole);
}

/// What records of FastCGI say: neighbouring bytes of one kind are one text.
#[derive(Debug, Default, PartialEq, Eq)]
struct SaidByFastcgi {
    /// The kind of each part, and where it ends in `text`.
    parts: Vec<(u8, usize)>,
    text: Vec<u8>,
    has_ended: bool,
    is_malformed: bool,
}

fn fastcgi_said<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> SaidByFastcgi {
    let (mut decoder, mut all) = (fastcgi::Decoder::default(), SaidByFastcgi::default());
    for piece in pieces {
        let mut said = |said: fastcgi::Said<'_>| {
            let (kind, bytes): (u8, &[u8]) = match said {
                fastcgi::Said::Stdin([]) => (0, &[]),
                fastcgi::Said::Stdin(bytes) => (1, bytes),
                fastcgi::Said::Abort => (2, &[]),
                fastcgi::Said::Stdout(bytes) => (3, bytes),
                fastcgi::Said::Stderr(bytes) => (4, bytes),
                fastcgi::Said::End(true) => (5, &[]),
                fastcgi::Said::End(false) => (6, &[]),
            };
            let joins = [1, 3, 4].contains(&kind) && all.parts.last().is_some_and(|part| part.0 == kind);
            all.parts.truncate(all.parts.len() - usize::from(joins));
            all.text.extend_from_slice(bytes);
            all.parts.push((kind, all.text.len()));
        };
        if decoder.take(piece, &mut said).is_err() {
            all.is_malformed = true;
            break;
        }
    }
    all.has_ended = decoder.has_ended();
    all
}

/// A program's answer: no panic, and no line that was not there.
pub(crate) fn program(input: &[u8]) {
    if let Ok(Some((answer, length))) = cgi::parse(input) {
        assert!(length <= input.len());
        match answer {
            cgi::Answer::Document { status, lines, .. } => {
                assert!((200..600).contains(&status.0));
                assert!(lines.is_empty() || lines.ends_with(b"\r\n"));
                assert!(!lines.windows(4).any(|bytes| bytes == b"\r\n\r\n"));
            }
            cgi::Answer::LocalRedirect(path) => assert_eq!(path.first(), Some(&b'/')),
        }
    }
}

/// The `If` field, in the first line, and the body of a request of WebDAV behind it: the stored parts of a body are
/// self-contained, so that they can be sent in any document.
pub(crate) fn webdav(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (field, body) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let head = [&b"LOCK / HTTP/1.1\r\nHost: h\r\nIf: "[..], field, b"\r\n\r\n"].concat();
    if let Ok(Some((head, _))) = request::parse(&head)
        && let Ok(lists) = condition::lists(&head)
    {
        assert!(lists.iter().all(|list| !list.conditions.is_empty()));
        assert!(lists.iter().map(|list| list.conditions.len()).sum::<usize>() <= field.len());
    }
    let _ = body::propfind(body);
    if let Ok(changes) = body::propertyupdate(body) {
        for change in changes {
            if let body::Change::Set(_, element) = &change {
                let alone = format!(
                    "<x:propertyupdate xmlns:x=\"DAV:\"><x:set><x:prop>{element}</x:prop></x:set></x:propertyupdate>"
                );
                assert_eq!(body::propertyupdate(alone.as_bytes()), Ok(vec![change]));
            }
        }
    }
    if let Ok(body::LockInfo { owner: Some(owner), .. }) = body::lockinfo(body) {
        let alone = format!(
            "<x:lockinfo xmlns:x=\"DAV:\"><x:lockscope><x:shared/></x:lockscope><x:locktype><x:write/></x:locktype>\
             {owner}</x:lockinfo>"
        );
        let again = body::lockinfo(alone.as_bytes()).expect("it stands alone");
        assert_eq!(again.owner, Some(owner));
    }
}
