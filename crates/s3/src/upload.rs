//! Uploads that make the object anew: one `PUT` where they are small, parts otherwise. Nothing is seen before the end.

use std::fs::File;
use std::sync::Arc;

use hyper::body::Bytes;
use millrace_vfs::hash::Hashes;
use millrace_vfs::{Committed, FileError, ReadHandle, Readiness, Upload, VirtualPath};

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::buffers::{PART, PartMemory, Share};
use crate::client::{Condition, random_name};
use crate::copying::LARGEST_COPY;
use crate::folders::Kind;
use crate::parts::Parts;
use crate::read::MemoryReader;

/// Bytes that an upload may have in memory without a share of the parts' memory.
const FREE: usize = 64 << 10;

/// Bytes on their way into an object: gathered to parts, and sent.
#[derive(Debug)]
pub(crate) struct Body {
    bucket: Arc<Bucket>,
    key: String,
    attributes: Attributes,
    gathered: Vec<u8>,
    share: Option<Share>,
    parts: Option<Parts>,
    size: u64,
}

impl Body {
    pub(crate) fn new(bucket: &Arc<Bucket>, key: String, attributes: Attributes) -> Self {
        let bucket = Arc::clone(bucket);
        Self { bucket, key, attributes, gathered: Vec::new(), share: None, parts: None, size: 0 }
    }

    /// Continues an object that has some parts.
    pub(crate) fn continue_after(&mut self, parts: Parts, size: u64) {
        (self.parts, self.size) = (Some(parts), size);
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the bytes that came, as long as all of them are in memory.
    pub(crate) fn preview(&self) -> Option<ReadHandle> {
        let reader = self.is_in_memory().then(|| MemoryReader(Bytes::copy_from_slice(&self.gathered)))?;
        Some(ReadHandle::Stream(Box::new(reader)))
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next bytes. Waits where there is no memory for them.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), FileError> {
        let bucket = Arc::clone(&self.bucket);
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.share.is_none() && self.gathered.len() + bytes.len() > FREE {
                self.share = Some(bucket.wait(self.take_share())?);
                let mut buffer = PartMemory::of_process().buffer(self.part_size());
                buffer.append(&mut self.gathered);
                self.gathered = buffer;
            }
            let room = self.part_size() - self.gathered.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.gathered.extend_from_slice(now);
            bytes = later;
            if self.gathered.len() == self.part_size() {
                bucket.wait(self.send())?;
            }
        }
        Ok(())
    }

    fn part_size(&self) -> usize {
        self.parts.as_ref().map_or(PART, Parts::part_size)
    }

    async fn take_share(&mut self) -> Result<Share, FileError> {
        match &mut self.parts {
            Some(parts) => parts.memory().await,
            None => PartMemory::of_process().take(PART as u64).await,
        }
    }

    /// Sends what was gathered as a part.
    async fn send(&mut self) -> Result<(), FileError> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            parts => parts.insert(Parts::begin(&self.bucket, &self.key, &self.attributes).await?),
        };
        let gathered = std::mem::take(&mut self.gathered);
        let full = PartMemory::of_process().full(gathered, self.share.take());
        parts.send(Bytes::from_owner(full)).await
    }

    /// The multipart upload, with all that came in parts.
    pub(crate) async fn in_parts(&mut self) -> Result<&mut Parts, FileError> {
        if !self.gathered.is_empty() || self.parts.is_none() {
            self.send().await?;
        }
        self.parts.as_mut().ok_or(FileError::Cancelled)
    }

    /// Bytes that were gathered for the next part.
    pub(crate) fn gathered(&self) -> usize {
        self.gathered.len()
    }

    /// Returns whether all that came is still in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.parts.is_none()
    }

    /// Makes the object; returns its tag, where the store tells it.
    pub(crate) async fn finish(&mut self, condition: &Condition) -> Result<Option<String>, FileError> {
        let token = self.attributes.upload.clone().unwrap_or_default();
        if self.parts.is_some() {
            self.in_parts().await?;
        }
        if let Some(parts) = self.parts.take() {
            return parts.complete(condition, &token).await;
        }
        let (client, body) = (&self.bucket.client, std::mem::take(&mut self.gathered));
        let body = Bytes::from_owner(PartMemory::of_process().full(body, self.share.take()));
        match client.put(&self.key, body, &self.attributes, condition).await {
            Err(error) if error.is_failed_condition() => {
                let there = client.find(&self.key).await?;
                match there.filter(|there| there.attributes.upload.as_deref() == Some(&token)) {
                    Some(there) => Ok(Some(there.etag)),
                    None => Err(error.into()),
                }
            }
            result => Ok(Some(result?)),
        }
    }
}

/// An upload that takes the name at the end.
#[derive(Debug)]
pub(crate) struct Staged {
    body: Body,
    path: VirtualPath,
    is_exclusive: bool,
    hashes: Option<Hashes>,
}

impl Staged {
    pub(crate) fn begin(
        bucket: &Arc<Bucket>,
        path: &VirtualPath,
        is_exclusive: bool,
        bits: Option<u32>,
    ) -> Result<Self, FileError> {
        let old = bucket.wait(bucket.place(path))?;
        if is_exclusive && old.is_some() {
            return Err(FileError::AlreadyExists);
        }
        let new = Attributes { mode: bits, ..Attributes::default() };
        let attributes = old.map_or(new, |old| old.attributes.inherited());
        let attributes = Attributes { upload: Some(random_name()?), ..attributes };
        let body = Body::new(bucket, bucket.key(path)?, attributes);
        Ok(Self { body, path: path.clone(), is_exclusive, hashes: None })
    }

    async fn finish(&mut self) -> Result<Committed, FileError> {
        let Self { body, path, is_exclusive, hashes } = self;
        let bucket = Arc::clone(&body.bucket);
        match bucket.kind(path).await? {
            Some(Kind::Folder) => return Err(FileError::IsDirectory),
            Some(Kind::File) if *is_exclusive => return Err(FileError::AlreadyExists),
            _ => {}
        }
        let is_conditional = *is_exclusive && bucket.honours.new_only();
        let condition = if is_conditional { Condition::New } else { Condition::None };
        let (is_small, hashes) = (body.is_in_memory(), hashes.take());
        if is_small {
            body.attributes.hashes = hashes.clone();
        }
        let etag = body.finish(&condition).await?;
        bucket.known.note(path, Some(Kind::File));
        // The parts of a large one were begun before its hash was known.
        if let Some(hashes) = hashes.filter(|_| !is_small && body.size <= LARGEST_COPY) {
            let attributes = Attributes { hashes: Some(hashes), ..body.attributes.clone() };
            // It is there already, without its hash where this fails, or where another has replaced it.
            let _ = bucket.client.copy((&body.key, etag.as_deref()), &body.key, Some(&attributes)).await;
        }
        Ok(Committed { size: body.size })
    }
}

impl Upload for Staged {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.body.write(bytes)
    }

    /// Only as long as it is in memory.
    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        Ok(self.body.preview())
    }

    fn set_hashes(&mut self, hashes: Hashes, length: u64) {
        self.hashes = Some(hashes).filter(|_| length == self.body.size);
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        let bucket = Arc::clone(&self.body.bucket);
        bucket.wait(self.finish())
    }

    fn abort(self: Box<Self>) {}

    fn undo(self: Box<Self>) {}

    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn is_staged(&self) -> bool {
        true
    }
}
