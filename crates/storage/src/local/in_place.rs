//! Uploads in place: the bytes go straight into the file that has the name.
//!
//! The quickest way over an existing file, because nothing is truncated, linked or renamed: on ext4 a
//! truncation to nothing, and a rename over a file, start a flush. The price: a reader during the upload sees
//! new bytes before old ones, and what an interrupted upload leaves is its first part under the final name.
//! The tail of a longer old file is cut off at the end, and also on abort, never before.
//!
//! `REST` and `APPE` always write in place. The position of an append is the size at the time of opening, and
//! not `O_APPEND`, into which the kernel does not splice; two appends to one file at once overwrite each other.

use std::fs::File;
use std::os::fd::OwnedFd;

use millrace_vfs::{Committed, FileError, Readiness, Upload};

use super::upload::{synchronise_directory, synchronise_file, truncate, write_all_at};

/// An upload into the file itself.
#[derive(Debug)]
pub(super) struct InPlace {
    file: File,
    position: u64,
    size: u64,
    replaces: bool,
    readiness: Readiness,
    durability: Durability,
}

/// What a commit waits for.
#[derive(Debug)]
pub(super) enum Durability {
    /// Nothing: the kernel writes when it likes.
    Cached,
    /// The file's bytes.
    File,
    /// The file's bytes and its new name in this directory.
    FileAndName(OwnedFd),
}

impl InPlace {
    /// An upload that begins at `position` of a file of `size` bytes. `replaces` claims that what lies
    /// behind the last byte received does not belong to the new file.
    pub(super) fn new(
        file: File,
        position: u64,
        size: u64,
        replaces: bool,
        readiness: Readiness,
        durability: Durability,
    ) -> Self {
        Self { file, position, size, replaces, readiness, durability }
    }

    fn has_old_tail(&self) -> bool {
        self.replaces && self.size > self.position
    }

    fn cut_old_tail(&mut self) -> Result<(), FileError> {
        if self.has_old_tail() {
            truncate(&self.file, self.position)?;
            self.size = self.position;
        }
        Ok(())
    }
}

impl Upload for InPlace {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(Some((&self.file, self.position)))
    }

    fn advance(&mut self, count: u64) {
        self.position += count;
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        write_all_at(&self.file, &mut self.position, bytes)
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        self.cut_old_tail()?;
        match &self.durability {
            Durability::Cached => {}
            Durability::File => synchronise_file(&self.file)?,
            Durability::FileAndName(directory) => {
                synchronise_file(&self.file)?;
                synchronise_directory(directory)?;
            }
        }
        Ok(Committed { size: self.size.max(self.position) })
    }

    fn abort(self: Box<Self>) {}

    fn undo(mut self: Box<Self>) {
        if self.position > self.size && truncate(&self.file, self.size).is_ok() {
            self.position = self.size;
        }
    }

    fn readiness(&self) -> Readiness {
        self.readiness
    }

    fn commit_readiness(&self) -> Readiness {
        match (&self.durability, self.has_old_tail()) {
            (Durability::Cached, false) => self.readiness,
            _ => Readiness::MayHang,
        }
    }
}

/// However the upload ends, no byte of the old file stays behind the new ones.
impl Drop for InPlace {
    fn drop(&mut self) {
        let _ = self.cut_old_tail();
    }
}
