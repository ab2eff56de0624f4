//! The live log: a copy of each line, as JSON, for those who watch. Where there are none, it costs a look at a flag.
//!
//! The invariant: a slow reader delays neither workers nor other readers. Its queue is bounded, and lines that find no room
//! are counted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Lines that wait for a reader.
const WAITING: usize = 4096;

/// Their bytes.
const WAITING_BYTES: usize = 4 << 20;

/// Who watches.
#[derive(Debug, Default)]
pub(super) struct Watched {
    is_on: AtomicBool,
    /// Locked for each turn that has lines.
    readers: Mutex<Vec<Weak<Reader>>>,
}

/// The lines that a reader has not taken yet.
pub(super) struct Reader {
    queue: Mutex<Queue>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<String>,
    /// Their bytes.
    bytes: usize,
    dropped: u64,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// The lines of the log from now on. Dropping it ends them.
#[derive(Debug)]
pub struct Live(Arc<Reader>);

impl Live {
    /// Opens an empty queue. `wake` is called, on any thread, when there are lines; it must not wait.
    pub(super) fn open(wake: Box<dyn Fn() + Send + Sync>) -> (Self, Weak<Reader>) {
        let reader = Arc::new(Reader { queue: Mutex::default(), wake });
        let way = Arc::downgrade(&reader);
        (Self(reader), way)
    }

    /// Adds lines that were there before.
    pub(super) fn preload(&self, lines: &str) {
        self.0.push(lines);
    }

    /// Takes the lines that have come, and how many were dropped behind them.
    pub fn take(&self) -> (VecDeque<String>, u64) {
        let queue = std::mem::take(&mut *lock(&self.0.queue));
        (queue.lines, queue.dropped)
    }
}

impl Watched {
    /// Returns whether there is a reader.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Adds a reader. `wake` is called, on any thread, when there are lines for it; it must not wait.
    pub(super) fn watch(&self, wake: Box<dyn Fn() + Send + Sync>) -> Live {
        let (live, reader) = Live::open(wake);
        lock(&self.readers).push(reader);
        self.is_on.store(true, Ordering::Relaxed);
        live
    }

    /// Gives whole lines to all readers.
    pub(super) fn push(&self, lines: &str) {
        let mut readers = lock(&self.readers);
        readers.retain(|reader| reader.strong_count() > 0);
        self.is_on.store(!readers.is_empty(), Ordering::Relaxed);
        for reader in readers.iter().filter_map(Weak::upgrade) {
            reader.push(lines);
        }
    }
}

impl Reader {
    /// Adds whole lines, as far as there is room, and wakes the reader.
    pub(super) fn push(&self, lines: &str) {
        let mut queue = lock(&self.queue);
        for line in lines.lines() {
            let has_room = queue.lines.len() < WAITING && queue.bytes + line.len() <= WAITING_BYTES;
            if has_room && queue.dropped == 0 {
                queue.bytes += line.len();
                queue.lines.push_back(line.to_owned());
            } else {
                queue.dropped += 1;
            }
        }
        drop(queue);
        (self.wake)();
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_each_line_and_one_that_sleeps_the_count_of_the_rest() {
        let watched = Watched::default();
        assert!(!watched.is_on());
        let woken = Arc::new(AtomicBool::default());
        let wake = Arc::clone(&woken);
        let live = watched.watch(Box::new(move || wake.store(true, Ordering::Relaxed)));
        assert!(watched.is_on());
        watched.push("a\nb\n");
        assert!(woken.load(Ordering::Relaxed));
        assert_eq!(live.take(), (VecDeque::from(["a".to_owned(), "b".to_owned()]), 0));
        (0..WAITING + 3).for_each(|_| watched.push("c\n"));
        let (lines, dropped) = live.take();
        assert_eq!((lines.len(), dropped), (WAITING, 3));
        let long = "d".repeat(WAITING_BYTES / 4);
        (0..6).for_each(|_| watched.push(&long));
        let (lines, dropped) = live.take();
        assert_eq!((lines.len(), dropped), (4, 2));
        drop(live);
        watched.push("d\n");
        assert!(!watched.is_on());
    }
}
