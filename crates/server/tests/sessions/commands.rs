//! Every verb once, end to end: what a client gets is what the storage holds.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;

use millrace_ftp::codec::{Coding, Decoded, Decoder, Encoder, Mode, Structure, Type};
use millrace_ftp::commands::COMMANDS;
use millrace_storage::MemoryStorage;

use crate::kit::{PATIENCE, Reply, Scratch, pattern, reset, serve, within};

/// What `RETR` gives as a client of the same coding sees it.
fn decoded(coding: Coding, wire: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new(coding, 0);
    let (mut rest, mut file) = (wire, Vec::new());
    while let Decoded::Full { consumed } | Decoded::Marker { consumed, .. } =
        decoder.decode(rest, &mut file, 1 << 20).unwrap()
    {
        rest = &rest[consumed..];
    }
    decoder.finish(&mut file).unwrap();
    file
}

fn encoded(coding: Coding, file: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut encoder = Encoder::new(coding, 0);
    encoder.encode(file, &mut wire);
    encoder.finish(&mut wire);
    wire
}

#[test]
fn files_move_in_every_type_structure_and_mode() {
    let storage = Arc::new(MemoryStorage::new());
    let served = serve(storage.clone());
    let mut client = served.login();
    let texts = [Vec::new(), b"one line\n".to_vec(), b"line\n".repeat(60_000)];
    for (type_line, representation) in [("A", Type::Ascii), ("I", Type::Image), ("E", Type::Ebcdic)] {
        for (structure_line, structure) in [("F", Structure::File), ("R", Structure::Record)] {
            for (mode_line, mode) in
                [("S", Mode::Stream), ("B", Mode::Block), ("Z", Mode::Deflate { level: 6 })]
            {
                client.expect(format!("TYPE {type_line}"), 200);
                client.expect(format!("STRU {structure_line}"), 200);
                client.expect(format!("MODE {mode_line}"), 200);
                let coding = Coding { representation, structure, mode };
                for text in &texts {
                    let what = format!("{type_line}{structure_line}{mode_line}, {} bytes", text.len());
                    client.store("STOR f", &encoded(coding, text));
                    assert!(storage.read("/f").unwrap() == *text, "up {what}");
                    let wire = client.fetch("RETR f");
                    assert!(decoded(coding, &wire) == *text, "down {what}");
                }
            }
        }
    }
}

#[test]
fn listings_show_what_is_stored_in_every_mode() {
    let storage = MemoryStorage::new();
    storage.insert("/a", "1").insert("/b", "22").insert("/d/c", "333");
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    assert_eq!(client.fetch("NLST"), b"a\r\nb\r\nd\r\n");
    assert_eq!(client.fetch("NLST d"), b"d/c\r\n");
    let listing = String::from_utf8(client.fetch("LIST")).unwrap();
    let shape: Vec<(&str, &str)> = listing
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .map(|words| (words[4], words[8]))
        .collect();
    assert_eq!(shape.iter().map(|(_, name)| *name).collect::<Vec<_>>(), ["a", "b", "d"]);
    assert_eq!((shape[0].0, shape[1].0), ("1", "2"));
    let machine = String::from_utf8(client.fetch("MLSD d")).unwrap();
    assert!(
        machine.contains("type=file;") && machine.contains("size=3;") && machine.trim_end().ends_with("; c")
    );
    for (line, mode) in [("MODE B", Mode::Block), ("MODE Z", Mode::Deflate { level: 6 })] {
        client.expect(line, 200);
        let coding = Coding { representation: Type::Image, structure: Structure::File, mode };
        assert_eq!(decoded(coding, &client.fetch("NLST")), b"a\r\nb\r\nd\r\n");
    }
}

#[test]
fn a_download_goes_on_where_rest_and_rang_say() {
    let scratch = Scratch::new();
    let content = pattern(300_000);
    scratch.write("f", &content);
    let served = serve(scratch.storage());
    let mut client = served.login();
    for offset in [0, 1, 65_535, 65_536, 299_999, 300_000] {
        client.expect(format!("REST {offset}"), 350);
        assert!(client.fetch("RETR f") == content[offset..], "{offset}");
        // Used up.
        assert!(client.fetch("RETR f") == content);
    }
    for (first, last) in [(0, 0), (10, 20), (65_530, 70_000), (299_990, 400_000)] {
        client.expect(format!("RANG {first} {last}"), 350);
        assert!(client.fetch("RETR f") == content[first..content.len().min(last + 1)], "{first} {last}");
    }
    let text = "0123456\n".repeat(1_000);
    scratch.write("t", text.as_bytes());
    client.expect("TYPE A", 200);
    let wire = text.replace('\n', "\r\n");
    for offset in [1, 7, 8, 9, 5_000] {
        client.expect(format!("REST {offset}"), 350);
        assert!(client.fetch("RETR t") == wire.as_bytes()[offset..], "{offset} bytes of text");
    }
}

