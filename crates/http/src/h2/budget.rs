//! How much work a peer may cause besides what it is sent: frames that cost this side something, and the peer nothing.
//!
//! `PING` and `SETTINGS` want an answer each, `RST_STREAM` undoes a request that has begun (CVE-2023-44487), and
//! `PRIORITY`, `WINDOW_UPDATE` or an empty `DATA` want to be read. None of them is wrong by itself.
//!
//! The invariant: each such frame is paid for, by time or by bytes that the peer has taken. Requests are not counted
//! here: the number of streams bounds them.

use std::time::{Duration, Instant};

/// Thousandths of one thing, so that a millisecond pays for something.
const ONE: u64 = 1_000;

/// Bytes taken that pay for one frame. A client opens the window by at least a few kilobytes at a time.
const BYTES: u64 = 512;

/// A bucket that fills with time.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u64,
    most: u64,
    each_second: u64,
}

impl Bucket {
    const fn new(most: u64, each_second: u64) -> Self {
        Self { left: most * ONE, most: most * ONE, each_second }
    }

    fn earn(&mut self, thousandths: u64) {
        self.left = self.left.saturating_add(thousandths).min(self.most);
    }

    fn pass(&mut self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.earn(milliseconds.saturating_mul(self.each_second));
    }

    /// Takes one; returns whether there was one.
    fn take(&mut self) -> bool {
        let left = self.left.checked_sub(ONE);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// What a peer may still do.
#[derive(Debug, Clone)]
pub(super) struct FrameBudget {
    /// Frames that ask for nothing: at once ten times the streams that a browser gives up when it leaves a page.
    frames: Bucket,
    /// Requests that the peer takes back before they are answered.
    resets: Bucket,
    /// Streams that this side resets for faults of the peer's.
    faults: Bucket,
    paid: Option<Instant>,
}

impl Default for FrameBudget {
    fn default() -> Self {
        let (frames, resets, faults) = (Bucket::new(1_000, 100), Bucket::new(20, 10), Bucket::new(100, 10));
        Self { frames, resets, faults, paid: None }
    }
}

impl FrameBudget {
    /// Time has come so far.
    pub(super) fn advance(&mut self, now: Instant) {
        let elapsed = self.paid.map_or(Duration::ZERO, |paid| now.saturating_duration_since(paid));
        // The rest below a millisecond is kept for the next time.
        if self.paid.is_some() && elapsed < Duration::from_millis(1) {
            return;
        }
        self.paid = Some(now);
        for bucket in [&mut self.frames, &mut self.resets, &mut self.faults] {
            bucket.pass(elapsed);
        }
    }

    /// The peer has taken this many bytes.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.frames.earn(bytes as u64 * ONE / BYTES);
    }

    /// A frame that asks for nothing has come. Returns whether it is paid for.
    pub(super) fn take_frame(&mut self) -> bool {
        self.frames.take()
    }

    /// The peer takes a request back that is not answered. Returns whether it may.
    pub(super) fn take_reset(&mut self) -> bool {
        self.resets.take()
    }

    /// A stream is reset for a fault of the peer's. Returns whether the connection may go on.
    pub(super) fn take_fault(&mut self) -> bool {
        self.faults.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_bytes_that_were_taken_pay() {
        let now = Instant::now();
        let mut budget = FrameBudget::default();
        budget.advance(now);
        assert_eq!((0..2_000).filter(|_| budget.take_frame()).count(), 1_000);
        budget.advance(now + Duration::from_secs(1));
        assert_eq!((0..2_000).filter(|_| budget.take_frame()).count(), 100);
        for _ in 0..10_000 {
            budget.earn(BYTES as usize);
            assert!(budget.take_frame());
        }
        assert!(!budget.take_frame());
        assert_eq!((0..50).filter(|_| budget.take_reset()).count(), 20);
    }

    #[test]
    fn moments_shorter_than_a_millisecond_add_up() {
        let begin = Instant::now();
        let mut budget = FrameBudget::default();
        budget.advance(begin);
        while budget.take_frame() {}
        for at in 1..=10_000 {
            budget.advance(begin + Duration::from_micros(100 * at));
        }
        let paid = (0..2_000).filter(|_| budget.take_frame()).count();
        assert_eq!(paid, 100);
    }
}
