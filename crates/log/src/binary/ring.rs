//! The file of the binary log: a head, and room for so many records, which is used again and again.
//!
//! Its blocks are allocated at the beginning, and records are written by position: what was written is in the kernel's
//! pages, and stays there when the process is killed. A mapping would do the same, and needs `unsafe`.
//!
//! The head has the number of the next record. A process reserves numbers there, under a lock of the file, and writes
//! then: two servers may write at a time while one takes the place of the other, and one that is killed in between leaves
//! older records in the place of those that it did not write.
//!
//! ```text
//! 0     "millrace log 2\n", a zero byte
//! 16    bytes of a record
//! 24    records
//! 32    number of the next record
//! 4096  the first record
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use super::record::{self, SIZE};

/// What the file begins with.
const MAGIC: &[u8; 16] = b"millrace log 2\n\0";

/// Bytes before the first record.
const HEAD: u64 = 4096;

/// Where the head has the number of the next record.
const NEXT: u64 = 32;

/// Records of the smallest ring.
const LEAST: u64 = 1024;

/// A file that records are written to.
#[derive(Debug)]
pub(crate) struct RingFile {
    file: File,
    /// How many records it has room for.
    slots: u64,
    /// The records that are written next, with their numbers.
    sealed: Vec<u8>,
}

impl RingFile {
    /// Opens a file and goes on in it, or makes one of about so many bytes. One that is there keeps its size.
    pub(crate) fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock()?;
        let slots = match file.metadata()?.len() {
            0 => begin(&file, (bytes / SIZE as u64).max(LEAST)),
            _ => slots(&file),
        };
        file.unlock()?;
        Ok(Self { file, slots: slots?, sealed: Vec::new() })
    }

    /// Writes records from this number on.
    fn write_from(&mut self, first: u64) -> io::Result<()> {
        let mut rest = &mut self.sealed[..];
        let mut number = first;
        while !rest.is_empty() {
            let slot = number % self.slots;
            let run = (self.slots - slot).min((rest.len() / SIZE) as u64);
            let (records, behind) = rest.split_at_mut(run as usize * SIZE);
            for (record, number) in records.chunks_exact_mut(SIZE).zip(number..) {
                record::seal(record, number);
            }
            self.file.write_all_at(records, place(slot))?;
            (rest, number) = (behind, number + run);
        }
        Ok(())
    }
}

/// Whole records, of whole entries: they are written all, or there is an error.
impl Write for RingFile {
    fn write(&mut self, records: &[u8]) -> io::Result<usize> {
        self.sealed.clear();
        self.sealed.extend_from_slice(records);
        self.file.lock()?;
        let written = next(&self.file).and_then(|first| {
            let behind = first.wrapping_add((records.len() / SIZE) as u64);
            self.file.write_all_at(&behind.to_le_bytes(), NEXT)?;
            self.write_from(first)
        });
        self.file.unlock()?;
        written.map(|()| records.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the head, and room for the records.
fn begin(file: &File, slots: u64) -> io::Result<u64> {
    let length = place(slots);
    if fallocate(file, FallocateFlags::empty(), 0, length).is_err() {
        // A file system that allocates no blocks beforehand: it has the length at least.
        file.write_all_at(&[0], length - 1)?;
    }
    let head = [&MAGIC[..], &(SIZE as u64).to_le_bytes(), &slots.to_le_bytes(), &1_u64.to_le_bytes()];
    file.write_all_at(&head.concat(), 0)?;
    Ok(slots)
}

/// Returns for how many records a file has room, or an error if it is no binary log.
pub(super) fn slots(file: &File) -> io::Result<u64> {
    let mut head = [0; NEXT as usize];
    let is_read = file.read_exact_at(&mut head, 0).is_ok();
    let slots = record::number(&head, 24);
    let is_one =
        is_read && head[..16] == MAGIC[..] && record::number(&head, 16) == SIZE as u64 && slots >= LEAST;
    match is_one && slots.checked_mul(SIZE as u64).is_some() {
        true => Ok(slots),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no binary log")),
    }
}

fn next(file: &File) -> io::Result<u64> {
    let mut next = [0; 8];
    file.read_exact_at(&mut next, NEXT)?;
    Ok(u64::from_le_bytes(next))
}

/// Where a record lies.
pub(super) fn place(slot: u64) -> u64 {
    HEAD + slot * SIZE as u64
}
