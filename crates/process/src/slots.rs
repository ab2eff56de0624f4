//! Descriptors with low numbers, kept for children's streams.
//!
//! A child begins with a copy of its parent's table of descriptors, and what it is not to have is closed again: in a server
//! with thousands of connections that costs more than the program. A child that shares the table until it has a copy
//! of its beginning alone (`close_range` with `CLOSE_RANGE_UNSHARE`) is spared that; so its streams have to lie
//! there. Pipes have whatever number is free: they are copied to slots that were taken when there were no connections
//! yet.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::{DupFlags, dup3};

/// How many programs may be about to start at once with slots; others start without.
const MOST: usize = 8;

/// Where a child's streams are put.
#[derive(Debug)]
struct Slot {
    streams: [OwnedFd; 3],
    /// The placeholder that occupies them while no child uses them.
    nothing: Arc<OwnedFd>,
}

/// The unused slots. Guarded for a push or a pop.
static FREE: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<Slot>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps some descriptors with low numbers for [`Start::start`](crate::Start::start), if it has not done so: to be called
/// before many others are open. Without it, starting a program takes longer the more descriptors this process has.
pub fn keep_descriptors() -> io::Result<()> {
    let mut free = free();
    // A spawner has no connections.
    if free.is_empty() && !crate::has_spawner() {
        let nothing = Arc::new(OwnedFd::from(File::open("/dev/null")?));
        for _ in 0..MOST {
            let streams = [nothing.try_clone()?, nothing.try_clone()?, nothing.try_clone()?];
            free.push(Slot { streams, nothing: Arc::clone(&nothing) });
        }
    }
    Ok(())
}

/// A child's streams in a slot, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lent(Option<Slot>);

/// Puts streams into a slot; `None` where none is free.
pub(crate) fn lend(streams: [BorrowedFd<'_>; 3]) -> io::Result<Option<Lent>> {
    let Some(slot) = free().pop() else { return Ok(None) };
    let mut lent = Lent(Some(slot));
    for (place, stream) in lent.0.iter_mut().flat_map(|slot| &mut slot.streams).zip(streams) {
        dup3(stream, place, DupFlags::CLOEXEC)?;
    }
    Ok(Some(lent))
}

impl Lent {
    /// The streams, and the first descriptor after them.
    pub(crate) fn streams(&self) -> Option<([BorrowedFd<'_>; 3], RawFd)> {
        let streams = self.0.as_ref()?.streams.each_ref().map(AsFd::as_fd);
        let behind = streams.iter().map(AsRawFd::as_raw_fd).max()? + 1;
        Some((streams, behind))
    }
}

impl Drop for Lent {
    /// A pipe's end of file needs every copy of its other end closed, the slot's included.
    fn drop(&mut self) {
        let Some(mut slot) = self.0.take() else { return };
        let places = slot.streams.iter_mut();
        if places.map(|place| dup3(&*slot.nothing, place, DupFlags::CLOEXEC)).all(|copied| copied.is_ok()) {
            free().push(slot);
        }
    }
}
