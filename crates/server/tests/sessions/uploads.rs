//! Uploads that do not go well, and what each leaves behind; files that change while they are sent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use millrace_storage::{Fault, FaultStorage, LocalOptions, LocalStorage, MemoryStorage, Uploads};

use crate::kit::{
    Client, PATIENCE, Reply, Scratch, Sink, eventually, pattern, reset, reset_and_arrive, serve, within,
};

/// Sizes on either side of every buffer on the way.
const SIZES: [usize; 13] = [
    0,
    1,
    16_383,
    16_384,
    16_385,
    65_535,
    65_536,
    65_537,
    262_143,
    262_145,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
];

#[test]
fn files_of_every_size_arrive_whole_both_ways_and_in_both_modes() {
    let scratch = Scratch::new();
    for served in [serve(scratch.storage()), serve(scratch.in_place()), serve(Arc::new(MemoryStorage::new()))]
    {
        let mut client = served.login();
        // Growing, then shrinking over the same name.
        for size in SIZES.into_iter().chain(SIZES.into_iter().rev()) {
            client.store("STOR f", &pattern(size));
            assert!(client.fetch("RETR f") == pattern(size), "{size} bytes");
            assert!(client.expect("SIZE f", 213).text.trim_end().ends_with(&format!(" {size}")));
        }
    }
}

/// It does not support `RWF_NOWAIT`, so whether a file is in the cache is unknown.
#[test]
fn files_on_tmpfs_arrive_whole_both_ways() {
    let scratch = Scratch::in_memory();
    for storage in [scratch.storage(), scratch.in_place()] {
        let served = serve(storage);
        let mut client = served.login();
        for size in [0, 1, 10_000, 100_000, 3_000_000] {
            client.store("STOR f", &pattern(size));
            assert!(client.fetch("RETR f") == pattern(size), "{size} bytes");
        }
    }
}

#[test]
fn converted_uploads_of_every_size_arrive_whole() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    for lines in [0, 1, 4_000, 20_000, 100_000, 400_000] {
        let unix = "0123456\n".repeat(lines);
        let wire = "0123456\r\n".repeat(lines);
        client.expect("TYPE A", 200);
        client.store("STOR f", wire.as_bytes());
        assert!(client.fetch("RETR f") == wire.as_bytes(), "{lines} lines");
        client.expect("TYPE I", 200);
        assert!(client.fetch("RETR f") == unix.as_bytes(), "{lines} lines");
    }
}

/// The reactor is told of the end once; a thread of the pool has the socket then.
#[test]
fn an_upload_that_ends_while_the_disk_is_slow_is_noticed() {
    let storage = FaultStorage::new(MemoryStorage::new());
    let faults = storage.faults();
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    for line in ["TYPE A", "TYPE I"] {
        client.expect(line, 200);
        let mut data = client.passive();
        client.expect("STOR f", 150);
        // The server waits for bytes by now, and knows the socket.
        client.expect_alive();
        let before = faults.calls();
        faults.from(before + 1, Fault::Slow(Duration::from_millis(300)));
        data.write_all(&vec![b'x'; 270_000]).unwrap();
        eventually("a write is under way", || faults.calls() > before);
        data.write_all(&vec![b'y'; 10_000]).unwrap();
        drop(data);
        client.expect_reply(226);
        faults.reset();
        assert_eq!(client.fetch("RETR f").len(), 280_000);
    }
}

/// Uploads a part, ends it as told, and answers the last reply.
fn interrupted(client: &mut Client, line: &str, part: &[u8], end: impl FnOnce(TcpStream)) -> Reply {
    let mut data = client.passive();
    client.expect(line, 150);
    data.write_all(part).unwrap();
    end(data);
    client.reply()
}

/// faults.md 2: pyftpdlib answers 226 behind a reset.
#[test]
fn a_reset_upload_is_never_told_to_be_whole_and_leaves_the_old_file() {
    let scratch = Scratch::new();
    scratch.write("f", b"old");
    let served = serve(scratch.storage());
    let mut client = served.login();
    for round in 0..60 {
        // Bytes and the reset reach the server together, or one after the other.
        let size = [1, 1_000, 60_000, 70_000, 400_000, 3 << 20][round % 6];
        let reply = interrupted(&mut client, "STOR f", &pattern(size), reset);
        assert_eq!(reply.code, 426, "{size} bytes: {reply:?}");
        assert_eq!(scratch.read("f").unwrap(), b"old");
        let reply = interrupted(&mut client, "STOR new", &pattern(size), reset);
        assert_eq!(reply.code, 426, "{size} bytes: {reply:?}");
    }
    within(PATIENCE, "nothing else is left", || scratch.names() == ["f"]);
    client.store("STOR f", b"new");
    assert_eq!(scratch.read("f").unwrap(), b"new");
}

