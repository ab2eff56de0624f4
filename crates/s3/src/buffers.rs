//! The memory for parts on their way: one bounded amount for the whole process.
//!
//! Every upload that has more than a little takes the memory of one part, and more parts at once only as far as there is
//! room. An upload that has its first part needs no other to go on, so that those that wait always get their turn. Buffers
//! are used again: freed, they would stay with the allocator, once for each thread.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use millrace_vfs::FileError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes of a part: the least that S3 takes of all but the last.
pub(crate) const PART: usize = 5 << 20;

/// The unit in which memory is counted.
const UNIT: u64 = 64 << 10;

/// What there is where no setting says otherwise.
const USUAL: u64 = 256 << 20;

/// How long an upload waits for memory.
const PATIENCE: Duration = Duration::from_secs(300);

/// The memory of the process.
static PROCESS: LazyLock<PartMemory> = LazyLock::new(|| PartMemory::new(USUAL));

/// Memory for parts. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct PartMemory {
    units: Arc<Semaphore>,
    /// The units that there are in all. Locked while they change.
    total: Arc<Mutex<u64>>,
    /// Buffers to be used again, none larger than the least part. Locked for a push or a pop.
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A part that was gathered. Its buffer and its share go back when it is dropped.
#[derive(Debug)]
pub(crate) struct FullPart {
    bytes: Vec<u8>,
    memory: PartMemory,
    /// Given back after the buffer.
    _share: Option<Share>,
}

impl AsRef<[u8]> for FullPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for FullPart {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.bytes);
        if buffer.capacity() == PART {
            self.memory.free.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
    }
}

/// A share of the memory, given back when it is dropped.
pub(crate) type Share = OwnedSemaphorePermit;

impl PartMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        let units = (bytes / UNIT).max(1);
        let (units, total) = (Arc::new(Semaphore::new(units as usize)), Arc::new(Mutex::new(units)));
        Self { units, total, free: Arc::default() }
    }

    /// An empty buffer for the holder of a share.
    pub(crate) fn buffer(&self, size: usize) -> Vec<u8> {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = if size == PART { free().unwrap_or_default() } else { Vec::new() };
        buffer.clear();
        buffer.reserve_exact(size);
        buffer
    }

    /// What was gathered in a buffer, to be sent.
    pub(crate) fn full(&self, bytes: Vec<u8>, share: Option<Share>) -> FullPart {
        FullPart { bytes, memory: self.clone(), _share: share }
    }

    /// The memory that all stores of this process share.
    pub(crate) fn of_process() -> Self {
        PROCESS.clone()
    }

    /// Sets how much there is. Less of it takes effect as shares come back.
    pub(crate) fn resize(&self, bytes: u64) {
        let (units, mut total) =
            ((bytes / UNIT).max(1), self.total.lock().unwrap_or_else(PoisonError::into_inner));
        if units > *total {
            self.units.add_permits((units - *total) as usize);
            *total = units;
        } else {
            self.free.lock().unwrap_or_else(PoisonError::into_inner).clear();
            *total -= self.units.forget_permits((*total - units) as usize) as u64;
        }
    }

    /// A share that is as large as a part, or all that there is.
    fn count(&self, bytes: u64) -> u32 {
        let total = *self.total.lock().unwrap_or_else(PoisonError::into_inner);
        u32::try_from(bytes.div_ceil(UNIT).min(total)).unwrap_or(u32::MAX)
    }

    /// Takes a share if there is one now.
    pub(crate) fn try_take(&self, bytes: u64) -> Option<Share> {
        Arc::clone(&self.units).try_acquire_many_owned(self.count(bytes)).ok()
    }

    /// Waits for a share.
    pub(crate) async fn take(&self, bytes: u64) -> Result<Share, FileError> {
        let share = Arc::clone(&self.units).acquire_many_owned(self.count(bytes));
        timeout(PATIENCE, share).await.ok().and_then(Result::ok).ok_or(FileError::Exhausted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_more_than_was_set() {
        let memory = PartMemory::new(10 << 20);
        let first = memory.try_take(5 << 20).unwrap();
        let second = memory.try_take(5 << 20).unwrap();
        assert!(memory.try_take(1).is_none());
        memory.resize(5 << 20);
        drop(first);
        memory.resize(5 << 20);
        assert!(memory.try_take(1).is_none());
        drop(second);
        assert!(memory.try_take(100 << 20).is_some(), "a part that is larger than all takes all");
        memory.resize(20 << 20);
        assert!(memory.try_take(20 << 20).is_some());
    }
}
