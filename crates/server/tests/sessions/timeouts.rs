//! Deadlines: each has its own message, and none ends an active session.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_server::Config;
use millrace_storage::MemoryStorage;

use crate::kit::{PATIENCE, Scratch, Served, Sink, config, serve_with, within};

/// Long enough for a command to follow another within it on a machine that is busy with other things.
const SHORT: Duration = Duration::from_secs(1);

fn served(change: impl FnOnce(&mut Config)) -> Served {
    let storage = MemoryStorage::new();
    storage.insert("/f", "content");
    let mut config = config(Arc::new(storage));
    change(&mut config);
    serve_with(config)
}

/// Waits for the end of something whose time began after `begin`; it comes when it is due, and not before.
fn timed(begin: Instant, most: Duration, wait: impl FnOnce()) {
    wait();
    let took = begin.elapsed();
    // Not much later, either, but on a busy machine that says little.
    assert!(took >= most && took < most + PATIENCE, "{took:?} for {most:?}");
}

#[test]
fn a_client_that_does_not_log_in_is_told_so_and_closed() {
    let served = served(|config| config.login_timeout = SHORT);
    for line in [None, Some("USER u"), Some("NOOP")] {
        let begin = Instant::now();
        let mut client = served.connect();
        timed(begin, SHORT, || {
            if let Some(line) = line {
                client.command(line);
            }
            assert!(client.expect_reply(421).text.contains("login"));
            client.expect_end();
        });
    }
}

#[test]
fn noop_does_not_put_off_the_login_deadline() {
    let served = served(|config| config.login_timeout = SHORT);
    let mut client = served.connect();
    within(PATIENCE, "the connection is closed", || {
        let _ = (&client.stream).write_all(b"NOOP\r\n");
        client.next_reply().is_none_or(|reply| reply.code == 421)
    });
}

#[test]
fn a_silent_client_is_told_so_and_closed() {
    let served = served(|config| config.idle_timeout = SHORT);
    let begin = Instant::now();
    let mut client = served.login();
    timed(begin, SHORT, || {
        assert!(client.expect_reply(421).text.contains("Idle"));
        client.expect_end();
    });
}

#[test]
fn a_silent_control_connection_never_ends_a_running_transfer() {
    let scratch = Scratch::new();
    scratch.write("large", &vec![0; 32 << 20]);
    let mut config = config(scratch.storage());
    config.idle_timeout = SHORT;
    let served = serve_with(config);
    let mut client = served.login();
    let mut data = Sink(client.passive());
    client.expect("RETR large", 150);
    data.wait_until_full();
    std::thread::sleep(SHORT * 3);
    let begin = Instant::now();
    let mut content = Vec::new();
    data.0.read_to_end(&mut content).unwrap();
    assert_eq!(content.len(), 32 << 20);
    client.expect_reply(226);
    // And the clock begins anew behind it.
    timed(begin, SHORT, || _ = client.expect_reply(421));
}

#[test]
fn a_data_connection_that_never_comes_is_given_up() {
    let served = served(|config| config.connect_timeout = SHORT);
    let mut client = served.login();
    for line in ["RETR f", "STOR g", "LIST"] {
        client.expect("PASV", 227);
        let begin = Instant::now();
        client.expect(line, 150);
        timed(begin, SHORT, || _ = client.expect_reply(425));
    }
    assert_eq!(client.fetch("NLST"), b"f\r\n");
}

#[test]
fn strangers_do_not_put_off_the_connection_deadline() {
    let served = served(|config| config.connect_timeout = SHORT);
    let mut client = served.login();
    let address = client.passive_address();
    let begin = Instant::now();
    client.expect("RETR f", 150);
    timed(begin, SHORT, || {
        let stop = Instant::now() + SHORT;
        while Instant::now() < stop {
            drop(crate::kit::data_from("127.0.0.77", address));
            std::thread::sleep(Duration::from_millis(20));
        }
        client.expect_reply(425);
    });
}

#[test]
fn a_stalled_upload_is_given_up_and_leaves_nothing() {
    let scratch = Scratch::new();
    scratch.write("f", b"old");
    let mut config = config(scratch.storage());
    config.stall_timeout = SHORT;
    let served = serve_with(config);
    let mut client = served.login();
    for length in [0, 100, 1 << 20] {
        let mut data = client.passive();
        let begin = Instant::now();
        client.expect("STOR f", 150);
        data.write_all(&vec![1; length]).unwrap();
        timed(begin, SHORT, || _ = client.expect_reply(426));
    }
    within(PATIENCE, "only the old file is there", || scratch.names() == ["f"]);
    assert_eq!(scratch.read("f").unwrap(), b"old");
    client.expect_alive();
}

#[test]
fn a_stalled_download_is_given_up() {
    let scratch = Scratch::new();
    scratch.write("large", &vec![0; 32 << 20]);
    let mut config = config(scratch.storage());
    config.stall_timeout = SHORT;
    let served = serve_with(config);
    let mut client = served.login();
    let _data = client.passive();
    client.expect("RETR large", 150);
    assert!(client.expect_reply(426).text.contains("too long"));
    client.expect_alive();
}

