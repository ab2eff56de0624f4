//! Reading: a chunk at a time.

use std::sync::Arc;

use millrace_vfs::{FileError, ReadStream};

use super::Shared;
use super::content::{self, CHUNK, Hold};

/// A file, open. It reads the content that it was opened with, whatever happens to the name.
#[derive(Debug)]
pub(super) struct Reader {
    hold: Hold,
    size: u64,
    /// The chunk that was read last.
    current: Option<(u64, Vec<u8>)>,
}

impl Reader {
    /// Holds the content; `None` where it is gone.
    pub(super) fn open(shared: &Arc<Shared>, content: i64) -> Result<Option<Self>, FileError> {
        Ok(Hold::of(shared, content)?.map(|(hold, size)| Self { hold, size, current: None }))
    }

    /// Reads a content that has no name, up to here.
    pub(super) fn unnamed(hold: Hold, size: u64) -> Self {
        Self { hold, size, current: None }
    }

    fn load(&mut self, number: u64) -> Result<&[u8], FileError> {
        if self.current.as_ref().is_none_or(|(current, _)| *current != number) {
            let content = self.hold.content;
            let data = self.hold.shared().pool.look(|look| content::chunk(look, content, number))?;
            self.current = Some((number, data));
        }
        Ok(self.current.as_ref().map_or(&[], |(_, data)| data))
    }
}

impl ReadStream for Reader {
    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let mut filled = 0;
        let wanted =
            usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        while filled < wanted {
            let position = offset + filled as u64;
            let chunk = self.load(position / CHUNK as u64)?;
            let rest = chunk.get((position % CHUNK as u64) as usize..).unwrap_or_default();
            let count = rest.len().min(wanted - filled);
            if count == 0 {
                return Err(FileError::Io(std::io::Error::other("a chunk of the file is missing")));
            }
            buffer[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
        }
        Ok(filled)
    }
}
