//! Uploads into an object that is there (`APPE`, `REST` before `STOR`).
//!
//! The name has the old object until the end, and then the new one. An end that is no commit keeps what came, as `vfs` wants it
//! of uploads in place; an upload that is dropped or undone leaves the old object.

use std::fs::File;
use std::sync::Arc;

use millrace_vfs::{Committed, FileError, Readiness, Upload, VirtualPath};

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::client::{Condition, Object, Source, random_name};
use crate::folders::Kind;
use crate::splice::Splice;

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
    splice: Option<Splice>,
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
        let offset = start(old.as_ref().map(|old| old.size), offset)?;
        let (bucket, key) = (Arc::clone(bucket), bucket.key(path)?);
        Ok(Self { bucket, path: path.clone(), key, old, offset, splice: None, bits })
    }

    fn splice(&mut self) -> Result<&mut Splice, FileError> {
        if self.splice.is_none() {
            let new = Attributes { mode: self.bits, ..Attributes::default() };
            let attributes = self.old.as_ref().map_or(new, |old| old.attributes.inherited());
            let attributes = Attributes { upload: Some(random_name()?), ..attributes };
            let source = self.old.as_ref().map(|old| Source {
                key: self.key.clone(),
                etag: Some(old.etag.clone()),
                size: old.size,
            });
            let key = self.key.clone();
            self.splice = Some(Splice::begin(&self.bucket, key, &attributes, source, self.offset)?);
        }
        self.splice.as_mut().ok_or(FileError::Cancelled)
    }

    /// Makes the object.
    fn finish(&mut self) -> Result<Committed, FileError> {
        if self.splice.is_none()
            && let Some(old) = &self.old
        {
            return Ok(Committed { size: old.size });
        }
        self.splice()?;
        let splice = self.splice.take().ok_or(FileError::Cancelled)?;
        let condition = match &self.old {
            _ if !self.bucket.honours.same_only() => Condition::None,
            Some(old) => Condition::Same(old.etag.clone()),
            None => Condition::None,
        };
        let size = splice.finish(&condition).map_err(|error| match error {
            // Another upload has replaced it meanwhile.
            FileError::AlreadyExists => FileError::Busy,
            error => error,
        })?;
        self.bucket.known.note(&self.path, Some(Kind::File));
        Ok(Committed { size })
    }
}

/// Returns where an upload into a file of this size begins, at an offset or at the end.
pub fn start(size: Option<u64>, offset: Option<u64>) -> Result<u64, FileError> {
    match (size, offset) {
        (Some(size), Some(offset)) if offset > size => Err(FileError::OutOfRange),
        (Some(size), offset) => Ok(offset.unwrap_or(size)),
        (None, None | Some(0)) => Ok(0),
        (None, Some(_)) => Err(FileError::NotFound),
    }
}

impl Upload for Patch {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if bytes.is_empty() { Ok(()) } else { self.splice()?.write(bytes) }
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        self.finish()
    }

    fn abort(mut self: Box<Self>) {
        if self.splice.is_some() {
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
