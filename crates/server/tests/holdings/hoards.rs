//! What clients of HTTP/2 can make the server keep for them, in bytes.
//!
//! Client and server are one process here, so the test measures the difference between silent connections and the same
//! ones during the attack. `--nocapture` shows the figures.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::alone;
use crate::kit::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2Client, INITIAL_WINDOW_SIZE, PING, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block, expect_others_served, frame, get, request, served_with,
};
use crate::kit::{Scratch, ServedHttp, descriptors, eventually, proportional};

/// Clients that attack at a time.
const CLIENTS: usize = 20;

/// Frames of a flood; the connection ends long before.
const FLOOD: usize = 5_000;

/// Most bytes for a connection that floods: one read, and the data that is refused before it is stored.
const LITTLE: usize = 256 << 10;

/// And for one all of whose streams are open: an answer of each request that runs on its way through two buffers, or a
/// window full of unread bodies.
const FULL: usize = 4 << 20;

/// What may be left when they have gone: an allocator gives back what it likes.
const LEFT: usize = 16 << 20;

/// The name of an attack, its most memory for a connection, the settings that it begins with, and what it sends.
type Attack = (&'static str, usize, &'static [(u16, u32)], fn(&mut Http2Client));

const CLOSED: &[(u16, u32)] = &[(INITIAL_WINDOW_SIZE, 0)];
const WIDE: &[(u16, u32)] = &[(INITIAL_WINDOW_SIZE, 0x7fff_ffff)];

const ATTACKS: [Attack; 10] = [
    ("streams that are reset at once", LITTLE, &[], |client| {
        flood(client, |at| {
            let stream = 1 + 2 * at as u32;
            [get(stream, "/large"), frame(RST_STREAM, 0, stream, 8_u32.to_be_bytes())].concat()
        });
    }),
    ("fields without end", LITTLE, &[], |client| {
        client.send(frame(HEADERS, END_STREAM, 1, block(&request("GET", "/small", &[]))));
        let more = block(&[("x-filler", &"x".repeat(8_000))]);
        flood(client, |_| frame(CONTINUATION, 0, 1, more.clone()));
    }),
    ("frames of fields with nothing in them", LITTLE, &[], |client| {
        client.send(frame(HEADERS, END_STREAM, 1, block(&request("GET", "/small", &[]))));
        flood(client, |_| frame(CONTINUATION, 0, 1, []));
    }),
    ("fields that unfold", LITTLE, &[], |client| {
        let mut bomb = block(&request("GET", "/small", &[]));
        bomb.push(0x40);
        bomb.extend_from_slice(&block(&[("x-bomb", &"x".repeat(3_900))])[1..]);
        bomb.extend(std::iter::repeat_n(0x80 | 62, 12_000));
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, bomb));
    }),
    ("pings whose answers are not read", LITTLE, &[], |client| {
        flood(client, |_| frame(PING, 0, 0, [7; 8]));
    }),
    ("settings whose answers are not read", LITTLE, &[], |client| {
        flood(client, |_| frame(SETTINGS, 0, 0, [0, 4, 0, 0, 255, 255]));
    }),
    ("fields that are cut", LITTLE, &[], |client| {
        let fields = [("x-filler", &*"x".repeat(15_000))];
        client.send(frame(HEADERS, END_STREAM, 1, block(&request("GET", "/small", &fields))));
    }),
    ("a hundred bodies that go on", FULL, &[], |client| {
        for at in 0..100 {
            let fields = [("authorization", "Basic dTpw"), ("content-length", "1000000")];
            let path = format!("/up-{at}");
            client.send(frame(HEADERS, END_HEADERS, 1 + 2 * at, block(&request("PUT", &path, &fields))));
            client.send(frame(DATA, 0, 1 + 2 * at, [7; 10_000]));
        }
    }),
    ("a hundred answers that are not taken", FULL, CLOSED, |client| {
        (0..100).for_each(|at| _ = client.send(get(1 + 2 * at, "/large")));
        assert!(client.try_expect(HEADERS));
    }),
    ("a hundred answers that are taken and not read", FULL, WIDE, |client| {
        client.send(frame(WINDOW_UPDATE, 0, 0, 0x7fff_0000_u32.to_be_bytes()));
        (0..100).for_each(|at| _ = client.send(get(1 + 2 * at, "/large")));
    }),
];

/// Sends until the server has enough, or the flood is over.
fn flood(client: &mut Http2Client, frames: impl Fn(usize) -> Vec<u8>) {
    let _ = (0..FLOOD).all(|at| client.send(frames(at)));
}

/// The variable that says which attack the other test is.
const WHICH: &str = "MILLRACE_ATTACK";

/// Each in a process of its own: an allocator keeps what one has made it take, and the next would seem to cost nothing.
#[test]
fn no_client_of_http_2_makes_the_server_keep_much() {
    let _alone = alone();
    for (number, (about, ..)) in ATTACKS.iter().enumerate() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "hoards::one_attack", "--ignored", "--nocapture"])
            .env(WHICH, number.to_string());
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{about}: {said}");
        eprint!("{said}");
    }
}

#[test]
#[ignore = "started by the test above"]
fn one_attack() {
    let Some(which) = std::env::var(WHICH).ok().and_then(|which| which.parse::<usize>().ok()) else { return };
    let scratch = Scratch::new();
    let served = served_with(&scratch, |_| {});
    // Allocated once, for as many connections.
    drop((0..CLIENTS).map(|_| served.connect_http2(&[])).collect::<Vec<_>>());
    expect_others_served(&served);
    let (begun, (about, most, ..)) = (proportional(), ATTACKS[which]);
    // However much of it came in time: over and over it does not become more than it may once.
    for _ in 0..3 {
        let after = keeps(&served, ATTACKS[which]);
        assert!(after <= begun + CLIENTS * most + LEFT, "{about}: {after} bytes, {begun} before all of it");
    }
}

/// What the process keeps after an attack.
fn keeps(served: &ServedHttp, (about, most, settings, attack): Attack) -> usize {
    let idle = descriptors();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| served.connect_http2(settings)).collect();
    clients.iter_mut().for_each(|client| drop(client.expect(SETTINGS, 0)));
    let before = proportional();
    let during = most_while(|| {
        thread::scope(|scope| {
            clients.iter_mut().for_each(|client| drop(scope.spawn(|| attack(client))));
        });
        // They stay for as long as it takes to serve others, or were ended.
        expect_others_served(served);
    });
    drop(clients);
    // But for the files that they asked for.
    eventually("their connections end", || descriptors() <= idle + 2);
    let after = proportional();
    let each = during.saturating_sub(before) / CLIENTS;
    let [before, during, now] = [before, during, after].map(|bytes| bytes >> 10);
    eprintln!("{about}: {before} KiB before, {during} during, {now} after; {} KiB a connection", each >> 10);
    assert!(each <= most, "{about}: {each} bytes a connection");
    after
}

/// The most memory that this process has while something is done.
fn most_while(work: impl FnOnce()) -> usize {
    /// Also where it fails.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(proportional());
                thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let over = Over(&is_over);
        work();
        drop(over);
        watch.join().expect("it only reads")
    })
}
