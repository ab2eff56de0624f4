//! The server's shutdown: the replies to sessions, and the end of transfers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use millrace_server::Config;

use crate::kit::{PATIENCE, Scratch, Sink, config, eventually, pattern, serve_with, within};

#[test]
fn idle_sessions_get_421_and_no_other_is_accepted() {
    let scratch = Scratch::new();
    let grace = Duration::from_secs(120);
    let served = serve_with(Config { grace, ..config(scratch.storage()) });
    let mut clients = vec![served.connect(), served.login(), served.login()];
    clients[2].expect("PASV", 227);
    served.running.request_shutdown();
    for client in &mut clients {
        assert!(client.expect_reply(421).text.contains("shutting down"));
        client.expect_end();
    }
    let begin = Instant::now();
    served.running.wait();
    assert!(begin.elapsed() < grace / 2, "no session is left to wait for");
    assert!(TcpStream::connect(served.address).is_err());
}

#[test]
fn running_transfers_end_well_within_the_grace() {
    let scratch = Scratch::new();
    scratch.write("large", &pattern(32 << 20));
    let grace = Duration::from_secs(120);
    let served = serve_with(Config { grace, ..config(scratch.storage()) });
    let (mut down, mut up) = (served.login(), served.login());
    let mut download = Sink(down.passive());
    down.expect("RETR large", 150);
    download.wait_until_full();
    let mut upload = up.passive();
    up.expect("STOR new", 150);
    upload.write_all(&pattern(100_000)).unwrap();
    served.running.request_shutdown();
    eventually("the server accepts no connections", || TcpStream::connect(served.address).is_err());
    down.expect("NOOP", 200);
    let mut content = Vec::new();
    download.0.read_to_end(&mut content).unwrap();
    assert!(content == pattern(32 << 20));
    drop(upload);
    for client in [&mut down, &mut up] {
        client.expect_reply(226);
        client.expect_reply(421);
        client.expect_end();
    }
    served.running.wait();
    assert!(scratch.read("new").unwrap() == pattern(100_000));
}

#[test]
fn transfers_that_outlast_the_grace_time_are_aborted_and_leave_nothing() {
    let scratch = Scratch::new();
    scratch.write("large", &pattern(32 << 20));
    scratch.write("f", b"old");
    let mut config = config(scratch.storage());
    config.grace = Duration::from_millis(300);
    let served = serve_with(config);
    let (mut down, mut up) = (served.login(), served.login());
    let download = Sink(down.passive());
    down.expect("RETR large", 150);
    download.wait_until_full();
    let mut upload = up.passive();
    up.expect("STOR f", 150);
    upload.write_all(&pattern(100_000)).unwrap();
    let begin = Instant::now();
    served.running.request_shutdown();
    for client in [&mut down, &mut up] {
        client.expect_reply(426);
        client.expect_reply(421);
        client.expect_end();
    }
    served.running.wait();
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(300) && took < PATIENCE, "{took:?}");
    assert_eq!(scratch.names(), ["f", "large"]);
    assert_eq!(scratch.read("f").unwrap(), b"old");
}

/// What a second signal asks for.
#[test]
fn stopping_at_once_waits_for_no_session() {
    let scratch = Scratch::new();
    scratch.write("large", &pattern(32 << 20));
    scratch.write("f", b"old");
    let served = serve_with(config(scratch.storage()));
    let (mut down, mut up) = (served.login(), served.login());
    let download = Sink(down.passive());
    down.expect("RETR large", 150);
    download.wait_until_full();
    let mut upload = up.passive();
    up.expect("STOR f", 150);
    // So many bytes that a thread of the pool is at work on them.
    let _ = upload.write_all(&pattern(10 << 20));
    served.running.request_shutdown();
    let begin = Instant::now();
    served.running.stop_now();
    served.running.wait();
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    within(PATIENCE, "the old file is there and nothing else", || scratch.names() == ["f", "large"]);
    assert_eq!(scratch.read("f").unwrap(), b"old");
    while down.next_reply().is_some() {}
    while up.next_reply().is_some() {}
}

#[test]
fn uploads_in_flight_are_whole_or_absent() {
    let scratch = Scratch::new();
    for round in 0..10 {
        let served = serve_with(config(scratch.storage()));
        let mut clients: Vec<_> = (0..8).map(|_| served.login()).collect();
        let data: Vec<_> = clients.iter_mut().map(|client| client.passive()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(format!("STOR r{round}n{number}\r\n"));
        }
        for (number, mut data) in data.into_iter().enumerate() {
            let _ = data.write_all(&pattern(1_000 + number * 40_000));
        }
        served.running.stop_now();
        served.running.wait();
        for (number, mut client) in clients.into_iter().enumerate() {
            let mut acknowledged = false;
            while let Some(reply) = client.next_reply() {
                acknowledged |= reply.code == 226;
            }
            match scratch.read(&format!("r{round}n{number}")) {
                Some(content) => assert!(content == pattern(1_000 + number * 40_000), "half a file"),
                None => assert!(!acknowledged, "an acknowledged file is lost"),
            }
        }
    }
}

#[test]
fn dropping_the_server_ends_it() {
    let scratch = Scratch::new();
    let served = serve_with(config(scratch.storage()));
    let address = served.address;
    let mut client = served.login();
    drop(served);
    while client.next_reply().is_some() {}
    assert!(TcpStream::connect(address).is_err());
}
