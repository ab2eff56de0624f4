use std::fs;

use super::*;
use crate::audit::verify::verify;

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-chain-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn log(&self) -> PathBuf {
        self.0.join("audit.jsonl")
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.log()).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Records with these numbers in them.
fn bodies(numbers: std::ops::Range<u32>) -> Vec<u8> {
    numbers.flat_map(|number| format!("{{\"event\":\"test\",\"number\":{number}}}\n").into_bytes()).collect()
}

fn append(file: &mut ChainedFile, numbers: std::ops::Range<u32>) -> Appended {
    let bodies = bodies(numbers);
    let appended = file.append(&bodies).unwrap();
    assert_eq!(appended.taken, bodies.len());
    appended
}

#[test]
fn each_record_carries_the_sha_256_of_the_line_before() {
    let folder = Folder::new("carries");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    assert_eq!(last_written(&folder.log()).unwrap(), None);
    let appended = append(&mut file, 0..3);
    let lines = folder.lines();
    let mut before = "0".repeat(64);
    for (index, line) in lines.iter().enumerate() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["number"], index);
        assert_eq!(record["seq"], index + 1);
        assert_eq!(record["prev"], before);
        before = Sha256::of(line.as_bytes()).to_string();
    }
    assert_eq!(appended.position.sha256.to_string(), before);
    assert_eq!(last_written(&folder.log()).unwrap(), Some(appended.position));
    assert_eq!(fs::metadata(folder.log()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn processes_append_in_turn_and_follow_a_file_that_was_moved_away() {
    let folder = Folder::new("moved");
    let old = folder.0.join("audit.jsonl.1");
    let (mut one, mut other) =
        (ChainedFile::open(&folder.log()).unwrap(), ChainedFile::open(&folder.log()).unwrap());
    append(&mut one, 0..2);
    append(&mut other, 2..3);
    append(&mut one, 3..4);
    fs::rename(folder.log(), &old).unwrap();
    append(&mut other, 4..5);
    append(&mut one, 5..6);
    assert_eq!(folder.lines().len(), 2);
    let verified = verify(&[old, folder.log()], None).unwrap();
    assert_eq!((verified.records, verified.last.seq), (6, 6));
}

#[test]
fn appends_at_the_same_time_are_one_chain() {
    let folder = Folder::new("parallel");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut file = ChainedFile::open(&folder.log()).unwrap();
                (0..50).for_each(|number| _ = append(&mut file, number..number + 1));
            });
        }
    });
    assert_eq!(verify(&[folder.log()], None).unwrap().records, 200);
}

#[test]
fn a_record_that_is_torn_stays_and_is_told_of_by_the_next() {
    let folder = Folder::new("torn");
    append(&mut ChainedFile::open(&folder.log()).unwrap(), 0..2);
    let torn = "{\"event\":\"te";
    let mut file = OpenOptions::new().append(true).open(folder.log()).unwrap();
    file.write_all(torn.as_bytes()).unwrap();
    let torn_now = verify(&[folder.log()], None).unwrap().torn;
    assert_eq!(torn_now.iter().map(|torn| (torn.line, torn.is_noted)).collect::<Vec<_>>(), [(3, false)]);
    let appended = append(&mut ChainedFile::open(&folder.log()).unwrap(), 2..3);
    assert_eq!(appended.found, Some(Found::Torn { bytes: torn.len() as u64 }));
    let lines = folder.lines();
    assert_eq!(lines[2], torn);
    assert!(lines[3].contains("\"event\":\"record-torn\""), "{}", lines[3]);
    let verified = verify(&[folder.log()], None).unwrap();
    assert_eq!(verified.torn.iter().map(|torn| (torn.line, torn.is_noted)).collect::<Vec<_>>(), [(3, true)]);
    assert_eq!(verified.records, 4);
}

#[test]
fn pieces_of_several_attempts_are_told_of_together() {
    let folder = Folder::new("pieces");
    append(&mut ChainedFile::open(&folder.log()).unwrap(), 0..1);
    let mut file = OpenOptions::new().append(true).open(folder.log()).unwrap();
    file.write_all(b"{\"a\n\n{\"b\"}\n").unwrap();
    append(&mut ChainedFile::open(&folder.log()).unwrap(), 1..2);
    let verified = verify(&[folder.log()], None).unwrap();
    assert_eq!((verified.records, verified.torn.len()), (3, 1));
}

#[test]
fn a_tail_that_was_cut_is_noticed_at_the_next_record() {
    let folder = Folder::new("cut");
    append(&mut ChainedFile::open(&folder.log()).unwrap(), 0..4);
    let lines = folder.lines();
    fs::write(folder.log(), format!("{}\n{}\n", lines[0], lines[1])).unwrap();
    let appended = append(&mut ChainedFile::open(&folder.log()).unwrap(), 4..5);
    assert_eq!(appended.found, Some(Found::Missing { first: 3, last: 4 }));
    assert_eq!(appended.position.seq, 6, "no number is used twice");
    let text = verify(&[folder.log()], None).unwrap_err().to_string();
    assert!(text.ends_with(":3: records 3 to 4 are missing before record 5"), "{text}");
}

/// The process was killed between the two.
#[test]
fn a_head_that_is_behind_its_file_does_no_harm() {
    let folder = Folder::new("behind");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    append(&mut file, 0..1);
    let head = fs::read(head_of(&folder.log())).unwrap();
    append(&mut file, 1..3);
    for damaged in [&head[..], b"", b"nonsense", &[b' '; HEAD]] {
        fs::write(head_of(&folder.log()), damaged).unwrap();
        let appended = append(&mut file, 3..4);
        assert_eq!(appended.found, None);
        verify(&[folder.log()], None).unwrap();
    }
    assert_eq!(folder.lines().len(), 7);
}

#[test]
fn the_last_record_is_found_behind_long_lines_and_a_long_piece() {
    let folder = Folder::new("long");
    let mut file = ChainedFile::open(&folder.log()).unwrap();
    append(&mut file, 0..1);
    let long = format!("{{\"path\":\"{}\"}}\n", "x".repeat(200_000));
    file.append(long.as_bytes()).unwrap();
    let mut torn = OpenOptions::new().append(true).open(folder.log()).unwrap();
    torn.write_all(&[b'y'; 300_000]).unwrap();
    append(&mut file, 1..2);
    assert_eq!(verify(&[folder.log()], None).unwrap().records, 4);
}

#[test]
fn of_a_batch_without_room_the_whole_records_count() {
    let mut batch = Batch::behind(Position::START);
    let bodies = bodies(0..3);
    for body in bodies.split_inclusive(|&byte| byte == b'\n') {
        batch.chain(body, body.len());
    }
    let ends: Vec<_> = batch.ends.clone();
    let (second, taken, position) = ends[1];
    let (appended, end) = batch.up_to(second + 5).unwrap();
    assert_eq!((appended.taken, appended.position, end), (taken, position, second));
    assert_eq!(appended.lines.len(), second);
    let mut batch = Batch::behind(Position::START);
    batch.chain(b"{\"event\":\"record-torn\"}\n", 0);
    batch.chain(b"{}\n", 3);
    let first = batch.ends[0].0;
    assert!(batch.up_to(first + 1).is_none(), "nothing of the caller's was written");
}

#[test]
fn a_device_is_refused() {
    let error = ChainedFile::open(Path::new("/dev/null")).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied), "{error}");
}