#[test]
fn a_slow_transfer_is_not_a_stalled_one() {
    // All of it takes longer than it may stall; no byte is near it.
    let served = served(|config| config.stall_timeout = 3 * SHORT);
    let mut client = served.login();
    let mut data = client.passive();
    client.expect("STOR slow", 150);
    for byte in b"slowest" {
        data.write_all(&[*byte]).unwrap();
        std::thread::sleep(SHORT / 2);
    }
    drop(data);
    client.expect_reply(226);
    assert_eq!(client.fetch("RETR slow"), b"slowest");
}

/// The kernel takes megabytes of a download at once, and asks for more when a third of them has left: a client that
/// reads some kilobytes a second looks silent to the server for minutes, though it reads all the time.
#[test]
fn a_client_that_reads_slowly_is_not_a_stalled_one() {
    const STALL: Duration = Duration::from_secs(4);
    let storage = MemoryStorage::new();
    storage.insert("/big", vec![b'x'; 16 << 20]);
    for number in 0..40_000 {
        storage.insert(&format!("/d/{number:0200}"), "");
    }
    let served = serve_with(Config { stall_timeout: STALL, ..config(Arc::new(storage)) });
    // A file, and a listing of as many bytes.
    let mut readers = ["RETR big", "LIST d"].map(|line| {
        let mut client = served.login();
        let data = client.passive();
        rustix::net::sockopt::set_socket_recv_buffer_size(&data, 8 << 10).unwrap();
        client.expect(line, 150);
        (client, data)
    });
    let (begin, mut piece) = (Instant::now(), [0; 8 << 10]);
    while begin.elapsed() < STALL * 2 {
        for (_, data) in &mut readers {
            assert!(data.read(&mut piece).unwrap() > 0, "ended after {:?}", begin.elapsed());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    for (mut client, data) in readers {
        client.expect("STAT", 211);
        drop(data);
        client.expect_reply(426);
    }
}

#[test]
fn each_wrong_password_is_answered_later_and_the_last_ends_the_connection() {
    let served = served(|config| {
        config.login_delay = Duration::from_millis(100);
        config.login_attempts = 3;
    });
    let mut client = served.connect();
    for (attempt, code) in [(0, 530), (1, 530), (2, 421)] {
        client.expect("USER u", 331);
        timed(Instant::now(), Duration::from_millis(100 << attempt), || {
            _ = client.expect("PASS wrong", code)
        });
    }
    client.expect_end();
}

/// 2007-6737: names that do not exist are guesses as well.
#[test]
fn unknown_names_are_counted_and_delayed_like_wrong_passwords() {
    let served = served(|config| {
        config.login_delay = Duration::from_millis(100);
        config.login_attempts = 2;
    });
    let mut client = served.connect();
    client.expect("USER mallory", 331);
    timed(Instant::now(), Duration::from_millis(100), || _ = client.expect("PASS p", 530));
    client.expect("USER mallory", 331);
    client.expect("PASS p", 421);
    client.expect_end();
}

#[test]
fn commands_sent_during_the_delay_wait_their_turn() {
    let served = served(|config| config.login_delay = Duration::from_millis(200));
    let mut client = served.connect();
    client.send("USER u\r\nPASS wrong\r\nNOOP\r\nUSER u\r\nPASS p\r\nPWD\r\n");
    for code in [331, 530, 200, 331, 230, 257] {
        client.expect_reply(code);
    }
}

#[test]
fn a_client_that_takes_no_farewell_is_closed_all_the_same() {
    let served = served(|config| config.idle_timeout = SHORT);
    let client = served.login();
    let mut stream = client.stream.try_clone().unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while stream.write(&b"FEAT\r\n".repeat(10_000)).is_ok() {}
    // The deadline, and what a farewell may take.
    within(PATIENCE, "the server has closed it", || {
        let kind = (&client.stream).write(b"NOOP\r\n").map_err(|error| error.kind());
        matches!(kind, Err(std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe))
    });
}

#[test]
fn a_port_that_is_not_used_in_time_is_given_to_another() {
    let served = served(|config| {
        let first = *config.passive_ports.start();
        config.passive_ports = first..=first;
        config.connect_timeout = SHORT;
    });
    let mut idle = served.login();
    idle.expect("PASV", 227);
    let mut fresh = served.login();
    // Each waits in line for as long as a lease may last.
    within(PATIENCE, "the port is free", || fresh.command("PASV").code == 227);
    idle.expect("NLST", 150);
    let reply = idle.expect_reply(425);
    assert!(reply.text.contains("nothing used it in time"), "{reply:?}");
    idle.expect_alive();
}

#[test]
fn a_connection_that_came_early_is_kept_when_its_port_is_given_back() {
    let served = served(|config| {
        let first = *config.passive_ports.start();
        config.passive_ports = first..=first;
        config.connect_timeout = SHORT;
    });
    let mut slow = served.login();
    slow.store("STOR f", b"content");
    let mut data = slow.passive();
    let mut fresh = served.login();
    within(PATIENCE, "the port is free", || fresh.command("PASV").code == 227);
    slow.expect("RETR f", 150);
    let mut content = String::new();
    data.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    slow.expect_reply(226);
}
