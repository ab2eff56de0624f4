//! Asking a run to end early.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Asks a run to end early: no operation begins any more, running ones are abandoned, and the rest is reported.
///
/// Asked while test files are removed, it has them left where they are.
#[derive(Debug, Default)]
pub struct Stop(AtomicU8);

/// Bits of a [`Stop`].
const ASKED: u8 = 1;
const CLEANING: u8 = 2;
const LEFT: u8 = 4;

/// The effect of a request to a [`Stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It ends, and reports what there is.
    Ends,
    /// It leaves the test files where they are, and reports.
    LeavesFiles,
    /// It was asked before: a caller that does not wait for the report must end the process.
    Again,
}

/// How often a pause looks up.
const LOOK: Duration = Duration::from_millis(200);

impl Stop {
    /// No request yet.
    pub const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// A stop that is never requested.
    pub fn never() -> &'static Self {
        static NEVER: Stop = Stop::new();
        &NEVER
    }

    /// Asks.
    pub fn ask(&self) -> Asked {
        let next = |bits| if bits & CLEANING != 0 { bits | ASKED | LEFT } else { bits | ASKED };
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| Some(next(bits)));
        match before.unwrap_or_default() {
            bits if bits & LEFT != 0 => Asked::Again,
            bits if bits & CLEANING != 0 => Asked::LeavesFiles,
            bits if bits & ASKED != 0 => Asked::Again,
            _ => Asked::Ends,
        }
    }

    /// Returns true if a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & ASKED != 0
    }

    /// Returns true if a stop was requested while test files were being removed.
    pub(crate) fn is_left(&self) -> bool {
        self.0.load(Ordering::Relaxed) & LEFT != 0
    }

    /// From here on until [`Stop::has_cleaned`], test files are removed.
    pub(crate) fn cleans(&self) {
        self.0.fetch_or(CLEANING, Ordering::Relaxed);
    }

    /// After the removal of test files.
    pub(crate) fn has_cleaned(&self) {
        self.0.fetch_and(!CLEANING, Ordering::Relaxed);
    }

    /// Sleeps until the time is over or a stop is requested.
    pub(crate) fn pause(&self, length: Duration) {
        let until = Instant::now() + length;
        while !self.is_asked()
            && let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            thread::sleep(left.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_is_for_who_does_not_wait() {
        let stop = Stop::new();
        assert!(!stop.is_asked());
        assert_eq!((stop.ask(), stop.ask()), (Asked::Ends, Asked::Again));
        assert!(stop.is_asked() && !stop.is_left());
    }

    #[test]
    fn while_files_are_removed_it_leaves_them() {
        for asked_before in [false, true] {
            let stop = Stop::new();
            if asked_before {
                stop.ask();
            }
            stop.cleans();
            assert!(!stop.is_left());
            assert_eq!((stop.ask(), stop.is_left(), stop.ask()), (Asked::LeavesFiles, true, Asked::Again));
            stop.has_cleaned();
            assert!(stop.is_left());
        }
    }
}
