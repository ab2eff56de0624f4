//! Packing: what the walk finds, put into the archive's form piece by piece, as the reader asks for it.

use std::fmt;
use std::io;
use std::sync::Arc;

use millrace_vfs::{
    Conversion, DirEntry, FileError, FileKind, ReadHandle, ReadStream, Storage, VirtualPath, Wait,
};

use super::Format;
use super::tarball::Tarball;
use super::walk::Walk;
use super::zipped::Zipped;
use crate::{Withheld, through};

/// How many bytes of a file are read at a time.
const PIECE: usize = 64 << 10;

/// An entry as it is packed.
pub(super) struct Item<'a> {
    /// Its path within the archive: the folder's name first, no slash at either end.
    pub(super) name: &'a [u8],
    pub(super) entry: &'a DirEntry,
}

/// An archive format. Its output is fetched with `take`; a file's data arrives in order, exactly as much as its
/// metadata announces.
pub(super) trait Form: Send + fmt::Debug {
    fn directory(&mut self, item: &Item<'_>) -> io::Result<()>;
    fn link(&mut self, item: &Item<'_>, text: &[u8]) -> io::Result<()>;
    fn begin_file(&mut self, item: &Item<'_>) -> io::Result<()>;
    fn data(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn end_file(&mut self) -> io::Result<()>;
    fn finish(&mut self) -> io::Result<()>;
    /// Moves the finished bytes to the end of `out`.
    fn take(&mut self, out: &mut Vec<u8>);
    /// Whether a link is packed as one.
    fn has_links(&self) -> bool;
}

/// An archive that is made as it is read.
#[derive(Debug)]
pub(super) struct Packer {
    storage: Arc<dyn Storage>,
    folder: VirtualPath,
    format: Format,
    withheld: Withheld,
    walk: Walk,
    form: Box<dyn Form>,
    open: Option<Open>,
    is_finished: bool,
    /// Made and not yet read; begins at `position` of the archive.
    out: Vec<u8>,
    position: u64,
}

/// The file that is being packed.
#[derive(Debug)]
struct Open {
    path: VirtualPath,
    handle: ReadHandle,
    size: u64,
    offset: u64,
}

/// An error that names what it is about.
pub(super) fn about(path: &VirtualPath, error: FileError) -> FileError {
    FileError::Io(io::Error::other(format!("{path} cannot be packed: {error}")))
}

impl Packer {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        folder: VirtualPath,
        format: Format,
        withheld: Withheld,
    ) -> Result<Self, FileError> {
        let walk = Walk::new(Arc::clone(&storage), &folder)?;
        let form: Box<dyn Form> = match format {
            Format::Tar => Box::new(Tarball::plain()),
            Format::TarGz => Box::new(Tarball::packed()),
            Format::Zip => Box::new(Zipped::new()),
        };
        let (open, out) = (None, Vec::new());
        Ok(Self { storage, folder, format, withheld, walk, form, open, is_finished: false, out, position: 0 })
    }

    /// Makes some more. May make nothing that is ready yet.
    fn step(&mut self) -> Result<(), FileError> {
        if self.open.is_some() {
            self.pack_piece()?;
        } else if let Some((path, entry)) = self.walk.next()? {
            self.begin(path, &entry)?;
        } else {
            self.form.finish()?;
            self.is_finished = true;
        }
        self.form.take(&mut self.out);
        Ok(())
    }

    fn begin(&mut self, path: VirtualPath, entry: &DirEntry) -> Result<(), FileError> {
        let name = self.name_of(&path);
        let item = Item { name: &name, entry };
        match (entry.link_text(), entry.metadata.kind) {
            (Some(text), _) if self.form.has_links() => self.form.link(&item, text)?,
            (None, FileKind::Directory) => self.form.directory(&item)?,
            (_, FileKind::File) => {
                let handle = match self.storage.open_read(&path, Wait::Allowed) {
                    Ok(handle) => handle,
                    Err(FileError::NotFound) => return Ok(()),
                    Err(error) => return Err(about(&path, error)),
                };
                if matches!(&handle, ReadHandle::File(range) if self.withheld.is_source(&range.file)) {
                    return Ok(());
                }
                let size = handle.size().unwrap_or(entry.metadata.size);
                let metadata = millrace_vfs::Metadata { size, ..entry.metadata };
                let entry = DirEntry { metadata, ..entry.clone() };
                self.form.begin_file(&Item { name: &name, entry: &entry })?;
                self.open = Some(Open { path, handle, size, offset: 0 });
            }
            _ => {}
        }
        Ok(())
    }

    /// The path within the archive: beneath the folder's own name, or bare for the root.
    fn name_of(&self, path: &VirtualPath) -> Vec<u8> {
        let skipped = self.folder.parent().as_bytes().len();
        let name = &path.as_bytes()[skipped..];
        name.strip_prefix(b"/").unwrap_or(name).to_vec()
    }

    fn pack_piece(&mut self) -> Result<(), FileError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let most = usize::try_from(open.size - open.offset).unwrap_or(usize::MAX).min(PIECE);
        let mut piece = vec![0; most];
        let count = through::read_full(&mut open.handle, open.offset, &mut piece)
            .map_err(|error| about(&open.path, error))?;
        if count < most {
            let error = io::Error::other("it became shorter meanwhile");
            return Err(about(&open.path, FileError::Io(error)));
        }
        self.form.data(&piece)?;
        open.offset += count as u64;
        if open.offset == open.size {
            self.form.end_file()?;
            self.open = None;
        }
        Ok(())
    }
}

impl ReadStream for Packer {
    fn size(&self) -> Option<u64> {
        None
    }

    fn conversion(&self) -> Conversion {
        Conversion { compressed: self.format != Format::Tar, archived: true, ..Conversion::default() }
    }

    /// Reads on from where it stands; a place that has gone by is reached by beginning anew.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        if offset < self.position {
            let (storage, folder) = (Arc::clone(&self.storage), self.folder.clone());
            *self = Self::new(storage, folder, self.format, self.withheld.clone())?;
        }
        loop {
            let end = self.position + self.out.len() as u64;
            if offset < end {
                let start = (offset - self.position) as usize;
                let count = buffer.len().min(self.out.len() - start);
                buffer[..count].copy_from_slice(&self.out[start..start + count]);
                self.out.drain(..start + count);
                self.position = offset + count as u64;
                return Ok(count);
            }
            if self.is_finished {
                return Ok(0);
            }
            self.out.clear();
            self.position = end;
            self.step()?;
        }
    }
}
