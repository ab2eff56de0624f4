//! Whole conversations with a session, line by line, against the tree in memory.

mod memory;

use std::time::Duration;

use millrace_ftp::Settings;
use millrace_ftp::session::{Content, Input, Permission, Permissions, Request, Via};
use millrace_vfs::WriteMode;

use memory::{Driver, address};

// Logging in

#[test]
fn user_and_pass_keep_their_order() {
    let mut driver = Driver::new(Settings::default());
    assert_eq!(driver.code("PASS secret"), 503);
    assert_eq!(driver.code("USER ann"), 331);
    assert_eq!(driver.code("USER bob"), 331);
    assert_eq!(driver.code("PASS secret"), 230);
    assert_eq!(driver.session.user(), Some(&b"bob"[..]));
    assert_eq!(driver.code("PASS secret"), 503);
}

#[test]
fn blanks_belong_to_names_and_passwords() {
    let mut driver = Driver::new(Settings::default());
    driver.accounts.insert(b" a ".to_vec(), (b" b ".to_vec(), Permissions::READ_WRITE));
    driver.say("USER  a ");
    assert_eq!(driver.code("PASS  b "), 230);
    driver.say("TYPE I");
    driver.tree.insert("/ x ", "blank");
    driver.tree.insert("/x", "plain");
    assert_eq!(driver.say("SIZE  x "), "213 5\r\n");
    assert_eq!(driver.say("DELE x "), "550 /x : no such file or directory.\r\n");
}

#[test]
fn user_while_logged_in_forgets_the_login_and_keeps_the_parameters() {
    let mut driver = Driver::logged_in();
    driver.tree.insert_directory("/d");
    for line in ["CWD d", "TYPE I", "PASV", "REST 5", "RNFR /d"] {
        driver.say(line);
    }
    assert_eq!(driver.code("USER ann"), 331);
    assert_eq!((driver.log_outs, driver.leased), (1, false));
    assert_eq!(driver.code("PWD"), 530);
    assert_eq!(driver.code("PASS secret"), 230);
    assert!(driver.say("PWD").starts_with("257 \"/\""));
    assert!(driver.say("STAT").contains("TYPE I"));
    assert_eq!(driver.code("RNTO /e"), 503);
    assert_eq!(driver.code("RETR x"), 425, "the data connection is of the former login");
}

#[test]
fn rein_is_as_if_just_connected() {
    let mut driver = Driver::logged_in();
    for line in ["TYPE I", "EPSV ALL", "LANG de", "OPTS MLST size;", "SITE IDLE 7200"] {
        assert!(driver.code(line) < 300, "{line}");
    }
    assert_eq!(driver.say("REIN"), "220 Ready for a new user.\r\n");
    assert_eq!(driver.code("PWD"), 530);
    assert_eq!(driver.log_outs, 1);
    driver.say("USER ann");
    driver.say("PASS secret");
    assert!(driver.say("STAT").contains("TYPE A"));
    assert_eq!(driver.code("PASV"), 227);
    assert!(driver.say("FEAT").contains("type*;size*;"));
}

#[test]
fn a_wrong_password_is_answered_later_each_time_and_then_no_more() {
    let settings = Settings { login_attempts: 4, ..Settings::default() };
    let mut driver = Driver::new(settings);
    for (attempt, seconds) in [1, 2, 4, 8].into_iter().enumerate() {
        driver.say("USER ann");
        // What is pipelined behind the password waits as well.
        driver.line("PASS wrong");
        driver.answer_all();
        driver.line("NOOP");
        assert_eq!(driver.sent(), "");
        driver.pass(Duration::from_millis(seconds * 1000 - 1));
        assert_eq!(driver.sent(), "");
        driver.pass(Duration::from_millis(1));
        let expected = match attempt {
            3 => "421 Too many failed logins: closing the control connection.\r\n",
            _ => "530 Login incorrect.\r\n200 OK.\r\n",
        };
        assert_eq!(driver.sent(), expected);
    }
    assert!(driver.session.is_closed());
}

