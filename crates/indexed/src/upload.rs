//! Uploads: a new object, which has a name when it is whole.

use std::fs::File;
use std::sync::Arc;

use millrace_s3::{ObjectUpload, upload_start};
use millrace_vfs::hash::Hashes;
use millrace_vfs::{Committed, FileError, ReadHandle, Readiness, Upload, VirtualPath};

use crate::Shared;
use crate::pending::Pending;
use crate::tree::{Insists, NewFile, Node};

/// An upload of a whole file.
#[derive(Debug)]
pub(crate) struct Staged {
    path: VirtualPath,
    bits: Option<u32>,
    is_new: bool,
    hashes: Option<Hashes>,
    /// Given up before what is pending is.
    body: ObjectUpload,
    pending: Pending,
}

impl Staged {
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        path: &VirtualPath,
        is_new: bool,
        bits: Option<u32>,
    ) -> Result<Self, FileError> {
        let pending = Pending::begin(shared, path, is_new)?;
        let body = shared.store.upload(&pending.object.name());
        Ok(Self { path: path.clone(), bits, is_new, hashes: None, body, pending })
    }
}

impl Upload for Staged {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.pending.set_begun();
        self.body.write(bytes)
    }

    /// Only as long as it is in memory.
    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        Ok(self.body.preview())
    }

    fn set_hashes(&mut self, hashes: Hashes, length: u64) {
        self.hashes = Some(hashes).filter(|_| length == self.body.size());
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        let Self { path, bits, is_new, hashes, body, mut pending } = *self;
        pending.set_begun();
        let size = body.finish()?;
        let object = pending.object.clone();
        let insists = if is_new { Insists::New } else { Insists::Nothing };
        let hashes = hashes.as_ref();
        pending.commit(&NewFile { path: &path, object: &object, size, bits, hashes, insists })?;
        Ok(Committed { size })
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

/// An upload into a file that is there (`APPE`, `REST` before `STOR`): the store copies what stays into a new object.
///
/// The name has the old object until the end. An end that is no commit keeps what came, as `vfs` wants it of uploads in
/// place; an upload that is dropped or undone leaves the old object.
#[derive(Debug)]
pub(crate) struct Patch {
    shared: Arc<Shared>,
    path: VirtualPath,
    /// `None` where there was none.
    old: Option<Node>,
    offset: u64,
    bits: Option<u32>,
    /// `None` until bytes come.
    body: Option<(ObjectUpload, Pending)>,
}

impl Patch {
    /// Begins at an offset, or at the end.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        path: &VirtualPath,
        offset: Option<u64>,
        bits: Option<u32>,
    ) -> Result<Self, FileError> {
        let old = match shared.tree.find(path) {
            Ok(node) => node.object().map(|_| ()).map(|()| Some(node))?,
            Err(FileError::NotFound) => {
                // The folder has to be there.
                shared.tree.find(&path.parent())?;
                None
            }
            Err(error) => return Err(error),
        };
        let offset = upload_start(old.as_ref().map(|old| old.metadata.size), offset)?;
        Ok(Self { shared: Arc::clone(shared), path: path.clone(), old, offset, bits, body: None })
    }

    fn body(&mut self) -> Result<&mut ObjectUpload, FileError> {
        if self.body.is_none() {
            let mut pending = Pending::begin(&self.shared, &self.path, self.old.is_none())?;
            pending.set_begun();
            let (store, name) = (&self.shared.store, pending.object.name());
            let body = match &self.old {
                Some(old) => store.splice(&name, (&old.object()?.name(), old.metadata.size), self.offset)?,
                None => store.upload(&name),
            };
            self.body = Some((body, pending));
        }
        self.body.as_mut().map(|(body, _)| body).ok_or(FileError::Cancelled)
    }

    /// Adds what is behind what came, and gives the file the new object.
    fn finish(&mut self) -> Result<Committed, FileError> {
        if self.body.is_none()
            && let Some(old) = &self.old
        {
            return Ok(Committed { size: old.metadata.size });
        }
        self.body()?;
        let (body, pending) = self.body.take().ok_or(FileError::Cancelled)?;
        let size = body.finish()?;
        let insists = match &self.old {
            Some(old) => Insists::Same(old.object()?),
            None => Insists::New,
        };
        let (path, object) = (&self.path, &pending.object.clone());
        let file = NewFile { path, object, size, bits: self.bits, hashes: None, insists };
        pending.commit(&file).map_err(|error| match error {
            // Another upload has made it meanwhile.
            FileError::AlreadyExists => FileError::Busy,
            error => error,
        })?;
        Ok(Committed { size })
    }
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
