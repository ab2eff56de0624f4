//! The slots of programs that are about to start, under every order in which threads can take and give them back, by loom.

#[allow(dead_code, reason = "the module has more than these tests use")]
#[path = "../src/spare.rs"]
mod spare;

mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use std::convert::Infallible;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use spare::{Reset, Spare};

/// A slot: how many use it, and whether it can be used again.
struct Slot {
    users: &'static AtomicU32,
    is_sound: bool,
}

impl Reset for Slot {
    /// It is emptied before another gets it.
    fn reset(&mut self) -> bool {
        assert_eq!(self.users.load(Ordering::Relaxed), 0, "it is emptied while a program uses it");
        self.is_sound
    }
}

/// So many slots. loom wants them made within each order that it tries.
fn slots(count: usize) -> &'static Spare<Slot> {
    let spare: &Spare<Slot> = Box::leak(Box::default());
    fill(spare, count);
    spare
}

fn fill(spare: &Spare<Slot>, count: usize) {
    let make = || {
        Ok::<_, Infallible>(
            (0..count).map(|_| Slot { users: Box::leak(Box::default()), is_sound: true }).collect(),
        )
    };
    let Ok(()) = spare.fill(make);
}

/// Starts a program in a slot, if one is free, and asserts that no other has it meanwhile.
fn start(spare: &Spare<Slot>, is_sound: bool) -> bool {
    let Some(mut lent) = spare.lend() else { return false };
    let slot = lent.get_mut().expect("it is lent");
    slot.is_sound = is_sound;
    let users = slot.users;
    assert_eq!(users.fetch_add(1, Ordering::Relaxed), 0, "two programs have it");
    users.fetch_sub(1, Ordering::Relaxed);
    true
}

/// How many can be lent now.
fn free(spare: &Spare<Slot>) -> usize {
    let lent: Vec<_> = std::iter::from_fn(|| spare.lend()).collect();
    lent.len()
}

#[test]
fn no_slot_is_lent_twice_or_lost() {
    loom::model(|| {
        let spare = slots(2);
        let threads = [(); 2].map(|()| thread::spawn(|| start(spare, true)));
        let own = start(spare, true);
        let served = threads.map(|thread| thread.join().unwrap());
        assert!(
            served.into_iter().chain([own]).filter(|served| *served).count() >= 2,
            "two are there for three"
        );
        assert_eq!(free(spare), 2, "all are given back");
    });
}

#[test]
fn a_slot_that_cannot_be_emptied_is_not_lent_again() {
    loom::model(|| {
        let spare = slots(2);
        let thread = thread::spawn(|| start(spare, false));
        let own = start(spare, true);
        assert!(own && thread.join().unwrap(), "there are two");
        assert_eq!(free(spare), 1);
    });
}

#[test]
fn slots_are_made_once() {
    loom::model(|| {
        let spare = slots(0);
        let thread = thread::spawn(|| fill(spare, 2));
        fill(spare, 2);
        thread.join().unwrap();
        assert_eq!(free(spare), 2);
    });
}
