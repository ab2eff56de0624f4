//! `.message` and `README`: what a directory says to those who enter it.

use std::sync::Arc;

use millrace_server::Config;
use millrace_storage::MemoryStorage;

use crate::kit::{Reply, config, serve, serve_with};

/// The lines of a reply, without its code.
fn lines(reply: &Reply) -> Vec<&str> {
    let code = reply.code.to_string();
    let bare = |line| str::strip_prefix(line, code.as_str()).map_or(line, |line| &line[1..]);
    reply.text.lines().map(bare).collect()
}

#[test]
fn a_directory_speaks_once_a_session_to_who_enters_it() {
    let storage = Arc::new(MemoryStorage::new());
    storage
        .insert("/.message", "Welcome, %U.\r\n220 is no reply: 100%% %Z\n")
        .insert("/in/README", "rules")
        .insert("/in/.message", "This is %C.")
        .insert("/quiet/f", "");
    let served = serve_with(Config { messages: true, ..config(storage) });
    let mut client = served.connect();
    client.expect("USER u", 331);
    let reply = client.expect("PASS p", 230);
    assert_eq!(lines(&reply), ["Welcome, u.", " 220 is no reply: 100% %Z", "Logged in."]);
    let reply = client.expect("CWD in", 250);
    let reply = lines(&reply);
    assert_eq!(reply[0], "This is /in.");
    assert!(reply[1].starts_with("Please read the file README, last changed "), "{reply:?}");
    assert_eq!(reply[2], "Directory changed.");
    for again in ["CDUP", "CWD in", "CWD /quiet", "CWD"] {
        assert_eq!(lines(&client.expect(again, 250)), ["Directory changed."], "{again}");
    }
}

#[test]
fn a_message_is_cut_at_a_line_and_costs_no_login() {
    let storage = Arc::new(MemoryStorage::new());
    storage.insert("/.message", "0123456789abcde\n".repeat(1000)).insert("/d/.message/f", "a directory");
    let served = serve_with(Config { messages: true, ..config(storage) });
    let mut client = served.connect();
    client.expect("USER u", 331);
    // The whole lines of the first 8 KiB, and the reply itself.
    assert_eq!(lines(&client.expect("PASS p", 230)).len(), 8192 / 16 + 1);
    assert_eq!(lines(&client.expect("CWD d", 250)), ["Directory changed."]);
}

#[test]
fn no_message_is_sent_where_none_is_configured() {
    let storage = Arc::new(MemoryStorage::new());
    storage.insert("/d/.message", "not told");
    let served = serve(storage);
    assert_eq!(lines(&served.login().expect("CWD d", 250)), ["Directory changed."]);
}
