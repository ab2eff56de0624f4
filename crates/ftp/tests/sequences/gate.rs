//! Which lines are commands at all.

use millrace_ftp::Settings;
use millrace_ftp::session::Input;

use crate::memory::Driver;

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