/// What comes while the password is looked at waits for the reply to it, however late that is.
#[test]
fn quit_and_abor_do_not_overtake_a_wrong_password() {
    for (line, after) in [("QUIT", vec![530, 221]), ("ABOR", vec![530, 226])] {
        let mut driver = Driver::new(Settings::default());
        driver.say("USER ann");
        driver.line("PASS wrong");
        driver.line(line);
        driver.answer_all();
        assert_eq!(driver.finals, [331], "{line} may not shorten the delay");
        driver.pass(Duration::from_secs(1));
        assert_eq!(driver.finals[1..], after);
    }
}

/// A server that stops does not wait for the delay, and answers both lines.
#[test]
fn stopping_ends_the_delay_of_a_wrong_password() {
    let mut driver = Driver::new(Settings::default());
    driver.say("USER ann");
    driver.say("PASS wrong");
    driver.handle(Input::Shutdown);
    assert_eq!(driver.finals, [331, 530, 421]);
}

#[test]
fn a_stranger_may_not_stay_and_a_user_may_be_idle_for_so_long() {
    let mut driver = Driver::new(Settings::default());
    driver.pass(Duration::from_secs(59));
    driver.say("NOOP");
    driver.pass(Duration::from_secs(1));
    assert_eq!(driver.sent(), "421 No login in time: closing the control connection.\r\n");

    let mut driver = Driver::logged_in();
    driver.pass(Duration::from_secs(299));
    driver.say("NOOP");
    driver.pass(Duration::from_secs(299));
    assert!(!driver.session.is_closed());
    driver.pass(Duration::from_secs(1));
    assert_eq!(driver.sent(), "421 Idle for too long: closing the control connection.\r\n");
}

#[test]
fn who_logs_out_has_the_whole_login_timeout_again() {
    let mut driver = Driver::logged_in();
    driver.pass(Duration::from_secs(200));
    driver.say("REIN");
    driver.pass(Duration::from_secs(59));
    assert!(!driver.session.is_closed());
    driver.pass(Duration::from_secs(1));
    assert!(driver.session.is_closed());
}

#[test]
fn site_idle_moves_the_deadline_up_to_its_bound() {
    let mut driver = Driver::logged_in();
    assert_eq!(driver.code("SITE IDLE 7201"), 501);
    assert_eq!(driver.code("SITE IDLE 0"), 501);
    assert_eq!(driver.code("SITE IDLE 7200"), 200);
    driver.pass(Duration::from_secs(7199));
    assert!(!driver.session.is_closed());
}

#[test]
fn nothing_runs_out_during_a_transfer() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "x");
    driver.say("PASV");
    driver.say("RETR f");
    driver.pass(Duration::from_secs(100_000));
    assert!(!driver.session.is_closed());
    assert_eq!(driver.session.deadline(), None);
}

// The gate

#[test]
fn lines_that_are_no_commands_close_the_connection_in_the_end() {
    let mut driver = Driver::new(Settings::default());
    for _ in 0..19 {
        assert_eq!(driver.code("XYZZY"), 500);
    }
    assert_eq!(driver.code("NOOP"), 200, "a command resets the count");
    for _ in 0..10 {
        driver.code("");
        driver.handle(Input::LineTooLong);
    }
    assert!(driver.session.is_closed());
    assert_eq!(driver.finals.last(), Some(&421));
}

#[test]
fn a_browser_is_told_and_left() {
    for line in ["GET / HTTP/1.1", "POST / HTTP/1.1"] {
        let mut driver = Driver::new(Settings::default());
        assert_eq!(driver.say(line), "421 This is an FTP server, not an HTTP server.\r\n");
        assert!(driver.session.is_closed());
    }
}

#[test]
fn verbs_are_read_in_any_case() {
    assert_eq!(Driver::logged_in().code("nOoP"), 200);
}

// Data connections

#[test]
fn rest_waits_for_the_next_transfer_and_is_used_up_by_it() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "0123456789");
    driver.say("TYPE I");
    assert_eq!(driver.code("REST 4"), 350);
    for line in ["PASV", "TYPE I", "MODE S", "NOOP", "CWD /"] {
        driver.say(line);
    }
    driver.say("RETR f");
    assert_eq!(driver.run_transfer(b""), b"456789");
    driver.say("PASV");
    driver.say("RETR f");
    assert_eq!(driver.run_transfer(b""), b"0123456789");
}

