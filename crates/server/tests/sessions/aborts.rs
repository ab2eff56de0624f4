//! What a session hears while it is busy, and what becomes of a transfer whose control connection is gone.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use millrace_server::{Accounts, Config, Permissions};
use millrace_storage::{Fault, FaultStorage, MemoryStorage};

use crate::kit::{Client, PATIENCE, Scratch, Served, Sink, config, pattern, serve, serve_with, within};

/// Longer than all of the buffers between the two ends.
const LARGE: usize = 64 << 20;

/// What the contract allows a dead session to keep what it had, 2 s, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(8);

fn served_file() -> (Served, Scratch) {
    let scratch = Scratch::new();
    std::fs::File::create(scratch.file("large")).unwrap().set_len(LARGE as u64).unwrap();
    (serve(scratch.storage()), scratch)
}

/// A blocked download: the client does not read the data connection.
fn held_up_download(client: &mut Client) -> Sink {
    let data = Sink(client.passive());
    client.expect("RETR large", 150);
    data.wait_until_full();
    data
}

#[test]
fn abor_is_heard_while_the_data_connection_is_full() {
    let (served, _scratch) = served_file();
    let mut client = served.login();
    for abort in [&b"ABOR\r\n"[..], b"\xff\xf4\xff\xf2ABOR\r\n"] {
        let _data = held_up_download(&mut client);
        client.send(abort);
        client.expect_reply(426);
        client.expect_reply(226);
        let _data = held_up_download(&mut client);
        client.send_urgent(abort);
        client.expect_reply(426);
        client.expect_reply(226);
        // As Commons Net: the Telnet part urgent, the command behind it.
        let _data = held_up_download(&mut client);
        client.send_urgent(b"\xff\xf4\xff");
        client.send(b"\xf2ABOR\r\n");
        client.expect_reply(426);
        client.expect_reply(226);
        // As older ones, without a Data Mark.
        let _data = held_up_download(&mut client);
        client.send(b"\xff\xf4");
        client.send_urgent(b"\xff");
        client.send(b"abor\r\n");
        client.expect_reply(426);
        client.expect_reply(226);
    }
    client.expect_alive();
}

#[test]
fn abor_is_heard_behind_a_command_that_has_to_wait() {
    let (served, scratch) = served_file();
    for abort in [&b"ABOR\r\n"[..], b"\xff\xf4\xff\xf2abor \r\n"] {
        for (line, code) in [("PWD", 257), ("SIZE large", 213), ("CWD nowhere", 550), ("QUIT", 221)] {
            let mut client = served.login();
            let _data = held_up_download(&mut client);
            client.send(format!("{line}\r\n"));
            client.send(abort);
            client.expect_reply(426);
            client.expect_reply(code);
            if code != 221 {
                client.expect_reply(226);
                client.expect_alive();
            }
        }
    }
    let mut client = served.login();
    let mut data = client.passive();
    client.expect("STOR f", 150);
    data.write_all(b"not all of it").unwrap();
    client.send("PWD\r\nSIZE large\r\nABOR\r\n");
    for code in [426, 257, 213, 226] {
        client.expect_reply(code);
    }
    client.expect_alive();
    assert_eq!(scratch.names(), ["large"]);
}

#[test]
fn noop_and_stat_are_answered_during_a_transfer() {
    let (served, _scratch) = served_file();
    let mut client = served.login();
    let mut data = held_up_download(&mut client);
    client.expect("NOOP", 200);
    let status = client.expect("STAT", 211);
    assert!(status.text.contains(&format!("of {LARGE} bytes")), "{status:?}");
    client.expect("noop", 200);
    let mut content = Vec::new();
    data.0.read_to_end(&mut content).unwrap();
    assert_eq!(content.len(), LARGE);
    client.expect_reply(226);
}

