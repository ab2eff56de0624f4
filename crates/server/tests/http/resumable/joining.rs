//! Uploads that come in parts beside one another (`concatenation`).

use std::sync::Arc;

use millrace_server::config::Resumable;
use millrace_server::hooks::{Event, HookVerdict, Refusal};
use millrace_server::{Accounts, Config, Permissions};
use millrace_storage::{Allowance, Quota, Tally};
use millrace_vfs::QuotaScope;

use super::{ask, begin, heard, is_asked, named, offset, piece};
use crate::kit::{Response, Scratch, ServedHttp, http_config, pattern, serve_http, serve_http_with};

pub(super) const PART: &str = "Upload-Concat: partial\r\n";

/// A part that has come.
pub(super) fn part(served: &ServedHttp, bytes: &[u8]) -> String {
    let address = begin(served, "POST /d/", bytes.len(), PART);
    if !bytes.is_empty() {
        let told = piece(served, &address, 0, "", bytes);
        assert_eq!((told.status, told.field("upload-offset")), (204, Some(bytes.len().to_string().as_str())));
        assert!(told.field("upload-expires").is_some(), "it waits for the others");
    }
    address
}

pub(super) fn join(served: &ServedHttp, line: &str, parts: &[&str], fields: &str) -> Response {
    ask(served, line, &format!("Upload-Concat: final;{}\r\n{fields}", parts.join(" ")), b"")
}

fn served() -> (Scratch, ServedHttp) {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    let served = serve_http(scratch.storage());
    (scratch, served)
}

/// How much lies hidden in the tree.
pub(super) fn staged(scratch: &Scratch) -> usize {
    std::fs::read_dir(scratch.file(".millrace-staging")).map_or(0, |entries| entries.count())
}

#[test]
fn parts_become_one_file_in_the_order_that_is_said() {
    let (scratch, served) = served();
    scratch.write("d/f", b"old");
    let content = pattern(900_000);
    // The second comes first, in two pieces, and its length is said with the last of them.
    let second = ask(&served, "POST /d/", &format!("{PART}Upload-Defer-Length: 1\r\n"), b"");
    let second = second.field("location").unwrap().to_owned();
    assert_eq!(piece(&served, &second, 0, "", &content[400_000..500_000]).status, 204);
    assert_eq!(
        piece(&served, &second, 100_000, "Upload-Length: 500000\r\n", &content[500_000..]).status,
        204
    );
    let (first, none) = (part(&served, &content[..400_000]), part(&served, b""));
    for (address, length) in [(&first, "400000"), (&second, "500000"), (&none, "0")] {
        let told = ask(&served, &format!("HEAD {address}"), "", b"");
        assert_eq!((told.field("upload-offset"), told.field("upload-length")), (Some(length), Some(length)));
        assert_eq!(told.field("upload-concat"), Some("partial"));
    }
    assert_eq!(std::fs::read_dir(scratch.file("d")).unwrap().count(), 1, "parts are invisible");

    let with_host = format!("http://{}{second}", served.address);
    let parts = [first.as_str(), with_host.as_str(), none.as_str()];
    let joined = join(&served, "POST /d/", &parts, &named("f"));
    assert_eq!(joined.status, 201, "{}", joined.text());
    assert!(scratch.read("d/f").unwrap() == content);
    assert_eq!(staged(&scratch), 0);
    assert_eq!(offset(&served, &first), Err(410));

    // The whole is an upload that has ended.
    let whole = joined.field("location").unwrap();
    let told = ask(&served, &format!("HEAD {whole}"), "", b"");
    assert_eq!((told.field("upload-offset"), told.field("upload-length")), (Some("900000"), Some("900000")));
    assert_eq!(told.field("upload-concat"), Some(format!("final;{}", parts.join(" ")).as_str()));
    assert_eq!(told.field("upload-metadata"), Some("filename Zg"));
    assert_eq!(piece(&served, whole, 900_000, "", b"more").status, 403);
    assert!(scratch.read("d/f").unwrap() == content);
    // A client that did not get the reply asks again, in this state.
    let again = join(&served, "POST /d/", &parts, &named("f"));
    assert_eq!((again.status, again.field("location")), (201, Some(whole)));
    scratch.write("d/f", b"another");
    assert_eq!(join(&served, "POST /d/", &parts, &named("f")).status, 410);
    let said = ask(&served, "OPTIONS /", "", b"");
    assert!(said.field("tus-extension").unwrap().split(',').any(|name| name == "concatenation"));
}