#[test]
fn rest_is_used_up_by_a_transfer_that_fails_too() {
    for failing in ["RETR missing", "STOR missing/x", "RETR ", "MLSD f", "LIST missing"] {
        let mut driver = Driver::logged_in_with(Permissions::READ_WRITE);
        driver.tree.insert("/f", "0123456789");
        driver.say("TYPE I");
        driver.say("PASV");
        driver.say("REST 4");
        assert!(driver.code(failing) >= 500, "{failing}");
        driver.say("RETR f");
        assert_eq!(driver.run_transfer(b""), b"0123456789", "{failing}");
    }
}

#[test]
fn rest_past_the_end_gets_554() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "0123456789");
    driver.say("TYPE I");
    driver.say("PASV");
    driver.say("REST 10");
    driver.say("RETR f");
    assert_eq!(driver.run_transfer(b""), b"");
    driver.say("PASV");
    driver.say("REST 11");
    assert_eq!(driver.say("RETR f"), "554 The file has 10 bytes: it cannot be restarted at 11.\r\n");
}

#[test]
fn rest_in_type_a_counts_what_goes_over_the_wire() {
    let wire = b"a\r\nb\r\nc";
    for skipped in 0..=wire.len() {
        let mut driver = Driver::logged_in();
        driver.tree.insert("/f", "a\nb\nc");
        driver.say("PASV");
        driver.say(format!("REST {skipped}"));
        driver.say("RETR f");
        assert_eq!(driver.run_transfer(b""), wire[skipped..], "{skipped}");
    }
}

#[test]
fn a_marker_of_mode_b_restarts_where_it_stands() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "0123456789");
    for line in ["TYPE I", "MODE B", "PASV", "REST 4", "RETR f"] {
        driver.say(line);
    }
    assert_eq!(driver.run_transfer(b""), b"\x00\x00\x06456789\x40\x00\x00");
    for line in ["PASV", "REST 4", "STOR f"] {
        driver.say(line);
    }
    assert_eq!(driver.transfer.as_ref().unwrap().offset, Some(4));
    driver.run_transfer(b"\x40\x00\x03abc");
    assert_eq!(driver.tree.content("/f").unwrap(), b"0123abc789");
}

#[test]
fn rang_has_both_ends_and_one_zero_takes_it_back() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "0123456789");
    driver.say("TYPE I");
    for (rang, expected) in [
        ("RANG 2 4", &b"234"[..]),
        ("RANG 0 0", b"0"),
        ("RANG 8 99", b"89"),
        ("RANG 1 0", b"0123456789"),
        ("RANG 0 18446744073709551615", b""),
    ] {
        driver.say("PASV");
        let code = driver.code(rang);
        if expected.is_empty() {
            assert_eq!(code, 501);
            continue;
        }
        assert_eq!(code, 350);
        driver.say("RETR f");
        assert_eq!(driver.run_transfer(b""), expected, "{rang}");
    }
    assert_eq!(driver.say("RANG 2 4"), "350 Restarting at 2. End byte range at 4.\r\n");
    assert!(driver.say("HASH f").starts_with("213 SHA-256 2-4 "));
    assert!(driver.say("HASH f").starts_with("213 SHA-256 0-9 "), "used up");
    for bad in ["RANG 1", "RANG 1 2 3", "RANG a b", "RANG -1 2", "RANG 1 -2"] {
        assert_eq!(driver.code(bad), 501, "{bad}");
    }
}

#[test]
fn an_upload_into_a_range_takes_no_more_than_the_range() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "0123456789");
    for line in ["TYPE I", "PASV", "RANG 2 4", "STOR f"] {
        driver.say(line);
    }
    driver.run_transfer(b"abc");
    assert_eq!(driver.sent(), "226 Transfer complete.\r\n");
    assert_eq!(driver.tree.content("/f").unwrap(), b"01abc56789");
    for line in ["PASV", "RANG 2 4", "STOR f"] {
        driver.say(line);
    }
    driver.run_transfer(b"abcd");
    assert!(driver.sent().starts_with("426 "));
}

