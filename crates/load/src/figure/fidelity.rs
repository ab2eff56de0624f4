//! How faithfully a log was replayed.

use serde::{Deserialize, Serialize};

use crate::histogram::Percentiles;
use crate::plan::{Logged, Script};
use crate::tally::Tally;

/// How faithful a replay was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// What the log says.
    pub logged: Logged,
    /// So many times as fast.
    pub speed: f64,
    /// Transfers that were made.
    pub transfers: u64,
    /// Those that failed.
    pub failed: u64,
    /// Bytes of those that were made.
    pub bytes: u64,
    /// By how much transfers began later than they were meant to.
    pub late: Percentiles,
    /// Transfers at the same time, at most. Of several workers each one's most, added up: they may not have met.
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

    /// Returns true if everything was made, and nearly nothing late: the server was asked what the log says.
    pub fn is_faithful(&self) -> bool {
        self.transfers == self.logged.transfers && self.failed == 0 && self.late.p99_ms < 100.0
    }
}
