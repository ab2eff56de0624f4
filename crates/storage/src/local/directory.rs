//! Listings: `getdents` in large steps, and `statx` an entry.
//!
//! Memory is one buffer, whatever the directory holds. Names come in the file system's order; what vanishes
//! between being named and being looked at is left out, and so are reserved names.
//!
//! A million entries of a tmpfs, `examples/list_rate.rs`, 2 cores shared with other work: 3.0 million names a
//! second, 0.5 million entries with `statx`, which is most of the cost; 0.3 MiB of memory.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError, FileKind, Link, Metadata, VirtualPath, Wait};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::disk;
use super::errno::{file_error, transfer_error};
use super::tree::Tree;
use super::{metadata, staging};

/// The largest `getdents` buffer: some 2,000 names of 12 bytes, so the call itself no longer counts.
const BUFFER: usize = 64 << 10;

/// The smallest buffer: a record of the longest name takes 280 bytes.
const SMALLEST_BUFFER: usize = 1 << 10;

/// The bytes of a record with a name of up to 12 bytes. A batch is as large as the buffer that it is read
/// into, so this turns a number of entries into one.
const TYPICAL_RECORD: usize = 32;

/// An open directory.
#[derive(Debug)]
pub(super) struct Listing {
    tree: Arc<Tree>,
    path: VirtualPath,
    directory: OwnedFd,
    buffer: Vec<u8>,
}

impl Listing {
    /// Opens a directory to list.
    pub(super) fn open(tree: &Arc<Tree>, path: &VirtualPath) -> Result<Self, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = tree.open_at(path, flags, Mode::empty(), Wait::Allowed)?;
        // Held open it can still be opened, and would list as empty.
        if path.is_root() && tree.is_removed() {
            return Err(FileError::NotFound);
        }
        Ok(Self { tree: Arc::clone(tree), path: path.clone(), directory, buffer: Vec::new() })
    }

    /// Reads one buffer of names; answers how many were visited, 0 at the end.
    fn visit(
        &mut self,
        most: usize,
        mut visit: impl FnMut(&Entries<'_>, &CStr) -> Result<bool, FileError>,
    ) -> Result<usize, FileError> {
        let size = most.saturating_mul(TYPICAL_RECORD).clamp(SMALLEST_BUFFER, BUFFER);
        self.buffer.clear();
        self.buffer.reserve_exact(size);
        let entries = Entries { tree: &self.tree, path: &self.path, directory: &self.directory };
        let mut names = RawDir::new(&self.directory, &mut self.buffer.spare_capacity_mut()[..size]);
        let mut visited = 0;
        while let Some(entry) = names.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                // The directory was removed while it was being listed.
                Err(Errno::NOENT) => break,
                result => result.map_err(transfer_error)?,
            };
            let name = entry.file_name();
            if !is_hidden(name.to_bytes()) {
                visited += usize::from(visit(&entries, name)?);
            }
            // A buffer in which nothing was worth showing is not the end.
            if visited > 0 && names.is_buffer_empty() {
                break;
            }
        }
        Ok(visited)
    }
}

impl Directory for Listing {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        self.visit(most, |directory, name| {
            let entry = directory.look_at(name)?;
            let found = entry.is_some();
            entries.extend(entry);
            Ok(found)
        })?;
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        self.visit(most, |_, name| {
            visit(name.to_bytes());
            Ok(true)
        })
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        metadata::of_descriptor(&self.directory)
    }
}

/// What an entry's metadata is read with.
struct Entries<'a> {
    tree: &'a Tree,
    path: &'a VirtualPath,
    directory: &'a OwnedFd,
}

impl Entries<'_> {
    /// The entry, or `None` where it is gone.
    fn look_at(&self, name: &CStr) -> Result<Option<DirEntry>, FileError> {
        let metadata = match metadata::of_entry(self.directory, name) {
            Err(FileError::NotFound) => return Ok(None),
            result => result?,
        };
        let name = name.to_bytes();
        if metadata.kind != FileKind::Symlink {
            return Ok(Some(DirEntry { name: name.to_owned(), metadata, link: None }));
        }
        let text = read_link(self.directory, name).unwrap_or_default();
        let target = self.follow(name).unwrap_or(metadata);
        Ok(Some(DirEntry { name: name.to_owned(), metadata: target, link: Some(Link { text, metadata }) }))
    }

    /// The target of a link, if it lies within the tree.
    fn follow(&self, name: &[u8]) -> Result<Metadata, FileError> {
        let path = self.path.join(name).map_err(|_| FileError::NameTooLong)?;
        self.tree.metadata(&path, Wait::Allowed)
    }
}

/// The text of a link.
pub(super) fn read_link(directory: &OwnedFd, name: &[u8]) -> Result<Vec<u8>, FileError> {
    disk::readlinkat(directory, name, Vec::new()).map(|text| text.into_bytes()).map_err(file_error)
}

fn is_hidden(name: &[u8]) -> bool {
    name == b"." || name == b".." || staging::is_reserved(name)
}
