//! The same of HTTP/2: clients that reset, half-close or stall, end with a word or give up their stream.

use std::net::{Shutdown, TcpStream};

use super::LONGEST;
use super::site::Site;
use crate::alone;
use crate::kit::http2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2Client, INITIAL_WINDOW_SIZE, PREFACE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block, frame, get, request,
};
use crate::kit::{descriptors, reset, within};

/// `u:p`.
const USER: (&str, &str) = ("authorization", "Basic dTpw");

/// Files that may be kept open for the next request: `small`, `medium`, `large` and `stuck`.
const KEPT: usize = 4;

/// How a client ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Reset,
    HalfClose,
    /// `GOAWAY`, and waits for the rest.
    Farewell,
    /// `RST_STREAM`, and goes on with another stream.
    GiveUp,
}

const ENDINGS: [Ending; 4] = [Ending::Reset, Ending::HalfClose, Ending::Farewell, Ending::GiveUp];

/// What a connection is busy with when its client ends, and how that comes about.
type State = (&'static str, fn(&Site) -> Http2Client);

/// Without a stream.
const QUIET: [State; 6] = [
    ("nothing was said", |site| site.served.connect_http2_silently()),
    ("the preface is read", |site| {
        let mut client = site.served.connect_http2_silently();
        client.send(&PREFACE[..20]);
        client
    }),
    ("settings were said", |site| {
        let mut client = site.served.connect_http2(&[]);
        client.expect(SETTINGS, 0);
        client
    }),
    ("a frame's head is read", |site| {
        let mut client = site.served.connect_http2(&[]);
        client.send([0, 0, 8, 6, 0]);
        client
    }),
    ("fields are read", |site| {
        let mut client = site.served.connect_http2(&[]);
        client.send(frame(HEADERS, END_STREAM, 1, block(&request("GET", "/small", &[]))));
        client
    }),
    ("an answer was given", |site| {
        let mut client = site.served.connect_http2(&[]);
        assert_eq!(client.fetch(1, "/small").0, 200);
        client
    }),
];

/// With stream 1.
const BUSY: [State; 13] = [
    ("the pool is waited for", |site| site.stuck(|| asks(site, "GET", "/stuck", &[USER]))),
    ("WebDAV's copy is waited for", |site| {
        site.stuck(|| asks(site, "COPY", "/stuck", &[USER, ("destination", "/copied")]))
    }),
    ("a wrong password is answered later", |site| {
        asks(site, "GET", "/", &[("authorization", "Basic dTp3cm9uZw==")])
    }),
    ("an answer is not taken", |site| begun(site, "GET", "/large", &[])),
    ("an answer is taken and not read", |site| {
        let mut client = site.served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
        client.send(frame(WINDOW_UPDATE, 0, 0, 0x7fff_0000_u32.to_be_bytes()));
        client.send(get(1, "/large"));
        client
    }),
    ("a directory's page is made", |site| begun(site, "GET", "/many/", &[])),
    ("WebDAV's answer is made", |site| begun(site, "PROPFIND", "/many/", &[("depth", "1")])),
    ("a body comes", |site| {
        sends(site, "PUT", "/up", &[USER, ("content-length", "1000000")], &[b'x'; 14_000].repeat(4))
    }),
    ("WebDAV's body comes", |site| sends(site, "PROPFIND", "/", &[("content-length", "100")], b"<?xml")),
    ("a program is silent", |site| {
        let client = asks(site, "GET", "/cgi/silent", &[]);
        site.wait_for_program();
        client
    }),
    ("another server is silent", |site| asks(site, "GET", "/silent/", &[])),
    ("another server answers", |site| begun(site, "GET", "/endless/", &[])),
    ("a hook is asked", |site| site.ruled(|| asks(site, "DELETE", "/asked", &[USER]))),
];

/// A client whose request is whole.
fn asks(site: &Site, method: &str, path: &str, fields: &[(&str, &str)]) -> Http2Client {
    // Nothing of an answer's body is taken.
    let mut client = site.served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
    let request = block(&request(method, path, fields));
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, request));
    client
}

