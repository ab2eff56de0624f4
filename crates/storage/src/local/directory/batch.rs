//! The entries of one `getdents`, at which two threads look.
//!
//! A thread of its own begins a large batch, while the caller uses the batch before it and reads the names of the
//! one behind it. When that is done the caller takes part: the names are cut into pieces, and each of the two takes
//! the next one that is left. The kernel finds names without a lock that both would wait for.
//!
//! ```text
//!   caller   names 1 | names 2 | look at 1 | use 1 | names 3 | look at 2 | use 2 | names 4 | ...
//!   helper           | look at 1           | look at 2                  | look at 3       | ...
//! ```

use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use millrace_vfs::{DirEntry, FileError, FileKind, Link, Metadata, VirtualPath, Wait};

use super::read_link;
use crate::local::tree::Tree;
use crate::local::{disk, metadata};

/// From this many bytes of names on a thread is started: looking at those takes it ten times as long as its start.
const SHARED_NAMES: usize = 8 << 10;

/// The bytes of names in a piece: some 80 names.
const PIECE: usize = 1 << 10;

/// The stack of that thread.
const STACK: usize = 256 << 10;

/// Where the entries are.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) tree: Arc<Tree>,
    pub(super) path: VirtualPath,
    pub(super) directory: OwnedFd,
}

/// Names to look at.
#[derive(Debug)]
pub(super) struct Batch {
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    place: Arc<Place>,
    /// Each of them ends in a NUL.
    names: Vec<u8>,
    pieces: Vec<Range<usize>>,
    /// The piece that is taken next.
    next: AtomicUsize,
    found: Mutex<Vec<Found>>,
}

/// A piece by its number, and its entries.
type Found = (usize, Result<Vec<DirEntry>, FileError>);

impl Batch {
    /// A batch of these names, each of which ends in a NUL.
    pub(super) fn new(place: &Arc<Place>, names: Vec<u8>) -> Self {
        let is_large = names.len() >= SHARED_NAMES && !disk::acting::is_user();
        let pieces = pieces(&names, if is_large { PIECE } else { names.len() });
        let (place, next, found) = (Arc::clone(place), AtomicUsize::new(0), Mutex::default());
        Self { shared: Arc::new(Shared { place, names, pieces, next, found }), helper: None }
    }

    /// Has a thread begin to look at it, if it is large and none does.
    pub(super) fn begin(&mut self) {
        if self.is_large() && self.helper.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("listing".to_owned()).stack_size(STACK);
            self.helper = thread.spawn(move || shared.look()).ok();
        }
    }

    /// Returns whether two threads look at it.
    pub(super) fn is_large(&self) -> bool {
        self.shared.pieces.len() > 1
    }

    /// The names, each of which ends in a NUL.
    pub(super) fn names(&self) -> &[u8] {
        &self.shared.names
    }

    /// Looks at what no one has looked at yet, and waits for the other thread.
    pub(super) fn finish(&mut self) {
        self.shared.look();
        if let Some(helper) = self.helper.take() {
            helper.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }

    /// Appends the entries, in the order of the names.
    pub(super) fn append_to(self, entries: &mut Vec<DirEntry>) -> Result<(), FileError> {
        let mut found = std::mem::take(&mut *self.shared.found());
        found.sort_by_key(|(piece, _)| *piece);
        found.into_iter().try_for_each(|(_, found)| {
            entries.append(&mut found?);
            Ok(())
        })
    }
}

impl Drop for Batch {
    /// Nobody wants the rest.
    fn drop(&mut self) {
        self.shared.next.store(self.shared.pieces.len(), Ordering::Relaxed);
    }
}

/// Cuts names into pieces of so many bytes or some more: each ends behind a NUL.
fn pieces(names: &[u8], size: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut begin = 0;
    while begin < names.len() {
        let after = names.len().min(begin + size);
        let rest = names[after..].iter().position(|byte| *byte == 0);
        let end = rest.map_or(names.len(), |at| after + at + 1);
        pieces.push(begin..end);
        begin = end;
    }
    pieces
}

impl Shared {
    fn found(&self) -> MutexGuard<'_, Vec<Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at one piece after the other, while there are any.
    fn look(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = self.pieces.get(number) else { return };
            let entries = self.place.look_at_each(&self.names[piece.clone()]);
            self.found().push((number, entries));
        }
    }
}

impl Place {
    /// Returns the entries of these names.
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
