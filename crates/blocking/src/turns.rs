//! Exclusive turns by key, for callers that may block.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// The keys that are taken now.
#[derive(Debug)]
pub struct Turns<K> {
    state: Mutex<State<K>>,
    given_back: Condvar,
}

#[derive(Debug)]
struct State<K> {
    taken: HashSet<K>,
    /// How many wait, each with a thread.
    waiting: usize,
}

/// The turn at some things, until it is dropped.
#[derive(Debug)]
pub struct Turn<'a, K: Eq + Hash> {
    turns: &'a Turns<K>,
    keys: Vec<K>,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self { state: Mutex::new(State { taken: HashSet::new(), waiting: 0 }), given_back: Condvar::new() }
    }
}

impl<K: Eq + Hash + Clone> Turns<K> {
    /// Waits until none of these keys is taken, and takes them. A holder of a turn must not ask for another.
    pub fn take(&self, keys: Vec<K>) -> Turn<'_, K> {
        self.take_among(keys, usize::MAX).expect("any number may wait")
    }

    /// The same where no more than this many wait, here and at all other things; `None` where they do.
    pub fn take_among(&self, mut keys: Vec<K>, most: usize) -> Option<Turn<'_, K>> {
        keys.dedup();
        let is_taken = |state: &State<K>| keys.iter().any(|key| state.taken.contains(key));
        let mut state = self.lock();
        if is_taken(&state) {
            if state.waiting >= most {
                return None;
            }
            state.waiting += 1;
            while is_taken(&state) {
                state = self.given_back.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting -= 1;
        }
        state.taken.extend(keys.iter().cloned());
        drop(state);
        Some(Turn { turns: self, keys })
    }
}

impl<K> Turns<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        for key in &self.keys {
            state.taken.remove(key);
        }
        drop(state);
        self.turns.given_back.notify_all();
    }
}
