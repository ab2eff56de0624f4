//! The configuration file and its history: read, compared, replaced as a whole.
//!
//! The invariant: a file is replaced only by one who has seen what it says now, and a cut leaves the old one.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_admin::whole_file;
use millrace_log::Sha256;
use serde_json::{Value, json};

/// Versions that are kept.
const KEPT: usize = 50;

/// Cells that a comparison of lines may take; larger parts are shown as replaced.
const CELLS: usize = 4_000_000;

/// Where the configuration is.
#[derive(Debug, Clone)]
pub struct ConfigurationFile {
    /// The file.
    pub path: PathBuf,
    /// Whether the API may replace it.
    pub is_writable: bool,
    /// The folder of its history, where there is a state folder.
    pub history: Option<PathBuf>,
}

/// The configuration file of a server.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) file: ConfigurationFile,
    /// Locked while it is replaced.
    writing: Mutex<()>,
}

impl Configuration {
    pub(crate) fn new(file: ConfigurationFile) -> Self {
        Self { file, writing: Mutex::default() }
    }

    /// Returns its text.
    pub(crate) fn read(&self) -> io::Result<String> {
        fs::read_to_string(&self.file.path)
    }

    /// Keeps others from replacing it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces it as a whole.
    pub(crate) fn replace(&self, text: &str) -> io::Result<()> {
        whole_file::replace(&self.file.path, text.as_bytes())
    }

    /// Keeps a version, unless it is the last one. The oldest makes room.
    pub(crate) fn keep(&self, text: &str, by: &str) -> io::Result<()> {
        let Some(folder) = &self.file.history else { return Ok(()) };
        let numbers = self.numbers();
        let last = numbers.last().copied();
        if last.and_then(|last| self.version(last)).is_some_and(|version| version["text"] == text) {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let version = json!({ "time": time, "by": by, "text": text });
        let path = folder.join(format!("{}.json", last.unwrap_or(0) + 1));
        whole_file::replace(&path, version.to_string().as_bytes())?;
        for old in numbers.iter().rev().skip(KEPT - 1) {
            fs::remove_file(folder.join(format!("{old}.json")))?;
        }
        Ok(())
    }

    /// Returns the numbers of the versions that are kept, the oldest first.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let entries = self.file.history.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut numbers: Vec<u64> =
            names.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns a version: `time`, `by` and `text`.
    pub(crate) fn version(&self, number: u64) -> Option<Value> {
        let path = self.file.history.as_ref()?.join(format!("{number}.json"));
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

/// Returns the entity tag of a text.
pub(crate) fn tag(text: &str) -> String {
    format!("\"{}\"", Sha256::of(text.as_bytes()))
}

/// Compares two texts by lines: `-` is in the first alone, `+` in the second.
pub(crate) fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let head = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail =
        old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let (from, to) = (&old_rest[..old_rest.len() - tail], &new_rest[..new_rest.len() - tail]);
    let mut text: String = old[..head].iter().map(|line| format!(" {line}\n")).collect();
    compare(from, to, &mut text);
    text.extend(old_rest[old_rest.len() - tail..].iter().map(|line| format!(" {line}\n")));
    text
}

/// By the longest lines that both have in common.
fn compare(from: &[&str], to: &[&str], text: &mut String) {
    let width = to.len() + 1;
    let is_small = width * (from.len() + 1) <= CELLS;
    let mut common = vec![0_u32; if is_small { width * (from.len() + 1) } else { 0 }];
    if is_small {
        for (row, one) in from.iter().enumerate().rev() {
            for (column, other) in to.iter().enumerate().rev() {
                common[row * width + column] = match one == other {
                    true => common[(row + 1) * width + column + 1] + 1,
                    false => common[(row + 1) * width + column].max(common[row * width + column + 1]),
                };
            }
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < from.len() || column < to.len() {
        let at = |row: usize, column: usize| common.get(row * width + column).copied().unwrap_or(0);
        if is_small && row < from.len() && column < to.len() && from[row] == to[column] {
            *text += &format!(" {}\n", from[row]);
            (row, column) = (row + 1, column + 1);
        } else if row < from.len() && (column >= to.len() || at(row + 1, column) >= at(row, column + 1)) {
            *text += &format!("-{}\n", from[row]);
            row += 1;
        } else {
            *text += &format!("+{}\n", to[column]);
            column += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_shows_what_was_taken_and_given() {
        assert_eq!(difference("a\nb\nc\nd\n", "a\nc\nx\nd\n"), " a\n-b\n c\n+x\n d\n");
        assert_eq!(difference("", "a\n"), "+a\n");
        assert_eq!(difference("a\na\n", "a\n"), " a\n-a\n");
        assert_eq!(difference("a\n", "a\n"), " a\n");
    }

    #[test]
    fn the_last_versions_are_kept_and_none_twice() {
        let folder = std::env::temp_dir().join(format!("millrace-history-{}", std::process::id()));
        let history = Some(folder.clone());
        let file = ConfigurationFile { path: folder.join("m.toml"), is_writable: true, history };
        let configuration = Configuration::new(file);
        for number in 0..KEPT + 2 {
            configuration.keep(&number.to_string(), "ann").unwrap();
            configuration.keep(&number.to_string(), "bob").unwrap();
        }
        let numbers = configuration.numbers();
        assert_eq!((numbers.len(), numbers[0]), (KEPT, 3));
        assert_eq!(configuration.version(3).unwrap()["text"], "2");
        assert_eq!(configuration.version(3).unwrap()["by"], "ann");
        fs::remove_dir_all(folder).unwrap();
    }
}
