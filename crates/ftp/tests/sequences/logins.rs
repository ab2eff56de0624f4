//! Logging in: the order of its steps, wrong passwords, and how long each state lasts.

use std::time::Duration;

use millrace_ftp::Settings;
use millrace_ftp::session::{Input, Permissions};

use crate::memory::Driver;

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
        // Commands pipelined after the password wait as well.
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
fn a_logout_restarts_the_login_timeout() {
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
