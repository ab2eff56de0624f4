//! Listings: `getdents` in large steps, and `statx` an entry.
//!
//! Memory is a buffer and a batch, whatever the directory holds. Names come in the file system's order; what vanishes
//! between being named and being looked at is left out, and so are reserved names. A second thread looks at half of a
//! large batch: the kernel finds names without a lock that both would wait for.
//!
//! A million entries of a tmpfs, `examples/list_rate.rs`, 2 cores shared with other work: 3.0 million names a
//! second, 0.5 million entries with `statx`, which is most of the cost; 0.3 MiB of memory.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

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

/// From this many bytes of names on a second thread takes half of them: looking at those takes it ten times as long as its
/// start.
const SHARED_NAMES: usize = 8 << 10;

/// The stack of that thread.
const STACK: usize = 256 << 10;

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
    fn visit(&mut self, most: usize, mut visit: impl FnMut(&CStr)) -> Result<usize, FileError> {
        let size = most.saturating_mul(TYPICAL_RECORD).clamp(SMALLEST_BUFFER, BUFFER);
        self.buffer.clear();
        self.buffer.reserve_exact(size);
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
}

impl Directory for Listing {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        let before = entries.len();
        // A batch of which everything has vanished is not the end either.
        while entries.len() == before {
            let mut names = Vec::new();
            if self.visit(most, |name| names.extend_from_slice(name.to_bytes_with_nul()))? == 0 {
                break;
            }
            let directory = Entries { tree: &self.tree, path: &self.path, directory: &self.directory };
            directory.look_at_all(&names, entries)?;
        }
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        self.visit(most, |name| visit(name.to_bytes()))
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
    /// Appends the entries of these names, each of which ends in a NUL.
    fn look_at_all(&self, names: &[u8], entries: &mut Vec<DirEntry>) -> Result<(), FileError> {
        let is_shared = names.len() >= SHARED_NAMES && !disk::acting::is_user();
        let middle = if is_shared { names.len() / 2 } else { names.len() };
        let end =
            names[middle..].iter().position(|byte| *byte == 0).map_or(names.len(), |at| middle + at + 1);
        let (first, second) = names.split_at(end);
        thread::scope(|scope| {
            let start = || {
                let thread = thread::Builder::new().name("listing".to_owned()).stack_size(STACK);
                thread.spawn_scoped(scope, || self.look_at_each(second)).ok()
            };
            let helper = if second.is_empty() { None } else { start() };
            entries.extend(self.look_at_each(first)?);
            entries.extend(match helper {
                Some(helper) => helper.join().unwrap_or_else(|panic| resume_unwind(panic))?,
                None => self.look_at_each(second)?,
            });
            Ok(())
        })
    }

    /// Returns the entries of these names.
    fn look_at_each(&self, names: &[u8]) -> Result<Vec<DirEntry>, FileError> {
        let names = || names.split_inclusive(|byte| *byte == 0).flat_map(CStr::from_bytes_with_nul);
        if disk::acting::is_user() {
            let names: Vec<&CStr> = names().collect();
            let found = metadata::of_each_entry(self.directory, &names).unwrap_or_default();
            let entries = names.into_iter().zip(found);
            return entries.filter_map(|(name, found)| self.entry(name, found).transpose()).collect();
        }
        let look_at = |name| self.entry(name, metadata::of_entry(self.directory, name));
        names().filter_map(|name| look_at(name).transpose()).collect()
    }

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
