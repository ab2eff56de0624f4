//! Uploads into an object that is there (`APPE`, `REST` before `STOR`): the store copies what stays, nothing is downloaded
//! but up to a part at each seam, because only the last part may be small.
//!
//! The name has the old object until the end, and then the new one. An end that is no commit keeps what came, as `vfs` wants it
//! of uploads in place; an upload that is dropped or undone leaves the old object.

use std::fs::File;
use std::sync::Arc;

use hyper::body::Bytes;
use millrace_vfs::{Committed, FileError, Readiness, Upload, VirtualPath};

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::buffers::PART;
use crate::client::{Condition, Object, random_name};
use crate::folders::Kind;
use crate::parts::Parts;
use crate::upload::Body;

/// An upload into an object.
#[derive(Debug)]
pub(crate) struct Patch {
    bucket: Arc<Bucket>,
    path: VirtualPath,
    key: String,
    /// `None` where there was none.
    old: Option<Object>,
    offset: u64,
    /// `None` until bytes come.
    body: Option<Body>,
    bits: Option<u32>,
}

impl Patch {
    /// Begins at an offset, or at the end.
    pub(crate) fn begin(
        bucket: &Arc<Bucket>,
        path: &VirtualPath,
        offset: Option<u64>,
        bits: Option<u32>,
    ) -> Result<Self, FileError> {
        let old = bucket.wait(bucket.place(path))?;
        let offset = match (&old, offset) {
            (Some(old), offset) => offset.unwrap_or(old.size),
            (None, None | Some(0)) => 0,
            (None, Some(_)) => return Err(FileError::NotFound),
        };
        if old.as_ref().is_some_and(|old| offset > old.size) {
            return Err(FileError::OutOfRange);
        }
        let (bucket, key) = (Arc::clone(bucket), bucket.key(path)?);
        Ok(Self { bucket, path: path.clone(), key, old, offset, body: None, bits })
    }

    /// What is before the offset: copied by the store, or downloaded where it is too small for a part.
    async fn head(&self) -> Result<(Body, Bytes), FileError> {
        let new = Attributes { mode: self.bits, ..Attributes::default() };
        let attributes = self.old.as_ref().map_or(new, |old| old.attributes.inherited());
        let attributes = Attributes { upload: Some(random_name()?), ..attributes };
        let body = Body::new(&self.bucket, self.key.clone(), attributes.clone());
        let Some(old) = self.old.as_ref().filter(|_| self.offset > 0) else {
            return Ok((body, Bytes::new()));
        };
        if self.offset < PART as u64 {
            return Ok((body, self.download(old, 0, self.offset).await?));
        }
        if !self.bucket.honours.copies_parts() {
            return Err(FileError::Unsupported);
        }
        let mut parts = Parts::begin(&self.bucket, &self.key, &attributes).await?;
        parts.copy((&self.key, &old.etag), 0..self.offset, &mut |_| true).await?;
        Ok((body.after(parts, self.offset), Bytes::new()))
    }

    async fn download(&self, old: &Object, start: u64, end: u64) -> Result<Bytes, FileError> {
        if start >= end {
            return Ok(Bytes::new());
        }
        let (mut answer, _) = self.bucket.client.get(&self.key, start, Some(end), Some(&old.etag)).await?;
        Ok(answer.read(2 * PART).await?.into())
    }

    fn body(&mut self) -> Result<&mut Body, FileError> {
        if self.body.is_none() {
            let (mut body, head) = self.bucket.wait(self.head())?;
            body.write(&head)?;
            self.body = Some(body);
        }
        self.body.as_mut().ok_or(FileError::Cancelled)
    }

    /// Adds what is behind what came, and makes the object.
    fn finish(&mut self) -> Result<Committed, FileError> {
        if self.body.is_none()
            && let Some(old) = &self.old
        {
            return Ok(Committed { size: old.size });
        }
        self.body()?;
        let mut body = self.body.take().ok_or(FileError::Cancelled)?;
        let (bucket, end) = (Arc::clone(&self.bucket), body.size());
        if let Some(old) = self.old.as_ref().filter(|old| old.size > end) {
            // The last part of what came may be too small to have something behind it.
            let seam = if body.is_in_memory() || body.gathered() > 0 { PART - body.gathered() } else { 0 };
            let seam = old.size.min(end + seam as u64);
            let more = bucket.wait(self.download(old, end, seam))?;
            body.write(&more)?;
            if old.size > seam {
                if !bucket.honours.copies_parts() {
                    return Err(FileError::Unsupported);
                }
                bucket.wait(copy_tail(&mut body, (&self.key, &old.etag), seam..old.size))?;
            }
        }
        let size = body.size().max(self.old.as_ref().map_or(0, |old| old.size));
        let condition = match &self.old {
            _ if !bucket.honours.same_only() => Condition::None,
            Some(old) => Condition::Same(old.etag.clone()),
            None => Condition::None,
        };
        let finished = bucket.wait(body.finish(&condition));
        finished.map_err(|error| match error {
            // Another upload has replaced it meanwhile.
            FileError::AlreadyExists => FileError::Busy,
            error => error,
        })?;
        bucket.known.note(&self.path, Some(Kind::File));
        Ok(Committed { size })
    }
}

async fn copy_tail(
    body: &mut Body,
    from: (&str, &str),
    range: std::ops::Range<u64>,
) -> Result<(), FileError> {
    body.in_parts().await?.copy(from, range, &mut |_| true).await
}

impl Upload for Patch {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if bytes.is_empty() { Ok(()) } else { self.body()?.write(bytes) }
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        self.finish()
    }

    fn abort(mut self: Box<Self>) {
        if self.body.is_some() {
            let _ = self.finish();
        }
    }

    fn undo(self: Box<Self>) {}

    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::MayHang
    }
}
