//! Row 16: `ctl upgrade` where a folder is kept in SQLite.

use std::io::{Read, Write};

use super::site::{Site, eventually};

#[test]
fn three_upgrades_keep_a_folder_of_rows_open_and_cut_no_transfer() {
    let site = Site::start("rows", "[[folder]]\npath = \"/db\"\ndatabase = \"files.db\"");
    site.log_in("bob").put("/db/old", b"from before");
    for round in 0..3 {
        let (mut reader, mut writer) = (site.log_in("bob"), site.log_in("bob"));
        let mut sent = writer.data();
        writer.say(&format!("STOR /db/new{round}"), "150");
        sent.write_all(b"half").unwrap();
        let output = site.ctl(&["upgrade"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}{}", site.folder.log());

        // Both servers have the database: what one of them removes the other may still read.
        let mut data = reader.data();
        let content = vec![b'x'; 3 << 20];
        let mut next = site.log_in("bob");
        next.put("/db/large", &content);
        reader.say("RETR /db/large", "150");
        next.say("DELE /db/large", "250");
        let mut got = Vec::new();
        data.read_to_end(&mut got).unwrap();
        assert!(reader.reply().starts_with("226") && got == content);

        sent.write_all(b" and half").unwrap();
        drop(sent);
        assert!(writer.reply().starts_with("226"));
        assert_eq!(next.get(&format!("/db/new{round}")), b"half and half");
        assert_eq!(next.get("/db/old"), b"from before");
        reader.say("QUIT", "221");
        writer.say("QUIT", "221");
    }
    eventually("earlier servers end with their sessions", || {
        let ended = site.folder.log().matches(" ended ").count();
        (ended >= 3).then_some(())
    });
}

#[test]
fn another_server_is_still_refused_and_told_why() {
    let site = Site::start("rows-twice", "[[folder]]\npath = \"/db\"\ndatabase = \"files.db\"");
    let output = site.folder.run(&[
        "serve",
        "--config",
        "millrace.toml",
        "--ftp",
        "127.0.0.1:0",
        "--control",
        "other",
    ]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("files.db cannot be used: another server has it open; stop that one"), "{error}");
}
