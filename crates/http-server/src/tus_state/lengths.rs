//! Lengths that clients have said after they began their uploads (`Upload-Defer-Length`), and that addresses so lack.
//!
//! The invariant: an acknowledged length survives a restart, also a kill: its line is in the file before the answer is
//! sent. Lines are only appended; when most of them are outdated, and when the server starts, the file is rewritten
//! without those that were not used recently.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use millrace_vfs::{PartialKey, hex};

/// How many are known at a time: more than wait in a tree, several times over.
const MOST: usize = 10_000;

/// Lines that may say nothing any more, besides as many as do say something.
const STALE: usize = 1000;

/// Lengths by the uploads that they are of.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    known: HashMap<PartialKey, Known>,
    /// Where they are kept; `None` where nothing is, or cannot be.
    journal: Option<Journal>,
}

/// The file that they are kept in.
#[derive(Debug)]
struct Journal {
    path: PathBuf,
    file: File,
    lines: usize,
    /// The last line may not be whole: the disk was full.
    is_torn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    length: u64,
    /// The time of the last request, in seconds since 1970, as in the file.
    asked: i64,
}

/// Why a length is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untaken {
    /// Another one was said before.
    Other,
    /// There are too many.
    Full,
}

impl Lengths {
    /// Opens a file's records, without those not used since that second. The error is why the file is not used.
    pub(crate) fn open(path: Option<&PathBuf>, since: i64) -> (Self, Option<io::Error>) {
        let Some(path) = path else { return (Self::default(), None) };
        match read(path, since) {
            Ok((known, journal)) => (Self { known, journal: Some(journal) }, None),
            Err(error) => (Self::default(), Some(error)),
        }
    }

    /// The length of an upload. One that is asked for stays known.
    pub(crate) fn of(&mut self, key: &PartialKey, now: i64, age: i64) -> Option<u64> {
        let known = *self.known.get(key)?;
        if now.saturating_sub(known.asked) > age / 2 {
            self.write(*key, Known { asked: now, ..known });
        }
        Some(known.length)
    }

    /// A client has said it; `since` is as with [`Lengths::open`].
    pub(crate) fn say(&mut self, key: PartialKey, length: u64, now: i64, since: i64) -> Result<(), Untaken> {
        match self.known.get(&key) {
            Some(known) if known.length != length => return Err(Untaken::Other),
            Some(_) => return Ok(()),
            None => {}
        }
        if self.known.len() >= MOST {
            self.known.retain(|_, known| known.asked >= since);
        }
        if self.known.len() >= MOST {
            return Err(Untaken::Full);
        }
        self.write(key, Known { length, asked: now });
        Ok(())
    }

    /// The upload is over.
    pub(crate) fn forget(&mut self, key: &PartialKey) {
        self.known.remove(key);
    }

    pub(crate) fn write(&mut self, key: PartialKey, known: Known) {
        self.known.insert(key, known);
        let Some(journal) = &mut self.journal else { return };
        // A full disk does not prevent an upload from continuing: without a restart the length is known all the same.
        if journal.lines > 2 * self.known.len() + STALE {
            match Journal::begin(&journal.path, &self.known) {
                Ok(anew) => return *journal = anew,
                Err(_) => journal.lines = 0,
            }
        }
        journal.add(&line(&key, &known));
    }
}

impl Journal {
    /// A new one in place of the old, with these.
    fn begin(path: &Path, known: &HashMap<PartialKey, Known>) -> io::Result<Self> {
        let made = path.with_extension(format!("new-{}", std::process::id()));
        // What an attempt that failed has left is of no use.
        let _ = fs::remove_file(&made);
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&made)?;
        let text: String = known.iter().map(|(key, known)| line(key, known)).collect();
        file.write_all(text.as_bytes())?;
        fs::rename(&made, path)?;
        Ok(Self { path: path.to_owned(), file, lines: known.len(), is_torn: false })
    }

    fn add(&mut self, line: &str) {
        let end = if self.is_torn { "\n" } else { "" };
        self.is_torn = self.file.write_all([end, line].concat().as_bytes()).is_err();
        self.lines += 1;
    }
}

fn line(key: &PartialKey, known: &Known) -> String {
    format!("{key} {} {}\n", known.length, known.asked)
}

fn parse(line: &str) -> Option<(PartialKey, Known)> {
    let mut words = line.split(' ');
    let (key, length, asked) = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let bytes = hex::decode(key.as_bytes())?.try_into().ok()?;
    Some((PartialKey::new(bytes), Known { length, asked }))
}

/// Reads the file and writes what counts of it into a new one, to which more is added.
fn read(path: &Path, since: i64) -> io::Result<(HashMap<PartialKey, Known>, Journal)> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    // A line that a kill has cut is none.
    let lines = text.split_inclusive('\n').filter_map(|line| parse(line.strip_suffix('\n')?));
    let mut known: HashMap<_, _> = lines.collect();
    known.retain(|_, known| known.asked >= since);
    let journal = Journal::begin(path, &known)?;
    Ok((known, journal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_survive_a_restart_until_they_are_no_longer_used() {
        let folder = std::env::temp_dir().join(format!("millrace-tus-lengths-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("tus.lengths");
        let (one, two) = (PartialKey::new([0xab; 16]), PartialKey::new([2; 16]));
        let (mut lengths, error) = Lengths::open(Some(&path), 0);
        assert!(error.is_none());
        assert_eq!(lengths.say(one, 500, 1_000, 0), Ok(()));
        assert_eq!(lengths.say(one, 500, 1_000, 0), Ok(()));
        assert_eq!(lengths.say(one, 501, 1_000, 0), Err(Untaken::Other));
        assert_eq!(lengths.say(two, 7, 1_000, 0), Ok(()));
        assert_eq!(lengths.of(&one, 1_900, 1_000), Some(500));
        // A kill has cut the last line.
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"0303");
        fs::write(&path, text).unwrap();
        let (mut again, _) = Lengths::open(Some(&path), 1_500);
        assert_eq!(again.of(&one, 1_900, 1_000), Some(500), "it was asked for");
        assert_eq!(again.of(&two, 1_900, 1_000), None);
        again.forget(&one);
        assert_eq!(again.of(&one, 1_900, 1_000), None);
        let (_, error) = Lengths::open(Some(&folder), 0);
        assert!(error.is_some());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_file_stays_as_short_as_what_it_says_and_a_torn_line_spoils_none_behind_it() {
        let folder = std::env::temp_dir().join(format!("millrace-tus-journal-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("tus.lengths");
        let (mut lengths, _) = Lengths::open(Some(&path), 0);
        let key = |number: u32| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            PartialKey::new(bytes)
        };
        assert_eq!(lengths.say(key(0), 5, 1_000, 0), Ok(()));
        for number in 1..5_000 {
            assert_eq!(lengths.say(key(number), 7, 1_000, 0), Ok(()));
            lengths.forget(&key(number));
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() <= STALE + 4, "{} lines", text.lines().count());
        // As a full disk leaves it.
        let journal = lengths.journal.as_mut().unwrap();
        journal.file.write_all(b"0303").unwrap();
        journal.is_torn = true;
        assert_eq!(lengths.say(key(9_000), 9, 1_000, 0), Ok(()));
        let (mut again, _) = Lengths::open(Some(&path), 0);
        assert_eq!((again.of(&key(0), 1_000, 10), again.of(&key(9_000), 1_000, 10)), (Some(5), Some(9)));
        fs::remove_dir_all(folder).unwrap();
    }
}
