//! What must not look whole when it is not, and what must end though the connection stays open.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use millrace_server::limits::Limit;
use millrace_storage::{Fault, FaultStorage, MemoryStorage};
use millrace_vfs::{Storage, VirtualPath};

use crate::kit::{
    PATIENCE, Scratch, Sink, config, pattern, reset_and_arrive, serve, serve_with, wait_until_arrived, within,
};

#[test]
fn a_listing_that_met_its_bound_is_no_226() {
    let storage = MemoryStorage::new();
    let deep = "/d".repeat(40);
    storage.insert(&format!("{deep}/f"), "x");
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    let (listing, reply) = client.try_fetch("LIST -R");
    assert!(!listing.is_empty());
    assert_eq!(reply.code, 451, "{reply:?}");
    assert_eq!(client.try_fetch("LIST").1.code, 226);
}

#[test]
fn a_link_that_leads_back_is_no_directory_to_a_mirror() {
    let scratch = Scratch::new();
    let storage = scratch.storage();
    let path = |text: &str| VirtualPath::parse(text.as_bytes()).unwrap();
    for directory in ["/a", "/a/b", "/other"] {
        storage.make_directory(&path(directory)).unwrap();
    }
    storage.make_symlink(b".", &path("/a/self")).unwrap();
    storage.make_symlink(b"..", &path("/a/b/up")).unwrap();
    storage.make_symlink(b"../other", &path("/a/aside")).unwrap();
    let served = serve(storage);
    let mut client = served.login();
    let listing = String::from_utf8(client.fetch("MLSD /a")).unwrap();
    let line = |name: &str| listing.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    assert!(line("self").contains("type=OS.unix=slink:.;"), "{listing}");
    assert!(line("aside").contains("type=dir;"), "{listing}");
    let listing = String::from_utf8(client.fetch("MLSD /a/b")).unwrap();
    assert!(listing.contains("type=OS.unix=slink:..;"), "{listing}");
}

#[test]
fn a_file_ends_where_its_wire_form_says_so_though_the_connection_stays_open() {
    let served = serve(Arc::new(MemoryStorage::new()));
    for (mode, wire, file) in [
        ("MODE B", &b"\x40\x00\x03abc"[..], &b"abc"[..]),
        ("STRU R", b"abc\xff\x01def\xff\x03", b"abc\ndef\n"),
    ] {
        let mut client = served.login();
        client.expect(mode, 200);
        let mut data = client.passive();
        client.expect("STOR f", 150);
        data.write_all(wire).unwrap();
        client.expect_reply(226);
        let mut plain = served.login();
        assert_eq!(plain.fetch("RETR f"), file, "{mode}");
    }
}

#[test]
fn a_block_mode_download_carries_restart_markers() {
    let storage = MemoryStorage::new();
    storage.insert("/f", pattern(3 << 20));
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    client.expect("MODE B", 200);
    let wire = client.fetch("RETR f");
    let mut rest = &wire[..];
    let mut markers = Vec::new();
    while let [descriptor, high, low, more @ ..] = rest {
        let (block, after) = more.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        if descriptor & 16 != 0 {
            markers.push(String::from_utf8(block.to_vec()).unwrap());
        }
        rest = after;
    }
    assert_eq!(markers[..2], ["1048576", "2097152"]);
}

#[test]
fn a_download_whose_client_hung_up_is_reset() {
    let scratch = Scratch::new();
    std::fs::File::create(scratch.file("large")).unwrap().set_len(64 << 20).unwrap();
    let served = serve(scratch.storage());
    let mut client = served.login();
    let mut data = Sink(client.passive());
    client.expect("RETR large", 150);
    data.wait_until_full();
    client.stream.shutdown(Shutdown::Write).unwrap();
    let ended = loop {
        match data.0.read(&mut [0; 65536]) {
            Ok(0) => break "orderly",
            Ok(_) => {}
            Err(_) => break "reset",
        }
    };
    assert_eq!(ended, "reset", "a part looked like the whole");
}

#[test]
fn a_stop_does_not_wait_for_a_question_longer_than_its_grace() {
    let storage = FaultStorage::new(MemoryStorage::new());
    storage.inner().insert("/f", "content");
    let faults = storage.faults();
    let mut config = config(Arc::new(storage));
    config.grace = Duration::from_millis(200);
    let served = serve_with(config);
    let mut client = served.login();
    faults.from(1, Fault::Stuck);
    client.send("XSHA256 f\r\n");
    within(PATIENCE, "a call is stuck", || faults.stuck() > 0);
    served.running.request_shutdown();
    client.expect_reply(426);
    client.expect_reply(421);
    client.expect_end();
    faults.reset();
}

