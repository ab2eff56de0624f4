use std::io::Write;

use super::*;
use crate::audit::chain::ChainedFile;

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-follow-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn log(&self) -> PathBuf {
        self.0.join("audit.jsonl")
    }

    fn rotate(&self, to: &str) {
        fs::rename(self.log(), self.0.join(to)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn append(file: &mut ChainedFile, count: usize) {
    for _ in 0..count {
        file.append(b"{\"event\":\"test\"}\n").unwrap();
    }
}

fn numbers(follower: &mut Follower) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        let some = follower.read(2).unwrap();
        if some.is_empty() {
            return numbers;
        }
        numbers.extend(some.iter().map(|record| record.position.seq));
    }
}

#[test]
fn records_are_read_once_from_behind_the_last_one_and_through_rotations() {
    let folder = Folder::new("rotations");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    append(&mut file, 5);
    let mut follower = Follower::behind(&folder.log(), 2);
    assert_eq!(numbers(&mut follower), [3, 4, 5]);
    append(&mut file, 1);
    folder.rotate("audit.jsonl.1");
    append(&mut file, 1);
    folder.rotate("audit.jsonl-20261129");
    append(&mut file, 2);
    // The file that was open is read to its end; a file that came and went meanwhile is found.
    assert_eq!(numbers(&mut follower), [6, 7, 8, 9]);
    assert_eq!(numbers(&mut Follower::behind(&folder.log(), 0)), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn the_chain_of_what_was_read_can_be_checked() {
    let folder = Folder::new("chain");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    append(&mut file, 3);
    let records = Follower::behind(&folder.log(), 0).read(10).unwrap();
    assert_eq!(records[0].prev, Position::START.sha256);
    assert_eq!(records[1].prev, records[0].position.sha256);
    assert_eq!(records[2].prev, Sha256::of(records[1].line.as_bytes()));
}

#[test]
fn a_piece_of_a_record_is_left_until_it_is_whole_or_noted() {
    let folder = Folder::new("piece");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    append(&mut file, 1);
    let mut other = fs::OpenOptions::new().append(true).open(folder.log()).unwrap();
    other.write_all(b"{\"event\":\"to").unwrap();
    let mut follower = Follower::behind(&folder.log(), 0);
    assert_eq!(numbers(&mut follower), [1]);
    append(&mut file, 1);
    assert_eq!(numbers(&mut follower), [2, 3], "the note that it was torn, and the record");
}

#[test]
fn a_gap_is_passed_over_where_no_file_has_what_is_missing() {
    let folder = Folder::new("gap");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    append(&mut file, 2);
    folder.rotate("audit.jsonl.1");
    append(&mut file, 2);
    fs::remove_file(folder.0.join("audit.jsonl.1")).unwrap();
    assert_eq!(numbers(&mut Follower::behind(&folder.log(), 0)), [3, 4]);
    assert!(numbers(&mut Follower::behind(&folder.0.join("other"), 0)).is_empty());
}

#[test]
fn copies_that_lie_beside_the_log_keep_no_record_from_being_read() {
    let folder = Folder::new("strays");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    append(&mut file, 6);
    let text = fs::read_to_string(folder.log()).unwrap();
    let copy = |name: &str, from: usize, to: usize| {
        let lines: String = text.split_inclusive('\n').skip(from).take(to - from).collect();
        fs::write(folder.0.join(name), lines).unwrap();
    };
    copy("audit.jsonl.bak", 0, 4);
    copy("audit.jsonl-middle", 4, 5);
    let mut follower = Follower::behind(&folder.log(), 5);
    assert_eq!(numbers(&mut follower), [6]);
    append(&mut file, 1);
    assert_eq!(numbers(&mut follower), [7]);
    folder.rotate("audit.jsonl.1");
    append(&mut file, 1);
    copy("audit.jsonl-end", 5, 6);
    assert_eq!(numbers(&mut Follower::behind(&folder.log(), 6)), [7, 8]);
    assert_eq!(numbers(&mut Follower::behind(&folder.log(), 0)), [1, 2, 3, 4, 5, 6, 7, 8]);
    // As far as the copies go, and then from the log as it is written.
    let mut all_read = Follower::behind(&folder.log(), 8);
    assert!(numbers(&mut all_read).is_empty());
    append(&mut file, 1);
    assert_eq!(numbers(&mut all_read), [9]);
}

#[test]
fn records_behind_the_newest_that_may_be_read_are_left_until_they_may() {
    let folder = Folder::new("newest");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    append(&mut file, 3);
    let mut follower = Follower::behind(&folder.log(), 0);
    assert_eq!(follower.read_to(2, 10).unwrap().len(), 2);
    assert!(follower.read_to(2, 10).unwrap().is_empty());
    assert_eq!(numbers(&mut follower), [3]);
}
