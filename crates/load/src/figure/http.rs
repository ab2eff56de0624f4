//! The figures of HTTP.

use serde::{Deserialize, Serialize};

use crate::histogram::Percentiles;
use crate::host::Audit;
use crate::plan::{Cell, Op};
use crate::tally::Tally;

/// The figures that only HTTP has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HttpFigures {
    /// The server's name.
    pub server: String,
    /// The length of the first document, in bytes.
    pub document_bytes: u64,
    /// Responses that kept the connection alive.
    pub kept_alive: u64,
    /// Bytes of responses including their heads.
    pub wire_bytes: u64,
    /// Of new connections.
    pub connect: Percentiles,
    /// The shortest of them, in milliseconds.
    pub connect_min_ms: f64,
    /// Connections that took a second or more: a SYN was lost.
    pub slow_connects: u64,
    /// The shortest request, in milliseconds.
    pub total_min_ms: f64,
    /// TCP segments that this machine sent, for each request, including failed ones: of both sides if the server is
    /// local, and of other programs.
    pub segments_per_response: f64,
}

impl HttpFigures {
    pub(super) fn of(cell: &Cell, tally: &Tally, audit: &Audit) -> Option<Self> {
        let asked = tally.latency.count() + tally.faults.count();
        (cell.op == Op::Get).then(|| Self {
            server: tally.http_server.clone().unwrap_or_default(),
            document_bytes: tally.document.unwrap_or(0),
            kept_alive: tally.kept_alive,
            wire_bytes: tally.wire_bytes,
            connect: tally.connect.percentiles(),
            connect_min_ms: tally.connect.min_ms(),
            slow_connects: tally.slow_connects,
            total_min_ms: tally.latency.min_ms(),
            segments_per_response: audit.network.segments_sent as f64 / asked.max(1) as f64,
        })
    }

    /// How long connecting took, least, mean and most, of this many requests: one on a kept connection has none.
    pub fn connect_ms(&self, requests: u64) -> [f64; 3] {
        let has_kept = self.connect.count < requests;
        let mean = self.connect.mean_ms * self.connect.count as f64 / requests.max(1) as f64;
        [if has_kept { 0.0 } else { self.connect_min_ms }, mean, self.connect.max_ms]
    }

    /// In units of 1000 bytes a second, heads included.
    pub fn transfer_rate(&self, seconds: f64) -> f64 {
        self.wire_bytes as f64 / 1e3 / seconds
    }
}
