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

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use millrace_vfs::{DirEntry, FileError};

use crate::local::disk;

/// From this many bytes of names on a thread is started: looking at those takes it ten times as long as its start.
const SHARED_NAMES: usize = 8 << 10;

/// The bytes of names in a piece: some 80 names.
const PIECE: usize = 1 << 10;

/// The stack of that thread.
const STACK: usize = 256 << 10;

/// A directory, to the threads that look at its entries.
pub(super) trait LookAt: Send + Sync + 'static {
    /// Returns the entries of these names, each of which ends in a NUL; what has vanished is left out.
    fn look_at_each(&self, names: &[u8]) -> Result<Vec<DirEntry>, FileError>;
}

/// Names to look at.
#[derive(Debug)]
pub(super) struct Batch<D> {
    shared: Arc<Shared<D>>,
    helper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<D> {
    directory: Arc<D>,
    /// Each of them ends in a NUL.
    names: Vec<u8>,
    pieces: Vec<Range<usize>>,
    /// The piece that is taken next.
    next: AtomicUsize,
    found: Mutex<Vec<Found>>,
}

/// A piece by its number, and its entries.
type Found = (usize, Result<Vec<DirEntry>, FileError>);

impl<D: LookAt> Batch<D> {
    /// A batch of these names, each of which ends in a NUL.
    pub(super) fn new(directory: &Arc<D>, names: Vec<u8>) -> Self {
        let is_large = names.len() >= SHARED_NAMES && !disk::acting::is_user();
        let pieces = pieces(&names, if is_large { PIECE } else { names.len() });
        let (directory, next, found) = (Arc::clone(directory), AtomicUsize::new(0), Mutex::default());
        Self { shared: Arc::new(Shared { directory, names, pieces, next, found }), helper: None }
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

impl<D> Drop for Batch<D> {
    /// The rest is not wanted: the other thread ends behind its piece.
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

impl<D: LookAt> Shared<D> {
    fn found(&self) -> MutexGuard<'_, Vec<Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at one piece after the other, while there are any.
    fn look(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = self.pieces.get(number) else { return };
            let entries = self.directory.look_at_each(&self.names[piece.clone()]);
            self.found().push((number, entries));
        }
    }
}
