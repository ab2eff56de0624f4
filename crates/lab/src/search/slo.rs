//! A service level objective: a percentile of the latency and its limit, such as `p99=10ms`.

use serde::Serialize;
use thiserror::Error;

use crate::report::text::ms;
use millrace_load::figure::CellReport;
use millrace_load::histogram::Percentiles;
use millrace_load::plan::{ValueError, parse_time};

/// A percentile: its name, and its value in milliseconds.
type Percentile = (&'static str, fn(&Percentiles) -> f64);

/// The percentiles that may have a limit.
const PERCENTILES: [Percentile; 5] = [
    ("p50", |latency| latency.p50_ms),
    ("p90", |latency| latency.p90_ms),
    ("p99", |latency| latency.p99_ms),
    ("p999", |latency| latency.p999_ms),
    ("max", |latency| latency.max_ms),
];

/// A percentile of the latency, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slo {
    /// The name of the percentile.
    pub percentile: &'static str,
    /// The limit in milliseconds.
    pub limit_ms: f64,
}

/// Why a text is no objective.
#[derive(Debug, Error)]
pub enum SloError {
    /// It has another form.
    #[error("{0:?} is not of the form p99=10ms, with p50, p90, p99, p999 or max")]
    Form(String),
    /// Its limit is no time.
    #[error(transparent)]
    Limit(#[from] ValueError),
}

impl Slo {
    /// Parses `p99=10ms`.
    pub fn parse(text: &str) -> Result<Self, SloError> {
        let form = || SloError::Form(text.to_owned());
        let (name, limit) = text.split_once(['=', '<']).ok_or_else(form)?;
        let (percentile, _) = PERCENTILES.iter().find(|row| row.0 == name.trim()).ok_or_else(form)?;
        // A number alone would be taken for seconds.
        if !limit.ends_with(char::is_alphabetic) {
            return Err(form());
        }
        Ok(Self { percentile, limit_ms: parse_time(limit.trim())?.as_secs_f64() * 1e3 })
    }

    /// Returns the percentile of a figure in milliseconds.
    fn of(&self, cell: &CellReport) -> f64 {
        let row = PERCENTILES.iter().find(|row| row.0 == self.percentile);
        row.map_or(f64::NAN, |row| (row.1)(&cell.latency))
    }

    /// Returns the highest percentile of several figures.
    pub(super) fn worst(&self, cells: &[CellReport]) -> Option<f64> {
        cells.iter().map(|cell| self.of(cell)).reduce(f64::max)
    }

    /// Returns why a figure does not meet it.
    pub(super) fn objection(&self, cell: &CellReport) -> Option<String> {
        let Self { percentile, limit_ms } = self;
        match self.of(cell) {
            _ if cell.ops == 0 => Some("no operation ended well".to_owned()),
            _ if cell.misses_its_load() => Some("the rate was not reached".to_owned()),
            value if value <= *limit_ms => None,
            value => Some(format!("{percentile} was {} ms, more than {} ms", ms(value), ms(*limit_ms))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_a_percentile_and_a_time() {
        let slo = Slo::parse("p99=10ms").unwrap();
        assert_eq!((slo.percentile, slo.limit_ms), ("p99", 10.0));
        assert_eq!(Slo::parse("p999 < 1s").unwrap().limit_ms, 1000.0);
        for wrong in ["", "p99", "p98=10ms", "p99=10", "p99=soon"] {
            assert!(Slo::parse(wrong).is_err(), "{wrong}");
        }
    }
}
