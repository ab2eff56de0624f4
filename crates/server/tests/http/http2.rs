//! HTTP/2 with clients that mean harm: what each can hold is bounded, and others are answered meanwhile.

use std::time::{Duration, Instant};

use millrace_server::limits::{Limit, Limits, ServerLimits};

use crate::kit::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, HEADERS, INITIAL_WINDOW_SIZE,
    PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, expect_others_served, frame, get, request, served_with,
    status,
};
use crate::kit::{Scratch, ServedHttp, eventually, pattern};

/// More than any bucket here holds, and the buffers of both kernels.
const FLOOD: usize = 3_000_000;

fn served(scratch: &Scratch) -> ServedHttp {
    served_with(scratch, |_| {})
}

#[test]
fn files_come_whole_and_many_at_a_time() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    assert_eq!(client.fetch(1, "/small"), (200, b"here".to_vec()));
    assert!(client.fetch(3, "/large").1 == pattern(8 << 20));
    assert_eq!(client.fetch(5, "/none").0, 404);
    // As many as may be open, without a word between them.
    let streams = (0..100).map(|at| 7 + 2 * at);
    assert!(client.send(streams.clone().map(|stream| get(stream, "/small")).collect::<Vec<_>>().concat()));
    let mut open: Vec<u32> = streams.collect();
    while !open.is_empty() {
        let data = client.frame().expect("the connection goes on");
        if data.kind == DATA && data.flags & END_STREAM != 0 {
            open.retain(|stream| *stream != data.stream);
        }
    }
}

#[test]
fn a_body_in_pieces_becomes_a_file() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    let fields = request("PUT", "/up", &[("authorization", "Basic dTpw"), ("content-length", "60000")]);
    client.send(frame(HEADERS, END_HEADERS, 1, block(&fields)));
    let content = pattern(60_000);
    for (at, piece) in content.chunks(10_000).enumerate() {
        client.send(frame(DATA, if at == 5 { END_STREAM } else { 0 }, 1, piece));
    }
    // 201 is none of the statuses of HPACK's table.
    client.answer(1);
    assert!(scratch.read("up") == Some(content));
    assert_eq!(client.fetch(3, "/up").0, 200);
}

/// CVE-2023-44487.
#[test]
fn a_client_that_cancels_its_requests_is_disconnected() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    let mut both = |at: usize| {
        let stream = 1 + 2 * at as u32;
        client.send([get(stream, "/large"), frame(RST_STREAM, 0, stream, 8_u32.to_be_bytes())].concat())
    };
    let taken = (0..FLOOD).take_while(|at| both(*at)).count();
    assert!(taken < FLOOD, "all were taken");
    client.end();
    expect_others_served(&served);
}

/// The same, of streams whose answers have begun: not one of them waits to be looked at.
#[test]
fn a_client_that_resets_started_streams_is_disconnected() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
    let (mut count, began) = (0, Instant::now());
    while client.told_off.is_none() {
        // As many as are answered at a time.
        let streams = (count..count + 16).map(|at| 1 + 2 * at);
        client.send(streams.clone().map(|stream| get(stream, "/large")).collect::<Vec<_>>().concat());
        let begun = (0..16).take_while(|_| client.try_expect(HEADERS)).count();
        if begun < 16 {
            break;
        }
        let resets = streams.map(|stream| frame(RST_STREAM, 0, stream, 8_u32.to_be_bytes()));
        client.send(resets.collect::<Vec<_>>().concat());
        count += 16;
        // A thousand are free.
        let is_flood = f64::from(count) > 1_000.0 + 150.0 * began.elapsed().as_secs_f64();
        if count > 3_000 {
            assert!(!is_flood, "{count} were taken in {:?}", began.elapsed());
            // Time pays for what this machine manages to give up.
            return;
        }
    }
    assert!(count > 500, "a browser may leave a page: {count}");
    expect_others_served(&served);
}

/// CVE-2024-27316 and its kin.
#[test]
fn fields_without_end_are_not_collected() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    for (what, continued) in [
        ("fields", block(&[("x-filler", &"x".repeat(8_000))])),
        ("frames without anything in them", Vec::new()),
    ] {
        let mut client = served.connect_http2(&[]);
        let mut taken =
            client.send(frame(HEADERS, END_STREAM, 1, block(&request("GET", "/small", &[])))) as usize;
        while taken < FLOOD && client.send(frame(CONTINUATION, 0, 1, continued.clone())) {
            taken += 1;
        }
        assert!(taken < FLOOD, "{what}: all were taken");
        client.end();
        expect_others_served(&served);
    }
}

