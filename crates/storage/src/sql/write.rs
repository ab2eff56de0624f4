//! Writing: into a new content that takes the name at the end, or into the content that is there.

use std::fs::File;
use std::sync::Arc;

use millrace_vfs::hash::{Hashes, StoredHashes};
use millrace_vfs::{Committed, FileError, ReadHandle, Readiness, Upload, VirtualPath};

use super::content::{self, CHUNK, Hold};
use super::read::Reader;
use super::{Shared, tree};

/// How many bytes are buffered before a write: some chunks for each transaction.
const GATHERED: usize = 4 * CHUNK;

/// Bytes on their way into a content.
#[derive(Debug)]
struct Body {
    hold: Hold,
    offset: u64,
    gathered: Vec<u8>,
}

impl Body {
    fn new(hold: Hold, offset: u64) -> Self {
        Self { hold, offset, gathered: Vec::new() }
    }

    fn end(&self) -> u64 {
        self.offset + self.gathered.len() as u64
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHERED { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), FileError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let (content, offset, bytes) = (self.hold.content, self.offset, &self.gathered);
        self.hold.shared().pool.change(|change| content::write(change, content, offset, bytes))?;
        self.offset = self.end();
        self.gathered.clear();
        Ok(())
    }
}

/// An upload that takes the name at the end.
#[derive(Debug)]
pub(super) struct Staged {
    body: Body,
    path: VirtualPath,
    is_exclusive: bool,
    bits: Option<u32>,
    hashes: Option<Hashes>,
}

impl Staged {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        path: &VirtualPath,
        is_exclusive: bool,
        bits: Option<u32>,
    ) -> Result<Self, FileError> {
        match shared.pool.look(|look| tree::find_place(look, path))? {
            (_, Some(node)) if node.metadata.is_directory() => return Err(FileError::IsDirectory),
            (_, Some(_)) if is_exclusive => return Err(FileError::AlreadyExists),
            _ => {}
        }
        let body = Body::new(Hold::create(shared)?, 0);
        Ok(Self { body, path: path.clone(), is_exclusive, bits, hashes: None })
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

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.body.flush()?;
        let reader = Reader::unnamed(self.body.hold.again(), self.body.offset);
        Ok(Some(ReadHandle::Stream(Box::new(reader))))
    }

    fn set_hashes(&mut self, hashes: Hashes, length: u64) {
        self.hashes = Some(hashes).filter(|_| length == self.body.end());
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        let Self { body, path, is_exclusive, bits, hashes } = &mut *self;
        // The last bytes and the name, in one transaction.
        let (size, content, shared) = (body.end(), body.hold.content, Arc::clone(body.hold.shared()));
        let named = shared.pool.change_tree(|change| {
            content::write(change, content, body.offset, &body.gathered)?;
            let (parent, old) = tree::find_place(change, path)?;
            let before = match old {
                Some(_) if *is_exclusive => return Err(FileError::AlreadyExists),
                Some(old) => Some(tree::replace(change, &old, content)?),
                None => {
                    tree::insert(change, parent, path.name(), Some(content), *bits)?;
                    None
                }
            };
            if let Some(hashes) = &*hashes {
                let modified = tree::find(change, path)?.metadata.modified;
                let stored = StoredHashes { size, modified, hashes: hashes.clone() };
                content::set_hashes(change, content, Some(&stored))?;
            }
            body.hold.set_named(true);
            Ok(before)
        });
        let before = named.inspect_err(|_| body.hold.set_named(false))?;
        before.into_iter().for_each(|before| shared.release(before));
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

/// An upload into the file itself: what came stays.
#[derive(Debug)]
pub(super) struct InPlace {
    body: Body,
    /// The length of the content when it began.
    size: u64,
}

impl InPlace {
    /// Begins at an offset, or at the end.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        path: &VirtualPath,
        offset: Option<u64>,
        bits: Option<u32>,
    ) -> Result<Self, FileError> {
        loop {
            let place = shared.pool.look(|look| tree::find_place(look, path))?;
            let content = match place {
                (_, Some(node)) => node.content()?,
                (_, None) if offset.unwrap_or(0) > 0 => return Err(FileError::NotFound),
                (_, None) => {
                    // An empty file as a place for the data. Another upload may have created it first.
                    let made = Staged::begin(shared, path, true, bits);
                    match made.and_then(|empty| Box::new(empty).commit()) {
                        Ok(_) | Err(FileError::AlreadyExists) => continue,
                        Err(error) => return Err(error),
                    }
                }
            };
            let Some((hold, size)) = Hold::of(shared, content)? else { continue };
            let offset = offset.unwrap_or(size);
            if offset > size {
                return Err(FileError::OutOfRange);
            }
            shared.pool.change(|change| content::set_hashes(change, content, None))?;
            return Ok(Self { body: Body::new(hold, offset), size });
        }
    }

    fn finish(&mut self) -> Result<Committed, FileError> {
        self.body.flush()?;
        let content = self.body.hold.content;
        let size = self.body.hold.shared().pool.change_tree(|change| {
            tree::touch(change, content)?;
            content::size(change, content)
        })?;
        Ok(Committed { size: size.unwrap_or(self.body.offset) })
    }
}

impl Upload for InPlace {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.body.write(bytes)
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        self.finish()
    }

    fn abort(mut self: Box<Self>) {
        let _ = self.finish();
    }

    fn undo(self: Box<Self>) {
        let (content, size) = (self.body.hold.content, self.size);
        let _ = self.body.hold.shared().pool.change(|change| content::truncate(change, content, size));
    }

    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::MayHang
    }
}