#[test]
fn the_bounce_is_refused() {
    let mut driver = Driver::logged_in();
    for line in [
        "PORT 192,0,2,8,4,1",
        "PORT 192,0,2,7,3,255",
        "PORT 127,0,0,1,4,1",
        "EPRT |1|192.0.2.8|1025|",
        "EPRT |1|192.0.2.7|1023|",
        "LPRT 4,4,192,0,2,8,2,4,1",
    ] {
        assert_eq!(driver.code(line), 501, "{line}");
    }
    driver.tree.insert("/f", "x");
    assert_eq!(driver.code("RETR f"), 425, "nothing was agreed");
    assert_eq!(driver.code("PORT 192,0,2,7,4,1"), 200);
    driver.say("RETR f");
    assert_eq!(driver.transfer.as_ref().unwrap().via, Via::Active(address("192.0.2.7:1025")));
}

#[test]
fn foreign_addresses_are_taken_where_the_server_allows_them_and_low_ports_never() {
    let mut driver = Driver::new(Settings { foreign_data: true, ..Settings::default() });
    driver.say("USER ann");
    driver.say("PASS secret");
    assert_eq!(driver.code("PORT 192,0,2,8,4,1"), 200);
    assert_eq!(driver.code("PORT 192,0,2,8,0,21"), 501);
}

#[test]
fn compression_that_is_switched_off_is_not_offered_and_refused() {
    let mut driver = Driver::new(Settings { mode_z: false, ..Settings::default() });
    driver.say("USER ann");
    driver.say("PASS secret");
    assert!(!driver.say("FEAT").contains("MODE Z"));
    assert_eq!(driver.say("MODE Z"), "504 MODE Z is switched off on this server.\r\n");
    assert_eq!(driver.code("MODE S"), 200);
    assert!(Driver::logged_in().say("FEAT").contains(" MODE Z\r\n"));
}

#[test]
fn families_are_those_of_the_control_connection() {
    let mut four = Driver::logged_in();
    assert_eq!(four.say("EPRT |2|2001:db8::7|1025|"), "522 This connection is IPv4, use (1).\r\n");
    assert_eq!(four.say("EPRT |3|x|1025|"), "522 Network protocol not supported, use (1,2).\r\n");
    assert_eq!(four.code("EPSV 2"), 522);
    assert_eq!(four.code("EPSV 1"), 229);
    assert_eq!(four.code("LPRT 9,1,1,2,4,1"), 521);

    let mut six = Driver::between(Settings::default(), "[2001:db8::7]:40000", "[2001:db8::1]:21");
    six.say("USER ann");
    six.say("PASS secret");
    assert_eq!(six.code("PASV"), 425);
    assert!(!six.leased, "no port was leased for nothing");
    assert_eq!(six.code("PORT 192,0,2,7,4,1"), 501);
    assert_eq!(six.code("EPRT |1|192.0.2.7|1025|"), 522);
    assert_eq!(six.code("EPRT |2|2001:db8::7|1025|"), 200);
    assert_eq!(six.code("EPSV 1"), 522);
    assert_eq!(six.code("EPSV"), 229);

    let mut mapped =
        Driver::between(Settings::default(), "[::ffff:192.0.2.7]:40000", "[::ffff:192.0.2.1]:21");
    mapped.say("USER ann");
    mapped.say("PASS secret");
    assert_eq!(mapped.code("PASV"), 227);
    assert_eq!(mapped.code("PORT 192,0,2,7,4,1"), 200);
}

#[test]
fn after_epsv_all_there_is_nothing_else() {
    let mut driver = Driver::logged_in();
    assert_eq!(driver.code("EPSV ALL"), 200);
    for line in ["PASV", "LPSV", "PORT 192,0,2,7,4,1", "EPRT |1|192.0.2.7|1025|", "LPRT 4,4,192,0,2,7,2,4,1"]
    {
        assert_eq!(driver.say(line), "501 Refused: EPSV ALL was given.\r\n", "{line}");
    }
    assert_eq!(driver.code("EPSV"), 229);
}