/// A field that is said once and pointed at ever after: 16 KiB of frames stand for 60 MiB of fields.
#[test]
fn fields_that_unfold_are_refused() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    // Literal with incremental indexing: entry 62 from now on.
    let value = "x".repeat(3_900);
    let mut bomb = block(&request("GET", "/small", &[]));
    bomb.push(0x40);
    bomb.extend_from_slice(&block(&[("x-bomb", &value)])[1..]);
    bomb.extend(std::iter::repeat_n(0x80 | 62, 12_000));
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, bomb));
    client.end();
    assert_eq!(client.told_off, Some(ENHANCE_YOUR_CALM));
    // Many fields that are no bomb are this request's fault only: 431, which is none of the statuses of HPACK's table.
    let mut client = served.connect_http2(&[]);
    let filler = "x".repeat(4_000);
    let many = [("x-a", &*filler), ("x-b", &filler), ("x-c", &filler), ("x-d", &filler), ("x-e", &filler)];
    let fields = block(&request("GET", "/small", &many));
    let (first, rest) = fields.split_at(16_000);
    client.send(frame(HEADERS, END_STREAM, 1, first));
    client.send(frame(CONTINUATION, END_HEADERS, 1, rest));
    client.expect(HEADERS, 1);
    assert_eq!(client.fetch(3, "/small"), (200, b"here".to_vec()));
    expect_others_served(&served);
}

#[test]
fn frames_that_ask_for_nothing_are_bounded() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let empty_data = |stream| frame(DATA, 0, stream, []);
    for (what, flood) in [
        ("PING", frame(PING, 0, 0, [7; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, [0, 4, 0, 0, 255, 255])),
        ("PRIORITY", frame(2, 0, 3, [0, 0, 0, 0, 16])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, 1_u32.to_be_bytes())),
        ("DATA", empty_data(1)),
        ("a frame of an unknown type", frame(0x42, 0, 0, [1, 2, 3])),
    ] {
        let mut client = served.connect_http2(&[]);
        let fields = request("PUT", "/up", &[("authorization", "Basic dTpw")]);
        client.send(frame(HEADERS, END_HEADERS, 1, block(&fields)));
        let many = flood.repeat(100);
        let taken = (0..FLOOD / 100).take_while(|_| client.send(&many)).count();
        assert!(taken < FLOOD / 100, "{what}: all were taken");
        client.end();
        expect_others_served(&served);
    }
}

#[test]
fn a_browser_may_say_a_lot_while_it_takes_what_it_asked_for() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    // 40 MiB in pieces of at most 16 KiB, each of which it answers twice.
    for at in 0..5 {
        assert!(client.fetch(1 + 2 * at, "/large").1 == pattern(8 << 20));
    }
    assert_eq!(client.told_off, None);
}

#[test]
fn more_streams_than_may_be_open_are_refused() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
    client.expect(SETTINGS, 0);
    let all: Vec<u8> = (0..1_000).flat_map(|at| get(1 + 2 * at, "/large")).collect();
    client.send(all);
    let (mut refused, mut begun) = (0, 0);
    while refused < 900 {
        match client.frame().map(|frame| frame.kind) {
            Some(RST_STREAM) => refused += 1,
            Some(HEADERS) => begun += 1,
            Some(_) => {}
            // A client that continues is disconnected, too.
            None => break,
        }
    }
    assert!(begun <= 100, "{begun}");
    expect_others_served(&served);
}

#[test]
fn a_body_that_never_ends_is_given_up() {
    let scratch = Scratch::new();
    let served = served_with(&scratch, |config| config.stall_timeout = Duration::from_secs(1));
    let mut client = served.connect_http2(&[]);
    let fields = request("PUT", "/up", &[("authorization", "Basic dTpw"), ("content-length", "1000")]);
    client.send(frame(HEADERS, END_HEADERS, 1, block(&fields)));
    client.send(frame(DATA, 0, 1, *b"the beginning"));
    client.expect(RST_STREAM, 1);
    assert_eq!(client.fetch(3, "/up").0, 404);
    assert_eq!(client.fetch(5, "/small"), (200, b"here".to_vec()));
}

