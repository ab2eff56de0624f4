//! How faithfully a log was replayed.

use serde::{Deserialize, Serialize};

use crate::histogram::Percentiles;
use crate::plan::{Logged, Script};
use crate::tally::Tally;

/// The fidelity of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// The totals of the log.
    pub logged: Logged,
    /// The factor of acceleration.
    pub speed: f64,
    /// Transfers that were made.
    pub transfers: u64,
    /// Failed transfers.
    pub failed: u64,
    /// Bytes of those that were made.
    pub bytes: u64,
    /// How late transfers began.
    pub late: Percentiles,
    /// Transfers at the same time, at most. With several workers, the sum of their maxima: an upper bound.
    pub most_at_once: u32,
}

impl Fidelity {
    pub(super) fn of(script: &Script, speed: f64, tally: &Tally) -> Self {
        Self {
            logged: *script.logged(),
            speed,
            transfers: tally.latency.count(),
            failed: tally.faults.count(),
            bytes: tally.bytes,
            late: tally.late.percentiles(),
            most_at_once: tally.most_at_once,
        }
    }

    /// Returns true if all transfers were made, and nearly none late: the server got the load of the log.
    pub fn is_faithful(&self) -> bool {
        self.transfers == self.logged.transfers && self.failed == 0 && self.late.p99_ms < 100.0
    }
}
