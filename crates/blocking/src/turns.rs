//! Exclusive turns by key, for callers that may block.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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

    /// The same where no more than so many wait, here and at all other things; `None` where they do.
    pub fn take_among(&self, mut keys: Vec<K>, most: usize) -> Option<Turn<'_, K>> {
        keys.dedup();
        let is_taken = |state: &mut State<K>| keys.iter().any(|key| state.taken.contains(key));
        let mut state = self.lock();
        if is_taken(&mut state) {
            if state.waiting >= most {
                return None;
            }
            state.waiting += 1;
            state = self.given_back.wait_while(state, is_taken).unwrap_or_else(PoisonError::into_inner);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_at_a_time_is_at_a_thing() {
        let (turns, within) = (Turns::default(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for keys in [vec![1], vec![1, 2], vec![2, 1]] {
                let (turns, within) = (&turns, &within);
                scope.spawn(move || {
                    for _ in 0..1000 {
                        let turn = turns.take(keys.clone());
                        assert_eq!(within.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        within.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert!(turns.lock().taken.is_empty());
    }

    #[test]
    fn no_more_wait_than_may() {
        let turns = Turns::default();
        let first = turns.take_among(vec!["a"], 2).unwrap();
        std::thread::scope(|scope| {
            let waiting: Vec<_> =
                (0..2).map(|_| scope.spawn(|| turns.take_among(vec!["a"], 2).is_some())).collect();
            while turns.lock().waiting < 2 {
                std::thread::yield_now();
            }
            assert!(turns.take_among(vec!["a"], 2).is_none(), "a third one");
            assert!(turns.take_among(vec!["b"], 2).is_some(), "somewhere else");
            drop(first);
            assert!(waiting.into_iter().all(|waiter| waiter.join().unwrap()));
        });
        assert!(turns.take_among(vec!["a"], 0).is_some());
    }
}