/// The same, whose answer has begun.
fn begun(site: &Site, method: &str, path: &str, fields: &[(&str, &str)]) -> Http2Client {
    let mut client = asks(site, method, path, fields);
    client.expect(HEADERS, 1);
    client
}

/// A client whose request's body has begun.
fn sends(site: &Site, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Http2Client {
    let mut client = site.served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
    client.send(frame(HEADERS, END_HEADERS, 1, block(&request(method, path, fields))));
    body.chunks(14_000).for_each(|piece| _ = client.send(frame(DATA, 0, 1, piece)));
    client
}

/// What the client still holds.
fn end(mut client: Http2Client, ending: Ending, has_stream: bool) -> Option<TcpStream> {
    match ending {
        Ending::Reset => {
            reset(client.secured.socket);
            return None;
        }
        Ending::HalfClose => _ = client.secured.socket.shutdown(Shutdown::Write),
        Ending::Farewell => _ = client.send(frame(GOAWAY, 0, 0, [0; 8])),
        Ending::GiveUp if has_stream => {
            client.send(frame(RST_STREAM, 0, 1, 8_u32.to_be_bytes()));
            let other = block(&request("HEAD", "/small", &[]));
            client.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, other));
            client.expect(HEADERS, 3);
            return None;
        }
        Ending::GiveUp => return None,
    }
    Some(client.secured.socket)
}

fn states() -> impl Iterator<Item = (&'static str, fn(&Site) -> Http2Client, bool)> {
    let quiet = QUIET.iter().map(|(about, begin)| (*about, *begin, false));
    quiet.chain(BUSY.iter().map(|(about, begin)| (*about, *begin, true)))
}

#[test]
fn clients_that_leave_leave_nothing_and_block_no_other() {
    let _alone = alone();
    let before_all = descriptors();
    let site = Site::with_sessions(64);
    let base = base(&site);
    for (about, begin, has_stream) in states() {
        for ending in ENDINGS {
            let what = format!("HTTP/2: {about}; {ending:?}");
            let client = begin(&site);
            let left = end(client, ending, has_stream);
            site.expect_others_served(&what);
            site.let_go();
            let own = left.iter().count();
            within(LONGEST, &format!("{what}: {} descriptors, {base} before", descriptors()), || {
                descriptors() <= base + own + KEPT
            });
            site.expect_quiet(&what);
        }
    }
    assert!(site.scratch.read("up").is_none(), "no part of an upload has its name");
    drop(site);
    // Two of the other servers listen on, and the time zone's file or its like may be open; what programs are given for
    // an input stays open for the next, and so do 25 that are kept for their streams, where no server kept them before.
    crate::expect_descriptors(before_all + 3 + 25);
}

#[test]
fn clients_that_stall_leave_nothing_and_block_no_other() {
    let _alone = alone();
    let site = Site::with_sessions(64);
    let base = base(&site);
    // All at the same time, since each takes as long as the others; a stuck disk only affects its own clients.
    let (stuck, free): (Vec<_>, Vec<_>) = states().partition(|(about, ..)| about.ends_with("waited for"));
    let mut clients: Vec<_> = free.iter().chain(&stuck).map(|(_, begin, _)| begin(&site)).collect();
    site.expect_others_served("they stall");
    site.let_go();
    within(2 * LONGEST, &format!("{} descriptors, {base} before", descriptors()), || {
        descriptors() <= base + clients.len() + KEPT
    });
    site.expect_quiet("they have stalled");
    // And each has been told, or cut off.
    for client in &mut clients {
        client.end();
    }
    site.expect_others_served("they have stalled");
}

/// Memory that is allocated once and kept, and files that are kept open while in use.
fn base(site: &Site) -> usize {
    for (_, begin, has_stream) in states() {
        end(begin(site), Ending::Reset, has_stream);
        site.let_go();
    }
    site.expect_others_served("the first round");
    site.expect_quiet("the first round");
    // Those of the first round that are still being ended count for none.
    let (mut least, mut steady) = (usize::MAX, 0);
    within(LONGEST, "the first round ends", || {
        let now = descriptors();
        steady = if now < least { 0 } else { steady + 1 };
        least = least.min(now);
        steady == 50
    });
    least
}
