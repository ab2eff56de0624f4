//! The places of running programs, under every order in which they can end while the worker admits others, by loom.

#[allow(dead_code, unreachable_pub, reason = "its crate exports it")]
#[path = "../src/lane.rs"]
mod lane;

mod sync {
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
}

use std::collections::VecDeque;

use lane::{Lane, Slot};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread::{self, JoinHandle};
use millrace_runtime::slab::Key;

/// How many may run.
const MOST: u32 = 2;

fn key(index: u32) -> Key {
    Key { index, generation: 0 }
}

/// A worker with as many programs as may run, and two requests that wait.
struct Worker {
    lane: Lane,
    admitted: VecDeque<Key>,
    /// How many run, counted once more.
    running: Arc<AtomicU32>,
    slots: Vec<Slot>,
    served: Vec<Key>,
}

impl Worker {
    fn new() -> Self {
        let mut lane = Lane::new(MOST as usize);
        let slots = (0..MOST).map(|first| lane.enter(key(first)).expect("it is free")).collect();
        for waits in [10, 11] {
            assert!(lane.enter(key(waits)).is_none(), "all are taken");
        }
        let running = Arc::new(AtomicU32::new(MOST));
        Self { lane, admitted: VecDeque::new(), running, slots, served: Vec::new() }
    }

    /// Each running program ends on a thread of its own.
    fn end_all(&mut self) -> Vec<JoinHandle<()>> {
        let end = |slot: Slot| {
            let running = Arc::clone(&self.running);
            thread::spawn(move || {
                running.fetch_sub(1, Ordering::Relaxed);
                drop(slot);
            })
        };
        self.slots.drain(..).map(end).collect()
    }

    /// A turn: those whose turn it is start their programs.
    fn turn(&mut self) {
        self.lane.admit(&mut self.admitted);
        while let Some(key) = self.admitted.pop_front() {
            if let Some(slot) = self.lane.claim(key) {
                assert!(self.running.fetch_add(1, Ordering::Relaxed) < MOST, "more run than may");
                self.slots.push(slot);
                self.served.push(key);
            }
        }
    }

    /// How many places are free, when all programs have ended and no request waits.
    fn free(&mut self) -> usize {
        let slots: Vec<_> = std::iter::from_fn(|| self.lane.enter(key(20))).collect();
        slots.len()
    }
}

#[test]
fn who_waits_is_called_when_a_place_is_free_and_no_more_run_than_may() {
    loom::model(|| {
        let mut worker = Worker::new();
        let ends = worker.end_all();
        worker.turn();
        ends.into_iter().for_each(|end| end.join().unwrap());
        worker.turn();
        assert_eq!(worker.served, [key(10), key(11)], "each once, in the order in which they came");
        worker.slots.clear();
        assert_eq!(worker.free(), MOST as usize);
    });
}

#[test]
fn a_place_of_who_gives_up_goes_to_the_next() {
    loom::model(|| {
        let mut worker = Worker::new();
        let ends = worker.end_all();
        // It may have been called by now, and so may the other.
        worker.lane.admit(&mut worker.admitted);
        worker.lane.give_up(key(10));
        worker.turn();
        ends.into_iter().for_each(|end| end.join().unwrap());
        worker.turn();
        assert_eq!(worker.served, [key(11)]);
        worker.slots.clear();
        assert_eq!(worker.free(), MOST as usize);
    });
}
