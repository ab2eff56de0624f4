//! The control connection as a stream of bytes: pieces, bursts, Telnet, and clients that do not listen.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_storage::MemoryStorage;

use crate::kit::{PATIENCE, Scratch, Sink, eventually, serve};

#[test]
fn hundreds_of_commands_in_one_packet_get_their_replies_in_order() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    let mut lines = String::new();
    for number in 0..300 {
        lines += &format!(
            "MKD d{number}\r\nNOOP\r\nCWD d{number}\r\nPWD\r\nCDUP\r\nnonsense{number}\r\nRMD d{number}\r\n"
        );
    }
    client.send(&lines);
    for number in 0..300 {
        assert!(client.expect_reply(257).text.contains(&format!("/d{number}\"")));
        client.expect_reply(200);
        client.expect_reply(250);
        assert!(client.expect_reply(257).text.contains(&format!("/d{number}\"")));
        client.expect_reply(250);
        client.expect_reply(500);
        client.expect_reply(250);
    }
}

#[test]
fn a_byte_at_a_time_is_as_good_as_a_packet() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.connect();
    for byte in b"USER u\r\nPASS p\r\nMKD a\r\0b\r\nSTAT\r\n" {
        client.send([*byte]);
    }
    client.expect_reply(331);
    client.expect_reply(230);
    assert!(client.expect_reply(257).text.contains("a\\015b"));
    client.expect_reply(211);
}

#[test]
fn commands_behind_a_transfer_wait_for_its_end() {
    let storage = MemoryStorage::new();
    storage.insert("/a", vec![b'a'; 3_000_000]).insert("/b", "bb");
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    let mut data = client.passive();
    client.send("RETR a\r\nSIZE b\r\nPWD\r\nQUIT\r\n");
    client.expect_reply(150);
    let mut content = Vec::new();
    data.read_to_end(&mut content).unwrap();
    assert_eq!(content.len(), 3_000_000);
    for code in [226, 213, 257, 221] {
        client.expect_reply(code);
    }
    client.expect_end();
}

#[test]
fn a_whole_session_may_come_in_one_packet() {
    let storage = MemoryStorage::new();
    storage.insert("/f", "content");
    let served = serve(Arc::new(storage));
    let mut client = served.connect();
    client.send("USER u\r\nPASS p\r\nTYPE I\r\nSIZE f\r\nQUIT\r\n");
    for code in [331, 230, 200, 213, 221] {
        client.expect_reply(code);
    }
    client.expect_end();
}

/// The end of the connection comes in the same moment as the last bytes, and is told of once.
#[test]
fn commands_and_the_end_of_the_connection_may_come_together() {
    let served = serve(Arc::new(MemoryStorage::new()));
    for bytes in
        [&b"NOOP"[..], b"NOOP\r\n", b"USER u\r\nPASS p\r\nPWD\r\n", b"USER u\r\nPASS wrong\r\nPWD\r\nNO"]
    {
        for _ in 0..20 {
            let mut client = served.connect();
            client.send(bytes);
            client.stream.shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
            client.stream.read_to_end(&mut rest).expect("the server closes its side soon");
        }
    }
}

/// pyftpdlib kept 565 MB of replies for one client.
#[test]
fn a_client_that_never_reads_its_replies_is_not_read_from() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let client = served.login();
    let mut stream = client.stream.try_clone().unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // A reply is many times longer than its command.
    let burst = "FEAT\r\n".repeat(10_000);
    let mut sent = 0;
    let begin = Instant::now();
    while let Ok(count) = stream.write(burst.as_bytes()) {
        sent += count;
        assert!(sent < 200 << 20, "{sent} bytes of commands were taken");
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
    served.login().expect_alive();
}

#[test]
fn a_client_that_reads_late_gets_every_reply() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    let mut stream = client.stream.try_clone().unwrap();
    let count = 20_000;
    let writer = std::thread::spawn(move || stream.write_all("HELP\r\n".repeat(count).as_bytes()).unwrap());
    // Both directions fill up before the first reply is read.
    Sink(client.stream.try_clone().unwrap()).wait_until_full();
    for _ in 0..count {
        client.expect_reply(214);
    }
    writer.join().unwrap();
    client.expect_alive();
}

