//! The metrics of the gate, one row each: the name, the place in the report, and the unit.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use millrace_load::fault::Fault;

/// Why a text is no value of a metric.
#[derive(Debug, PartialEq, Error)]
pub(super) enum UnitError {
    /// It does not begin with a number.
    #[error("{0:?} is no number")]
    NoNumber(String),
    /// A count has a unit.
    #[error("a count has no unit")]
    Count,
    /// The unit is none of these.
    #[error("its unit is one of {0}")]
    NoUnit(String),
}

/// Something that was measured in a cell.
#[derive(Debug)]
pub struct GateMetric {
    /// As an expression has it.
    pub name: &'static str,
    /// Its description.
    pub help: &'static str,
    pub(super) unit: Unit,
    pub(super) nature: Nature,
    /// Less of it is better.
    pub(super) less_is_better: bool,
    /// Out of a cell of the report.
    pub(super) read: fn(&Value) -> Option<f64>,
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// Operations in a time: the timeline has pieces of it.
    Rate,
    /// Another measured quantity, which varies from run to run and which a slow client spoils.
    Quantity,
    /// A fact, independent of speed.
    Fact,
}

/// How its values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Milliseconds,
    Microseconds,
    PerSecond,
    Megabytes,
    Kibibytes,
    Share,
    Count,
}

/// Every metric.
pub const METRICS: [GateMetric; 24] = [
    rate("ops", "operations a second", Unit::PerSecond, |cell| at(cell, "/ops_per_s")),
    rate("mb", "megabytes a second", Unit::Megabytes, |cell| at(cell, "/mb_per_s")),
    time("mean", "mean latency", |cell| at(cell, "/latency/mean_ms")),
    time("p50", "median latency", |cell| at(cell, "/latency/p50_ms")),
    time("p90", "latency that 90 % do not exceed", |cell| at(cell, "/latency/p90_ms")),
    time("p99", "latency that 99 % do not exceed", |cell| at(cell, "/latency/p99_ms")),
    time("p999", "latency that 99.9 % do not exceed", |cell| at(cell, "/latency/p999_ms")),
    time("max", "longest latency", |cell| at(cell, "/latency/max_ms")),
    time("raw-p99", "p99 from the real beginning, at a fixed rate", |cell| at(cell, "/raw_latency/p99_ms")),
    time("first-byte-p50", "median time to the first byte", |cell| at(cell, "/first_byte/p50_ms")),
    time("first-byte-p99", "p99 of the time to the first byte", |cell| at(cell, "/first_byte/p99_ms")),
    time("gap-p99", "p99 of the longest byte gap of a transfer", |cell| at(cell, "/gap/p99_ms")),
    time("gap-max", "longest byte gap of any transfer", |cell| at(cell, "/gap/max_ms")),
    time("login-p50", "median of the logins before the load", |cell| at(cell, "/login/p50_ms")),
    time("login-p99", "p99 of the logins before the load", |cell| at(cell, "/login/p99_ms")),
    cost("server-us", "CPU of the server for an operation", |cell| at(cell, "/server_us_per_op")),
    cost("client-us", "CPU of this client for an operation", |cell| at(cell, "/client_us_per_op")),
    GateMetric {
        unit: Unit::Kibibytes,
        ..cost("memory", "the server's for an idle session", |cell| at(cell, "/pss_kib_per_session"))
    },
    GateMetric {
        less_is_better: false,
        unit: Unit::Share,
        ..cost("jain", "Jain's index of fairness, 0 to 1", |cell| at(cell, "/fairness/jain"))
    },
    GateMetric {
        less_is_better: false,
        unit: Unit::Share,
        ..cost("fair", "least of a user over the median, 0 to 1", |cell| {
            at(cell, "/fairness/min_over_median")
        })
    },
    fact("starved", "users with less than half of the median", Unit::Count, |cell| {
        at(cell, "/fairness/starved")
    }),
    fact("errors", "operations and logins that failed", Unit::Count, errors),
    fact("error-share", "of the operations, those that failed", Unit::Share, |cell| {
        let failed = errors(cell)?;
        Some(failed / (failed + at(cell, "/ops")?).max(1.0))
    }),
    fact("wrong-data", "transfers with wrong bytes", Unit::Count, |cell| {
        let wrong = |kind: &&Value| Fault::deserialize(&kind["fault"]).is_ok_and(Fault::is_wrong_data);
        Some(kinds(cell, "faults")?.filter(wrong).filter_map(|kind| kind["count"].as_f64()).sum())
    }),
];

type Read = fn(&Value) -> Option<f64>;

