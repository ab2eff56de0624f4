//! Ownership of files that are written in place, under every order in which threads can take them over, by loom.

#[allow(dead_code, unreachable_pub, reason = "the module has more than these tests use")]
#[path = "../src/local/ownership.rs"]
mod ownership;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
}

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use millrace_vfs::Wait;
use ownership::{OwnedFiles, Ownership};

/// The file of these tests.
const FILE: (u64, u64) = (1, 1);

/// A file that is written to: who is at it, and what was written last.
#[derive(Default)]
struct Content {
    within: AtomicU32,
    last: AtomicU32,
}

/// Writes a number, if the file is still owned. Returns whether it was; two writers at a time fail the test.
fn write(owned: &Ownership, content: &Content, number: u32) -> bool {
    let written = owned.hold(|| {
        assert_eq!(content.within.fetch_add(1, Ordering::Relaxed), 0);
        content.last.store(number, Ordering::Relaxed);
        content.within.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    });
    written.is_ok()
}

/// A registry of owned files, and a file. loom wants them made within each order that it tries.
fn shared() -> (&'static OwnedFiles, &'static Content) {
    (Box::leak(Box::default()), Box::leak(Box::default()))
}

#[test]
fn the_last_upload_to_begin_writes_last() {
    loom::model(|| {
        let (files, content) = shared();
        let first = files.take(FILE, Wait::Allowed).unwrap();
        let second = thread::spawn(|| {
            let second = files.take(FILE, Wait::Allowed).unwrap();
            assert!(write(&second, content, 2), "it owns the file");
        });
        write(&first, content, 1);
        write(&first, content, 1);
        second.join().unwrap();
        assert_eq!(content.last.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn of_two_that_begin_at_a_time_one_owns_the_file() {
    loom::model(|| {
        let (files, content) = shared();
        let take = || files.take(FILE, Wait::Allowed).unwrap();
        let other = thread::spawn(take);
        let owned = [take(), other.join().unwrap()];
        let written = owned.each_ref().map(|owned| write(owned, content, 1));
        assert_ne!(written[0], written[1], "one of them has it");
    });
}
