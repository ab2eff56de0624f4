//! Turns under every order in which threads can take and give back the lock, by loom.

#[allow(unreachable_pub, reason = "its crate exports it")]
#[path = "../src/turns.rs"]
mod turns;

mod sync {
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
}

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use turns::Turns;

/// Three threads with at most two preemptions, which is where nearly all faults of this kind show.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(check);
}

/// Takes the keys, and asserts that no other thread has one of them meanwhile.
fn work(turns: &Turns<u8>, keys: Vec<u8>, within: &AtomicU32) {
    let turn = turns.take(keys);
    assert_eq!(within.fetch_add(1, Ordering::Relaxed), 0);
    within.fetch_sub(1, Ordering::Relaxed);
    drop(turn);
}

#[test]
fn one_thread_at_a_time_has_a_key() {
    model(|| {
        let shared = Arc::new((Turns::default(), AtomicU32::new(0)));
        let threads = [vec![1, 2], vec![2, 1]].map(|keys| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || work(&shared.0, keys, &shared.1))
        });
        work(&shared.0, vec![1], &shared.1);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(shared.0.take_among(vec![1, 2], 0).is_some(), "all are given back");
    });
}

#[test]
fn no_more_wait_than_may() {
    model(|| {
        let turns = Arc::new(Turns::default());
        let first = turns.take(vec![1]);
        let threads = [(); 2].map(|()| {
            let turns = Arc::clone(&turns);
            thread::spawn(move || turns.take_among(vec![1], 1).is_some())
        });
        drop(first);
        let served = threads.map(|thread| thread.join().unwrap());
        assert!(served.contains(&true), "one may wait");
        assert!(turns.take_among(vec![1], 0).is_some(), "all are given back");
    });
}
