//! Buckets under every order of the accesses of several threads that the memory model allows, by loom.

#[allow(dead_code, unreachable_pub, reason = "the module has more than these tests use")]
#[path = "../src/bucket.rs"]
mod bucket;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use bucket::{Bucket, SECOND};
use loom::sync::Arc;
use loom::thread;

/// Bytes a second.
const SLOW: u64 = 1;
const FAST: u64 = 1_000_000;

fn bucket(rate: u64) -> Arc<Bucket> {
    let bucket = Bucket::default();
    bucket.set_rate(rate, 0);
    Arc::new(bucket)
}

#[test]
fn two_reservations_never_overlap() {
    loom::model(|| {
        let bucket = bucket(FAST);
        let other = Arc::clone(&bucket);
        let thread = thread::spawn(move || other.reserve(FAST, 0));
        let mut starts = [bucket.reserve(FAST, 0), thread.join().unwrap()].map(|place| place.start);
        starts.sort_unstable();
        assert_eq!(starts, [0, SECOND]);
    });
}

/// A reservation at the old rate, of an hour, must not delay those at the new one.
#[test]
fn a_place_that_is_honoured_was_reserved_at_the_rate_of_now() {
    loom::model(|| {
        let bucket = bucket(SLOW);
        let other = Arc::clone(&bucket);
        let thread = thread::spawn(move || other.reserve(3600, 0));
        bucket.set_rate(FAST, 0);
        let own = bucket.reserve(FAST, 0);
        let place = thread.join().unwrap();
        assert!(own.start <= SECOND, "{own:?} behind {place:?}");
        assert!(!bucket.honours(place) || place.start <= SECOND, "{place:?}");
        assert!(bucket.is_settled(3 * SECOND));
    });
}

#[test]
fn what_is_given_back_shortens_the_line_of_its_rate_only() {
    loom::model(|| {
        let bucket = bucket(SLOW);
        let place = bucket.reserve(3600, 0);
        let other = Arc::clone(&bucket);
        let thread = thread::spawn(move || other.give_back(place, 3600, 3600));
        bucket.set_rate(FAST, SECOND);
        let own = bucket.reserve(FAST, SECOND);
        thread.join().unwrap();
        assert_eq!(own.start, SECOND);
        assert!(!bucket.is_settled(2 * SECOND - 1) && bucket.is_settled(2 * SECOND));
    });
}
