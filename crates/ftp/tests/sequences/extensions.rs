//! Hashes, times, trees, and what SITE, STAT and LANG add.

use millrace_ftp::session::{Permission, Permissions, Request};
use millrace_vfs::WriteMode;

use crate::memory::Driver;

#[test]
fn hashes_are_those_of_the_file_in_each_form() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/a b", "abc");
    driver.tree.insert("/c", "abc");
    let sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
    assert_eq!(driver.say("XCRC a b"), "250 352441c2\r\n");
    assert_eq!(driver.say("XCRC \"a b\" 0 3"), "250 352441c2\r\n");
    assert_eq!(driver.say("XCRC c 0 3"), "250 352441c2\r\n");
    assert_eq!(driver.say("XSHA /c"), format!("250 {sha1}\r\n"));
    assert_eq!(driver.say("XDIGEST sha-1 a b"), format!("250 {sha1}\r\n"));
    assert_eq!(driver.say("MD5 c"), "251 c 900150983CD24FB0D6963F7D28E17F72\r\n");
    let both = "252 c 900150983CD24FB0D6963F7D28E17F72, a b 900150983CD24FB0D6963F7D28E17F72\r\n";
    assert_eq!(driver.say("MMD5 c, \"a b\""), both);
    assert_eq!(driver.say("OPTS HASH sha-1"), "200 SHA-1\r\n");
    assert_eq!(driver.say("HASH c"), format!("213 SHA-1 0-2 {sha1} c\r\n"));
    assert_eq!(driver.say("SITE CHECKSUM c"), format!("200 {sha1} c\r\n"));
    assert_eq!(driver.say("SITE CHECKMETHOD crc"), "200 The checksum is CRC32.\r\n");
    assert_eq!(driver.say("XMD5 missing 0 3"), "550 /missing 0 3: no such file or directory.\r\n");
    assert_eq!(driver.code("OPTS HASH nope"), 504);
    assert!(driver.say("FEAT").contains(" HASH CRC32*;CRC32C;MD5;SHA-1;SHA-256;SHA-512;BLAKE3;\r\n"));
}

#[test]
fn times_are_set_in_every_form_and_only_where_allowed() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/a b", "x");
    for (line, reply) in [
        ("MFMT 20200101000000 a b", "213 Modify=20200101000000; a b\r\n"),
        ("MDTM 20200101000001 a b", "213 Modify=20200101000001; a b\r\n"),
        (
            "MFF Modify=20200101000002;UNIX.mode=0600; a b",
            "213 Modify=20200101000002;UNIX.mode=0600; a b\r\n",
        ),
        ("SITE UTIME 202001010000 a b", "200 Changed.\r\n"),
        ("SITE UTIME a b 20200101000003 20200101000004 20200101000005 UTC", "200 Changed.\r\n"),
        ("MDTM a b", "213 20200101000004\r\n"),
    ] {
        assert_eq!(driver.say(line), reply);
    }
    assert_eq!(driver.tree.mode("/a b"), Some(0o600));
    assert_eq!(driver.code("MFMT 2020 a b"), 501);
    assert_eq!(driver.code("MFMT 20200101000000"), 501);
    assert_eq!(driver.code("MFF UNIX.owner=0; a b"), 550, "for administrators");

    let mut reader = Driver::logged_in_with(Permissions::READ_ONLY);
    reader.tree.insert("/20200101000000 name", "x");
    reader.tree.insert("/name", "x");
    assert_eq!(reader.say("MDTM 20200101000000 name"), "213 19700101000000\r\n", "that is the file's name");
    assert_eq!(reader.code("MDTM 20200101000001 name"), 550);
}