/// Windows and the BSDs throw away what was received and not read when a reset comes.
#[test]
fn input_after_quit_does_not_reset_the_connection() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    client.expect("QUIT", 221);
    client.expect_end();
    for _ in 0..20 {
        client.stream.write_all(b"NOOP\r\n").expect("the server still takes it");
    }
    // Its session has ended all the same: no reply is sent, and no other client is refused.
    drop(client);
    served.login().expect_alive();
}

#[test]
fn a_client_that_quits_makes_room_at_once() {
    let mut config = config(Arc::new(MemoryStorage::new()));
    config.sessions = Limit::of(1);
    let served = serve_with(config);
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = served.login();
        client.expect("QUIT", 221);
        client.expect_end();
        clients.push(client);
    }
}

/// Also of a small file, which is sent in one go.
#[test]
fn a_client_that_sends_on_a_download_gets_all_of_it() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    for length in [1, 1 << 10, 16 << 10, 3 << 20] {
        let content = pattern(length);
        scratch.write("f", &content);
        for junk in [&b"x"[..], &[b'x'; 40_000]] {
            let mut client = served.login();
            let mut data = client.passive();
            data.write_all(junk).unwrap();
            wait_until_arrived(&data);
            client.expect("RETR f", 150);
            let mut got = vec![0; content.len()];
            data.read_exact(&mut got).expect("the connection is not reset before its end");
            assert_eq!(data.read(&mut [0]).unwrap(), 0);
            assert!(got == content, "{length}");
            drop(data);
            client.expect_reply(226);
            assert_eq!(client.fetch("RETR f").len(), content.len(), "the session goes on");
        }
    }
}

/// The rest of it is in the kernel by then.
#[test]
fn a_client_that_sends_after_a_large_download_gets_all_of_it() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    for (line, length) in [("RETR f", 20_000), ("RETR f", 256 << 10), ("LIST", 256 << 10)] {
        let content = pattern(length);
        scratch.write("f", &content);
        if line == "LIST" {
            (0..2_000)
                .for_each(|number| scratch.write(&format!("a name that is long, number {number}"), b""));
        }
        let mut client = served.login();
        let expected = client.fetch(line);
        let mut data = client.passive();
        rustix::net::sockopt::set_socket_recv_buffer_size(&data, 4_096).unwrap();
        client.expect(line, 150);
        client.expect_reply(226);
        for _ in 0..3 {
            data.write_all(&[b'x'; 100]).expect("the connection is not reset before its end");
            wait_until_arrived(&data);
        }
        let mut got = Vec::new();
        data.read_to_end(&mut got).expect("nor is what was sent lost");
        assert!(got == expected && (line == "LIST" || got == content), "{line} {length}");
        assert_eq!(client.fetch(line), expected, "the session goes on");
    }
}

#[test]
fn a_small_download_is_226_to_a_client_that_ended_first_and_not_to_one_that_was_reset() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    client.store("STOR f", b"content");
    let mut data = client.passive();
    data.shutdown(Shutdown::Write).unwrap();
    client.expect("RETR f", 150);
    let mut content = Vec::new();
    data.read_to_end(&mut content).unwrap();
    assert_eq!(content, b"content");
    client.expect_reply(226);

    reset_and_arrive(client.passive());
    client.expect("RETR f", 150);
    let reply = client.reply();
    assert!(matches!(reply.code, 425 | 426), "{reply:?}");
    assert_eq!(client.fetch("RETR f"), b"content", "the session goes on");
}

#[test]
fn a_client_that_never_stops_sending_on_a_download_is_told_426() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    for length in [1_000, 1 << 20] {
        scratch.write("f", &pattern(length));
        let mut client = served.login();
        let mut data = client.passive();
        data.write_all(b"x").unwrap();
        wait_until_arrived(&data);
        client.expect("RETR f", 150);
        let mut reader = data.try_clone().unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        // Until it is cut.
        let junk = [b'x'; 65536];
        while data.write_all(&junk).is_ok() {}
        client.expect_reply(426);
        let _ = reader.join().unwrap();
    }
}
