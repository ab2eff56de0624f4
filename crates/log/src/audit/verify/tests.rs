use std::fs;

use super::*;
use crate::audit::chain::{ChainedFile, head_of};

/// A log of six records, and what becomes of it.
struct Tampered {
    folder: PathBuf,
    lines: Vec<String>,
}

impl Tampered {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-verify-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut file = ChainedFile::open(&folder.join("audit.jsonl")).unwrap();
        for number in 1..=6 {
            file.append(format!("{{\"event\":\"e{number}\"}}\n").as_bytes()).unwrap();
        }
        let text = fs::read_to_string(folder.join("audit.jsonl")).unwrap();
        Self { folder, lines: text.lines().map(str::to_owned).collect() }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("audit.jsonl")
    }

    /// Writes the lines, and verifies them.
    fn verify(&self, noted: Option<Sha256>) -> Result<Verified, (u64, Fault)> {
        let text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.file(), text).unwrap();
        verify(&[self.file()], noted).map_err(|error| match error {
            VerifyError::Broken { line, fault, .. } => (line, fault),
            error => panic!("{error}"),
        })
    }
}

impl Drop for Tampered {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_was_written_is_whole() {
    let log = Tampered::new("whole");
    let last = Sha256::of(log.lines[5].as_bytes());
    let verified = log.verify(Some(Sha256::of(log.lines[2].as_bytes()))).unwrap();
    assert_eq!((verified.first, verified.records), (1, 6));
    assert_eq!(verified.last, Position { seq: 6, sha256: last });
}

#[test]
fn a_removed_record_is_found() {
    let mut log = Tampered::new("removed");
    log.lines.remove(2);
    assert_eq!(log.verify(None), Err((3, Fault::Missing { first: 3, last: 3 })));
}

#[test]
fn a_changed_record_is_found() {
    let mut log = Tampered::new("changed");
    log.lines[2] = log.lines[2].replace("e3", "x3");
    assert_eq!(log.verify(None), Err((3, Fault::Changed { seq: 3 })));
}

#[test]
fn a_moved_record_is_found() {
    let mut log = Tampered::new("moved");
    log.lines.swap(2, 3);
    assert_eq!(log.verify(None), Err((3, Fault::Missing { first: 3, last: 3 })));
    log.lines.swap(2, 3);
    let moved = log.lines.remove(1);
    log.lines.push(moved);
    assert_eq!(log.verify(None), Err((2, Fault::Missing { first: 2, last: 2 })));
    let moved = log.lines.pop().unwrap();
    log.lines.insert(1, moved.clone());
    log.lines.push(moved);
    assert_eq!(log.verify(None), Err((7, Fault::Moved { seq: 2, after: 6 })));
}

#[test]
fn an_inserted_record_is_found() {
    let mut log = Tampered::new("inserted");
    let prev = Sha256::of(log.lines[2].as_bytes());
    log.lines.insert(3, format!("{{\"event\":\"forged\",\"seq\":4,\"prev\":\"{prev}\"}}"));
    assert_eq!(log.verify(None), Err((5, Fault::Twice { seq: 4 })));
    log.lines.remove(3);
    log.lines.insert(3, "{\"event\":\"forged\"}".to_owned());
    assert_eq!(log.verify(None), Err((4, Fault::NoRecord)));
}

#[test]
fn an_end_that_was_cut_is_found_by_the_head_or_a_sha_256_that_was_noted() {
    let mut log = Tampered::new("cut");
    let noted = Sha256::of(log.lines[5].as_bytes());
    log.lines.truncate(4);
    assert_eq!(log.verify(None), Err((4, Fault::EndMissing { first: 5, last: 6 })));
    fs::remove_file(head_of(&log.file())).unwrap();
    assert!(log.verify(None).is_ok(), "the records alone do not tell");
    assert_eq!(log.verify(Some(noted)), Err((4, Fault::Unknown { sha256: noted })));
}

#[test]
fn a_last_record_that_was_changed_is_found_by_the_head() {
    let mut log = Tampered::new("last");
    log.lines[5] = log.lines[5].replace("e6", "x6");
    assert_eq!(log.verify(None), Err((6, Fault::LastChanged { seq: 6 })));
}

#[test]
fn a_new_chain_in_the_middle_and_a_false_beginning_are_found() {
    let mut log = Tampered::new("begin");
    let whole = log.lines.clone();
    log.lines.extend(whole.clone());
    assert_eq!(log.verify(None), Err((7, Fault::Moved { seq: 1, after: 6 })));
    log.lines = whole;
    log.lines[0] = log.lines[0].replace("\"prev\":\"0", "\"prev\":\"1");
    assert_eq!(log.verify(None), Err((1, Fault::NotFirst)));
}

/// A piece counts as torn only where the record behind it has its SHA-256.
#[test]
fn a_record_that_was_spoilt_does_not_pass_for_a_torn_one() {
    let mut log = Tampered::new("spoilt");
    log.lines[2].truncate(10);
    assert_eq!(log.verify(None), Err((3, Fault::NoRecord)));
}

#[test]
fn without_the_older_file_the_first_number_tells() {
    let mut log = Tampered::new("older");
    log.lines.drain(..2);
    assert_eq!(log.verify(None).unwrap().first, 3);
}
