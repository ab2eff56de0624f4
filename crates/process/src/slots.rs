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
use std::sync::{Arc, LazyLock};

use rustix::io::{DupFlags, dup3};

use crate::spare::{Lent, Reset, Spare};

/// How many programs may be about to start at once with slots; others start without.
const MOST: usize = 8;

/// Where a child's streams are put.
#[derive(Debug)]
pub(crate) struct Slot {
    streams: [OwnedFd; 3],
    /// The placeholder that occupies them while no child uses them.
    nothing: Arc<OwnedFd>,
}

/// Those of this process.
static SLOTS: LazyLock<Spare<Slot>> = LazyLock::new(Spare::default);

/// Keeps some descriptors with low numbers for [`Start::start`](crate::Start::start), if it has not done so: to be called
/// before many others are open. Without it, starting a program takes longer the more descriptors this process has.
pub fn keep_descriptors() -> io::Result<()> {
    // A spawner has no connections.
    if crate::has_spawner() { Ok(()) } else { SLOTS.fill(make) }
}

fn make() -> io::Result<Vec<Slot>> {
    let nothing = Arc::new(OwnedFd::from(File::open("/dev/null")?));
    let slot = |_| {
        let streams = [nothing.try_clone()?, nothing.try_clone()?, nothing.try_clone()?];
        Ok(Slot { streams, nothing: Arc::clone(&nothing) })
    };
    (0..MOST).map(slot).collect()
}

/// Puts streams into a slot; `None` where none is free.
pub(crate) fn lend(streams: [BorrowedFd<'_>; 3]) -> io::Result<Option<Lent<'static, Slot>>> {
    let Some(mut lent) = SLOTS.lend() else { return Ok(None) };
    for (place, stream) in lent.get_mut().into_iter().flat_map(|slot| &mut slot.streams).zip(streams) {
        dup3(stream, place, DupFlags::CLOEXEC)?;
    }
    Ok(Some(lent))
}

impl Slot {
    /// The streams, and the first descriptor after them.
    pub(crate) fn streams(&self) -> ([BorrowedFd<'_>; 3], RawFd) {
        let streams = self.streams.each_ref().map(AsFd::as_fd);
        let [input, output, errors] = self.streams.each_ref().map(AsRawFd::as_raw_fd);
        (streams, input.max(output).max(errors) + 1)
    }
}

impl Reset for Slot {
    /// A pipe's end of file needs every copy of its other end closed, the slot's included.
    fn reset(&mut self) -> bool {
        let mut places = self.streams.iter_mut();
        places.all(|place| dup3(&*self.nothing, place, DupFlags::CLOEXEC).is_ok())
    }
}