const fn rate(name: &'static str, help: &'static str, unit: Unit, read: Read) -> GateMetric {
    GateMetric { name, help, unit, nature: Nature::Rate, less_is_better: false, read }
}

const fn time(name: &'static str, help: &'static str, read: Read) -> GateMetric {
    GateMetric { name, help, unit: Unit::Milliseconds, nature: Nature::Quantity, less_is_better: true, read }
}

const fn cost(name: &'static str, help: &'static str, read: Read) -> GateMetric {
    GateMetric { name, help, unit: Unit::Microseconds, nature: Nature::Quantity, less_is_better: true, read }
}

const fn fact(name: &'static str, help: &'static str, unit: Unit, read: Read) -> GateMetric {
    GateMetric { name, help, unit, nature: Nature::Fact, less_is_better: true, read }
}

fn at(cell: &Value, pointer: &str) -> Option<f64> {
    cell.pointer(pointer)?.as_f64()
}

fn kinds<'a>(cell: &'a Value, of: &str) -> Option<impl Iterator<Item = &'a Value>> {
    Some(cell[of].as_array()?.iter())
}

fn errors(cell: &Value) -> Option<f64> {
    let all = kinds(cell, "faults")?.chain(kinds(cell, "login_faults")?);
    Some(all.filter_map(|kind| kind["count"].as_f64()).sum())
}

impl Unit {
    /// The suffixes of a number, and their factors. The first is used for output.
    fn suffixes(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Milliseconds => &[("ms", 1.0), ("us", 1e-3), ("s", 1e3)],
            Self::Microseconds => &[("us", 1.0), ("ms", 1e3), ("s", 1e6)],
            Self::PerSecond => &[("/s", 1.0), ("", 1.0), ("k", 1e3), ("k/s", 1e3)],
            Self::Megabytes => {
                &[("MB/s", 1.0), ("", 1.0), ("kB/s", 1e-3), ("GB/s", 1e3), ("MiB/s", 1.048_576)]
            }
            Self::Kibibytes => &[("KiB", 1.0), ("k", 1.0), ("B", 1.0 / 1024.0), ("MiB", 1024.0)],
            Self::Share => &[("", 1.0), ("%", 0.01)],
            Self::Count => &[("", 1.0)],
        }
    }

    /// Parses a number with its unit.
    pub(super) fn parse(self, text: &str) -> Result<f64, UnitError> {
        let end = text.find(|letter: char| letter.is_ascii_alphabetic() || "/%".contains(letter));
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let number: f64 = number.trim().parse().map_err(|_| UnitError::NoNumber(text.to_owned()))?;
        let factor = self.suffixes().iter().find(|(name, _)| *name == suffix.trim());
        factor.map(|(_, factor)| number * factor).ok_or_else(|| {
            let names = self.suffixes().iter().map(|(name, _)| *name).filter(|name| !name.is_empty());
            match names.collect::<Vec<_>>().join(", ") {
                names if names.is_empty() => UnitError::Count,
                names => UnitError::NoUnit(names),
            }
        })
    }

    /// A value for people: three digits and the unit.
    pub(super) fn show(self, value: f64) -> String {
        let suffix = self.suffixes()[0].0;
        // The sum of no errors is -0.
        match value + 0.0 {
            value if self == Self::Count => format!("{value:.0}"),
            value if value.abs() >= 100.0 => format!("{value:.0}{suffix}"),
            value if value.abs() >= 10.0 => format!("{value:.1}{suffix}"),
            value if value.abs() >= 1.0 => format!("{value:.2}{suffix}"),
            value => format!("{value:.3}{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_units_of_their_metric() {
        assert_eq!(Unit::Milliseconds.parse("20ms"), Ok(20.0));
        assert_eq!(Unit::Milliseconds.parse("0.5 s"), Ok(500.0));
        assert_eq!(Unit::PerSecond.parse("2k"), Ok(2000.0));
        assert_eq!(Unit::Share.parse("5%"), Ok(0.05));
        for (unit, text) in [
            (Unit::Milliseconds, "20"),
            (Unit::Milliseconds, "20 parsecs"),
            (Unit::Count, "3ms"),
            (Unit::Share, ""),
            (Unit::PerSecond, "ms"),
        ] {
            assert!(unit.parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn no_errors_are_none() {
        let none: f64 = [].iter().sum();
        assert_eq!(Unit::Count.show(none), "0");
    }

    #[test]
    fn shown_values_can_be_parsed_again() {
        for metric in &METRICS {
            let shown = metric.unit.show(12.0);
            assert_eq!(metric.unit.parse(&shown), Ok(12.0), "{shown}");
        }
    }
}
