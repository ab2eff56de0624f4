//! A binary log, written and read again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use millrace_metrics::{Cause, Waited};
use millrace_vfs::{Conversion, Timestamp, VirtualPath};

use super::record::SIZE;
use super::ring::{RingFile, place};
use super::{ConvertError, Converted, Form, convert, write_request, write_transfer};
use crate::{Direction, Request, Subject, Transferred};

/// Records of the smallest ring.
const SLOTS: u64 = 1024;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("millrace-binary-{}-{name}", std::process::id())))
    }

    fn open(&self) -> RingFile {
        RingFile::open(&self.0, 0).unwrap()
    }

    fn told(&self, form: Form) -> (String, Converted) {
        let mut out = Vec::new();
        let converted = convert(&self.0, form, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), converted)
    }

    /// The targets of its requests, the oldest first.
    fn targets(&self) -> Vec<String> {
        let (text, _) = self.told(Form::Combined);
        text.lines().map(|line| line.split(' ').nth(6).unwrap().to_owned()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const NOW: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 5_000_000 };

fn subject() -> Subject<'static> {
    Subject { session: 7, peer: "192.0.2.7:1025".parse().unwrap(), user: Some(b"ann") }
}

fn request(target: &str) -> Request<'_> {
    Request {
        method: "GET",
        target: target.as_bytes(),
        protocol: "HTTP/1.1",
        host: Some(b"example.com"),
        status: 200,
        bytes: 2326,
        referer: None,
        agent: Some(b"curl/8.0"),
        elapsed: Duration::from_micros(1500),
        waited: [(Cause::Limit, Duration::from_millis(250))].into_iter().collect(),
        trace: None,
    }
}

fn written(target: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_request(NOW, &subject(), &request(target), &mut out);
    out
}

#[test]
fn entries_come_back_as_they_were_in_each_form() {
    let scratch = Scratch::new("forms");
    let path = VirtualPath::parse(b"/a b").unwrap();
    let transfer = Transferred {
        direction: Direction::Upload,
        path: &path,
        bytes: 1024,
        elapsed: Duration::from_millis(1400),
        first_byte: None,
        lag: Duration::from_millis(1),
        waited: Waited::default(),
        failure: Some("it was aborted"),
        hash: Some("SHA-256:00"),
        ascii: true,
        conversion: Conversion { archived: true, ..Conversion::default() },
        guest: Some(b"me@example"),
        log: None,
    };
    let mut records = written("/f?x=1");
    let unnamed = Subject { user: None, peer: "[2001:db8::1]:9".parse().unwrap(), ..subject() };
    write_transfer(NOW, &unnamed, &transfer, &mut records);
    scratch.open().write_all(&records).unwrap();
    for (form, expected) in [
        (
            Form::Text,
            "2001-09-09T01:46:40.005Z #7 192.0.2.7:1025 ann request method=\"GET\" target=\"/f?x=1\" protocol=\"HTTP/1.1\" \
             status=200 bytes=2326 seconds=0.001500 waited-limit=0.250000 host=\"example.com\" agent=\"curl/8.0\"\n\
             2001-09-09T01:46:40.006Z #7 [2001:db8::1]:9 - upload path=\"/a b\" bytes=1024 seconds=1.400000 \
             hash=\"SHA-256:00\" failed=\"it was aborted\"\n",
        ),
        (
            Form::Combined,
            "192.0.2.7 - ann [09/Sep/2001:01:46:40 +0000] \"GET /f?x=1 HTTP/1.1\" 200 2326 \"-\" \"curl/8.0\"\n",
        ),
        (
            Form::Xferlog,
            "Sun Sep  9 01:46:40 2001 0 192.0.2.7 2326 /f b _ o r ann http 0 * c\n\
             Sun Sep  9 01:46:40 2001 1 2001:db8::1 1024 /a_b a T i r me@example ftp 0 * i\n",
        ),
    ] {
        assert_eq!(scratch.told(form), (expected.to_owned(), Converted { entries: 2, torn: 0 }), "{form:?}");
    }
    let (json, _) = scratch.told(Form::Json);
    assert!(
        json.contains("\"event\":\"request\"") && json.contains("\"started-us\":999999998606000"),
        "{json}"
    );
    assert!(scratch.told(Form::W3c).0.lines().last().unwrap().contains(" ann GET /f x=1 200 2326 "));
}

