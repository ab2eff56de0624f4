//! Reads the records of an audit log as they are written, also from files that were moved away.
//!
//! A file that is being read is read to its end, whatever it is called by then. Where the next record is in no file that is
//! open, the file with it is found among those whose names begin with that of the log: `audit.jsonl.1`. One that was compressed
//! is not found.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::chain::{Link, is_same};
use crate::position::{Position, Sha256};

/// A record, and what it says of the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Its number and its SHA-256.
    pub position: Position,
    /// The SHA-256 of the record before it.
    pub prev: Sha256,
    /// Its line, without the end.
    pub line: String,
}

/// A reader behind some record.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// The number of the last record that was read.
    last: u64,
    /// The file, and how far it was read.
    open: Option<(File, u64)>,
}

impl Follower {
    /// Reads the log of this path behind the record of this number.
    pub fn behind(path: &Path, last: u64) -> Self {
        Self { path: path.to_owned(), last, open: None }
    }

    /// Returns the next records, so many at most; none where there are none yet.
    pub fn read(&mut self, most: usize) -> io::Result<Vec<Followed>> {
        if self.open.is_none() {
            self.open = find(&self.path, self.last)?.map(|file| (file, 0));
        }
        let records = self.read_on(most)?;
        if !records.is_empty() || !self.has_successor() {
            return Ok(records);
        }
        self.open = find(&self.path, self.last)?.map(|file| (file, 0));
        self.read_on(most)
    }

    /// Returns the next records of the file that is open.
    fn read_on(&mut self, most: usize) -> io::Result<Vec<Followed>> {
        let mut records = Vec::new();
        let Some((file, offset)) = &mut self.open else { return Ok(records) };
        file.seek(SeekFrom::Start(*offset))?;
        let (mut lines, mut line) = (BufReader::new(&*file), Vec::new());
        while records.len() < most {
            line.clear();
            let length = lines.read_until(b'\n', &mut line)?;
            // What has no end yet is not whole.
            let Some(text) = line.strip_suffix(b"\n") else { break };
            *offset += length as u64;
            let Some(link) = Link::parse(text).filter(|link| link.seq > self.last) else { continue };
            self.last = link.seq;
            records.push(Followed {
                position: Position { seq: link.seq, sha256: Sha256::of(text) },
                prev: link.prev,
                line: String::from_utf8_lossy(text).into_owned(),
            });
        }
        Ok(records)
    }

    /// Returns whether the log goes on in another file than the one that is open.
    fn has_successor(&self) -> bool {
        let is_other = self.open.as_ref().is_some_and(|(file, _)| !is_same(&self.path, file));
        is_other && fs::metadata(&self.path).is_ok_and(|new| new.len() > 0)
    }
}

/// Finds the file with the first record behind this one, or where that is missing the next that there is.
fn find(path: &Path, last: u64) -> io::Result<Option<File>> {
    let mut files: Vec<(u64, File)> = Vec::new();
    for candidate in candidates(path)? {
        let Ok(file) = File::open(&candidate) else { continue };
        files.extend(first_of(&file)?.map(|first| (first, file)));
    }
    files.sort_by_key(|(first, _)| *first);
    let before = files.iter().rposition(|(first, _)| *first <= last + 1).unwrap_or(0);
    Ok(files.into_iter().nth(before).map(|(_, file)| file))
}

/// The log, and files that may have been it.
fn candidates(path: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let own = entry.file_name();
        let rest = own.as_encoded_bytes().strip_prefix(name);
        let is_one = rest.is_some_and(|rest| match rest {
            b"" => true,
            b".head" | b".chain" => false,
            rest => rest[0] == b'.' || rest[0] == b'-',
        });
        if is_one && entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The number of the first record of a file, if there is one soon.
fn first_of(file: &File) -> io::Result<Option<u64>> {
    const FAR: usize = 100;
    for line in BufReader::new(file).split(b'\n').take(FAR) {
        if let Some(link) = Link::parse(&line?) {
            return Ok(Some(link.seq));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