#[test]
fn a_converted_upload_that_is_reset_or_cut_is_not_whole() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    client.expect("TYPE A", 200);
    for size in [1_000, 400_000] {
        assert_eq!(interrupted(&mut client, "STOR f", &vec![b'x'; size], reset).code, 426);
    }
    client.expect("TYPE I", 200);
    client.expect("MODE B", 200);
    // A block that promises more than comes, and a file without its last block.
    for part in [&b"\x00\x00\x05ab"[..], b"\x00\x00\x02ab", b"\x00\x00", b""] {
        assert_eq!(interrupted(&mut client, "STOR f", part, drop).code, 426, "{part:?}");
    }
    client.expect("MODE Z", 200);
    for part in [&b"\x78\x9c\x4b"[..], b"not deflate", b""] {
        assert_eq!(interrupted(&mut client, "STOR f", part, drop).code, 426, "{part:?}");
    }
    client.expect("MODE S", 200);
    assert_eq!(client.try_fetch("RETR f").1.code, 550);
}

#[test]
fn in_place_a_reset_leaves_the_part_that_came() {
    let scratch = Scratch::new();
    let served = serve(scratch.in_place());
    let mut client = served.login();
    for size in [1_000, 300_000] {
        scratch.write("f", &pattern(500_000));
        let mut data = client.passive();
        client.expect("STOR f", 150);
        data.write_all(&vec![b'x'; size]).unwrap();
        eventually("the bytes are written", || {
            std::fs::read(scratch.file("f")).unwrap().starts_with(&vec![b'x'; size])
        });
        reset(data);
        client.expect_reply(426);
        eventually("the file ends where the upload did", || scratch.read("f").unwrap() == vec![b'x'; size]);
    }
}

/// The most usual failure that FTP has: behind a firewall.
#[test]
fn an_upload_whose_data_connection_never_comes_changes_nothing() {
    let scratch = Scratch::new();
    scratch.write("f", b"old");
    for storage in [scratch.storage(), scratch.in_place()] {
        let served = serve(storage);
        let mut client = served.login();
        for line in ["STOR f", "STOR new", "APPE f", "APPE new", "STOU new"] {
            drop(client.active());
            client.expect(line, 150);
            client.expect_reply(425);
            within(PATIENCE, line, || {
                scratch.names() == ["f"] && scratch.read("f").as_deref() == Some(b"old".as_slice())
            });
        }
        // One that is empty is one.
        client.store("STOR f", b"");
        client.store("STOR new", b"");
        assert_eq!((scratch.read("f").unwrap(), scratch.read("new").unwrap()), (vec![], vec![]));
        std::fs::remove_file(scratch.file("new")).unwrap();
        scratch.write("f", b"old");
    }
}

#[test]
fn an_upload_whose_file_was_removed_meanwhile_is_not_whole() {
    let scratch = Scratch::new();
    let (staged, in_place) = (serve(scratch.storage()), serve(scratch.in_place()));
    for (served, line) in [(&staged, "APPE f"), (&in_place, "STOR f"), (&in_place, "APPE f")] {
        scratch.write("f", b"old");
        let (mut client, mut other) = (served.login(), served.login());
        let mut data = client.passive();
        client.expect(line, 150);
        data.write_all(b"new").unwrap();
        eventually("it is written", || scratch.read("f").unwrap().ends_with(b"new"));
        other.expect("DELE f", 250);
        drop(data);
        assert!(client.expect_reply(550).text.contains("no such file"));
    }
}

