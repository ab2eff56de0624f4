//! Writing: chunks sealed as they fill.

use std::fs::File;

use millrace_vfs::{Committed, FileError, ReadHandle, ReadStream, Readiness, Upload};

use super::chunk::{self, CONTENT, Place, STORED, Salt, Sealer};
use super::read::Reader;

/// An upload that is encrypted on its way to another.
#[derive(Debug)]
pub(super) struct Writer {
    upload: Box<dyn Upload>,
    sealer: Sealer,
    salt: Salt,
    /// Content of the chunk that is not yet sealed: sealed when more comes, so that the last is known.
    content: Vec<u8>,
    stored: Vec<u8>,
    number: u64,
    length: u64,
    /// The rest of the old file after the upload's start, which follows the new data.
    kept: Option<Reader>,
    /// The received part stays after an abort.
    in_place: bool,
    /// The last chunk is written.
    is_sealed: bool,
}

impl Writer {
    /// Begins with the kept bytes of the old file: as many as it says.
    pub(super) fn begin(
        mut upload: Box<dyn Upload>,
        sealer: Sealer,
        kept: Option<(Reader, u64)>,
        in_place: bool,
    ) -> Result<Self, FileError> {
        let salt = chunk::random()?;
        upload.write_all(&chunk::header(&salt))?;
        let (content, stored) = (Vec::new(), Vec::with_capacity(STORED));
        let mut writer = Self {
            upload,
            sealer,
            salt,
            content,
            stored,
            number: 0,
            length: 0,
            kept: None,
            in_place,
            is_sealed: false,
        };
        if let Some((reader, end)) = kept {
            writer.kept = Some(reader);
            writer.copy_kept(end)?;
        }
        Ok(writer)
    }

    /// Copies the old content from where the new one stands up to `end`.
    fn copy_kept(&mut self, end: u64) -> Result<(), FileError> {
        let Some(mut reader) = self.kept.take() else { return Ok(()) };
        let mut buffer = vec![0; CONTENT];
        while self.length < end {
            let most = usize::try_from(end - self.length).unwrap_or(usize::MAX).min(CONTENT);
            let count = reader.read_at(self.length, &mut buffer[..most])?;
            if count == 0 {
                break;
            }
            self.write_all(&buffer[..count])?;
        }
        self.kept = Some(reader);
        Ok(())
    }

    fn seal(&mut self, is_last: bool) -> Result<(), FileError> {
        self.stored.clear();
        let place = Place { salt: &self.salt, number: self.number, is_last };
        self.sealer.seal(place, &self.content, &mut self.stored)?;
        self.upload.write_all(&self.stored)?;
        self.content.clear();
        self.number += 1;
        Ok(())
    }

    fn seal_last(&mut self) -> Result<(), FileError> {
        if !std::mem::replace(&mut self.is_sealed, true) {
            self.seal(true)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Committed, FileError> {
        if let Some(end) = self.kept.as_ref().map(Reader::length) {
            self.copy_kept(end)?;
        }
        self.seal_last()?;
        self.upload.commit()?;
        Ok(Committed { size: self.length })
    }
}

impl Upload for Writer {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), FileError> {
        while !bytes.is_empty() {
            if self.content.len() == CONTENT {
                self.seal(false)?;
            }
            let count = bytes.len().min(CONTENT - self.content.len());
            self.content.extend_from_slice(&bytes[..count]);
            self.length += count as u64;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        if self.in_place {
            return Ok(None);
        }
        self.seal_last()?;
        let Some(stored) = self.upload.preview()? else { return Ok(None) };
        let reader = Reader::open(stored, self.sealer.clone())?;
        Ok(Some(ReadHandle::Stream(Box::new(reader))))
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        self.finish()
    }

    fn abort(self: Box<Self>) {
        if self.in_place {
            let _ = self.finish();
        } else {
            self.upload.abort();
        }
    }

    /// Also in place it is written beside the old file.
    fn undo(self: Box<Self>) {
        self.upload.undo();
    }

    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn is_staged(&self) -> bool {
        !self.in_place
    }
}
