//! Files and folders, and the paths that lead to them.

use millrace_ftp::session::{Content, Permission, Permissions};

use crate::memory::Driver;

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
