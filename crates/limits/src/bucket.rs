//! A bucket: the bytes a second that all transfers drawing from it may move together.
//!
//! It is kept as a GCRA theoretical arrival time. A transfer reserves its bytes before it moves them: the reservation
//! begins where the last one ends, and advances that time by what the bytes take at the bucket's rate. Waiting
//! transfers thus form a queue, each with one slice, and get the same share. There is no lock, and unused rate does not
//! accumulate.
//!
//! The invariant (a property test): in any stretch of time the bytes whose turn came are the rate times
//! that stretch, and at most one slice of each who draws more.

use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Nanoseconds since the tree of buckets was made.
pub(super) type Nanos = u64;

pub(super) const SECOND: Nanos = 1_000_000_000;

/// The duration of a slice at the bucket's rate for a single transfer. `bench-runs/2026-11-21-2core-kvm-limits`: a
/// thousand sessions wake up five times a second each; shorter slices cost more, longer ones are less even.
const SLICE: Nanos = SECOND / 5;

/// Less is not worth a system call; it takes a second at a limit of a kilobyte a second.
const SMALLEST: u64 = 1024;

/// More would keep others waiting: a transfer's share of a turn.
const LARGEST: u64 = 1 << 20;

/// A rate and who draws from it.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Bytes a second; 0 for no limit.
    rate: AtomicU64,
    /// A [`Line`].
    line: AtomicU64,
    /// Transfers that draw.
    drawers: AtomicU32,
}

/// The end of all reservations, and the epoch in which they were made: one word, so that no reservation at an old rate
/// extends the line of a new one (`tests/loom.rs`).
///
/// | bits | what |
/// |---|---|
/// | 63..10 | the end, in units of 8 ns: 4.5 years |
/// | 9..0 | the epoch: counts changes of the rate; what was reserved before one means nothing after it |
#[derive(Debug, Clone, Copy)]
struct Line(u64);

impl Line {
    const EPOCH_BITS: u32 = 10;
    const EPOCHS: u64 = 1 << Self::EPOCH_BITS;
    const UNIT: Nanos = 8;

    fn new(free_at: Nanos, epoch: u64) -> Self {
        let units = (free_at / Self::UNIT).min(u64::MAX >> Self::EPOCH_BITS);
        Self((units << Self::EPOCH_BITS) | (epoch % Self::EPOCHS))
    }

    /// When all reservations are over.
    fn free_at(self) -> Nanos {
        (self.0 >> Self::EPOCH_BITS) * Self::UNIT
    }

    fn epoch(self) -> u64 {
        self.0 % Self::EPOCHS
    }
}

/// A place in a bucket's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// When the bytes may move.
    pub(super) start: Nanos,
    /// The reserved time, given back if unused.
    cost: Nanos,
    epoch: u64,
}

impl Bucket {
    /// Bytes a second; 0 for no limit.
    pub(super) fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// Sets the rate; returns true if it has changed. Waiting transfers then reserve again.
    pub(super) fn set_rate(&self, rate: u64, now: Nanos) -> bool {
        if self.rate.swap(rate, Relaxed) == rate {
            return false;
        }
        let next = |line| Some(Line::new(now, Line(line).epoch() + 1).0);
        // A reservation in the new line is made at the new rate.
        let _ = self.line.fetch_update(Release, Relaxed, next);
        true
    }

    pub(super) fn enter(&self) {
        self.drawers.fetch_add(1, Relaxed);
    }

    pub(super) fn leave(&self) {
        self.drawers.fetch_sub(1, Relaxed);
    }

    /// How much one of those who draw should move at a time.
    pub(super) fn slice(&self) -> u64 {
        match self.rate() {
            0 => LARGEST,
            rate => (rate / (SECOND / SLICE) / self.drawers().max(1)).clamp(SMALLEST, LARGEST),
        }
    }

    /// How many transfers draw.
    pub(super) fn drawers(&self) -> u64 {
        self.drawers.load(Relaxed).into()
    }

    /// Joins the queue with this many bytes. The place begins no earlier than `earliest`.
    pub(super) fn reserve(&self, bytes: u64, earliest: Nanos) -> Place {
        let mut line = Line(self.line.load(Acquire));
        loop {
            let (rate, epoch) = (self.rate(), line.epoch());
            if rate == 0 {
                return Place { start: earliest, cost: 0, epoch };
            }
            let (start, cost) = (line.free_at().max(earliest), cost(bytes, rate));
            // Rounded up: rounding must not add to the rate.
            let end = start.saturating_add(cost).saturating_add(Line::UNIT - 1);
            let longer = Line::new(end, epoch).0;
            match self.line.compare_exchange_weak(line.0, longer, Relaxed, Acquire) {
                Ok(_) => return Place { start, cost, epoch },
                Err(other) => line = Line(other),
            }
        }
    }

    /// Gives back the part of a place that was not used.
    pub(super) fn give_back(&self, place: Place, unused: u64, reserved: u64) {
        if reserved == 0 {
            return;
        }
        let refund = u128::from(place.cost) * u128::from(unused) / u128::from(reserved);
        let refund = u64::try_from(refund).unwrap_or(0);
        let _ = self.line.fetch_update(Relaxed, Relaxed, |line| {
            let line = Line(line);
            (line.epoch() == place.epoch)
                .then(|| Line::new(line.free_at().saturating_sub(refund), place.epoch).0)
        });
    }

    /// Returns whether a place is still good.
    pub(super) fn honours(&self, place: Place) -> bool {
        place.epoch == Line(self.line.load(Relaxed)).epoch()
    }

    /// Returns whether transfers wait for this rate, and not for their clients: more than a slice is reserved.
    pub(super) fn has_queue(&self, now: Nanos) -> bool {
        let slice = match self.rate() {
            0 => return false,
            rate => cost(self.slice(), rate),
        };
        Line(self.line.load(Relaxed)).free_at() > now + slice / 4 * 3
    }

    /// Returns whether no reservation lies in the future.
    pub(super) fn is_settled(&self, now: Nanos) -> bool {
        Line(self.line.load(Relaxed)).free_at() <= now
    }
}

/// How long bytes take at a rate.
fn cost(bytes: u64, rate: u64) -> Nanos {
    let cost = u128::from(bytes) * u128::from(SECOND) / u128::from(rate);
    // A year, for a rate of a byte a second.
    u64::try_from(cost).unwrap_or(u64::MAX).min(365 * 86_400 * SECOND)
}
