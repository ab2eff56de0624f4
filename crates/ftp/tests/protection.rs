//! `AUTH` and what belongs to it, without a byte of TLS.

mod memory;

use millrace_ftp::session::{Input, Permissions, Protection, Settings, TlsPolicy};

use memory::Driver;

fn with(policy: TlsPolicy) -> Driver {
    Driver::new(Settings { tls: Some(policy), ..Settings::default() })
}

fn secure() -> Driver {
    let mut driver = with(TlsPolicy::default());
    assert_eq!(driver.code("AUTH TLS"), 234);
    driver
}

fn log_in(driver: &mut Driver) {
    assert_eq!(driver.code("USER ann"), 331);
    assert_eq!(driver.code("PASS secret"), 230);
}

#[test]
fn auth_names_the_level_that_data_connections_begin_with() {
    for (mechanism, protection) in [
        ("TLS", Protection::Clear),
        ("tls-c", Protection::Clear),
        ("TLS-P", Protection::AsServer),
        ("ssl", Protection::AsServer),
    ] {
        let mut driver = with(TlsPolicy::default());
        assert_eq!(driver.code(format!("AUTH {mechanism}")), 234);
        assert!(driver.session.is_encrypted());
        assert_eq!(driver.session.protection(), protection, "{mechanism}");
    }
}

#[test]
fn auth_is_refused_where_it_makes_no_sense() {
    assert_eq!(Driver::new(Settings::default()).code("AUTH TLS"), 534);
    assert_eq!(with(TlsPolicy::default()).code("AUTH KERBEROS_V4"), 504);
    assert_eq!(secure().code("AUTH TLS"), 503);
}

#[test]
fn the_order_is_auth_then_pbsz_then_prot() {
    let mut driver = with(TlsPolicy::default());
    assert_eq!(driver.code("PBSZ 0"), 503);
    assert_eq!(driver.code("PROT P"), 503);
    let mut driver = secure();
    assert_eq!(driver.code("PROT P"), 503);
    assert_eq!(driver.code("PBSZ x"), 501);
    assert_eq!(driver.say("PBSZ 16384"), "200 PBSZ=0\r\n");
    for (level, code) in [("P", 200), ("c", 200), ("S", 536), ("E", 536), ("Q", 504)] {
        assert_eq!(driver.code(format!("PROT {level}")), code, "{level}");
    }
}

#[test]
fn other_mechanisms_commands_get_their_codes() {
    for (line, code) in [("ADAT x", 503), ("MIC x", 537), ("CONF x", 537), ("ENC x", 537)] {
        assert_eq!(secure().code(line), code, "{line}");
    }
}

#[test]
fn nothing_that_was_said_in_clear_survives() {
    let mut driver = with(TlsPolicy::default());
    assert_eq!(driver.code("USER ann"), 331);
    assert_eq!(driver.code("AUTH TLS"), 234);
    assert_eq!(driver.code("PASS secret"), 503, "the name was forgotten");

    let mut driver = with(TlsPolicy::default());
    log_in(&mut driver);
    driver.say("MKD d");
    driver.say("CWD d");
    driver.say("TYPE I");
    driver.say("REST 5");
    driver.say("EPSV ALL");
    driver.say("EPSV");
    assert!(driver.leased);
    assert_eq!(driver.code("AUTH TLS"), 234);
    assert!(!driver.leased);
    assert_eq!(driver.code("PWD"), 530);
    log_in(&mut driver);
    assert_eq!(driver.say("PWD"), "257 \"/\" is the current directory.\r\n");
    assert_eq!(driver.code("SIZE d"), 550, "TYPE A again");
    assert_eq!(driver.code("PASV"), 227, "EPSV ALL is forgotten");
    assert_eq!(driver.code("RNTO x"), 503);
}

#[test]
fn a_login_in_clear_is_refused_where_that_is_the_policy() {
    let mut driver = with(TlsPolicy { login: true, ..TlsPolicy::default() });
    assert_eq!(driver.code("USER ann"), 530);
    assert_eq!(driver.code("PASS secret"), 503);
    assert_eq!(driver.code("FEAT"), 211);
    assert_eq!(driver.code("AUTH TLS"), 234);
    log_in(&mut driver);
}

