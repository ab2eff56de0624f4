//! Crashes, and disks without room.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::site::{Site, eventually, is, lines};

#[test]
fn a_record_that_a_crash_has_torn_is_named_and_gone_on_behind() {
    let site = Site::new("crash");
    let mut serving = site.serve();
    site.ctl(&["ban", "192.0.2.1"]);
    site.records_up_to(is("administered"));
    serving.signal("-KILL");
    serving.child.wait().unwrap();
    let torn = "{\"time\":\"2026-11-24T18:00:00.000Z\",\"event\":\"adm";
    OpenOptions::new().append(true).open(site.log()).unwrap().write_all(torn.as_bytes()).unwrap();
    let text = site.is_whole(&["audit/audit.jsonl"]);
    assert!(text.contains("audit.jsonl:3: a record was not written whole; the next start"), "{text}");

    site.serve().stop();
    assert_eq!(lines(&site.log())[2], torn);
    let text = site.is_whole(&["audit/audit.jsonl"]);
    assert!(
        text.contains("audit.jsonl:3: a record was not written whole; the record behind it says so"),
        "{text}"
    );
    assert!(text.contains("Records 1 to 6 are as they were written"), "{text}");
    let warned = format!("ended in {} bytes of a record that was not written whole", torn.len());
    assert!(site.events().contains(&warned), "{}", site.events());
}

/// A program that appends may be stopped, or its disk be stuck.
#[test]
fn a_process_that_holds_the_log_stops_no_session() {
    let site = Site::new("held");
    site.configure("audit-files = true\n");
    let serving = site.serve();
    site.records_up_to(is("started"));
    let head = OpenOptions::new().write(true).open(site.folder.join("audit/audit.jsonl.head")).unwrap();
    head.lock().unwrap();
    let mut client = serving.log_in();
    for number in 0..20 {
        client.store(&format!("f{number}"), b"content");
        site.ctl(&["ban", &format!("198.51.100.{number}")]);
    }
    assert!(serving.request("GET /f1", "", "").ends_with("content"));
    assert_eq!(site.records().len(), 1);
    head.unlock().unwrap();
    site.records_up_to(|record| record["path"] == "/f19");
    serving.stop();
    assert_eq!(site.records().iter().filter(|record| !is("upload")(record)).count(), 23);
    site.is_whole(&["audit/audit.jsonl"]);
}

/// Files may not grow beyond a limit, as on a full disk, until the limit is raised.
#[test]
fn a_server_without_room_for_records_serves_and_records_the_gap() {
    let site = Site::new("full");
    let mut command = Command::new("sh");
    // The kernel would end the process that writes.
    let program = env!("CARGO_BIN_EXE_millrace");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" serve --config millrace.toml --log-format json", program]);
    command.current_dir(&site.folder);
    fs::write(site.folder.join("files/f"), "content").unwrap();
    let serving = site.serve_by(command);
    site.ctl(&["ban", "192.0.2.1"]);
    site.records_up_to(is("administered"));
    let pid = Pid::from_child(&serving.child);
    let most = |bytes: Option<u64>| {
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    let length = fs::metadata(site.log()).unwrap().len();
    most(Some(length + 40));
    for number in 1..=5 {
        site.ctl(&["ban", &format!("198.51.100.{number}")]);
    }
    assert!(serving.request("GET /f", "", "").ends_with("content"));
    serving.log_in().say("NOOP", "200");
    most(None);
    site.ctl(&["ban", "203.0.113.1"]);
    let records = site.records_up_to(is("records-lost"));
    let lost = records.iter().find(|record| is("records-lost")(record)).unwrap();
    let written = records.iter().filter(|record| is("administered")(record)).count() as u64;
    assert_eq!(lost["lost"].as_u64().unwrap() + written, 7, "{records:#?}");
    assert!(lost["lost"].as_u64().unwrap() >= 4, "{lost}");
    serving.stop();
    let text = site.is_whole(&["audit/audit.jsonl"]);
    assert!(text.contains("a record was not written whole; the record behind it says so"), "{text}");
    eventually(|| site.events().contains("records are missing from the audit log"), || site.events());
}
