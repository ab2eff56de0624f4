//! Every limit that refuses, provoked over sockets: the client learns which limit it is, without a number or a name,
//! and the log has its key, value and owner.
//!
//! [`row`] is a match over all of [`LimitKey`]: a limit without a row does not compile.

mod faulty;
mod rows;
mod site;

use std::collections::HashSet;
use std::thread;

use millrace_server::limits::LimitKey;

use rows::{Row, row};
use site::Site;

/// A row's server is started, its client refused, its log read.
fn provoke(key: LimitKey, index: usize) {
    let Row { setup, refuse, code, told, value, of } = row(key);
    let site = Site::start(index, &setup);
    let refused = refuse(&site);
    let reply = refused.reply.trim_end();
    assert!(reply.contains(code), "{key:?}: expected {code}: {reply}");
    assert!(reply.contains(told), "{key:?}: expected {told:?}: {reply}");
    // By FTP a text without digits has no number in it; free space is the subject of `ALLO`.
    let text = reply.trim_start_matches(code);
    let is_bare = code.len() != 3 || key == LimitKey::Space || !text.contains(|c: char| c.is_ascii_digit());
    assert!(is_bare, "{key:?}: {reply}");
    let line = site.log_of(refused.peer, &format!("limit=\"{}\"", key.key()));
    let mut expected = if value.is_empty() { String::new() } else { format!(" value={value}") };
    if !of.is_empty() {
        expected += &format!(" of=\"{of}").replace("HOST", &site.host.to_string());
    }
    assert!(line.contains(&expected), "{key:?}: expected {expected:?}: {line}");
}

#[test]
fn every_refusal_names_its_limit_to_the_client_and_key_value_and_owner_to_the_log() {
    let lanes = 4;
    thread::scope(|scope| {
        for lane in 0..lanes {
            scope.spawn(move || {
                let keys = LimitKey::ALL.iter().enumerate().skip(lane).step_by(lanes);
                keys.for_each(|(index, key)| provoke(*key, index));
            });
        }
    });
}

/// What the log names is what the documents name.
#[test]
fn every_limit_is_in_the_table_of_the_documents_and_its_key_where_it_is_set() {
    let table = include_str!("../../../../docs/limits.md");
    let settings = include_str!("../../../../docs/configuration.md");
    let (_, table) = table.split_once("## Which limit it was").expect("the section");
    let in_table =
        |line: &str| line.strip_prefix("| `").and_then(|rest| rest.split('`').next().map(str::to_owned));
    let listed: HashSet<String> = table.lines().filter_map(in_table).collect();
    let known: HashSet<String> = LimitKey::ALL.iter().map(|key| key.key().to_owned()).collect();
    assert_eq!(listed, known);
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let key = in_table(line).unwrap();
        let is_set = settings.contains(&format!("| `{key}` |"));
        assert_eq!(is_set, !line.contains("not a key"), "{line}");
    }
}