#[test]
fn data_in_clear_is_refused_where_that_is_the_policy() {
    for (policy, user) in
        [(TlsPolicy { data: true, ..TlsPolicy::default() }, "ann"), (TlsPolicy::default(), "private")]
    {
        let mut driver = with(policy);
        driver.accounts.insert(b"private".to_vec(), (b"secret".to_vec(), Permissions::READ_WRITE));
        driver.say("AUTH TLS");
        driver.say(format!("USER {user}"));
        assert_eq!(driver.code("PASS secret"), 230);
        assert_eq!(driver.code("PASV"), 227);
        assert_eq!(driver.code("LIST"), 521);
        driver.say("PBSZ 0");
        assert_eq!(driver.code("PROT C"), 534);
        assert_eq!(driver.code("PROT P"), 200);
        assert!(driver.say("LIST").starts_with("150 "));
    }
}

#[test]
fn a_transfer_says_how_its_connection_is_protected() {
    let mut driver = secure();
    log_in(&mut driver);
    let mut protection = |lines: &[&str]| {
        for line in lines {
            driver.say(line);
        }
        driver.say("LIST");
        let protection = driver.transfer.as_ref().unwrap().protection;
        driver.run_transfer(b"");
        protection
    };
    assert_eq!(protection(&["PASV"]), Protection::Clear);
    assert_eq!(protection(&["PBSZ 0", "PROT P", "PASV"]), Protection::AsServer);
    assert_eq!(protection(&["SSCN ON", "PASV"]), Protection::AsClient);
    assert_eq!(protection(&["SSCN OFF", "PASV"]), Protection::AsServer);
    assert_eq!(protection(&["CPSV"]), Protection::AsClient);
    assert_eq!(protection(&["PASV"]), Protection::AsServer, "CPSV was for one");
    assert_eq!(protection(&["CPSV", "EPSV"]), Protection::AsServer);
}

#[test]
fn ccc_needs_leave_and_keeps_the_level_of_data() {
    let mut driver = secure();
    log_in(&mut driver);
    assert_eq!(driver.code("CCC"), 534);
    let mut driver = with(TlsPolicy { clear_command_channel: true, ..TlsPolicy::default() });
    log_in(&mut driver);
    assert_eq!(driver.code("CCC"), 533);
    driver.say("AUTH TLS-P");
    log_in(&mut driver);
    assert_eq!(driver.code("CCC"), 200);
    assert!(!driver.session.is_encrypted());
    assert_eq!(driver.session.protection(), Protection::AsServer);
    assert_eq!(driver.code("PROT P"), 200);
    assert_eq!(driver.code("NOOP"), 200);
}

#[test]
fn behind_ccc_nothing_is_said_in_clear_that_has_to_be_encrypted() {
    let policy = TlsPolicy { login: true, data: true, clear_command_channel: true };
    let mut driver = with(policy);
    driver.say("AUTH TLS-P");
    log_in(&mut driver);
    assert_eq!(driver.code("MLST /"), 250);
    assert_eq!(driver.code("CCC"), 200);
    assert_eq!([driver.code("STAT /"), driver.code("MLST /")], [521, 521], "a listing in clear");
    assert_eq!(driver.code("STAT"), 211);
    assert_eq!(driver.code("USER ann"), 530);
    assert_eq!(driver.code("REIN"), 220);
    assert_eq!(driver.code("USER ann"), 530);
}

#[test]
fn implicit_tls_greets_behind_the_handshake() {
    let mut driver = with(TlsPolicy { login: true, data: true, ..TlsPolicy::default() });
    driver.session.begin_with_tls();
    assert!(!driver.session.takes(b"NOOP"));
    driver.handle(Input::Secured);
    assert_eq!(driver.sent(), "220 Millrace ready.\r\n");
    log_in(&mut driver);
    assert_eq!(driver.session.protection(), Protection::AsServer);
    assert_eq!(driver.code("PROT P"), 200, "PBSZ is not needed first");
}

#[test]
fn a_handshake_that_takes_too_long_is_closed_without_a_word() {
    let mut driver = with(TlsPolicy::default());
    driver.session.begin_with_tls();
    driver.pass(Settings::default().login_timeout);
    assert!(driver.session.is_closed());
    assert_eq!(driver.sent(), "");
}

#[test]
fn host_names_a_host_before_the_login() {
    let mut driver = with(TlsPolicy::default());
    assert_eq!(driver.code("HOST FTP.example"), 220);
    assert_eq!(driver.code("HOST other.example"), 504);
    assert_eq!(driver.code("HOST a/b"), 501);
    driver.say("USER ann");
    assert_eq!(driver.code("HOST ftp.example"), 503);
}
