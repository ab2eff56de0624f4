//! Reading: any part, a chunk at a time.

use std::ops::Range;

use millrace_vfs::{FileError, ReadHandle, ReadStream};

use super::chunk::{self, CONTENT, HEADER, Place, STORED, Salt, Sealer};
use super::damaged;
use crate::through;

/// An encrypted file, open. One chunk of it is in memory.
#[derive(Debug)]
pub(super) struct Reader {
    handle: ReadHandle,
    sealer: Sealer,
    salt: Salt,
    /// The length of the content as it was opened.
    length: u64,
    /// The chunk that was opened last: its number, and where in `stored` its content stands.
    current: Option<(u64, Range<usize>)>,
    stored: Vec<u8>,
}

impl Reader {
    /// Reads the header. May wait.
    pub(super) fn open(mut handle: ReadHandle, sealer: Sealer) -> Result<Self, FileError> {
        let mut header = [0; HEADER];
        let count = through::read_full(&mut handle, 0, &mut header)?;
        let salt = chunk::parse_header(&header[..count])?;
        let stored = handle.size().ok_or(FileError::Unsupported)?;
        let length = chunk::content_length(stored);
        let mut reader = Self { handle, sealer, salt, length, current: None, stored: Vec::new() };
        // The last chunk vouches for the length that clients are told.
        reader.load(chunk::last_number(length))?;
        Ok(reader)
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    fn load(&mut self, number: u64) -> Result<Range<usize>, FileError> {
        if let Some((current, range)) = &self.current
            && *current == number
        {
            return Ok(range.clone());
        }
        self.current = None;
        self.stored.resize(STORED, 0);
        let count = through::read_full(&mut self.handle, chunk::position(number), &mut self.stored)?;
        let is_last = number == chunk::last_number(self.length);
        if count != STORED && !is_last {
            return Err(damaged("it is cut off"));
        }
        let place = Place { salt: &self.salt, number, is_last };
        let range = self.sealer.open(place, &mut self.stored[..count])?;
        self.current = Some((number, range.clone()));
        Ok(range)
    }
}

impl ReadStream for Reader {
    fn size(&self) -> Option<u64> {
        Some(self.length)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let mut filled = 0;
        while filled < buffer.len() && offset + (filled as u64) < self.length {
            let position = offset + filled as u64;
            let range = self.load(position / CONTENT as u64)?;
            let rest = &self.stored[range][(position % CONTENT as u64) as usize..];
            let count = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
        }
        Ok(filled)
    }
}