/// What a logger appends line by line over a bad connection.
#[test]
fn in_place_what_came_is_there_in_every_form_before_the_next_bytes_come() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    for (line, name) in [("TYPE I", "i"), ("TYPE A", "a"), ("TYPE E", "e")] {
        scratch.write(name, b"old");
        client.expect(line, 200);
        let mut data = client.passive();
        client.expect(format!("APPE {name}"), 150);
        // Many libraries write blocks of 64 KiB, which fill a read.
        let mut length = 3;
        for block in [1_000, 1_000, 65_536, 131_072] {
            data.write_all(&vec![b'x'; block]).unwrap();
            length += block;
            eventually("it is written", || scratch.read(name).unwrap().len() == length);
        }
        let counted = format!("{} bytes", length - 3);
        eventually("it is counted", || client.expect("STAT", 211).text.contains(&counted));
        client.expect("ABOR", 426);
        client.expect_reply(226);
        assert_eq!(scratch.read(name).unwrap().len(), length);
    }
}

/// Clients ask for the size behind a failure, and go on there.
#[test]
fn in_place_a_failure_is_told_when_the_file_is_as_it_will_stay() {
    let scratch = Scratch::new();
    let options = LocalOptions { uploads: Uploads::InPlace, ..LocalOptions::default() };
    let served = serve(Arc::new(LocalStorage::open(scratch.path(), options).unwrap()));
    let mut client = served.login();
    let mut size = 0;
    for (line, verb) in [("TYPE I", "STOR"), ("TYPE A", "APPE"), ("TYPE I", "STOR"), ("TYPE E", "APPE")] {
        for block in [10, 65_536, 100_000] {
            scratch.write("f", &[b'o'; 200_000]);
            client.expect(line, 200);
            let mut data = client.passive();
            client.expect(format!("{verb} f"), 150);
            data.write_all(&vec![b'x'; block]).unwrap();
            reset_and_arrive(data);
            client.expect_reply(426);
            let told = scratch.read("f").unwrap().len();
            client.expect("NOOP", 200);
            // Another upload waits for whatever the first one still had to do.
            client.expect("TYPE I", 200);
            let mut data = client.passive();
            client.expect("APPE f", 150);
            data.write_all(b"y").unwrap();
            drop(data);
            client.expect_reply(226);
            assert_eq!(scratch.read("f").unwrap().len(), told + 1, "{line} {verb} {block}");
            size += told;
        }
    }
    assert!(size > 0);
}

/// Later it may have the file: a client that asks again is right to do so.
#[test]
fn in_place_an_upload_that_another_took_over_is_told_450() {
    let scratch = Scratch::new();
    let served = serve(scratch.in_place());
    let (mut first, mut second) = (served.login(), served.login());
    for (line, more) in [("TYPE I", 1), ("TYPE I", 300_000), ("TYPE E", 300_000)] {
        scratch.write("f", b"old");
        first.expect(line, 200);
        let mut one = first.passive();
        first.expect("STOR f", 150);
        one.write_all(&[b'1'; 10]).unwrap();
        eventually("it is written", || scratch.read("f").unwrap().len() == 10);
        let mut other = second.passive();
        second.expect("STOR f", 150);
        other.write_all(b"of the second").unwrap();
        eventually("it is written", || scratch.read("f").unwrap() == b"of the second");
        // The server may close on it.
        let _ = one.write_all(&vec![b'1'; more]);
        drop(one);
        let reply = first.expect_reply(450);
        assert!(reply.text.contains("in use; try again later"), "{reply:?}");
        drop(other);
        second.expect_reply(226);
        assert_eq!(scratch.read("f").unwrap(), b"of the second");
        first.expect("TYPE I", 200);
        first.store("STOR f", b"again");
    }
}

#[test]
fn a_staged_upload_tells_how_much_of_it_has_come() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    client.expect("TYPE A", 200);
    let mut data = client.passive();
    client.expect("STOR f", 150);
    data.write_all(&[b'x'; 1_000]).unwrap();
    eventually("it says so", || client.expect("STAT", 211).text.contains("1000 bytes"));
    assert_eq!(scratch.names(), [""; 0]);
    drop(data);
    client.expect_reply(226);
}

#[test]
fn a_half_closed_upload_is_an_ended_one() {
    let served = serve(Arc::new(MemoryStorage::new()));
    let mut client = served.login();
    let mut data = client.passive();
    client.expect("STOR f", 150);
    data.write_all(b"all of it").unwrap();
    data.shutdown(Shutdown::Write).unwrap();
    client.expect_reply(226);
    let mut rest = Vec::new();
    data.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    assert_eq!(client.fetch("RETR f"), b"all of it");
}