#[test]
fn behind_nat_the_public_address_is_named() {
    let mut driver =
        Driver::new(Settings { public_ip: Some("203.0.113.9".parse().unwrap()), ..Settings::default() });
    driver.say("USER ann");
    driver.say("PASS secret");
    assert!(driver.say("PASV").contains("(203,0,113,9,195,80)"));
    assert!(driver.say("LPSV").contains("(4,4,203,0,113,9,2,195,80)"));
    assert!(driver.say("EPSV").contains("(|||50000|)"));
}

#[test]
fn a_data_connection_serves_one_transfer() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "x");
    driver.say("PASV");
    driver.say("RETR f");
    driver.run_transfer(b"");
    assert_eq!(driver.code("RETR f"), 425);
}

// Files

#[test]
fn rename_takes_its_two_steps() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/a", "a");
    assert_eq!(driver.code("RNTO b"), 503);
    assert_eq!(driver.code("RNFR missing"), 550);
    assert_eq!(driver.code("RNTO b"), 503);
    assert_eq!(driver.code("RNFR a"), 350);
    assert_eq!(driver.code("NOOP"), 200);
    assert_eq!(driver.code("RNTO b"), 250);
    assert_eq!(driver.code("RNTO c"), 503, "the old name is used up");
    assert_eq!(driver.tree.content("/b").unwrap(), b"a");
    assert_eq!(driver.code("SITE CPFR b"), 350);
    assert_eq!(driver.code("RNTO c"), 503, "a copy is no rename");
}

#[test]
fn a_name_is_taken_over_only_with_the_right_to_overwrite() {
    let mut driver = Driver::logged_in_with(Permissions::READ_WRITE.without(Permission::Overwrite));
    driver.tree.insert("/a", "a");
    driver.tree.insert("/b", "b");
    driver.say("RNFR a");
    assert_eq!(driver.say("RNTO b"), "550 Permission denied: the name is taken.\r\n");
    assert_eq!(driver.code("SITE COPY a b"), 550);
    driver.say("SITE CPFR a");
    assert_eq!(driver.code("SITE CPTO b"), 550);
    driver.say("PASV");
    assert_eq!(driver.code("STOR b"), 550);
    driver.say("TYPE I");
    driver.say("RANG 0 0");
    assert_eq!(driver.code("STOR b"), 550);
    assert_eq!(driver.tree.content("/b").unwrap(), b"b");
    driver.say("RNFR a");
    assert_eq!(driver.code("RNTO c"), 250);
    assert_eq!(driver.code("SITE COPY c d"), 250);
}

#[test]
fn uploads_say_where_they_write() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "0123");
    driver.say("TYPE I");
    driver.say("PASV");
    assert_eq!(driver.say("STOR f"), "150 Opening BINARY mode data connection for f.\r\n");
    driver.run_transfer(b"0123");
    driver.sent();
    driver.say("PASV");
    driver.say("REST 2");
    assert_eq!(driver.say("STOR f"), "150 Ready to receive; writing in place from byte 2.\r\n");
    driver.run_transfer(b"ab");
    driver.sent();
    driver.say("PASV");
    driver.say("REST 2");
    assert_eq!(driver.say("APPE f"), "150 Ready to receive; writing in place at the end of the file.\r\n");
    assert!(matches!(driver.transfer.as_ref().unwrap().content, Content::Receive(_, None)));
    driver.run_transfer(b"cd");
    assert_eq!(driver.tree.content("/f").unwrap(), b"01abcd");
}

#[test]
fn stou_names_the_file_at_both_ends() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/upload", "x");
    driver.say("PASV");
    assert_eq!(driver.say("STOU"), "150 FILE: upload.1\r\n");
    driver.run_transfer(b"new");
    assert_eq!(driver.sent(), "226 FILE: upload.1\r\n");
    driver.say("PASV");
    assert_eq!(driver.say("STOU name"), "150 FILE: name\r\n");
}

#[test]
fn a_restart_that_would_need_to_read_the_file_is_refused_for_uploads() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "0123");
    driver.say("PASV");
    driver.say("REST 2");
    assert_eq!(driver.say("STOR f"), "554 An upload can be restarted in STRU F and TYPE I only.\r\n");
}

