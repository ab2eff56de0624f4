//! What HTTP holds for clients that take nothing, ask for nothing, or vanish.

use std::time::Duration;

use crate::alone;
use crate::kit::http2::{HEADERS, INITIAL_WINDOW_SIZE, PING, expect_others_served, frame, get, served_with};
use crate::kit::{Scratch, descriptors, eventually};

#[test]
fn a_client_that_does_not_read_holds_little_and_not_for_long() {
    let _alone = alone();
    let scratch = Scratch::new();
    let served = served_with(&scratch, |config| config.stall_timeout = Duration::from_secs(2));
    expect_others_served(&served);
    let before = descriptors();
    let mut clients: Vec<_> = (0..4).map(|_| served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)])).collect();
    for client in &mut clients {
        let all: Vec<u8> = (0..100).flat_map(|at| get(1 + 2 * at, "/large")).collect();
        client.send(all);
        // Whichever of them came first.
        assert!(client.try_expect(HEADERS));
    }
    // Each has as many requests under way as may be, each of these a socket pair and a file, which they share unless
    // several open it at once.
    let held = descriptors() - before;
    assert!(held <= 4 * (1 + 1 + 3 * 16) + 8, "{held}");
    expect_others_served(&served);
    for client in &mut clients {
        // To ask for more is not to take anything.
        client.send(frame(PING, 0, 0, [7; 8]));
        client.end();
    }
    drop(clients);
    eventually("all is given back", || descriptors() <= before + 2);
}

#[test]
fn idle_connections_are_ended_with_a_word() {
    let _alone = alone();
    let scratch = Scratch::new();
    let served = served_with(&scratch, |config| config.http_idle_timeout = Duration::from_secs(3));
    let before = descriptors();
    let mut clients: Vec<_> = (0..50).map(|_| served.connect_http2(&[])).collect();
    // The newest: others may have been idle for too long already, on a machine that is busy.
    assert_eq!(clients.last_mut().unwrap().fetch(1, "/small").0, 200);
    for client in &mut clients {
        client.end();
        assert_eq!(client.told_off, Some(0));
    }
    drop(clients);
    // The runtime, the worker's connection and the file that it keeps open stay for a while.
    eventually("all is given back", || descriptors() <= before + 10);
}