#[test]
fn quit_lets_the_transfer_end_first() {
    let (served, _scratch) = served_file();
    let mut client = served.login();
    let mut data = held_up_download(&mut client);
    client.send("QUIT\r\n");
    let mut content = Vec::new();
    data.0.read_to_end(&mut content).unwrap();
    assert_eq!(content.len(), LARGE);
    client.expect_reply(226);
    client.expect_reply(221);
    client.expect_end();
}

#[test]
fn abor_before_the_data_connection_comes_ends_the_wait() {
    let (served, _scratch) = served_file();
    let mut client = served.login();
    for line in ["RETR large", "STOR new", "LIST"] {
        client.expect("PASV", 227);
        client.expect(line, 150);
        client.expect("ABOR", 426);
        client.expect_reply(226);
    }
    client.expect("ABOR", 226);
    client.expect_alive();
}

#[test]
fn abor_during_an_upload_leaves_the_old_file() {
    let (served, scratch) = served_file();
    scratch.write("f", b"old");
    let mut client = served.login();
    for length in [0, 1, 1_000, 65_536, 5 << 20] {
        let mut data = client.passive();
        client.expect("STOR f", 150);
        data.write_all(&pattern(length)).unwrap();
        client.expect("ABOR", 426);
        client.expect_reply(226);
        assert_eq!(scratch.read("f").unwrap(), b"old");
    }
    within(SOON, "nothing else is left", || scratch.names() == ["f", "large"]);
}

#[test]
fn abor_stops_a_hash() {
    let storage = FaultStorage::new(MemoryStorage::new());
    storage.inner().insert("/f", vec![7; 4 << 20]);
    let faults = storage.faults();
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    faults.from(2, Fault::Slow(Duration::from_millis(50)));
    client.send("XSHA256 f\r\nNOOP\r\nABOR\r\n");
    client.expect_reply(200);
    client.expect_reply(426);
    client.expect_reply(226);
    faults.reset();
    client.expect("XSHA256 f", 250);
}

#[test]
fn hashes_leave_threads_for_everybody_else() {
    let scratch = Scratch::new();
    std::fs::File::create(scratch.file("huge")).unwrap().set_len(1 << 38).unwrap();
    let served = serve_with(Config { blocking_threads: 4, ..config(scratch.storage()) });
    let mut hashing: Vec<_> = (0..8).map(|_| served.login()).collect();
    for client in &mut hashing {
        client.send("XSHA256 huge\r\nNOOP\r\n");
        client.expect_reply(200);
    }
    let mut other = served.login();
    other.store("STOR f", b"content");
    assert_eq!(other.fetch("RETR f"), b"content");
    assert_eq!(other.fetch("NLST"), b"f\r\nhuge\r\n");
    for client in &mut hashing {
        client.expect("ABOR", 426);
        client.expect_reply(226);
    }
}

#[test]
fn listings_of_a_stuck_disk_leave_threads_for_everybody_else() {
    let (scratch, stuck) = (Scratch::new(), FaultStorage::new(MemoryStorage::new()));
    let faults = stuck.faults();
    let accounts = Accounts::new().user("s", "p", Permissions::READ_WRITE, Arc::new(stuck)).user(
        "u",
        "p",
        Permissions::READ_WRITE,
        scratch.storage(),
    );
    let served = serve_with(Config {
        blocking_threads: 4,
        accounts: Arc::new(accounts),
        ..config(Arc::new(MemoryStorage::new()))
    });
    faults.from(1, Fault::Stuck);
    let mut listing: Vec<_> = (0..8).map(|_| served.connect()).collect();
    for client in &mut listing {
        client.log_in("s", "p");
        client.expect("PASV", 227);
        client.send("NLST\r\n");
    }
    within(PATIENCE, "a call is stuck", || faults.stuck() > 0);
    let mut other = served.login();
    other.store("STOR f", b"content");
    other.store("STOR f", b"another");
    assert_eq!(other.fetch("RETR f"), b"another");
    faults.reset();
    for client in &mut listing {
        client.send("ABOR\r\n");
    }
}

