//! The live log: a copy of each line, as JSON, for those who watch. Where there are none, it costs a look at a flag.
//!
//! The invariant: a slow reader holds up no one. Its queue is bounded, and lines that find no room are counted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Lines that wait for a reader.
const WAITING: usize = 4096;

/// Who watches.
#[derive(Debug, Default)]
pub(super) struct Watched {
    is_on: AtomicBool,
    /// Locked for each turn that has lines.
    readers: Mutex<Vec<Weak<Reader>>>,
}

/// The lines that a reader has not taken yet.
struct Reader {
    queue: Mutex<Queue>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<String>,
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
        let reader = Arc::new(Reader { queue: Mutex::default(), wake });
        lock(&self.readers).push(Arc::downgrade(&reader));
        self.is_on.store(true, Ordering::Relaxed);
        Live(reader)
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
    fn push(&self, lines: &str) {
        let mut queue = lock(&self.queue);
        for line in lines.lines() {
            match queue.lines.len() < WAITING && queue.dropped == 0 {
                true => queue.lines.push_back(line.to_owned()),
                false => queue.dropped += 1,
            }
        }
        drop(queue);
        (self.wake)();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
        drop(live);
        watched.push("d\n");
        assert!(!watched.is_on());
    }
}