#[test]
fn telnet_commands_are_not_part_of_a_line() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    // Interrupt Process and Data Mark anywhere in it.
    client.send(b"\xff\xf4\xff\xf2NO\xff\xf1OP\r\n");
    client.expect_reply(200);
    // A proposed option is refused (RFC 1123 section 4.1.2.12), and the line goes on.
    client.send(b"\xff\xfb\x01\xff\xfd\x03NOOP\r\n");
    let mut answer = [0; 6];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"\xff\xfe\x01\xff\xfc\x03");
    client.expect_reply(200);
    // CVE-2010-4221: IAC at every place, also as the last byte of a line, of a packet, and doubled.
    for line in [&b"MKD \xff\xff\r\n"[..], b"RMD \xff\xff\r\n"] {
        client.send(line);
        assert!(client.reply().code / 100 == 2);
    }
    for flood in [vec![0xff; 5_000], b"\xff\xfb".repeat(5_000), b"\xff\xfa\xff".repeat(3_000)] {
        let mut client = served.connect();
        client.send(&flood);
        client.send("\r\n\r\nQUIT\r\n");
        let mut answer = Vec::new();
        client.stream.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(b"221 Goodbye.\r\n"), "{}", String::from_utf8_lossy(&answer));
    }
    served.login().expect_alive();
}

/// ftplib and others send `ABOR\r\n` with MSG_OOB, so its last byte is urgent: a read stops short of it.
#[test]
fn urgent_data_is_read_like_any_other() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    for _ in 0..50 {
        client.send_urgent(b"NOOP\r\n");
        client.expect_reply(200);
        client.send_urgent(b"\xff\xf4\xff\xf2");
        client.send("ABOR\r\n");
        client.expect_reply(226);
    }
}

#[test]
fn a_status_listing_goes_on_when_its_reader_does() {
    let scratch = Scratch::new();
    let name = "n".repeat(240);
    scratch.crowd("d", 16_000, &name);
    let served = serve(scratch.storage());
    let mut client = served.login();
    client.set_window(16 << 10);
    client.send("STAT d\r\nNOOP\r\n");
    Sink(client.stream.try_clone().unwrap()).wait_until_full();
    client.set_window(4 << 20);
    let listing = client.reply();
    assert_eq!(listing.code, 213);
    assert_eq!(listing.text.matches(&name).count(), 16_000);
    assert!(!listing.text.contains("\n200 "), "a reply stands in the middle of another");
    client.expect_reply(200);
}

#[test]
fn an_abort_of_a_status_listing_ends_it_with_its_own_code() {
    let scratch = Scratch::new();
    let name = "n".repeat(240);
    scratch.crowd("d", 16_000, &name);
    let served = serve(scratch.storage());
    let mut client = served.login();
    client.set_window(16 << 10);
    client.send("STAT d\r\n");
    Sink(client.stream.try_clone().unwrap()).wait_until_full();
    client.set_window(4 << 20);
    client.send("ABOR\r\n");
    client.expect_reply(213);
    client.expect_reply(226);
    client.expect_alive();
}

#[test]
fn a_line_too_long_is_refused_in_its_turn_and_the_next_one_is_read() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.connect();
    let long = "x".repeat(100_000);
    client.send(format!("USER u\r\nPASS wrong\r\n{long}\r\nNOOP\r\n"));
    for code in [331, 530, 500, 200] {
        client.expect_reply(code);
    }
    // CVE-2019-18217: over-long, before the login, and never ended.
    for _ in 0..100 {
        client.send(&long);
    }
    client.send("\r\nNOOP\r\n");
    client.expect_reply(500);
    client.expect_reply(200);
}

#[test]
fn lines_that_are_no_commands_end_in_a_closed_connection() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    client.send("x\r\n".repeat(1_000));
    let mut last = client.reply();
    while let Some(reply) = client.next_reply() {
        last = reply;
    }
    assert_eq!(last.code, 421);
    eventually("others are served", || served.connect().command("NOOP").code == 200);
}