#[test]
fn a_flood_of_resets_is_told_to_calm_down() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    // All at once, so that none of them was looked at before it is taken back.
    let all: Vec<u8> = (0..60)
        .flat_map(|at| {
            let stream = 1 + 2 * at;
            [get(stream, "/small"), frame(RST_STREAM, 0, stream, 8_u32.to_be_bytes())].concat()
        })
        .collect();
    client.send(all);
    client.end();
    assert_eq!(client.told_off, Some(ENHANCE_YOUR_CALM));
    expect_others_served(&served);
}

#[test]
fn a_client_that_does_not_answer_a_ping_is_closed() {
    let scratch = Scratch::new();
    let served = served_with(&scratch, |config| config.http2_ping = Duration::from_secs(3));
    let mut gone = served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
    gone.answers_pings = false;
    gone.send(get(1, "/large"));
    let mut there = served.connect_http2(&[]);
    std::thread::scope(|scope| {
        // Long before anything else ends a connection here.
        scope.spawn(move || {
            gone.expect(PING, 0);
            gone.end();
        });
        scope.spawn(move || {
            (0..3).for_each(|_| drop(there.expect(PING, 0)));
            assert_eq!(there.fetch(1, "/small"), (200, b"here".to_vec()));
            assert_eq!(there.told_off, None);
        });
    });
}

/// Its answer waits here for room, and the worker is done with it.
#[test]
fn a_vanished_client_holds_no_slot_after_a_kick() {
    let scratch = Scratch::new();
    let served = served_with(&scratch, |config| config.http2_ping = Duration::from_secs(2));
    let mut gone = served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
    gone.answers_pings = false;
    let fields = request("GET", "/small", &[("authorization", "Basic dTpw")]);
    gone.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(&fields)));
    gone.expect(HEADERS, 1);
    assert_eq!(served.running.kick(|one| one.user.as_deref() == Some(b"u")), 1);
    gone.end();
}

/// A browser asks for 16 at a time.
#[test]
fn a_connection_is_one_session_of_its_user_however_many_requests_are_under_way() {
    let scratch = Scratch::new();
    let one = Limits { sessions: Some(Limit::of(1)), ..Limits::default() };
    let served = served_with(&scratch, |config| {
        let two = Limits { sessions: Some(Limit::of(2)), ..Limits::default() };
        config.limits = ServerLimits { user: one, server: two, ..ServerLimits::default() };
    });
    let ask = |path, stream| {
        let fields = request("GET", path, &[("authorization", "Basic dTpw")]);
        frame(HEADERS, END_HEADERS | END_STREAM, stream, block(&fields))
    };
    let mut client = served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
    let streams = || (0..8).map(|at| 1 + 2 * at);
    client.send(streams().map(|stream| ask("/large", stream)).collect::<Vec<_>>().concat());
    for _ in streams() {
        let head = std::iter::from_fn(|| client.frame()).find(|frame| frame.kind == HEADERS).unwrap();
        assert_eq!(status(&head.content), 200);
    }
    let login = "Authorization: Basic dTpw\r\n";
    assert_eq!(served.get("/small", login).status, 503, "a second session");
    drop(client);
    eventually("the place is free", || served.get("/small", login).status == 200);
}

/// A client that takes nothing on one stream is given what it takes on others.
#[test]
fn a_stream_whose_window_is_closed_holds_up_no_other() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
    client.send((0..8).flat_map(|at| get(1 + 2 * at, "/large")).collect::<Vec<_>>());
    client.send(get(17, "/large"));
    client.send(frame(WINDOW_UPDATE, 0, 17, (8_u32 << 20).to_be_bytes()));
    assert_eq!(client.expect(HEADERS, 17).kind, HEADERS);
    let mut received = 0;
    while received < 8 << 20 {
        let data = std::iter::from_fn(|| client.frame()).find(|frame| frame.kind == DATA).unwrap();
        assert_eq!(data.stream, 17);
        client.send(frame(WINDOW_UPDATE, 0, 0, (data.content.len() as u32).to_be_bytes()));
        received += data.content.len();
    }
    expect_others_served(&served);
}