#[test]
fn abor_is_answered_though_the_disk_is_stuck() {
    let storage = FaultStorage::new(MemoryStorage::new());
    storage.inner().insert("/f", vec![7; 4 << 20]);
    let faults = storage.faults();
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    for line in ["RETR f", "STOR g"] {
        faults.reset();
        let data = client.passive();
        faults.from(3, Fault::Stuck);
        client.expect(line, 150);
        if line.starts_with("STOR") {
            (&data).write_all(&vec![1; 300_000]).unwrap();
        }
        within(PATIENCE, "a call is stuck", || faults.stuck() > 0);
        client.expect("NOOP", 200);
        client.expect("ABOR", 426);
        client.expect_reply(226);
        client.expect_alive();
    }
    // No other client noticed, and the blocked call does no harm when it returns.
    faults.reset();
    let mut other = served.login();
    assert_eq!(other.fetch("RETR f").len(), 4 << 20);
    assert_eq!(other.try_fetch("RETR g").1.code, 550);
}

#[test]
fn abor_is_answered_though_the_open_is_stuck() {
    let storage = FaultStorage::new(MemoryStorage::new());
    storage.inner().insert("/f", "content");
    let faults = storage.faults();
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    for line in ["RETR f", "STOR g", "LIST", "CWD /", "MKD d"] {
        faults.reset();
        let _data = client.passive();
        faults.from(1, Fault::Stuck);
        client.send(format!("{line}\r\n"));
        within(PATIENCE, "a call is stuck", || faults.stuck() > 0);
        client.send("ABOR\r\n");
        client.expect_reply(426);
        client.expect_reply(226);
        client.expect_alive();
    }
}

/// Other servers keep the transfers of dead clients for 20 s and more.
#[test]
fn a_download_ends_when_its_control_connection_does() {
    let (served, _scratch) = served_file();
    for end in [reset as fn(Client), close, half_close, close_behind_a_waiting_command] {
        let mut client = served.login();
        let data = held_up_download(&mut client);
        end(client);
        within(SOON, "the data connection is closed", || ended(&data.0));
    }
}

#[test]
fn an_upload_ends_when_its_control_connection_does() {
    let (served, scratch) = served_file();
    scratch.write("f", b"old");
    for length in [10, 3 << 20] {
        for end in [reset as fn(Client), close, half_close, close_behind_a_waiting_command] {
            let mut client = served.login();
            let mut data = client.passive();
            client.expect("STOR f", 150);
            data.write_all(&pattern(length)).unwrap();
            end(client);
            within(SOON, "the data connection is closed", || ended(&data));
            assert_eq!(scratch.read("f").unwrap(), b"old");
        }
    }
    within(SOON, "nothing else is left", || scratch.names() == ["f", "large"]);
}

/// A client that is killed closes both connections, and nothing says which end is heard of first.
#[test]
fn an_upload_whose_client_dies_is_not_whole() {
    let (served, scratch) = served_file();
    scratch.write("f", b"old");
    for length in [0, 10, 65_536, 200_000, 3 << 20] {
        for end in [reset as fn(Client), close, half_close, close_behind_a_waiting_command] {
            let mut client = served.login();
            let mut data = client.passive();
            client.expect("STOR f", 150);
            data.write_all(&pattern(length)).unwrap();
            end(client);
            // Unless the server has closed it already.
            let _ = data.shutdown(Shutdown::Write);
            within(SOON, "the data connection is closed", || ended(&data));
            assert_eq!(scratch.read("f").unwrap(), b"old", "{length} bytes");
        }
    }
    within(SOON, "nothing else is left", || scratch.names() == ["f", "large"]);
}

