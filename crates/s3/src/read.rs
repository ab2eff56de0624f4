//! Downloads: ranges of an object, the next ones fetched ahead as far as the process has memory for it.
//!
//! The first `GET` says what the object is and brings the first bytes; all further ones insist on the same object by its
//! tag, so that a reader sees one version or an error.

use std::collections::VecDeque;
use std::sync::Arc;

use hyper::body::Bytes;
use millrace_vfs::{FileError, ReadStream};
use tokio::task::JoinHandle;

use crate::bucket::Bucket;
use crate::buffers::{PartMemory, Share};
use crate::client::Object;
use crate::error::StoreError;
use crate::http::Answer;

/// Bytes of the first range.
const FIRST: u64 = 8 << 20;
/// Bytes of a range that is fetched ahead, and how many of those there are at most.
const AHEAD: u64 = 4 << 20;
const MOST_AHEAD: usize = 3;
/// Sources that are tried for the next bytes: the one that has ended, and more where answers are cut.
const MOST_SOURCES: usize = 6;

/// An open object.
#[derive(Debug)]
pub(crate) struct ObjectReader {
    bucket: Arc<Bucket>,
    key: String,
    size: u64,
    etag: String,
    /// Where `left` begins in the object.
    position: u64,
    /// Bytes that have come and were not read yet.
    left: Bytes,
    source: Source,
    /// Where the source ends in the object.
    source_end: u64,
    /// The ranges after the source's.
    ahead: VecDeque<Range>,
    memory: PartMemory,
}

/// Where the bytes after those that have come are.
#[derive(Debug)]
enum Source {
    /// On a connection.
    Answer(Answer),
    /// In memory.
    Fetched(VecDeque<Bytes>, #[expect(dead_code, reason = "it is held")] Share),
    /// Nowhere yet.
    None,
}

/// A range that is being fetched.
#[derive(Debug)]
struct Range {
    start: u64,
    end: u64,
    fetching: JoinHandle<Result<VecDeque<Bytes>, StoreError>>,
    share: Share,
}

impl ObjectReader {
    /// Opens an object; its first bytes are on their way.
    pub(crate) async fn open(bucket: &Arc<Bucket>, key: String) -> Result<Self, StoreError> {
        let (source, size, etag) = match bucket.client.get(&key, 0, Some(FIRST), None).await {
            Ok((answer, Object { size, etag, .. })) => (Source::Answer(answer), size, etag),
            // An empty object has no range.
            Err(error) if error.status() == Some(416) => (Source::None, 0, String::new()),
            Err(error) => return Err(error),
        };
        let bucket = Arc::clone(bucket);
        let (left, ahead, memory) = (Bytes::new(), VecDeque::new(), PartMemory::of_process());
        let source_end = size.min(FIRST);
        Ok(Self { bucket, key, size, etag, position: 0, left, source, source_end, ahead, memory })
    }

    /// Begins to fetch what comes after the source, as far as there is memory.
    fn fetch_ahead(&mut self) {
        while self.ahead.len() < MOST_AHEAD {
            let start = self.ahead.back().map_or(self.source_end, |range| range.end);
            let end = self.size.min(start + AHEAD);
            if start >= self.size {
                return;
            }
            let Some(share) = self.memory.try_take(end - start) else { return };
            let (bucket, key, etag) = (Arc::clone(&self.bucket), self.key.clone(), self.etag.clone());
            let fetching = self.bucket.runtime().spawn(async move {
                let (mut answer, _) = bucket.client.get(&key, start, Some(end), Some(&etag)).await?;
                let mut bytes = VecDeque::new();
                while let Some(more) = answer.next().await? {
                    bytes.push_back(more);
                }
                Ok(bytes)
            });
            self.ahead.push_back(Range { start, end, fetching, share });
        }
    }

    fn forget_ahead(&mut self) {
        self.ahead.drain(..).for_each(|range| range.fetching.abort());
    }

    /// Has bytes in `left`, of the place `offset`, which is before the end.
    async fn fill(&mut self, offset: u64) -> Result<(), StoreError> {
        if offset != self.position {
            self.source = Source::None;
            self.forget_ahead();
            (self.position, self.left) = (offset, Bytes::new());
        }
        let mut why = StoreError::Malformed("it has not the bytes that it should have");
        for _ in 0..MOST_SOURCES {
            let more = match &mut self.source {
                Source::Answer(answer) => answer.next().await,
                Source::Fetched(bytes, _) => Ok(bytes.pop_front()),
                Source::None => Ok(None),
            };
            match more {
                Ok(Some(more)) => self.left = more,
                Ok(None) => self.next_source().await?,
                // The rest of it is asked for anew.
                Err(error) if error.is_transient() => (self.source, why) = (Source::None, error),
                Err(error) => return Err(error),
            }
            if !self.left.is_empty() {
                return Ok(());
            }
        }
        Err(why)
    }

    /// Returns true if `left` has bytes of the place `offset`, from memory where they are there.
    fn has_come(&mut self, offset: u64) -> bool {
        if offset != self.position {
            return false;
        }
        if self.left.is_empty()
            && let Source::Fetched(bytes, _) = &mut self.source
            && let Some(more) = bytes.pop_front()
        {
            self.left = more;
        }
        !self.left.is_empty()
    }

    async fn next_source(&mut self) -> Result<(), StoreError> {
        let is_next = self.ahead.front().is_some_and(|range| range.start == self.position);
        if let Some(range) = self.ahead.pop_front().filter(|_| is_next) {
            let fetched = range.fetching.await;
            match fetched.map_err(|_| StoreError::Malformed("it was not fetched"))? {
                Ok(bytes) => {
                    (self.source, self.source_end) = (Source::Fetched(bytes, range.share), range.end);
                    return Ok(());
                }
                // It was cut.
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(error),
            }
        }
        self.forget_ahead();
        let (start, end) = (self.position, self.size.min(self.position + FIRST));
        let (answer, _) = self.bucket.client.get(&self.key, start, Some(end), Some(&self.etag)).await?;
        (self.source, self.source_end) = (Source::Answer(answer), end);
        Ok(())
    }
}

impl ReadStream for ObjectReader {
    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    /// What one request has brought is sent from here.
    fn elsewhere(&self) -> Option<String> {
        if self.size > FIRST { self.bucket.client.url_for_clients(&self.key) } else { None }
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let bucket = Arc::clone(&self.bucket);
        let mut count = 0;
        while count < buffer.len() && offset + (count as u64) < self.size {
            if !self.has_come(offset + count as u64) {
                bucket.wait(self.fill(offset + count as u64)).map_err(|error| match error {
                    error if error.is_failed_condition() || error.is_missing() => {
                        FileError::Io(std::io::Error::other("the object was replaced while it was read"))
                    }
                    error => error.into(),
                })?;
            }
            let more = self.left.len().min(buffer.len() - count);
            buffer[count..count + more].copy_from_slice(&self.left.split_to(more));
            self.position += more as u64;
            count += more;
        }
        self.fetch_ahead();
        Ok(count)
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.forget_ahead();
    }
}

/// An upload's content that is still in memory.
#[derive(Debug)]
pub(crate) struct MemoryReader(pub(crate) Bytes);

impl ReadStream for MemoryReader {
    fn size(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}