#[test]
fn cwd_alone_goes_home_and_cdup_stops_at_the_root() {
    let mut driver = Driver::logged_in();
    driver.tree.insert_directory("/d");
    driver.tree.insert("/f", "x");
    assert_eq!(driver.code("CWD d"), 250);
    assert!(driver.say("PWD").starts_with("257 \"/d\""));
    assert_eq!(driver.code("CWD"), 250);
    assert!(driver.say("PWD").starts_with("257 \"/\""));
    assert_eq!(driver.code("CDUP"), 250);
    assert_eq!(driver.say("CWD f"), "550 /f: not a directory.\r\n");
    assert!(driver.say("MKD a\"b").starts_with("257 \"/a\"\"b\" created"));
}

#[test]
fn paths_that_are_none_get_553() {
    let mut driver = Driver::logged_in();
    assert_eq!(driver.code(format!("DELE {}", "x".repeat(256))), 553);
    assert_eq!(driver.code(format!("DELE {}", "x/".repeat(2048))), 553);
}

#[test]
fn stat_of_a_path_is_a_listing_on_the_control_connection() {
    let mut driver = Driver::logged_in();
    driver.tree.insert_directory("/d");
    driver.tree.insert("/d/f", "x");
    driver.say("STAT d");
    driver.run_transfer(b"");
    let reply = driver.sent();
    assert!(
        reply.starts_with("213-") && reply.contains(" f\r\n") && reply.ends_with("\r\n213 End\r\n"),
        "{reply}"
    );
    assert_eq!(driver.finals, [213]);
    assert_eq!(driver.code("STAT missing"), 550);
}

#[test]
fn stat_during_a_transfer_or_a_long_question_tells_how_far_it_is() {
    let expected = "211-Transfer in progress:\r\n 42 of 84 bytes in 2.0 s\r\n211 End of status.\r\n";
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "x");
    driver.say("PASV");
    driver.say("RETR f");
    assert_eq!(driver.say("STAT"), expected);
    assert_eq!(driver.code("STAT f"), 450);
    assert_eq!(driver.say("NOOP"), "200 Still here; a transfer is in progress.\r\n");
    driver.run_transfer(b"");
    driver.sent();
    driver.line("XSHA256 f");
    driver.line("STAT");
    assert_eq!(driver.sent(), expected);
    driver.answer_all();
    assert!(
        driver.sent().starts_with("250 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")
    );
}

#[test]
fn listings_come_as_images_whatever_the_type() {
    let mut driver = Driver::logged_in();
    driver.tree.insert("/f", "x");
    driver.say("PASV");
    driver.say("NLST");
    assert_eq!(driver.run_transfer(b""), b"f\r\n");
}

// Extensions

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
    assert!(driver.say("FEAT").contains(" HASH CRC32*;MD5;SHA-1;SHA-256;SHA-512;BLAKE3;\r\n"));
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
    assert_eq!(driver.say("COMB d/c d/a \"d/b b\""), "250 Combined; the file has 5 bytes.\r\n");
    assert_eq!(driver.tree.content("/d/c").unwrap(), b"abcde");
    assert_eq!(driver.say("RMDA d"), "250 Removed; 2 entries in all.\r\n");
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
        ("SITE COPY f \"g h\"", "250 Copied 3 bytes.\r\n"),
        ("SITE CPFR f", "350 Ready for SITE CPTO.\r\n"),
        ("SITE CPTO i", "250 Copied 3 bytes.\r\n"),
        ("SITE CPTO i", "503 Give SITE CPFR first.\r\n"),
        ("SITE COPY f f", "550 A file cannot be copied onto itself.\r\n"),
        ("SITE MKDIR p/q/r", "257 \"/p/q/r\" created.\r\n"),
        ("SITE MKDIR p/q/r", "550 /p/q/r: already exists.\r\n"),
        ("SITE RMDIR p", "250 Removed; 3 entries in all.\r\n"),
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
fn who_administers_sees_all_sessions() {
    let mut driver = Driver::logged_in_with(Permissions::READ_WRITE.with(Permission::Admin));
    driver.tree.insert("/f", "x");
    driver.line("SITE WHO");
    assert!(matches!(driver.question, Some(Request::Who)));
    driver.answer_all();
    assert!(driver.say("SITE STAT").contains(" 1 sessions are logged in\r\n"));
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
