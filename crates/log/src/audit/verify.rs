//! Looks for records of an audit log that were removed, changed, moved or inserted.
//!
//! The files are read once, line by line, the oldest first. What cannot be told from the records alone: whether others came
//! before the first, and after the last. For the end there is the file `NAME.head`, and a SHA-256 that was noted elsewhere.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::chain::{Link, last_written};
use crate::position::{Position, Sha256};

/// What whole files hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many records there are.
    pub records: u64,
    /// The number of the first; 0 where there is none.
    pub first: u64,
    /// The last.
    pub last: Position,
    /// Pieces of records that were not written whole.
    pub torn: Vec<Torn>,
}

/// A piece of a record that was not written whole: its process was killed, or there was no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub file: PathBuf,
    /// The number of the line, from 1.
    pub line: u64,
    /// Whether the record behind it says so; else the next start of the server will.
    pub is_noted: bool,
}

/// Why files are not whole, or cannot be read.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not what was written.
    #[error("{}:{line}: {fault}", file.display())]
    Broken {
        /// The file.
        file: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        fault: Fault,
    },
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fault {
    /// It is no record, and no record says that it was torn.
    #[error("this is no record of an audit log")]
    NoRecord,
    /// The record behind it has another SHA-256 of it.
    #[error("record {seq} was changed: record {} carries another SHA-256 of it", seq + 1)]
    Changed {
        /// Its number.
        seq: u64,
    },
    /// Records before it are not there.
    #[error("{} missing before record {}", numbers(*first, *last), last + 1)]
    Missing {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
    /// It has the number of the one before it.
    #[error("there are two records {seq}: one of them was inserted")]
    Twice {
        /// The number.
        seq: u64,
    },
    /// It has a lower number than the one before it.
    #[error("record {seq} follows record {after}: it was moved or inserted")]
    Moved {
        /// Its number.
        seq: u64,
        /// That of the record before it.
        after: u64,
    },
    /// The first record of a chain says that there are others before it.
    #[error("record 1 carries the SHA-256 of another record")]
    NotFirst,
    /// More was written than is there.
    #[error("{} missing at the end: the head file says that record {last} was written", numbers(*first, *last))]
    EndMissing {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
    /// The record that was written last is another.
    #[error("record {seq} was changed: the head file has another SHA-256 of it")]
    LastChanged {
        /// Its number.
        seq: u64,
    },
    /// No record has the SHA-256 that was noted.
    #[error("no record has the SHA-256 {sha256}: the end was cut or changed")]
    Unknown {
        /// That SHA-256.
        sha256: Sha256,
    },
}

fn numbers(first: u64, last: u64) -> String {
    match first == last {
        true => format!("record {first} is"),
        false => format!("records {first} to {last} are"),
    }
}

/// Verifies files of one log, the oldest first. `noted` is the SHA-256 of a record that has to be there.
pub fn verify(files: &[PathBuf], noted: Option<Sha256>) -> Result<Verified, VerifyError> {
    let known = match files.last() {
        Some(file) => last_written(file).map_err(|source| VerifyError::Io { file: file.clone(), source })?,
        None => None,
    };
    let mut reader = Reader {
        verified: Verified { records: 0, first: 0, last: Position::START, torn: Vec::new() },
        place: (files.first().cloned().unwrap_or_default(), 0),
        known,
        wanted: noted,
    };
    for file in files {
        let failed = |source| VerifyError::Io { file: file.clone(), source };
        let lines = BufReader::new(File::open(file).map_err(failed)?);
        reader.read(file, lines)?;
    }
    reader.end()
}

struct Reader {
    verified: Verified,
    /// Where the last record is.
    place: (PathBuf, u64),
    /// What the head file says was written last.
    known: Option<Position>,
    /// The SHA-256 that was noted, until its record is found.
    wanted: Option<Sha256>,
}

impl Reader {
    fn read(&mut self, file: &Path, mut lines: impl BufRead) -> Result<(), VerifyError> {
        let (mut line, mut number) = (Vec::new(), 0);
        // Lines that are no records, and where they begin.
        let (mut piece, mut begin) = (Vec::new(), None);
        loop {
            line.clear();
            let failed = |source| VerifyError::Io { file: file.to_owned(), source };
            if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            number += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let Some(link) = Link::parse(text).filter(|_| text.len() < line.len()) else {
                if begin.is_some() {
                    piece.push(b'\n');
                }
                begin.get_or_insert(number);
                piece.extend_from_slice(text);
                continue;
            };
            if let Some(begin) = begin.take() {
                if !notes(text, &piece) {
                    return Err(broken(file, begin, Fault::NoRecord));
                }
                self.verified.torn.push(Torn { file: file.to_owned(), line: begin, is_noted: true });
                piece.clear();
            }
            self.look(file, number, link, Sha256::of(text))?;
        }
        let torn = begin.map(|line| Torn { file: file.to_owned(), line, is_noted: false });
        self.verified.torn.extend(torn);
        Ok(())
    }

    /// A record: whether it follows the one before it.
    fn look(&mut self, file: &Path, number: u64, link: Link, sha256: Sha256) -> Result<(), VerifyError> {
        let Position { seq: after, sha256: before } = self.verified.last;
        let is_begin = self.verified.records == 0;
        let fault = match link.seq {
            1 if is_begin && link.prev != Position::START.sha256 => Some(Fault::NotFirst),
            _ if is_begin => None,
            seq if seq == after + 1 && link.prev == before => None,
            seq if seq == after + 1 => {
                let (file, number) = &self.place;
                return Err(broken(file, *number, Fault::Changed { seq: after }));
            }
            seq if seq == after => Some(Fault::Twice { seq }),
            seq if seq < after => Some(Fault::Moved { seq, after }),
            seq => Some(Fault::Missing { first: after + 1, last: seq - 1 }),
        };
        let is_other = |known: Position| known.seq == link.seq && known.sha256 != sha256;
        let changed = self.known.filter(|known| is_other(*known));
        let fault = fault.or(changed.map(|Position { seq, .. }| Fault::LastChanged { seq }));
        if let Some(fault) = fault {
            return Err(broken(file, number, fault));
        }
        if is_begin {
            self.verified.first = link.seq;
        }
        self.verified.records += 1;
        self.verified.last = Position { seq: link.seq, sha256 };
        self.place = (file.to_owned(), number);
        self.wanted = self.wanted.filter(|wanted| *wanted != sha256);
        Ok(())
    }

    fn end(self) -> Result<Verified, VerifyError> {
        let (file, line) = &self.place;
        let after = self.verified.last.seq;
        let missing = self.known.filter(|known| known.seq > after);
        let missing = missing.map(|known| Fault::EndMissing { first: after + 1, last: known.seq });
        let fault = missing.or(self.wanted.map(|sha256| Fault::Unknown { sha256 }));
        match fault {
            Some(fault) => Err(broken(file, *line, fault)),
            None => Ok(self.verified),
        }
    }
}

fn broken(file: &Path, line: u64, fault: Fault) -> VerifyError {
    VerifyError::Broken { file: file.to_owned(), line, fault }
}

/// Returns whether a record says that this piece before it was torn.
fn notes(record: &[u8], piece: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Note {
        event: String,
        bytes: u64,
        sha256: String,
    }
    let note: Option<Note> = serde_json::from_slice(record).ok();
    note.is_some_and(|note| {
        note.event == "record-torn"
            && note.bytes == piece.len() as u64
            && note.sha256 == Sha256::of(piece).to_string()
    })
}

#[cfg(test)]
mod tests;