#[test]
fn an_upload_that_is_aborted_and_then_ends_is_not_whole() {
    let (served, scratch) = served_file();
    scratch.write("f", b"old");
    let mut client = served.login();
    for length in [0, 10, 65_536, 200_000, 3 << 20] {
        let mut data = client.passive();
        client.expect("STOR f", 150);
        data.write_all(&pattern(length)).unwrap();
        client.send("ABOR\r\n");
        // Unless the server has closed it already.
        let _ = data.shutdown(Shutdown::Write);
        client.expect_reply(426);
        client.expect_reply(226);
        assert_eq!(scratch.read("f").unwrap(), b"old", "{length} bytes");
    }
}

#[test]
fn a_waiting_passive_port_is_free_when_its_control_connection_is_gone() {
    let storage = Arc::new(MemoryStorage::new());
    storage.insert("/f", "f");
    let mut config = config(storage);
    let first = *config.passive_ports.start();
    config.passive_ports = first..=first;
    let served = serve_with(config);
    for end in [reset as fn(Client), close] {
        for line in ["NOOP", "RETR f"] {
            let mut client = served.login();
            client.expect("PASV", 227);
            client.command(line);
            end(client);
            let mut next = served.login();
            next.stream.set_read_timeout(Some(SOON)).unwrap();
            next.expect("PASV", 227);
        }
    }
}

#[test]
fn a_client_that_sends_no_more_is_told_that_its_transfer_ended() {
    let (served, scratch) = served_file();
    scratch.write("f", b"old");
    let mut client = served.login();
    let data = held_up_download(&mut client);
    client.stream.shutdown(Shutdown::Write).unwrap();
    client.expect_reply(426);
    client.expect_end();
    drop(data);
    for length in [10, 3 << 20] {
        let mut client = served.login();
        let mut data = client.passive();
        client.expect("STOR f", 150);
        data.write_all(&pattern(length)).unwrap();
        client.send("PWD\r\n");
        client.stream.shutdown(Shutdown::Write).unwrap();
        client.expect_reply(426);
        client.expect_reply(257);
        client.expect_end();
        assert_eq!(scratch.read("f").unwrap(), b"old");
    }
}

fn ended(stream: &std::net::TcpStream) -> bool {
    let mut sink = vec![0; 1 << 20];
    stream.set_nonblocking(true).unwrap();
    let result = (&mut &*stream).read(&mut sink);
    stream.set_nonblocking(false).unwrap();
    match result {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn reset(client: Client) {
    client.reset();
}

fn close(client: Client) {
    drop(client);
}

fn half_close(client: Client) {
    client.stream.shutdown(Shutdown::Write).unwrap();
    // The other half stays open for longer than the test.
    std::mem::forget(client);
}

fn close_behind_a_waiting_command(mut client: Client) {
    client.send("NLST\r\nPWD\r\n");
    drop(client);
}

/// CVE-2020-9273, in the other direction.
#[test]
fn an_upload_may_be_aborted_at_any_byte_and_is_whole_or_nothing() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    for byte in (0..200_000).step_by(9_973) {
        for line in ["TYPE I", "TYPE A"] {
            scratch.write("f", b"old");
            client.expect(line, 200);
            let mut data = client.passive();
            client.expect("STOR f", 150);
            data.write_all(&vec![b'x'; byte]).unwrap();
            let aborts_first = byte % 2 == 0;
            if aborts_first {
                client.send("ABOR\r\n");
                drop(data);
            } else {
                drop(data);
                client.send("ABOR\r\n");
            }
            let first = client.reply();
            client.expect_reply(226);
            // Where all of it had come, ABOR had nothing to do.
            let expected = match first.code {
                226 if !aborts_first => vec![b'x'; byte],
                code => {
                    assert_eq!(code, 426, "{first:?}");
                    b"old".to_vec()
                }
            };
            assert!(scratch.read("f").unwrap() == expected, "{byte} {line} {first:?}");
        }
    }
    within(SOON, "nothing else is left", || scratch.names() == ["f"]);
}
