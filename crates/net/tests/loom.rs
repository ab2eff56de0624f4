//! The inbox of a reactor under every order in which senders and the reactor can meet, by loom.

// How it ends is no question of order.
#[allow(dead_code)]
#[path = "../src/inbox/queue.rs"]
mod queue;

mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use loom::sync::{Arc, Notify};
use loom::thread;
use queue::Queue;

/// A sender wakes the reactor only where the queue was empty; the reactor sleeps until it is woken.
#[test]
fn no_item_waits_for_a_wake_up_that_does_not_come() {
    loom::model(|| {
        let shared = Arc::new((Queue::new(), Notify::new()));
        let senders = [1, 2].map(|item| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.0.push(item) {
                    shared.1.notify();
                }
            })
        });
        let (mut taken, mut batch) = (Vec::new(), Vec::new());
        while taken.len() < 2 {
            shared.1.wait();
            shared.0.swap(&mut batch);
            taken.append(&mut batch);
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}
