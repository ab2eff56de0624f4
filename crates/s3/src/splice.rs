//! Bytes written into what an object has: the store copies what stays, nothing is downloaded but up to a part at each seam,
//! because only the last part may be small.

use std::sync::Arc;

use hyper::body::Bytes;
use millrace_vfs::FileError;

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::buffers::PART;
use crate::client::{Condition, Source};
use crate::parts::Parts;
use crate::upload::Body;

/// An object in the making.
#[derive(Debug)]
pub(crate) struct Splice {
    bucket: Arc<Bucket>,
    source: Option<Source>,
    body: Body,
}

impl Splice {
    /// Begins an object with what the source has before an offset.
    pub(crate) fn begin(
        bucket: &Arc<Bucket>,
        key: String,
        attributes: &Attributes,
        source: Option<Source>,
        offset: u64,
    ) -> Result<Self, FileError> {
        let body = Body::new(bucket, key, attributes.clone());
        let mut splice = Self { bucket: Arc::clone(bucket), source, body };
        match offset {
            0 => {}
            _ if offset < PART as u64 => splice.take_over(0..offset)?,
            _ => splice.begin_with_copy(attributes, offset)?,
        }
        Ok(splice)
    }

    fn begin_with_copy(&mut self, attributes: &Attributes, offset: u64) -> Result<(), FileError> {
        let Some(source) = &self.source else { return Ok(()) };
        if !self.bucket.honours.copies_parts() {
            return Err(FileError::Unsupported);
        }
        let parts = self.bucket.wait(async {
            let mut parts = Parts::begin(&self.bucket, self.body.key(), attributes).await?;
            parts.copy(source, 0..offset, &mut |_| true).await?;
            Ok::<_, FileError>(parts)
        })?;
        self.body.continue_after(parts, offset);
        Ok(())
    }

    /// Takes bytes of the source that are too few for a part of their own.
    fn take_over(&mut self, range: std::ops::Range<u64>) -> Result<(), FileError> {
        let Some(source) = self.source.as_ref().filter(|_| !range.is_empty()) else { return Ok(()) };
        let bytes: Bytes = self.bucket.wait(async {
            let (client, etag) = (&self.bucket.client, source.etag.as_deref());
            let (mut answer, _) = client.get(&source.key, range.start, Some(range.end), etag).await?;
            Ok::<_, FileError>(answer.read(2 * PART).await?.into())
        })?;
        self.body.write(&bytes)
    }

    /// Takes the next bytes. Waits where there is no memory for them.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.body.write(bytes)
    }

    /// Adds what the source has behind what came, and makes the object; returns its length.
    pub(crate) fn finish(mut self, condition: &Condition) -> Result<u64, FileError> {
        let (bucket, end) = (Arc::clone(&self.bucket), self.body.size());
        let size = self.source.as_ref().map_or(0, |source| source.size).max(end);
        if size > end {
            // The last part of what came may be too small to have something behind it.
            let is_seam = self.body.is_in_memory() || self.body.gathered() > 0;
            let seam = if is_seam { PART - self.body.gathered() } else { 0 };
            let seam = size.min(end + seam as u64);
            self.take_over(end..seam)?;
            if let Some(source) = self.source.as_ref().filter(|_| size > seam) {
                if !bucket.honours.copies_parts() {
                    return Err(FileError::Unsupported);
                }
                bucket.wait(copy_tail(&mut self.body, source, seam))?;
            }
        }
        bucket.wait(self.body.finish(condition))?;
        Ok(size)
    }
}

async fn copy_tail(body: &mut Body, source: &Source, seam: u64) -> Result<(), FileError> {
    body.in_parts().await?.copy(source, seam..source.size, &mut |_| true).await
}