#[test]
fn stou_makes_a_new_name_each_time_and_tells_it() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    let mut names = BTreeMap::new();
    for number in 0..5u8 {
        let mut data = client.passive();
        let reply = client.expect("STOU", 150);
        let name =
            reply.text.trim_end().split("FILE: ").nth(1).unwrap_or_else(|| panic!("{reply:?}")).to_owned();
        data.write_all(&[number]).unwrap();
        drop(data);
        client.expect_reply(226);
        names.insert(name, number);
    }
    assert_eq!(names.len(), 5);
    for (name, number) in names {
        assert_eq!(scratch.read(name.trim_start_matches('/')).unwrap(), [number]);
    }
}

#[test]
fn restart_markers_of_a_block_upload_are_confirmed() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    client.expect("MODE B", 200);
    let mut data = client.passive();
    client.expect("STOR f", 150);
    data.write_all(b"\x00\x00\x03abc\x10\x00\x02m1\x40\x00\x03def").unwrap();
    drop(data);
    let marker = client.expect_reply(110);
    assert!(marker.text.contains("MARK m1 = 3"), "{marker:?}");
    client.expect_reply(226);
    assert_eq!(scratch.read("f").unwrap(), b"abcdef");
}

/// A conversation that uses each verb the way it is meant, over a real directory.
#[test]
fn every_verb_does_what_it_says() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    let served = serve(scratch.storage());
    let mut client = served.connect();
    let hash = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73";
    // The line, the code of its reply, and what the reply has in it.
    let script: &[(&str, u16, &str)] = &[
        ("SYST", 215, "UNIX Type: L8"),
        ("FEAT", 211, " MLST "),
        ("HELP", 214, "RETR"),
        ("HELP RETR", 214, "RETR"),
        ("HELP SITE", 214, "CHMOD"),
        ("USER u", 331, ""),
        ("PASS p", 230, ""),
        ("ACCT x", 202, ""),
        ("PWD", 257, "\"/\""),
        ("XPWD", 257, "\"/\""),
        ("CLNT test 1.0", 200, ""),
        ("CSID Name=test;", 200, ""),
        ("OPTS UTF8 ON", 200, ""),
        ("OPTS MLST type;size;", 200, "size;"),
        ("LANG EN", 200, ""),
        ("MKD d", 257, "\"/d\""),
        ("XMKD d/e", 257, "\"/d/e\""),
        ("CWD d", 250, ""),
        ("XCWD e", 250, ""),
        ("PWD", 257, "\"/d/e\""),
        ("CDUP", 250, ""),
        ("XCUP", 250, ""),
        ("RMD d/e", 250, ""),
        ("XRMD d", 250, ""),
        ("TYPE A", 200, ""),
        ("TYPE A N", 200, ""),
        ("TYPE L 8", 200, ""),
        ("TYPE E", 200, ""),
        ("TYPE I", 200, ""),
        ("STRU F", 200, ""),
        ("STRU R", 200, ""),
        ("STRU F", 200, ""),
        ("STRU P", 504, ""),
        ("MODE B", 200, ""),
        ("MODE Z", 200, ""),
        ("MODE S", 200, ""),
        ("MODE C", 504, ""),
        ("SIZE f", 213, "7"),
        ("MDTM f", 213, "20"),
        ("MLST f", 250, "size=7;"),
        ("STAT", 211, ""),
        ("STAT f", 213, " 7 "),
        ("ALLO 100", 200, ""),
        ("REST 3", 350, ""),
        ("RANG 1 0", 350, ""),
        ("NOOP", 200, ""),
        ("ABOR", 226, ""),
        ("HASH f", 213, hash),
        ("XSHA256 f", 250, hash),
        ("XMD5 f", 250, "9a0364b9e99bb480dd25e1f0284c8555"),
        ("MD5 f", 251, "9A0364B9E99BB480DD25E1F0284C8555"),
        ("MMD5 f", 252, "9A0364B9E99BB480DD25E1F0284C8555"),
        ("XCRC f", 250, ""),
        ("XSHA f", 250, "040f06fd774092478d450774f5ba30c5da78acc8"),
        ("XSHA1 f", 250, "040f06fd774092478d450774f5ba30c5da78acc8"),
        ("XSHA512 f", 250, ""),
        ("MFMT 20200102030405 f", 213, "20200102030405"),
        ("MDTM f", 213, "20200102030405"),
        ("MFF Modify=20210102030405; f", 213, "20210102030405"),
        ("SITE CHMOD 600 f", 200, ""),
        ("SITE UTIME 20200102030405 f", 200, ""),
        ("SITE UMASK", 200, "The mask is 0"),
        ("SITE IDLE", 200, ""),
        ("SITE HELP", 214, "CHMOD"),
        ("SITE TIME", 200, ""),
        ("SITE WHO", 211, "127.0.0.1"),
        ("RNFR f", 350, ""),
        ("RNTO g", 250, ""),
        ("SIZE f", 550, ""),
        ("SITE CPFR g", 350, ""),
        ("SITE CPTO f", 250, ""),
        ("SITE COPY f h", 250, ""),
        ("SITE SYMLINK f l", 200, ""),
        ("SITE MKDIR d", 257, ""),
        ("SITE RMDIR d", 250, ""),
        ("MKD t", 257, ""),
        ("MKD t/u", 257, ""),
        ("RMDA t", 250, ""),
        ("AVBL", 213, ""),
        ("DSIZ /", 213, ""),
        ("COMB f h", 250, ""),
        ("SIZE f", 213, "14"),
        ("DELE g", 250, ""),
        ("PRET RETR f", 200, ""),
        ("SMNT /", 202, ""),
        ("REIN", 220, ""),
        ("PWD", 530, ""),
        ("QUIT", 221, ""),
    ];
    let mut wrong = Vec::new();
    for (line, code, text) in script {
        let reply = client.command(line);
        if reply.code != *code || !reply.text.contains(text) {
            wrong.push(format!("{line}: {reply:?}, expected {code} {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    client.expect_end();
    let spoken: Vec<&str> = script.iter().map(|(line, ..)| line.split(' ').next().unwrap()).collect();
    // Those that need a data connection are in the other tests of this directory.
    let elsewhere = [
        "RETR", "STOR", "STOU", "APPE", "LIST", "NLST", "MLSD", "PASV", "EPSV", "LPSV", "PORT", "EPRT",
        "LPRT", "ESTA", "ESTP", "AUTH", "PBSZ", "PROT", "CCC", "SSCN", "CPSV", "ADAT", "MIC", "CONF", "ENC",
    ];
    let silent: Vec<_> = COMMANDS
        .iter()
        .map(|command| command.verb)
        .filter(|verb| !spoken.contains(verb) && !elsewhere.contains(verb))
        .collect();
    assert!(silent.len() < 6, "not spoken: {silent:?}");
}

#[test]
fn parts_that_are_the_target_by_another_name_or_come_twice_do_no_harm() {
    for storage in [|scratch: &Scratch| scratch.storage(), |scratch: &Scratch| scratch.in_place()] {
        let scratch = Scratch::new();
        let served = serve(storage(&scratch));
        let mut client = served.login();
        client.expect("TYPE I", 200);
        client.store("STOR f", b"0123456789");
        client.expect("SITE SYMLINK f l", 200);
        client.expect("SITE SYMLINK . here", 200);
        std::fs::hard_link(scratch.file("f"), scratch.file("hard")).unwrap();
        for line in
            ["f l", "l f", "f f", "here/f f", "f here/f", "f hard", "new f f", "new here/f f", "new f hard"]
        {
            client.expect(format!("COMB {line}"), 553);
            assert_eq!(scratch.read("f").as_deref(), Some(&b"0123456789"[..]), "COMB {line}");
        }
        client.expect("SIZE new", 550);
        assert_eq!(scratch.names().len(), 4);
    }
}

#[test]
fn clients_cannot_make_a_program_that_runs_as_another_user() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    scratch.write("f", b"old");
    let mode = |name: &str| std::fs::metadata(scratch.file(name)).unwrap().permissions().mode() & 0o7777;
    std::fs::set_permissions(scratch.file("f"), PermissionsExt::from_mode(0o6755)).unwrap();
    let served = serve(scratch.storage());
    let mut client = served.login();
    for line in ["SITE CHMOD 4755 f", "SITE CHMOD 2755 f", "MFF UNIX.mode=06755; f"] {
        client.expect(line, 550);
    }
    // Its content is another's.
    client.store("STOR f", b"new");
    assert_eq!(mode("f"), 0o755);
    client.expect("SITE CHMOD 1750 f", 200);
    // For a folder the bit means something else: new entries belong to its group.
    client.expect("MKD d", 257);
    client.expect("SITE CHMOD 2775 d", 200);
    assert_eq!((mode("f"), mode("d")), (0o1750, 0o2775));
}

#[test]
fn the_root_has_a_name_in_a_listing_of_itself() {
    let storage = MemoryStorage::new();
    storage.insert("/d/f", "1");
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    for line in ["NLST -d", "NLST -d /"] {
        assert_eq!(client.fetch(line), b"/\r\n", "{line}");
    }
    client.expect("CWD d", 250);
    for line in ["LIST -d /", "LIST -d .."] {
        assert!(client.fetch(line).ends_with(b" /\r\n"), "{line}");
    }
    assert_eq!(client.fetch("NLST -d f"), b"f\r\n");
    client.expect("CWD /", 250);
    assert_eq!(client.fetch("NLST -d *"), b"d\r\n");
    assert_eq!(client.fetch("NLST -d d*/"), b"d/\r\n");
    assert_eq!(client.fetch("NLST -dR d*/"), b"d/\r\n");
    assert_eq!(client.fetch("NLST d*/"), b"d/f\r\n");
    let line = client.fetch("LIST -d d*/");
    assert!(
        line.starts_with(b"d")
            && line.ends_with(b" d/\r\n")
            && line.iter().filter(|&&b| b == b'\n').count() == 1
    );
}

#[test]
fn a_link_to_a_folder_is_no_folder_to_be_removed() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("real")).unwrap();
    scratch.write("real/keep", b"k");
    for (text, name) in [("real", "link"), (".", "self")] {
        std::os::unix::fs::symlink(text, scratch.file(name)).unwrap();
    }
    let served = serve(scratch.storage());
    let mut client = served.login();
    for line in ["RMDA link", "RMDA link/", "SITE RMDIR link", "RMDA self", "RMDA self/link", "RMD link"] {
        let reply = client.expect(line, 550);
        assert!(reply.text.contains("not a directory"), "{line}: {reply:?}");
        assert_eq!(scratch.read("real/keep").as_deref(), Some(&b"k"[..]), "{line}");
    }
    client.expect("RMDA real", 250);
    assert_eq!(scratch.names(), ["link", "self"]);
}

