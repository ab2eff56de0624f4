//! A stream of unknown length, in the chunked coding.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_http::h1::{LAST_CHUNK, write_chunk};
use millrace_vfs::{FileError, ReadStream};

/// What becomes one chunk, in bytes.
const CHUNK: usize = 64 * 1024;

/// Another stream in chunks, with the one that ends them. Read once, from its start: where the inner stream fails
/// there is no last chunk, by which the client sees that something is missing.
#[derive(Debug)]
pub(crate) struct Chunks {
    inner: Box<dyn ReadStream>,
    /// How much of the inner stream was read; `None` behind its end.
    offset: Option<u64>,
    content: Vec<u8>,
    /// The next bytes to send, and how much of them was sent.
    wire: Vec<u8>,
    sent: usize,
    framing: Framing,
}

/// Bytes that stood around the chunks so far: they are sent, and are none of the content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Framing(Arc<AtomicU64>);

impl Framing {
    /// How many of the sent bytes are content.
    pub(crate) fn content_of(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.0.load(Ordering::Relaxed))
    }
}

impl Chunks {
    pub(crate) fn new(inner: Box<dyn ReadStream>) -> Self {
        let framing = Framing::default();
        Self { inner, offset: Some(0), content: Vec::new(), wire: Vec::new(), sent: 0, framing }
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing.clone()
    }

    fn fill(&mut self, offset: u64) -> Result<(), FileError> {
        self.content.resize(CHUNK, 0);
        let count = self.inner.read_at(offset, &mut self.content)?;
        self.wire.clear();
        self.sent = 0;
        match count {
            0 => {
                self.wire.extend_from_slice(LAST_CHUNK);
                self.offset = None;
            }
            count => {
                write_chunk(&self.content[..count], &mut self.wire);
                self.offset = Some(offset + count as u64);
            }
        }
        self.framing.0.fetch_add((self.wire.len() - count) as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl ReadStream for Chunks {
    fn size(&self) -> Option<u64> {
        None
    }

    fn read_at(&mut self, _: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        if self.sent == self.wire.len()
            && let Some(offset) = self.offset
        {
            self.fill(offset)?;
        }
        let rest = &self.wire[self.sent..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.sent += count;
        Ok(count)
    }
}