#[test]
fn streams_of_a_connection_take_turns() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    client.send([get(1, "/large"), get(3, "/large"), get(5, "/large")].concat());
    let mut received = [0_usize; 3];
    while received.iter().sum::<usize>() < 2 << 20 {
        let data = std::iter::from_fn(|| client.frame()).find(|frame| frame.kind == DATA).unwrap();
        received[(data.stream / 2) as usize] += data.content.len();
        client.send(frame(WINDOW_UPDATE, 0, 0, (data.content.len() as u32).to_be_bytes()));
    }
    assert!(received.iter().all(|count| *count > 400_000), "{received:?}");
}

/// An upload whose client says nothing more waits by itself, and so does what is beyond the requests that run.
#[test]
fn a_stream_that_waits_holds_up_no_other() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    let fields = request("PUT", "/up", &[("authorization", "Basic dTpw")]);
    for stream in (0..15).map(|at| 1 + 2 * at) {
        client.send(frame(HEADERS, END_HEADERS, stream, block(&fields)));
        client.send(frame(DATA, 0, stream, *b"the beginning"));
    }
    for at in 0..40 {
        assert_eq!(client.fetch(31 + 2 * at, "/small"), (200, b"here".to_vec()));
    }
    // One more, and no place is left until one of them ends.
    client.send(frame(HEADERS, END_HEADERS, 111, block(&fields)));
    client.send(get(113, "/small"));
    client.send(frame(RST_STREAM, 0, 111, 8_u32.to_be_bytes()));
    assert_eq!(client.answer(113), (200, b"here".to_vec()));
    client.send(frame(DATA, END_STREAM, 1, *b", and the end"));
    client.answer(1);
    assert_eq!(scratch.read("up").as_deref(), Some(&b"the beginning, and the end"[..]));
}

/// What is not wanted of a request is given back to the connection's window, which others share.
#[test]
fn bodies_that_are_not_wanted_use_up_no_window() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    let fields = request("PUT", "/up", &[]);
    for at in 0..40 {
        let stream = 1 + 2 * at;
        client.send(frame(HEADERS, END_HEADERS, stream, block(&fields)));
        // 401 comes before the body is looked at: as much as a window may be on its way.
        for _ in 0..16 {
            client.send(frame(DATA, 0, stream, [7; 10_000]));
        }
        client.expect(HEADERS, stream);
    }
    assert_eq!(client.fetch(999, "/small"), (200, b"here".to_vec()));
}

#[test]
fn a_malformed_request_is_refused_and_others_go_on() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    let refused = [
        (vec![(":method", "GET"), (":scheme", "https"), (":path", "small"), (":authority", "h")], 400),
        (vec![(":method", "GET"), (":scheme", "https"), (":path", "/small")], 400),
        (vec![(":method", "CONNECT"), (":authority", "h:443")], 501),
    ];
    for (at, (fields, code)) in refused.into_iter().enumerate() {
        let stream = 1 + 2 * at as u32;
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block(&fields)));
        assert_eq!(client.response(stream).status, code, "{fields:?}");
    }
    // What is about the connection has no place here (RFC 9113 section 8.2.2).
    let upgrade = request("GET", "/small", &[("connection", "upgrade"), ("upgrade", "websocket")]);
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 101, block(&upgrade)));
    client.expect(RST_STREAM, 101);
    assert_eq!(client.fetch(103, "/small"), (200, b"here".to_vec()));
}

/// A request may be answered before all of it has come: what comes is still held to the rules, and bounded.
#[test]
fn the_rest_of_a_request_that_was_answered_is_passed_over() {
    let scratch = Scratch::new();
    let served = served(&scratch);
    let mut client = served.connect_http2(&[]);
    let code = |reset: Frame| u32::from_be_bytes(reset.content[..].try_into().unwrap());
    let post = request("POST", "/small", &[("content-length", "1")]);
    client.send(frame(HEADERS, END_HEADERS, 1, block(&post)));
    assert_eq!(client.response(1).status, 405);
    client.send(frame(DATA, END_STREAM, 1, *b"more than one"));
    assert_eq!(code(client.expect(RST_STREAM, 1)), 1, "PROTOCOL_ERROR");
    client.send(frame(HEADERS, END_HEADERS, 3, block(&request("PUT", "/up", &[]))));
    assert_eq!(client.response(3).status, 401);
    (0..7).for_each(|_| _ = client.send(frame(DATA, 0, 3, [7; 10_000])));
    assert_eq!(code(client.expect(RST_STREAM, 3)), 0, "NO_ERROR");
    assert_eq!(client.fetch(5, "/small"), (200, b"here".to_vec()));
}