#[test]
fn an_offset_beyond_the_end_is_refused_in_every_form() {
    let scratch = Scratch::new();
    scratch.write("f", b"a\nb\n");
    let served = serve(scratch.storage());
    let mut client = served.login();
    for form in ["TYPE I", "TYPE A", "TYPE E"] {
        client.expect(form, 200);
        for structure in ["STRU F", "STRU R"] {
            client.expect(structure, 200);
            client.expect("REST 999", 350);
            assert_eq!(client.try_fetch("RETR f").1.code, 554, "{form}, {structure}");
        }
        client.expect("STRU F", 200);
    }
    // Six bytes when converted: this is its end, and nothing follows.
    client.expect("TYPE A", 200);
    client.expect("REST 6", 350);
    assert_eq!(client.fetch("RETR f"), b"");
    client.expect("TYPE I", 200);
    client.expect("REST 999", 350);
    client.expect("HASH f", 554);
    client.expect("XMD5 \"f\" 99 100", 554);
    client.expect("XMD5 \"f\" 4 100", 250);
}

#[test]
fn names_that_are_promised_to_uploads_are_their_own() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let promised = |reply: &Reply| reply.text.split("FILE: ").nth(1).unwrap().trim().to_owned();
    let mut uploads: Vec<_> = (0..4)
        .map(|_| {
            let mut client = served.login();
            let data = client.passive();
            let name = promised(&client.expect("STOU", 150));
            (client, data, name)
        })
        .collect();
    for (number, (client, data, name)) in uploads.iter_mut().enumerate().rev() {
        data.write_all(&[number as u8]).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        client.expect_reply(226);
        assert_eq!(scratch.read(name), Some(vec![number as u8]));
    }
    assert_eq!(scratch.names().len(), 4);
    // An upload that does not come gives its name back.
    let mut client = served.login();
    for _ in 0..2 {
        let data = client.passive();
        assert_eq!(promised(&client.expect("STOU x", 150)), "x");
        reset(data);
        client.expect_reply(426);
    }
}