/// What waits is counted already.
#[test]
fn parts_of_a_file_that_fills_a_quota_are_joined_within_it() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    let tally = Arc::new(Tally::new("test", scratch.storage()));
    let allowance = Allowance { bytes: Some(100_000), files: None };
    let quota = Quota::new(scratch.storage(), tally, allowance, QuotaScope::Account);
    let served = serve_http(Arc::new(quota));
    let content = pattern(90_000);
    let parts = [part(&served, &content[..40_000]), part(&served, &content[40_000..])];
    let joined = join(&served, "POST /d/", &[&parts[0], &parts[1]], &named("f"));
    assert_eq!(joined.status, 201, "{}", joined.text());
    assert!(scratch.read("d/f").unwrap() == content);
    assert_eq!(ask(&served, "POST /d/", &format!("Upload-Length: 20000\r\n{}", named("g")), b"").status, 507);
}

#[test]
fn a_failed_join_changes_nothing() {
    let (scratch, served) = served();
    scratch.write("d/f", b"old");
    std::fs::create_dir(scratch.file("d/folder")).unwrap();
    let (one, two) = (part(&served, b"one"), part(&served, b"two"));
    let begun = begin(&served, "POST /d/", 5, PART);
    assert_eq!(piece(&served, &begun, 0, "", b"1234").status, 204);
    let later = ask(&served, "POST /d/", &format!("{PART}Upload-Defer-Length: 1\r\n"), b"");
    let later = later.field("location").unwrap();
    let file = begin(&served, "POST /d/g", 5, "");
    let to = |line: &str, parts: &[&str], fields: &str| join(&served, line, parts, fields);
    let other = "/.millrace-uploads/AAAA";
    let body = ask(&served, "POST /d/f", &format!("Upload-Concat: final;{one}\r\n"), b"bytes");
    for (name, status, answer) in [
        ("a part that has not come in full", 409, to("POST /d/f", &[&one, &begun], "")),
        ("one of unknown length", 409, to("POST /d/f", &[&one, later], "")),
        ("an upload that is no part", 400, to("POST /d/f", &[&one, &file], "")),
        ("none", 400, to("POST /d/f", &[], "")),
        ("an address that is none", 400, to("POST /d/f", &[&one, other], "")),
        ("a file's", 400, to("POST /d/f", &[&one, "/d/f"], "")),
        ("the same twice", 400, to("POST /d/f", &[&one, &two, &one], "")),
        ("a body", 400, body),
        ("a name that is none", 400, to("POST /d/", &[&one, &two], &named("../f"))),
        ("no name", 400, to("POST /d/", &[&one, &two], "")),
        ("a directory's name", 409, to("POST /d/", &[&one, &two], &named("folder"))),
        ("a directory that is not there", 409, to("POST /none/f", &[&one, &two], "")),
        ("what has to be new", 412, to("POST /d/f", &[&one, &two], "If-None-Match: *\r\n")),
        ("another version of it", 412, to("POST /d/f", &[&one, &two], "If-Match: \"x\"\r\n")),
    ] {
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert_eq!((offset(&served, &one), offset(&served, &two)), (Ok(3), Ok(3)), "{name}");
        assert_eq!(scratch.read("d/f").unwrap(), b"old", "{name}");
    }
    // The others are none the worse for it.
    assert_eq!(piece(&served, &begun, 4, "", b"5").status, 204);
    assert_eq!(to("POST /d/f", &[&two, &begun, &one], "").status, 201);
    assert_eq!(scratch.read("d/f").unwrap(), b"two12345one");
}