#[test]
fn trees_are_measured_combined_and_removed() {
    let mut driver = Driver::logged_in();
    driver.tree.insert_directory("/d");
    driver.tree.insert("/d/a", "abc");
    driver.tree.insert("/d/b b", "de");
    assert_eq!(driver.say("AVBL"), "213 1000\r\n");
    assert_eq!(driver.say("DSIZ d"), "213 5\r\n");
    assert_eq!(driver.say("COMB d/c d/a \"d/b b\""), "250 Combined; the file's size is 5.\r\n");
    assert_eq!(driver.tree.content("/d/c").unwrap(), b"abcde");
    assert_eq!(driver.say("RMDA d"), "250 Removed; entries: 2.\r\n");
    assert_eq!(driver.code("RMDA /"), 550);
    assert_eq!(driver.say("ALLO 1000"), "200 There is room.\r\n");
    assert_eq!(driver.say("ALLO 1001 R 80"), "452 Only 1000 bytes are free.\r\n");
}

#[test]
fn a_record_of_a_listing_is_its_line_without_a_line_end() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/a", "x");
    driver.tree.insert("/b", "x");
    let mut wire = |parameters: &[&str], command: &str| {
        parameters.iter().chain(&["PASV", command]).for_each(|line| drop(driver.say(*line)));
        driver.run_transfer(b"")
    };
    for representation in ["TYPE A", "TYPE I"] {
        assert_eq!(wire(&[representation, "STRU R"], "NLST"), b"a\xff\x01b\xff\x03");
        for command in ["LIST", "MLSD"] {
            let records = wire(&[], command);
            assert!(
                records.ends_with(b"b\xff\x03") && !records.contains(&b'\r'),
                "{}",
                records.escape_ascii()
            );
        }
        assert_eq!(wire(&["STRU F"], "NLST"), b"a\r\nb\r\n");
    }
    // In code page 037 a line ends in NL.
    assert_eq!(wire(&["TYPE E"], "NLST"), [0x81, 0x15, 0x82, 0x15]);
}

#[test]
fn abor_without_a_transfer_closes_the_data_connection_that_waits_for_one() {
    let mut driver = Driver::logged_in();
    driver.say("PASV");
    assert!(driver.leased);
    assert_eq!(driver.say("ABOR"), "226 Nothing to abort.\r\n");
    assert!(!driver.leased);
    assert_eq!(driver.code("LIST"), 425);
}

#[test]
fn a_mask_is_for_what_is_new() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/old", "x");
    assert_eq!(driver.say("SITE UMASK"), "200 The mask is the server's own.\r\n");
    assert_eq!(driver.say("SITE UMASK 027"), "200 The mask is 027 now.\r\n");
    assert_eq!(driver.code("SITE UMASK 1000"), 501);
    for name in ["old", "new"] {
        driver.say("PASV");
        driver.say(format!("STOR {name}"));
        driver.run_transfer(b"y");
        assert!(driver.sent().ends_with("226 Transfer complete.\r\n"));
    }
    assert_eq!(driver.code("MKD made"), 257);
    driver.say("PASV");
    driver.say("STOU once");
    driver.run_transfer(b"y");
    assert_eq!(driver.code("SITE MKDIR deep/er"), 257);
    let mode = |name| driver.tree.mode(name).unwrap();
    assert_eq!([mode("/old"), mode("/new"), mode("/made"), mode("/once")], [0o644, 0o640, 0o750, 0o640]);
    assert_eq!([mode("/deep"), mode("/deep/er")], [0o750, 0o750]);
    assert_eq!(driver.code("COMB joined new once"), 250);
    assert_eq!(driver.tree.mode("/joined"), Some(0o640));
}

