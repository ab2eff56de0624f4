//! Uploads into memory: beside the name, or into the file.

use std::fs::File;
use std::sync::Arc;

use millrace_vfs::{Committed, FileError, Readiness, Upload};

use super::Shared;
use super::node::{Content, FileNode, Names};

/// An upload that takes the name at the end.
#[derive(Debug)]
pub(super) struct Staged {
    shared: Arc<Shared>,
    place: Names,
    exclusive: bool,
    bits: Option<u32>,
    content: Content,
}

impl Staged {
    /// An upload to `place`, which must still be free at the end if `exclusive`; a file that is new then has
    /// these permission bits.
    pub(super) fn new(shared: Arc<Shared>, place: Names, exclusive: bool, bits: Option<u32>) -> Self {
        let content = Content::empty(&shared.room);
        Self { shared, place, exclusive, bits, content }
    }
}

impl Upload for Staged {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let end = self.content.len();
        self.content.write_at(end, bytes)
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        let Self { shared, place, exclusive, bits, content } = *self;
        let size = content.len() as u64;
        shared.tree().publish(&place, content, exclusive, bits)?;
        Ok(Committed { size })
    }

    fn abort(self: Box<Self>) {}

    fn undo(self: Box<Self>) {}

    fn readiness(&self) -> Readiness {
        Readiness::Cached
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::Cached
    }

    fn is_staged(&self) -> bool {
        true
    }
}

/// An upload into the file itself.
#[derive(Debug)]
pub(super) struct InPlace {
    file: Arc<FileNode>,
    position: u64,
    /// How long the file was when it began.
    old_length: usize,
    /// Each write goes to where the end is then.
    appends: bool,
}

impl InPlace {
    /// An upload that begins at `position`.
    pub(super) fn new(file: Arc<FileNode>, position: u64) -> Self {
        let old_length = file.content().len();
        Self { file, position, old_length, appends: false }
    }

    /// One that appends at the file's end at each write.
    pub(super) fn appending(file: Arc<FileNode>) -> Self {
        let position = file.content().len() as u64;
        Self { appends: true, ..Self::new(file, position) }
    }
}

impl Upload for InPlace {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, count: u64) {
        self.position += count;
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        match self.appends {
            true => self.file.append(bytes)?,
            false => self.file.write_at(self.position, bytes)?,
        }
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        Ok(Committed { size: self.file.content().len() as u64 })
    }

    fn abort(self: Box<Self>) {}

    fn undo(self: Box<Self>) {
        // Data that others have appended meanwhile must not be cut off.
        if !self.appends || self.file.content().len() as u64 == self.position {
            self.file.truncate(self.old_length);
        }
    }

    fn readiness(&self) -> Readiness {
        Readiness::Cached
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::Cached
    }
}