#[test]
fn the_newest_entries_take_the_place_of_the_oldest() {
    let scratch = Scratch::new("ring");
    // Of two records each, and an odd one before, so that one lies at both ends of the file.
    let long = "x".repeat(200);
    let mut ring = scratch.open();
    ring.write_all(&written("/odd")).unwrap();
    for number in 0..SLOTS {
        ring.write_all(&written(&format!("/{number}-{long}"))).unwrap();
    }
    let targets = scratch.targets();
    assert_eq!(targets.len() as u64, SLOTS / 2);
    assert_eq!(targets.first().unwrap(), &format!("/{}-{long}", SLOTS / 2));
    assert_eq!(targets.last().unwrap(), &format!("/{}-{long}", SLOTS - 1));
    assert_eq!(fs::metadata(&scratch.0).unwrap().len(), place(SLOTS));
    // More at a time than there is room for.
    let many: Vec<u8> = (0..SLOTS + 5).flat_map(|number| written(&format!("/{number}"))).collect();
    ring.write_all(&many).unwrap();
    let targets = scratch.targets();
    assert_eq!((targets.len() as u64, &*targets[0]), (SLOTS, "/5"));
}

#[test]
fn processes_go_on_behind_each_other_and_the_file_keeps_its_size() {
    let scratch = Scratch::new("both");
    let mut rings = [scratch.open(), RingFile::open(&scratch.0, 1 << 30).unwrap()];
    for number in 0..4 {
        rings[number % 2].write_all(&written(&format!("/{number}"))).unwrap();
    }
    assert_eq!(scratch.targets(), ["/0", "/1", "/2", "/3"]);
    assert_eq!(fs::metadata(&scratch.0).unwrap().len(), place(SLOTS));
}

#[test]
fn records_that_were_not_written_whole_are_told_and_left_out() {
    let scratch = Scratch::new("torn");
    let long = "x".repeat(1000);
    let mut ring = scratch.open();
    for target in ["/a", &long, "/b", &long, "/c"] {
        ring.write_all(&written(target)).unwrap();
    }
    let parts = written(&long).len() / SIZE;
    let file = OpenOptions::new().write(true).open(&scratch.0).unwrap();
    // Half of one, and the last of another; numbers begin with 1.
    file.write_all_at(&[0xff; SIZE / 2], place(1)).unwrap();
    file.write_all_at(&[0; SIZE], place(2 + 2 * parts as u64)).unwrap();
    let (text, converted) = scratch.told(Form::Combined);
    assert_eq!(converted, Converted { entries: 3, torn: 2 }, "{text}");
    assert!(!text.contains(" /a ") && text.contains(" /b ") && text.contains(" /c "), "{text}");
}

#[test]
fn a_file_that_was_cut_is_read_as_far_as_it_goes() {
    let scratch = Scratch::new("cut");
    let mut ring = scratch.open();
    for target in ["/a", "/b", "/c"] {
        ring.write_all(&written(target)).unwrap();
    }
    let file = OpenOptions::new().write(true).open(&scratch.0).unwrap();
    // Numbers begin with 1.
    file.set_len(place(3) + SIZE as u64 / 2).unwrap();
    let (text, converted) = scratch.told(Form::Combined);
    assert_eq!(converted, Converted { entries: 2, torn: 1 }, "{text}");
    assert!(text.contains(" /a ") && text.contains(" /b "), "{text}");
}

#[test]
fn what_is_no_binary_log_is_neither_read_nor_written_over() {
    let scratch = Scratch::new("other");
    fs::write(&scratch.0, "127.0.0.1 - - a line\n").unwrap();
    assert!(RingFile::open(&scratch.0, 0).is_err());
    let read = convert(&scratch.0, Form::Text, &mut Vec::new());
    assert!(matches!(read, Err(ConvertError::File { .. })), "{read:?}");
    assert_eq!(fs::read_to_string(&scratch.0).unwrap(), "127.0.0.1 - - a line\n");
}

#[test]
fn long_names_are_cut_with_a_mark() {
    let scratch = Scratch::new("long");
    let mut out = Vec::new();
    let (target, agent) = (format!("/{}", "x".repeat(9000)), vec![b'y'; 9000]);
    let long = Request { agent: Some(&agent), host: Some(&agent), referer: Some(&agent), ..request(&target) };
    write_request(NOW, &Subject { user: Some(&agent), ..subject() }, &long, &mut out);
    scratch.open().write_all(&out).unwrap();
    let (text, converted) = scratch.told(Form::Combined);
    assert_eq!((converted.entries, converted.torn), (1, 0));
    assert!(text.contains(&format!("/{}... HTTP/1.1", "x".repeat(4092))), "{text}");
    assert!(text.contains(&format!("\"{}...\"\n", "y".repeat(509))), "{text}");
}