#[test]
fn parts_are_their_users_and_wait_behind_a_restart() {
    let (scratch, secret) = (Scratch::new(), Scratch::new());
    std::fs::create_dir(scratch.file("d")).unwrap();
    let serve = || {
        let storage = scratch.storage();
        let no_overwrite = Permissions::READ_WRITE.without(millrace_server::Permission::Overwrite);
        let accounts = Accounts::new().user("u", "p", no_overwrite, Arc::clone(&storage) as Arc<_>).user(
            "v",
            "p",
            Permissions::READ_WRITE,
            storage,
        );
        let resumable = Resumable { secret: Some(secret.file("tus.key")), ..Resumable::default() };
        let base = http_config(scratch.storage());
        serve_http_with(Config { accounts: Arc::new(accounts), resumable, ..base })
    };
    let first = serve();
    let (one, two) = (part(&first, b"one"), part(&first, b"two"));
    drop(first);
    let served = serve();
    let other = format!(
        "POST /d/f HTTP/1.1\r\nHost: h\r\nAuthorization: Basic djpw\r\nTus-Resumable: 1.0.0\r\n\
         Upload-Concat: final;{one} {two}\r\n\r\n"
    );
    assert_eq!(served.ask(other).status, 400, "another's");
    // A file created under that name meanwhile is not replaced by a user that may not.
    scratch.write("d/f", b"meanwhile");
    assert_eq!(join(&served, "POST /d/f", &[&one, &two], "").status, 403);
    assert_eq!(join(&served, "POST /d/g", &[&one, &two], "").status, 201);
    assert_eq!(scratch.read("d/g").unwrap(), b"onetwo");
    // One is given up, and then there is nothing to join.
    let three = part(&served, b"three");
    assert_eq!(ask(&served, &format!("DELETE {three}"), "", b"").status, 204);
    assert_eq!(join(&served, "POST /d/h", &[&three], "").status, 410);
}

#[test]
fn hooks_are_asked_about_the_file_that_parts_become() {
    let scratch = Scratch::new();
    let (served, ear) = heard(&scratch, is_asked, |context| match (context.event, &context.path) {
        (Event::Command, Some(path)) if context.verb == "PUT" && path.to_string() == "/not" => {
            HookVerdict::Refuse(Refusal::new("550 Not this one."))
        }
        (Event::Upload, Some(path)) if path.to_string() == "/virus" => {
            HookVerdict::Refuse(Refusal::new("552 A virus."))
        }
        _ => HookVerdict::Pass,
    });
    let parts = || {
        ["one", "two"].map(|bytes| {
            let address = begin(&served, "POST /", bytes.len(), PART);
            assert_eq!(piece(&served, &address, 0, "", bytes.as_bytes()).status, 204);
            address
        })
    };
    let join = |name: &str| {
        let parts = parts();
        join(&served, "POST /", &parts.each_ref().map(String::as_str), &named(name))
    };
    assert_eq!(join("f").status, 201);
    assert_eq!(scratch.read("f").unwrap(), b"onetwo");
    let refused = join("not");
    assert!(refused.status == 403 && refused.text().contains("Not this one."), "{refused:?}");
    assert_eq!(scratch.read("not"), None);
    let refused = join("virus");
    assert!(refused.status == 507 && refused.text().contains("A virus."), "{refused:?}");
    let heard = ear.heard.lock().unwrap();
    let about: Vec<&str> = heard
        .iter()
        .map(String::as_str)
        .filter(|line| line.contains("PUT") || line.contains("upload "))
        .collect();
    let expected = [
        "command PUT /f 6",
        "upload  /f 6",
        "command PUT /not 6",
        "command PUT /virus 6",
        "upload  /virus 6",
    ];
    assert_eq!(about, expected);
}
