//! The places among the programs that may run at once, and the line for them.

use std::collections::VecDeque;

use millrace_runtime::slab::Key;

use crate::sync::{Arc, AtomicUsize, Ordering};

/// How many may run at once, and who waits.
///
/// First come, first served: a free slot is reserved for the request that has waited longest, and a new request cannot
/// take it.
#[derive(Debug)]
pub struct Lane {
    running: Arc<AtomicUsize>,
    most: usize,
    waiting: VecDeque<Key>,
    /// The requests with a reserved slot that they have not claimed yet.
    called: Vec<Key>,
}

impl Lane {
    /// At most this many at once.
    pub fn new(most: usize) -> Self {
        Self { running: Arc::default(), most, waiting: VecDeque::new(), called: Vec::new() }
    }

    /// How many places are neither taken nor kept.
    fn room(&self) -> usize {
        self.most.saturating_sub(self.running.load(Ordering::Relaxed) + self.called.len())
    }

    /// A place, or one in the line.
    pub fn enter(&mut self, key: Key) -> Option<Slot> {
        if self.waiting.is_empty() && self.room() > 0 {
            return Some(self.take());
        }
        self.waiting.push_back(key);
        None
    }

    /// The slot reserved for a request that was called.
    pub fn claim(&mut self, key: Key) -> Option<Slot> {
        let place = self.called.iter().position(|called| *called == key)?;
        self.called.swap_remove(place);
        Some(self.take())
    }

    /// A request that no longer waits is not called, and its slot is released.
    pub fn give_up(&mut self, key: Key) {
        self.waiting.retain(|waits| *waits != key);
        self.called.retain(|called| *called != key);
    }

    fn take(&self) -> Slot {
        self.running.fetch_add(1, Ordering::Relaxed);
        Slot(Arc::clone(&self.running))
    }

    /// Calls waiting requests as far as there is room: each claims its slot at its turn in `admitted`.
    pub fn admit(&mut self, admitted: &mut VecDeque<Key>) {
        // Who had a turn and has claimed nothing is gone.
        self.called.retain(|called| admitted.contains(called));
        let next = self.waiting.len().min(self.room());
        let called = self.called.len();
        self.called.extend(self.waiting.drain(..next));
        admitted.extend(&self.called[called..]);
    }
}

/// A program's place among those that may run; given back when dropped.
#[derive(Debug)]
pub struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
