//! Transfers: where they begin, over which data connection.

use millrace_ftp::Settings;
use millrace_ftp::session::{Permissions, Via};

use crate::memory::{Driver, address};

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
    assert_eq!(driver.say("RETR f"), "554 The file ends at byte 10: it cannot be restarted at 11.\r\n");
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