#[test]
fn a_name_goes_before_the_pattern_that_it_also_is() {
    let storage = MemoryStorage::new();
    storage.insert("/[a]", "1").insert("/a", "22").insert("/d/[bc]", "333").insert("/x*/in", "4");
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    assert_eq!(client.fetch("NLST [a]"), b"[a]\r\n");
    assert!(client.fetch("LIST [a]").ends_with(b" [a]\r\n"));
    assert_eq!(client.fetch("NLST d/[bc]"), b"d/[bc]\r\n");
    assert_eq!(client.fetch("NLST x*"), b"x*/in\r\n", "a directory of that name is listed");
    assert_eq!(client.fetch("NLST [ad]"), b"a\r\nd\r\n", "where nothing is named so, it is a pattern");
}

#[test]
fn a_failure_names_the_path_that_failed() {
    let storage = MemoryStorage::new();
    storage.insert("/a", "1").insert("/b", "22").insert("/d/c", "333");
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    for (line, code, named) in [
        ("SITE COPY a none/b", 550, "/none/b: no such file or directory"),
        ("SITE COPY none a", 550, "/none: no such file or directory"),
        ("SITE COPY a d", 550, "/d: "),
        ("COMB a b none", 550, "/none: no such file or directory"),
        ("COMB d a b", 550, "/d: is a directory"),
        ("COMB a b b", 553, "/b: name not allowed"),
        ("COMB a b a", 553, "/a: name not allowed"),
    ] {
        let reply = client.expect(line, code);
        assert!(reply.text.contains(named), "{line}: {reply:?}");
    }
    client.expect("RNFR a", 350);
    assert!(client.expect("RNTO none/x", 550).text.contains("/none/x: no such file"));
    client.expect("RNFR a", 350);
    client.expect("DELE a", 250);
    let reply = client.expect("RNTO x", 550);
    assert!(reply.text.contains("/a: no such file"), "{reply:?}");
    client.expect("SITE CPFR b", 350);
    assert!(client.expect("SITE CPTO none/x", 550).text.contains("/none/x: no such file"));
}

