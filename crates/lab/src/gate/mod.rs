//! The gate: says whether figures are good enough, for people and for continuous integration.
//!
//! - [`threshold`]: `retr.p99 > 20ms` must not be.
//! - [`baseline`]: figures must not be worse than those of an earlier report.
//! - [`interleaved`]: a server must not be slower than another one, both in turn.
//!
//! Both read the report's JSON: yesterday's from its file, today's as it would be written. A [`metric`] is a place
//! in it, and a [`figure`] the repetitions of one cell.

pub mod baseline;
mod figure;
pub mod interleaved;
mod metric;
pub mod text;
pub mod threshold;

pub use self::metric::{GateMetric, METRICS};

use serde::Serialize;

/// What a report leads to. Of several outcomes the highest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateOutcome {
    /// It is good enough.
    Passed,
    /// It does not tell: the figures show the limit of something else than the server, or vary too much.
    Inconclusive,
    /// It is not good enough.
    Failed,
}
