//! Reads the records of an audit log as they are written, also from files that were moved away.
//!
//! A file that is being read is read to its end, whatever it is called by then. Where the next record is not in it, the file
//! with it is found among the log and those whose names begin with its name: `audit.jsonl.1`. One that was compressed is not
//! found. Copies that lie there keep nothing from being found.

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

    /// Returns the next records, this many at most; none where there are none yet.
    pub fn read(&mut self, most: usize) -> io::Result<Vec<Followed>> {
        self.read_to(u64::MAX, most)
    }

    /// Returns the next records, this many at most, up to the one of this number.
    pub fn read_to(&mut self, newest: u64, most: usize) -> io::Result<Vec<Followed>> {
        if self.open.is_none() {
            self.open = find(&self.path, self.last)?;
        }
        let records = self.read_on(newest, most)?;
        if !records.is_empty() || self.last >= newest || !self.has_successor() {
            return Ok(records);
        }
        self.open = find(&self.path, self.last)?;
        self.read_on(newest, most)
    }

    /// Returns the next records of the file that is open.
    fn read_on(&mut self, newest: u64, most: usize) -> io::Result<Vec<Followed>> {
        let mut records = Vec::new();
        let Some((file, offset)) = &mut self.open else { return Ok(records) };
        file.seek(SeekFrom::Start(*offset))?;
        let (mut lines, mut line) = (BufReader::new(&*file), Vec::new());
        while records.len() < most {
            line.clear();
            let length = lines.read_until(b'\n', &mut line)?;
            // What has no end yet is not whole.
            let Some(text) = line.strip_suffix(b"\n") else { break };
            let link = Link::parse(text).filter(|link| link.seq > self.last);
            if link.is_some_and(|link| link.seq > newest) {
                break;
            }
            *offset += length as u64;
            let Some(link) = link else { continue };
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

/// Finds the file with the first record behind this one, or where that is missing the next that there is; and where in it that
/// is. Where there is none yet, the log itself.
fn find(path: &Path, last: u64) -> io::Result<Option<(File, u64)>> {
    let wanted = last.saturating_add(1);
    let mut files: Vec<(u64, File)> = Vec::new();
    for candidate in candidates(path)? {
        let Ok(file) = File::open(&candidate) else { continue };
        files.extend(first_of(&file)?.map(|first| (first, file)));
    }
    // Most likely the log has it, or else the one that begins last before it; then those that begin behind it.
    files.sort_by_key(|(first, file)| match *first <= wanted {
        true => (false, !is_same(path, file), u64::MAX - *first),
        false => (true, false, *first),
    });
    let mut nearest: Option<(u64, File, u64)> = None;
    for (first, file) in files {
        if nearest.as_ref().is_some_and(|(seq, ..)| *seq <= first.max(wanted)) {
            break;
        }
        let (seq, offset) = next_in(&file, last)?;
        if seq == last && is_same(path, &file) {
            // It was written last, so there is no next one yet.
            return Ok(Some((file, offset)));
        }
        if seq > last && nearest.as_ref().is_none_or(|(nearest, ..)| seq < *nearest) {
            nearest = Some((seq, file, offset));
        }
    }
    let found = nearest.map(|(_, file, offset)| (file, offset));
    Ok(found.or_else(|| File::open(path).ok().map(|log| (log, 0))))
}

/// The number of the first record of a file behind this one, and where in the file it is; or else of its last, and the end.
fn next_in(mut file: &File, last: u64) -> io::Result<(u64, u64)> {
    file.rewind()?;
    let (mut lines, mut line, mut seq, mut offset) = (BufReader::new(file), Vec::new(), 0, 0);
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)?;
        let Some(text) = line.strip_suffix(b"\n") else { return Ok((seq, offset)) };
        if let Some(link) = Link::parse(text) {
            seq = link.seq;
            if seq > last {
                return Ok((seq, offset));
            }
        }
        offset += length as u64;
    }
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