#[test]
fn stou_with_a_path_makes_its_name_there() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    scratch.write("d/taken", b"old");
    let served = serve(scratch.storage());
    let mut client = served.login();
    let mut store = |line: &str| {
        let mut data = client.passive();
        let reply = client.expect(line, 150);
        data.write_all(b"new").unwrap();
        drop(data);
        client.expect_reply(226);
        reply.text.trim_end().split("FILE: ").nth(1).unwrap_or_else(|| panic!("{reply:?}")).to_owned()
    };
    assert_eq!(store("STOU d/free"), "/d/free");
    let other = store("STOU /d/taken");
    assert!(other.starts_with("/d/taken") && other.len() > "/d/taken".len(), "{other}");
    assert_eq!(scratch.read("d/taken").unwrap(), b"old");
    assert_eq!(scratch.read(&other[1..]).unwrap(), b"new");
    let mut client = served.login();
    client.passive_address();
    assert!(client.expect("STOU none/x", 550).text.contains("/none"));
}

#[test]
fn a_files_metadata_is_shown_as_facts() {
    let scratch = Scratch::new();
    scratch.write("a.html", b"abc");
    std::fs::create_dir(scratch.file("d.html")).unwrap();
    let served = serve(scratch.storage());
    let mut client = served.login();
    assert!(client.expect("FEAT", 211).text.contains(";media-type;x.hash;\r\n"));
    client.expect("OPTS MLST media-type;x.hash;", 200);
    assert!(client.expect("MLST a.html", 250).text.contains(" media-type=text/html; /a.html"));
    // It is believed once the file has rested for a moment.
    let known = "media-type=text/html;x.hash=SHA-256:\
        ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad; ";
    within(PATIENCE, "its hash is known", || {
        client.expect("HASH a.html", 213);
        client.expect("MLST a.html", 250).text.contains(known)
    });
    let lines = String::from_utf8(client.fetch("MLSD")).unwrap();
    assert!(lines.contains(&format!("{known}a.html\r\n")), "{lines}");
    assert!(lines.lines().any(|line| line == " d.html"), "{lines}");
    client.store("STOR a.html", b"abd");
    assert!(!client.expect("MLST a.html", 250).text.contains("x.hash"));
}