#[test]
fn an_upload_may_be_over_before_the_command_comes() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    for size in [0, 10, 50_000] {
        let mut data = client.passive();
        data.write_all(&pattern(size)).unwrap();
        drop(data);
        client.expect("STOR f", 150);
        client.expect_reply(226);
        assert!(scratch.read("f").unwrap() == pattern(size));
    }
}

#[test]
fn bytes_that_a_download_does_not_want_do_no_harm() {
    let scratch = Scratch::new();
    scratch.write("f", &pattern(3 << 20));
    let served = serve(scratch.storage());
    let mut client = served.login();
    let mut data = client.passive();
    client.expect("RETR f", 150);
    data.shutdown(Shutdown::Write).unwrap();
    let mut content = Vec::new();
    data.read_to_end(&mut content).unwrap();
    assert!(content == pattern(3 << 20));
    client.expect_reply(226);
}

#[test]
fn a_download_whose_reader_goes_away_is_told_so() {
    let scratch = Scratch::new();
    scratch.write("f", &vec![0; 32 << 20]);
    let served = serve(scratch.storage());
    let mut client = served.login();
    for end in [reset as fn(TcpStream), drop] {
        let data = Sink(client.passive());
        client.expect("RETR f", 150);
        data.wait_until_full();
        end(data.0);
        client.expect_reply(426);
    }
    client.expect_alive();
}

#[test]
fn two_writers_of_one_name_leave_the_whole_of_one() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let (mut one, mut two) = (served.login(), served.login());
    for size in [1_000, 500_000] {
        let mut first = one.passive();
        let mut second = two.passive();
        one.expect("STOR f", 150);
        two.expect("STOR f", 150);
        for _ in 0..10 {
            first.write_all(&vec![b'1'; size / 10]).unwrap();
            second.write_all(&vec![b'2'; size / 10]).unwrap();
        }
        drop(first);
        one.expect_reply(226);
        assert_eq!(scratch.read("f").unwrap(), vec![b'1'; size]);
        drop(second);
        two.expect_reply(226);
        assert_eq!(scratch.read("f").unwrap(), vec![b'2'; size]);
    }
    assert_eq!(scratch.names(), ["f"]);
}

#[test]
fn a_reader_of_a_file_that_is_replaced_gets_the_old_one_whole() {
    let scratch = Scratch::new();
    scratch.write("f", &vec![b'1'; 32 << 20]);
    let served = serve(scratch.storage());
    let (mut reader, mut writer) = (served.login(), served.login());
    let mut data = Sink(reader.passive());
    reader.expect("RETR f", 150);
    data.wait_until_full();
    writer.store("STOR f", &vec![b'2'; 1_000]);
    writer.expect("DELE f", 250);
    let mut content = Vec::new();
    data.0.read_to_end(&mut content).unwrap();
    assert!(content == vec![b'1'; 32 << 20]);
    reader.expect_reply(226);
}

#[test]
fn a_file_truncated_while_it_is_sent_ends_in_a_reset_and_451() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    for line in ["TYPE I", "TYPE A"] {
        scratch.write("f", &vec![b'x'; 48 << 20]);
        client.expect(line, 200);
        let mut data = Sink(client.passive());
        client.expect("RETR f", 150);
        data.wait_until_full();
        // To nothing: of a page that is cut in two, the kernel clears the rest also where it is on its way.
        std::fs::File::options().write(true).open(scratch.file("f")).unwrap().set_len(0).unwrap();
        let mut content = Vec::new();
        let error = data.0.read_to_end(&mut content).expect_err("an orderly end would pass for a whole file");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(content.iter().all(|&byte| byte == b'x'), "never padded");
        client.expect_reply(451);
    }
    client.expect_alive();
}

#[test]
fn a_directory_removed_under_a_session_is_told_and_the_way_out_is_open() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    let served = serve(scratch.storage());
    let mut client = served.login();
    client.expect("CWD d", 250);
    std::fs::remove_dir(scratch.file("d")).unwrap();
    for line in ["LIST", "NLST", "MLSD", "RETR f", "STOR f", "STOU", "APPE f"] {
        let data = client.passive();
        client.expect(line, 550);
        drop(data);
    }
    for line in ["MKD e", "SIZE f", "MLST", "CWD .", "DELE f"] {
        client.expect(line, 550);
    }
    client.expect("PWD", 257);
    client.expect("CDUP", 250);
    assert_eq!(client.fetch("NLST"), b"");
}

