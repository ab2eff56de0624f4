//! Listings: `getdents` in large steps, and `statx` an entry.
//!
//! Memory is a buffer and two batches, whatever the directory holds. Names come in the file system's order; what vanishes
//! between being named and being looked at is left out, and so are reserved names. While a large batch is used the
//! next one is looked at ([`Batch`]).
//!
//! A million entries of a tmpfs, `examples/list_rate.rs`, 2 cores shared with other work: 3.0 million names a
//! second, 0.5 million entries with `statx`, which is most of the cost; 0.3 MiB of memory.

mod batch;

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError, FileKind, Link, Metadata, VirtualPath, Wait};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::errno::{file_error, transfer_error};
use super::tree::Tree;
use super::{disk, metadata, staging};
use batch::{Batch, LookAt};

/// The largest `getdents` buffer: some 2,000 names of 12 bytes, so the call itself no longer counts.
const BUFFER: usize = 64 << 10;

/// The smallest buffer: a record of the longest name takes 280 bytes.
const SMALLEST_BUFFER: usize = 1 << 10;

/// The bytes of a record with a name of up to 12 bytes. A batch is as large as the buffer that it is read
/// into, so this turns a number of entries into one.
const TYPICAL_RECORD: usize = 32;

/// Where the entries are.
#[derive(Debug)]
struct Place {
    tree: Arc<Tree>,
    path: VirtualPath,
    directory: OwnedFd,
}

/// An open directory.
#[derive(Debug)]
pub(super) struct Listing {
    place: Arc<Place>,
    buffer: Vec<u8>,
    /// What is looked at while the batch before it is used.
    ahead: Option<Batch<Place>>,
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
        let place = Arc::new(Place { tree: Arc::clone(tree), path: path.clone(), directory });
        Ok(Self { place, buffer: Vec::new(), ahead: None })
    }

    /// Reads one buffer of names; answers how many were visited, 0 at the end.
    fn visit(&mut self, most: usize, mut visit: impl FnMut(&CStr)) -> Result<usize, FileError> {
        let size = most.saturating_mul(TYPICAL_RECORD).clamp(SMALLEST_BUFFER, BUFFER);
        self.buffer.clear();
        self.buffer.reserve_exact(size);
        let mut names = RawDir::new(&self.place.directory, &mut self.buffer.spare_capacity_mut()[..size]);
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
                visited += 1;
                visit(name);
            }
            // A buffer in which nothing was worth showing is not the end.
            if visited > 0 && names.is_buffer_empty() {
                break;
            }
        }
        Ok(visited)
    }

    /// Reads the names of a batch; `None` at the end.
    fn read_names(&mut self, most: usize) -> Result<Option<Batch<Place>>, FileError> {
        let mut names = Vec::new();
        let visited = self.visit(most, |name| names.extend_from_slice(name.to_bytes_with_nul()))?;
        Ok((visited > 0).then(|| Batch::new(&self.place, names)))
    }
}

impl Directory for Listing {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        let before = entries.len();
        // A batch of which everything has vanished is not the end either.
        while entries.len() == before {
            let ahead = self.ahead.take();
            let Some(mut batch) = ahead.map_or_else(|| self.read_names(most), |batch| Ok(Some(batch)))?
            else {
                break;
            };
            batch.begin();
            if batch.is_large() {
                self.ahead = self.read_names(most)?;
            }
            batch.finish();
            if let Some(ahead) = &mut self.ahead {
                ahead.begin();
            }
            batch.append_to(entries)?;
        }
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        if let Some(begun) = self.ahead.take() {
            let names = begun.names().split(|byte| *byte == 0).filter(|name| !name.is_empty());
            return Ok(names.map(visit).count());
        }
        self.visit(most, |name| visit(name.to_bytes()))
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        metadata::of_descriptor(&self.place.directory)
    }
}

impl LookAt for Place {
    fn look_at_each(&self, names: &[u8]) -> Result<Vec<DirEntry>, FileError> {
        let names = || names.split_inclusive(|byte| *byte == 0).flat_map(CStr::from_bytes_with_nul);
        if disk::acting::is_user() {
            let names: Vec<&CStr> = names().collect();
            let found = metadata::of_each_entry(&self.directory, &names).unwrap_or_default();
            let entries = names.into_iter().zip(found);
            return entries.filter_map(|(name, found)| self.entry(name, found).transpose()).collect();
        }
        let look_at = |name| self.entry(name, metadata::of_entry(&self.directory, name));
        names().filter_map(|name| look_at(name).transpose()).collect()
    }
}

impl Place {
    /// The entry with this metadata, or `None` where it is gone.
    fn entry(&self, name: &CStr, found: Result<Metadata, FileError>) -> Result<Option<DirEntry>, FileError> {
        let metadata = match found {
            Err(FileError::NotFound) => return Ok(None),
            result => result?,
        };
        let name = name.to_bytes();
        if metadata.kind != FileKind::Symlink {
            return Ok(Some(DirEntry { name: name.to_owned(), metadata, link: None }));
        }
        let text = read_link(&self.directory, name).unwrap_or_default();
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
