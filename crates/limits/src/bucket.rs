//! A bucket: the bytes a second that all transfers drawing from it may move together.
//!
//! It is kept as a GCRA theoretical arrival time. A transfer reserves its bytes before it moves them: the reservation
//! begins where the last one ends, and advances that time by what the bytes take at the bucket's rate. Waiting
//! transfers thus form a queue, each with one slice, and get the same share. There is no lock, and unused rate does not
//! accumulate.
//!
//! The invariant (a property test): in any stretch of time the bytes whose turn came are the rate times
//! that stretch, and at most one slice of each who draws more.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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
    /// When all earlier reservations are over.
    free_at: AtomicU64,
    /// Transfers that draw.
    drawers: AtomicU32,
    /// Counts changes of the rate: what was reserved before one means nothing after it.
    epoch: AtomicU32,
}

/// A place in a bucket's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// When the bytes may move.
    pub(super) start: Nanos,
    /// The reserved time, given back if unused.
    cost: Nanos,
    epoch: u32,
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
        self.epoch.fetch_add(1, Relaxed);
        self.free_at.store(now, Relaxed);
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

    /// Gets in line with so many bytes. The place begins no earlier than `earliest`.
    pub(super) fn reserve(&self, bytes: u64, earliest: Nanos) -> Place {
        let epoch = self.epoch.load(Relaxed);
        let rate = self.rate();
        if rate == 0 {
            return Place { start: earliest, cost: 0, epoch };
        }
        let cost = cost(bytes, rate);
        let mut free_at = self.free_at.load(Relaxed);
        loop {
            let start = free_at.max(earliest);
            match self.free_at.compare_exchange_weak(free_at, start + cost, Relaxed, Relaxed) {
                Ok(_) => return Place { start, cost, epoch },
                Err(other) => free_at = other,
            }
        }
    }

    /// Gives back the part of a place that was not used.
    pub(super) fn give_back(&self, place: Place, unused: u64, reserved: u64) {
        if place.epoch == self.epoch.load(Relaxed) && reserved > 0 {
            let refund = u128::from(place.cost) * u128::from(unused) / u128::from(reserved);
            let refund = u64::try_from(refund).unwrap_or(0);
            let _ = self.free_at.fetch_update(Relaxed, Relaxed, |at| Some(at.saturating_sub(refund)));
        }
    }

    /// Returns true if a place is still good.
    pub(super) fn honours(&self, place: Place) -> bool {
        place.epoch == self.epoch.load(Relaxed)
    }

    /// Returns true if no reservation lies in the future.
    pub(super) fn is_settled(&self, now: Nanos) -> bool {
        self.free_at.load(Relaxed) <= now
    }
}

/// How long bytes take at a rate.
fn cost(bytes: u64, rate: u64) -> Nanos {
    let cost = u128::from(bytes) * u128::from(SECOND) / u128::from(rate);
    // A year, for a rate of a byte a second.
    u64::try_from(cost).unwrap_or(u64::MAX).min(365 * 86_400 * SECOND)
}
