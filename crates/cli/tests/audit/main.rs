//! The audit log of a real server: what it records, and what `millrace log verify` finds.

mod copies;
#[path = "../../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
mod failures;
#[path = "../../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;
mod site;
mod syslog;
mod tampering;

use std::fs;

use serde_json::Value;
use site::{HASH, Site, eventually, is};

/// Asks for a lock of WebDAV, which makes a file that is not there.
const LOCK: &str = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
                    <D:locktype><D:write/></D:locktype></D:lockinfo>";

/// An event in few words: what was done, to what, by whom.
fn told(record: &Value) -> String {
    let field = |key: &str| match &record[key] {
        Value::String(text) => Some(text.clone()),
        _ => None,
    };
    let event = field("event").unwrap();
    let keys = [
        "what",
        "action",
        "account",
        "settings",
        "verb",
        "from",
        "path",
        "tried",
        "changed",
        "next_start",
        "failed",
        "user",
    ];
    keys.into_iter().filter_map(field).fold(event, |told, text| format!("{told} {text}"))
}

#[test]
fn what_administrators_and_the_server_do_is_recorded() {
    let site = Site::new("administration");
    let keys = "ban-after = 2\nlogin-delay = \"1ms\"\n";
    site.configure(keys);
    let serving = site.serve();
    site.ctl(&["limits", "user", "alice", "--download", "10M"]);
    site.ctl(&["ban", "192.0.2.0/24", "--for", "60s"]);
    site.ctl(&["unban", "192.0.2.0/24"]);
    let refused = site.run(&["ctl", "--control", "control", "unban", "192.0.2.0/24"]);
    assert_eq!(refused.status.code(), Some(1));
    site.ctl(&["bans"]);
    let client = serving.log_in();
    site.ctl(&["kick", "--user", "alice"]);
    site.records_up_to(is("kicked"));
    drop(client);
    for _ in 0..3 {
        let mut client = serving.connect();
        client.say("USER mallory", "331");
        client.say("PASS wrong", "530");
    }
    site.records_up_to(is("login-refused"));
    site.configure(&format!("{keys}greeting = \"Hello.\"\ndeny = \"203.0.113.0/24\"\n"));
    site.ctl(&["reload"]);
    site.configure(keys);
    serving.signal("-HUP");
    site.records_up_to(|record| record["what"] == "SIGHUP");
    serving.stop();
    let records = site.records();
    // Before the answer to `ctl`, or behind it.
    let kicked = records.iter().position(is("kicked")).unwrap();
    assert_eq!(told(&records[kicked]), "kicked alice");
    let others = records.iter().filter(|record| !is("kicked")(record));
    let told: Vec<String> = others.map(told).collect();
    assert_eq!(
        told,
        [
            "started",
            "administered limits download=10M restore=false scope=user alice",
            "administered ban network=192.0.2.0/24 seconds=60",
            "administered unban network=192.0.2.0/24",
            "administered unban network=192.0.2.0/24 192.0.2.0/24 is not banned",
            "administered kick user=alice",
            "banned mallory",
            "login-refused mallory",
            "reloaded deny greeting",
            "administered reload",
            "reloaded deny",
            "administered SIGHUP",
            "administered SIGTERM",
            "ended",
        ]
        .map(str::to_owned),
        "{records:#?}"
    );
    let uid = rustix::process::getuid().as_raw();
    let by_ctl = records.iter().find(|record| record["what"] == "reload").unwrap();
    assert_eq!(by_ctl["uid"], uid);
    let banned = records.iter().find(|record| record["event"] == "banned").unwrap();
    assert!(banned["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{banned}");
    assert_eq!(
        site.is_whole(&["audit/audit.jsonl"]).split(';').next(),
        Some("Records 1 to 15 are as they were written")
    );
}

#[test]
fn accounts_and_links_are_recorded_by_the_commands_that_change_them() {
    let site = Site::new("accounts");
    let keys = "http-link-keys = \"keys\"\n[[group]]\nname = \"staff\"\n";
    site.configure(keys);
    fs::write(site.folder.join("keys"), "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::write(site.folder.join("files/f"), "content").unwrap();
    let serving = site.serve();
    site.user(&["--config", "millrace.toml", "add", "bob", "--hash", HASH, "access=ro", "groups=staff"]);
    site.user(&["set", "bob", "access=rw", "sessions="]);
    site.user(&["passwd", "bob", "--hash", HASH]);
    site.user(&["totp", "bob"]);
    site.user(&["disable", "bob"]);
    site.user(&["enable", "bob"]);
    site.user(&["list"]);
    site.user(&["show", "bob"]);
    let refused = site.run(&["user", "--users", "users.db", "set", "missing", "access=ro"]);
    assert_eq!(refused.status.code(), Some(2));
    site.user(&["remove", "bob"]);
    fs::write(site.folder.join("htpasswd"), format!("carol:{HASH}\n")).unwrap();
    site.user(&["import", "htpasswd", "htpasswd"]);
    site.done(&["link", "--config", "millrace.toml", "--user", "carol", "/f", "--url", "http://h"]);
    fs::write(site.folder.join("keys"), "fedcba9876543210fedcba9876543210\n").unwrap();
    site.ctl(&["reload"]);
    site.records_up_to(is("administered"));
    serving.stop();
    let records = site.records();
    let changes =
        records.iter().filter(|record| !matches!(record["event"].as_str(), Some("started" | "ended")));
    let told: Vec<String> = changes.clone().map(told).collect();
    assert_eq!(
        told,
        [
            "account-changed add bob access=ro groups=staff",
            "account-changed set bob access=rw sessions=",
            "account-changed password bob",
            "account-changed totp bob",
            "account-changed disable bob",
            "account-changed enable bob",
            "account-changed remove bob",
            "account-changed import carol",
            "link-issued /f",
            "link-key-removed",
            "reloaded",
            "administered reload",
            "administered SIGTERM",
        ]
        .map(str::to_owned),
        "{records:#?}"
    );
    let uid = rustix::process::getuid().as_raw();
    assert!(
        records
            .iter()
            .filter(|record| record["event"] == "account-changed")
            .all(|record| record["uid"] == uid)
    );
    let of = |event: &str| records.iter().find(|record| record["event"] == event).unwrap();
    assert_eq!(of("link-issued")["key"], of("link-key-removed")["key"]);
    assert_eq!(of("link-issued")["in_name_of"], "carol");
    let text = fs::read_to_string(site.log()).unwrap();
    assert!(!text.contains("argon2") && !text.contains("0123456789abcdef0"), "{text}");
    site.is_whole(&["audit/audit.jsonl"]);
}

/// Nothing is changed that cannot be recorded.
#[test]
fn an_account_is_not_changed_where_the_audit_log_cannot_be_written_to() {
    let site = Site::new("unwritable");
    site.serve().stop();
    fs::remove_dir_all(site.folder.join("audit")).unwrap();
    let refused = site.run(&["user", "--users", "users.db", "add", "bob", "--hash", HASH]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("cannot be written to") && error.contains("nothing was changed"), "{error}");
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(site.user(&["list"]), "alice\n");
}

#[test]
fn changes_of_files_are_recorded_by_either_protocol_where_that_is_asked_for() {
    changes_are_recorded("files", "");
}

/// An upload is logged when hooks have decided.
#[test]
fn changes_of_files_that_hooks_are_asked_about_are_recorded_as_well() {
    let hook = "on = [\"command\", \"upload\", \"delete\", \"rename\"]\nrun = [\"/bin/true\"]\n";
    changes_are_recorded("hooked-files", &format!("hooks-queue = \"queue.db\"\n[[hook]]\n{hook}"));
}

fn changes_are_recorded(name: &str, hooks: &str) {
    let site = Site::new(name);
    site.configure(&format!("audit-files = true\n{hooks}"));
    let serving = site.serve();
    let mut ftp = serving.log_in();
    ftp.store("a", b"ftp");
    ftp.say("SITE CHMOD 600 a", "200");
    ftp.say("MKD d", "257");
    ftp.say("RNFR a", "350");
    ftp.say("RNTO d/b", "250");
    ftp.say("DELE d/b", "250");
    ftp.say("RMD d", "250");
    ftp.say("SIZE none", "550");
    for (line, fields, body, status) in [
        ("PUT /p", "", "http", "201"),
        ("MKCOL /m", "", "", "201"),
        ("MOVE /p", "Destination: /m/q\r\n", "", "201"),
        ("COPY /m/q", "Destination: /m/r\r\n", "", "201"),
        ("DELETE /m/q", "", "", "204"),
        ("DELETE /m/", "", "", "204"),
        ("LOCK /l", "", LOCK, "201"),
        ("DELETE /none", "", "", "404"),
        ("GET /none", "", "", "404"),
        (
            "POST /t",
            "Tus-Resumable: 1.0.0\r\nUpload-Length: 3\r\nContent-Type: application/offset+octet-stream\r\n",
            "tus",
            "201",
        ),
    ] {
        let answer = serving.request(line, fields, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
    }
    site.records_up_to(|record| record["path"] == "/t");
    serving.stop();
    let records = site.records();
    let of_files =
        records.iter().filter(|record| matches!(record["event"].as_str(), Some("upload" | "changed")));
    // Each request of HTTP is a session, and workers may record those in another order.
    let mut told: Vec<String> = of_files.clone().map(told).collect();
    told.sort();
    assert_eq!(
        told,
        [
            "changed change-attributes /a alice",
            "changed copy-to /m/q /m/r alice",
            "changed make-directory /d alice",
            "changed make-directory /m alice",
            "changed make-file /l alice",
            "changed remove /d/b alice",
            "changed remove /m/q alice",
            "changed remove-directory /d alice",
            "changed remove-tree /m alice",
            "changed rename-to /a /d/b alice",
            "changed rename-to /p /m/q alice",
            "upload /a alice",
            "upload /p alice",
            "upload /t alice",
        ]
        .map(str::to_owned),
        "{records:#?}"
    );
    assert!(of_files.clone().all(|record| record["peer"].as_str().unwrap().starts_with("127.0.0.1:")));
    site.is_whole(&["audit/audit.jsonl"]);
}

#[test]
fn without_being_asked_for_no_file_is_recorded() {
    let site = Site::new("no-files");
    let serving = site.serve();
    serving.log_in().store("a", b"ftp");
    assert!(serving.request("PUT /p", "", "http").starts_with("HTTP/1.1 201 "));
    serving.stop();
    let told: Vec<String> = site.records().iter().map(told).collect();
    assert_eq!(told, ["started", "administered SIGTERM", "ended"].map(str::to_owned));
}

#[test]
fn the_last_record_is_told_at_the_start_and_on_request() {
    let site = Site::new("told");
    site.serve().stop();
    let serving = site.serve();
    let last = site.records_up_to(|record| record["seq"] == 4).len();
    assert_eq!(last, 4);
    let verified = site.is_whole(&["audit/audit.jsonl"]);
    let sha256 = verified.trim_end().trim_end_matches('.').rsplit(' ').next().unwrap();
    let told = site.ctl(&["audit"]);
    assert!(told.contains("the last record is 4") && told.contains(sha256), "{told}{verified}");
    let events = site.events();
    let begun: Vec<&str> = events.lines().filter(|line| line.contains(" audit-log ")).collect();
    assert!(begun.len() == 2 && begun[1].contains("seq=3 sha256="), "{events}");
    serving.stop();
}

#[test]
fn a_server_and_its_successor_write_one_chain() {
    let site = Site::new("upgrade");
    site.configure("audit-files = true\ngrace = \"20s\"\n");
    let mut serving = site.serve();
    let mut old = serving.log_in();
    let upgraded: Value = serde_json::from_str(&site.ctl(&["--json", "upgrade"])).unwrap();
    serving.lines_up_to_ready();
    let mut new = serving.log_in();
    for number in 0..10 {
        new.say(&format!("MKD new{number}"), "257");
        old.say(&format!("MKD old{number}"), "257");
        site.ctl(&["limits", "server", "--download", "10M"]);
    }
    old.say("QUIT", "221");
    site.records_up_to(is("ended"));
    site.ctl(&["stop"]);
    let ended = || site.records().iter().filter(|record| is("ended")(record)).count();
    eventually(|| ended() == 2, || site.events());
    let records = site.records();
    let started = records.iter().find(|record| !record["replaces_pid"].is_null()).unwrap();
    assert_eq!(started["pid"], upgraded["pid"]);
    assert_eq!(records.iter().filter(|record| record["verb"] == "make-directory").count(), 20);
    site.is_whole(&["audit/audit.jsonl"]);
}