#[test]
fn a_parent_removed_during_an_upload_is_told_and_nothing_is_left() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    let served = serve(scratch.storage());
    let mut client = served.login();
    let mut data = client.passive();
    client.expect("STOR d/f", 150);
    data.write_all(&pattern(300_000)).unwrap();
    let gone = std::fs::remove_dir_all(scratch.file("d"));
    drop(data);
    let reply = client.reply();
    assert!(gone.is_ok() && reply.code / 100 >= 4, "{gone:?} {reply:?}");
    within(PATIENCE, "nothing is left", || scratch.names().is_empty());
}

#[test]
fn a_full_disk_is_452_and_the_other_uploads_go_on() {
    let storage = MemoryStorage::with_capacity(2_000_000);
    storage.insert("/f", "old");
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    let reply = client.try_store("STOR f", &vec![1; 5_000_000]);
    assert_eq!(reply.code, 452, "{reply:?}");
    assert_eq!(client.fetch("RETR f"), b"old");
    // The pool lets go of what was refused, which is behind the reply.
    eventually("there is room again", || client.try_store("STOR g", &vec![2; 1_000_000]).code == 226);
    let reply = client.try_store("APPE g", &vec![2; 3_000_000]);
    assert_eq!(reply.code, 452, "{reply:?}");
}

/// On a real file system, also by way of `splice`.
#[test]
fn a_full_device_is_452_and_leaves_the_old_file() {
    let scratch = Scratch::new();
    if !mount_tmpfs(scratch.path()) {
        eprintln!("skipped: a tmpfs cannot be mounted here");
        return;
    }
    scratch.write("f", b"old");
    for storage in [scratch.storage(), scratch.in_place()] {
        let served = serve(storage);
        let mut client = served.login();
        for line in ["STOR f", "STOR new", "APPE f"] {
            let reply = client.try_store(line, &pattern(4 << 20));
            assert_eq!(reply.code, 452, "{line}: {reply:?}");
            let _ = std::fs::remove_file(scratch.file("new"));
            scratch.write("f", b"old");
        }
        client.store("STOR small", &pattern(10_000));
        client.expect("DELE small", 250);
    }
    let _ = std::process::Command::new("umount").arg(scratch.path()).status();
}

fn mount_tmpfs(path: &std::path::Path) -> bool {
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(path)
        .output();
    mount.is_ok_and(|output| output.status.success())
}

#[test]
fn a_failed_commit_is_never_226() {
    let storage = FaultStorage::new(MemoryStorage::new());
    storage.inner().insert("/f", "old");
    let faults = storage.faults();
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    for (fault, code) in
        [(Fault::NoSpace, 452), (Fault::QuotaExceeded, 552), (Fault::Io, 451), (Fault::Interrupted, 451)]
    {
        faults.reset();
        client.try_store("STOR f", b"counted");
        let calls = faults.calls();
        faults.reset();
        faults.once(calls, fault);
        assert_eq!(client.try_store("STOR f", b"new").code, code, "{fault:?}");
        faults.reset();
        assert_eq!(client.fetch("RETR f"), b"counted");
    }
}

#[test]
fn rest_appe_and_rang_write_where_they_say() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    client.store("STOR f", b"0123456789");
    client.expect("REST 4", 350);
    client.store("STOR f", b"abc");
    assert_eq!(client.fetch("RETR f")[..7], *b"0123abc");
    client.store("STOR f", b"0123456789");
    client.store("APPE f", b"XY");
    assert_eq!(scratch.read("f").unwrap(), b"0123456789XY");
    client.expect("RANG 2 4", 350);
    client.store("STOR f", b"abc");
    assert_eq!(scratch.read("f").unwrap(), b"01abc56789XY");
    client.expect("RANG 2 4", 350);
    let reply = client.try_store("STOR f", b"too much");
    assert_eq!(reply.code, 426, "{reply:?}");
    client.expect("RANG 2 4", 350);
    assert_eq!(client.fetch("RETR f").len(), 3);
    client.expect("REST 100", 350);
    assert_eq!(client.try_fetch("RETR f").1.code, 554);
    client.expect("REST 100", 350);
    assert_eq!(client.try_store("STOR f", b"x").code, 554);
}