#[test]
fn site_does_what_it_lists() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "abc");
    for (line, reply) in [
        ("SITE CHMOD 600 f", "200 Changed.\r\n"),
        ("SITE COPY f \"g h\"", "250 Bytes copied: 3.\r\n"),
        ("SITE CPFR f", "350 Ready for SITE CPTO.\r\n"),
        ("SITE CPTO i", "250 Bytes copied: 3.\r\n"),
        ("SITE CPTO i", "503 Give SITE CPFR first.\r\n"),
        ("SITE COPY f f", "550 A file cannot be copied onto itself.\r\n"),
        ("SITE MKDIR p/q/r", "257 \"/p/q/r\" created.\r\n"),
        ("SITE MKDIR p/q/r", "550 /p/q/r: already exists.\r\n"),
        ("SITE RMDIR p", "250 Removed; entries: 3.\r\n"),
        ("SITE SYMLINK f l", "200 Link made.\r\n"),
        ("SITE QUOTA", "200 1000 of 5000 bytes are free.\r\n"),
        ("SITE TIME", "200 20240101120000 UTC\r\n"),
        ("SITE WHO", "211-Sessions:\r\n eve from 192.0.2.7\r\n211 End\r\n"),
        ("SITE DESCUSER ann", "550 Permission denied: this account may not do that.\r\n"),
        ("SITE CHOWN 0 f", "550 Permission denied: this account may not do that.\r\n"),
        ("SITE NEWER 20200101000000", "213-Files that changed since:\r\n213 End\r\n"),
        ("SITE NEWER 2020", "501 Syntax: SITE NEWER <YYYYMMDDHHMMSS> [<directory>]\r\n"),
        ("SITE", "501 Syntax: SITE <command> [<arguments>]; SITE HELP lists them\r\n"),
        ("SITE FROBNICATE", "504 Unknown SITE command; SITE HELP lists those that are known.\r\n"),
    ] {
        assert_eq!(driver.say(line), reply, "{line}");
    }
    assert!(driver.say("SITE DESCUSER").contains(" Name: eve\r\n Home: \"/\"\r\n May: list, read, write,"));
}

#[test]
fn an_administrator_sees_all_sessions() {
    let mut driver = Driver::logged_in_with(Permissions::READ_WRITE.with(Permission::Admin));
    driver.tree.insert("/f", "x");
    driver.line("SITE WHO");
    assert!(matches!(driver.question, Some(Request::Who)));
    driver.answer_all();
    assert!(driver.say("SITE STAT").contains(" 1 session is logged in\r\n"));
    assert_eq!(driver.code("SITE CHOWN 5:6 f"), 200);
    assert_eq!(driver.code("SITE CHGRP 6 f"), 200);
}

#[test]
fn replies_are_in_the_language_that_was_asked_for() {
    let mut driver = Driver::logged_in();
    assert!(driver.say("FEAT").contains(" LANG EN*;DE\r\n"));
    assert_eq!(driver.say("LANG de-CH"), "200 Antworten sind jetzt auf Deutsch.\r\n");
    assert!(driver.say("FEAT").contains(" LANG EN;DE*\r\n"));
    assert_eq!(driver.code("LANG fr"), 504);
    assert_eq!(driver.say("CWD /"), "250 Verzeichnis gewechselt.\r\n");
    let refused = "550 /is a directory: keine solche Datei, kein solches Verzeichnis.\r\n";
    assert_eq!(driver.say("MDTM is a directory"), refused, "a name is not translated");
    assert_eq!(driver.say("LANG"), "200 Replies are in English now.\r\n");
}

#[test]
fn codings_are_described_by_stat() {
    let mut driver = Driver::logged_in();
    for (line, expected) in [
        ("TYPE L 8", "TYPE I, STRU F, MODE S"),
        ("TYPE E", "TYPE E, STRU F, MODE S"),
        ("STRU R", "TYPE E, STRU R, MODE S"),
        ("MODE Z", "TYPE E, STRU R, MODE Z"),
        ("MODE B", "TYPE E, STRU R, MODE B"),
        ("TYPE A N", "TYPE A, STRU R, MODE B"),
    ] {
        assert_eq!(driver.code(line), 200, "{line}");
        assert!(driver.say("STAT").contains(expected), "{line}");
    }
    for line in ["TYPE A T", "TYPE L 7", "STRU P", "MODE C"] {
        assert_eq!(driver.code(line), 504, "{line}");
    }
    for line in ["TYPE X", "STRU X", "MODE X", "TYPE  "] {
        assert_eq!(driver.code(line), 501, "{line}");
    }
}

#[test]
fn an_upload_without_the_right_to_overwrite_makes_new_files_only() {
    let mut driver = Driver::logged_in_with(Permissions::READ_WRITE.without(Permission::Overwrite));
    driver.say("PASV");
    driver.line("STOR f");
    assert!(matches!(driver.question, Some(Request::OpenWrite(_, WriteMode::CreateNew, _))));
}
