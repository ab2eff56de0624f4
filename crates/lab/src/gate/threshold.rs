//! Thresholds: `retr.1k.p99 > 20ms` must not be.
//!
//! ```text
//! threshold  = { word "." } metric ( ">" | ">=" | "<" | "<=" ) value
//! word       = an operation | a size | a mode | a number with "users" behind it
//! ```
//!
//! A value that ends in `x` is a multiple of the baseline's: `ops < 0.97x` must not be, either. Such a threshold fails only
//! where the ratio is beyond it **and** its 99 % interval excludes 1; it passes only where the whole interval is on the
//! good side of it.
//!
//! The words select figures; without words, all of them. A crossed threshold fails; but a time or a rate of a figure
//! that shows this client's limit or other programs', or whose interval contains the threshold, is inconclusive.

use std::fmt;

use serde::Serialize;

use super::GateOutcome;
use super::figure::Figure;
use super::metric::{GateMetric, METRICS, Nature};
use crate::report::Report;
use millrace_load::figure::{CellReport, Measured};
use millrace_load::plan::{Cell, MODES, OPS, parse_size};
use millrace_stats::Interval;

/// A condition that must not hold.
#[derive(Debug)]
pub struct Threshold {
    /// Its original text.
    text: String,
    words: Vec<Word>,
    metric: &'static GateMetric,
    comparator: Comparator,
    limit: f64,
    /// The limit is a multiple of the baseline's value.
    is_relative: bool,
}

/// The selection by a word before the metric.
#[derive(Debug, Clone, PartialEq)]
enum Word {
    Op(&'static str),
    Size(u64),
    Mode(&'static str),
    Users(u32),
}

type Comparator = fn(&f64, &f64) -> bool;

/// The longer ones first.
const COMPARATORS: [(&str, Comparator); 4] =
    [(">=", f64::ge), ("<=", f64::le), (">", f64::gt), ("<", f64::lt)];

/// A threshold that cannot be read, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable {
    text: String,
    /// In characters, from 0.
    column: usize,
    wrong: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String =
            self.text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
        write!(f, "{}\n    {shown}\n    {:>2$}", self.wrong, '^', self.column + 1)
    }
}

impl std::error::Error for Unreadable {}

/// The result of a threshold for a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ruling {
    /// The outcome where the threshold is not met.
    pub outcome: GateOutcome,
    /// A sentence.
    pub text: String,
}

impl Threshold {
    /// Reads a threshold.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let wrong = |at: usize, wrong: String| Unreadable {
            text: text.to_owned(),
            column: text[..at].chars().count(),
            wrong,
        };
        let (at, sign, comparator) = COMPARATORS
            .iter()
            .filter_map(|(sign, comparator)| Some((text.find(sign)?, *sign, *comparator)))
            .min_by_key(|(at, sign, _)| (*at, usize::MAX - sign.len()))
            .ok_or_else(|| wrong(text.len(), "here >, >=, < or <= and a value must follow".to_owned()))?;
        let (words, metric) = path(&text[..at]).map_err(|(at, sentence)| wrong(at, sentence))?;
        let behind = at + sign.len();
        let value = &text[behind..];
        let column = behind + (value.len() - value.trim_start().len());
        let times = value.trim().strip_suffix('x').and_then(|number| number.trim_end().parse::<f64>().ok());
        let limit = match times {
            Some(times) => times,
            None => metric.unit.parse(value.trim()).map_err(|error| wrong(column, error.to_string()))?,
        };
        if times.is_some() && comparator(&1.0, &limit) {
            return Err(wrong(column, "two equal servers would fail".to_owned()));
        }
        Ok(Self { text: text.to_owned(), words, metric, comparator, limit, is_relative: times.is_some() })
    }

    /// Returns true if some figure of these is meant; else the threshold would pass whatever happens.
    pub fn applies(&self, cells: &[Cell]) -> bool {
        cells.iter().any(|cell| self.chooses(&Measured::of(cell)))
    }

    /// Returns true if it says how many operations of a figure may fail.
    pub fn allows_failures(&self, cell: &CellReport) -> bool {
        matches!(self.metric.name, "errors" | "error-share") && self.chooses(&cell.measured)
    }

    /// Returns whether its limit is a multiple of a baseline's value.
    pub fn is_relative(&self) -> bool {
        self.is_relative
    }

    /// Judges the ratio of a selected figure's value to the baseline's.
    pub(super) fn rule_ratio(&self, figure: &str, ratio: Option<&Interval>) -> Ruling {
        let (text, metric) = (&self.text, self.metric.name);
        let Some(ratio) = ratio else {
            let text =
                format!("{text}: does not tell; {metric} of {figure} was measured too seldom (--repeat 5)");
            return Ruling { outcome: GateOutcome::Inconclusive, text };
        };
        let crosses = |value| (self.comparator)(&value, &self.limit);
        let is = format!(
            "{metric} of {figure} is {:.3} times the baseline's ({:.3} to {:.3})",
            ratio.middle, ratio.low, ratio.high
        );
        let (outcome, says) = match () {
            () if crosses(ratio.middle) && !ratio.holds(1.0) => (GateOutcome::Failed, "yes"),
            () if !crosses(ratio.low) && !crosses(ratio.high) => (GateOutcome::Passed, "no"),
            () => (GateOutcome::Inconclusive, "too noisy to tell"),
        };
        Ruling { outcome, text: format!("{text}: {says}; {is}") }
    }

    /// The ruling on a figure that shows the limit of something else than the server.
    pub(super) fn rule_hidden(&self, figure: &str, why: &str) -> Ruling {
        let text = format!(
            "{}: does not tell; {} of {figure} is of no use, since {why}",
            self.text, self.metric.name
        );
        Ruling { outcome: GateOutcome::Inconclusive, text }
    }

    /// The metric that it is of.
    pub(super) fn metric(&self) -> &'static GateMetric {
        self.metric
    }

    /// The result for each selected figure.
    pub fn judge(&self, report: &Report) -> Vec<Ruling> {
        let report = report.value();
        let figures = Figure::all(&report);
        figures
            .iter()
            .filter(|figure| self.chooses(&figure.measured))
            .map(|figure| self.rule(figure))
            .collect()
    }

    /// Returns whether it is about this figure.
    pub(super) fn chooses(&self, measured: &Measured) -> bool {
        self.words.iter().all(|word| match word {
            Word::Op(name) => measured.op == *name,
            Word::Size(size) => measured.size == Some(*size),
            Word::Mode(name) => measured.mode.as_deref() == Some(name),
            Word::Users(users) => measured.users == *users,
        })
    }

    fn rule(&self, figure: &Figure<'_>) -> Ruling {
        let (name, metric, text) = (figure.name(), self.metric, &self.text);
        let Some(value) = figure.value(metric) else {
            let text = format!("{text}: does not tell; {} of {name} was not measured", metric.name);
            return Ruling { outcome: GateOutcome::Inconclusive, text };
        };
        let crosses = |value| (self.comparator)(&value, &self.limit);
        let is_noisy = crosses(value.low) != crosses(value.high);
        let is = format!("{} of {name} is {}", metric.name, metric.unit.show(value.middle));
        let between = || format!("{} to {}", metric.unit.show(value.low), metric.unit.show(value.high));
        let (outcome, text) = match () {
            () if is_noisy => {
                let why = format!("between {}", between());
                (GateOutcome::Inconclusive, format!("{text}: too noisy to tell; {is}, {why}"))
            }
            () if !crosses(value.middle) => (GateOutcome::Passed, format!("{text}: no; {is}")),
            () => match figure.hidden().filter(|_| metric.nature != Nature::Fact) {
                Some(why) => (GateOutcome::Inconclusive, format!("{text}: does not tell; {is}, but {why}")),
                None => (GateOutcome::Failed, format!("{text}: yes; {is}")),
            },
        };
        Ruling { outcome, text }
    }
}

/// The words and the metric of `retr.1k.p99`; an error says at which byte.
fn path(text: &str) -> Result<(Vec<Word>, &'static GateMetric), (usize, String)> {
    let mut words: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    for piece in text.split('.') {
        words.push((at + piece.len() - piece.trim_start().len(), piece.trim()));
        at += piece.len() + 1;
    }
    let (at, name) = words.pop().unwrap_or_default();
    let metric = METRICS.iter().find(|metric| metric.name == name).ok_or_else(|| (at, no_metric(name)))?;
    let words = words.into_iter().map(|(at, word)| Word::parse(word).ok_or_else(|| (at, no_word(word))));
    Ok((words.collect::<Result<_, _>>()?, metric))
}

impl Word {
    fn parse(word: &str) -> Option<Self> {
        let op = OPS.iter().find(|row| row.0 == word).map(|row| Self::Op(row.0));
        let mode = || MODES.iter().find(|row| row.0 == word).map(|row| Self::Mode(row.0));
        let users = || Some(Self::Users(word.strip_suffix("users")?.parse().ok()?));
        op.or_else(mode).or_else(users).or_else(|| parse_size(word).ok().map(Self::Size))
    }
}

fn no_metric(name: &str) -> String {
    let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    format!("there is no metric {name:?}; there are {}", names.join(" "))
}

fn no_word(word: &str) -> String {
    let names: Vec<&str> = OPS.iter().map(|row| row.0).chain(MODES.iter().map(|row| row.0)).collect();
    format!("{word:?} chooses no figure; a size does (1k), users (100users), and {}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A figure with a p99 for each repetition.
    fn report(p99: &[f64], bound: &str, errors: u64) -> Value {
        let cells = p99.iter().zip(0..).map(|(p99, repetition)| {
            json!({"op": "retr", "size": 1024, "mode": "pasv", "users": 100, "repetition": repetition,
                   "latency": {"p99_ms": p99}, "verdict": {"bound": bound}, "ops": 90,
                   "faults": [{"fault": "timeout", "count": errors}], "login_faults": []})
        });
        json!({"cells": cells.collect::<Vec<_>>()})
    }

    fn outcome(text: &str, report: &Value) -> GateOutcome {
        let threshold = Threshold::parse(text).unwrap();
        let figures = Figure::all(report);
        assert!(threshold.chooses(&figures[0].measured), "{text}");
        threshold.rule(&figures[0]).outcome
    }

    #[test]
    fn a_limit_that_is_crossed_fails() {
        let report = report(&[25.0], "server", 0);
        assert_eq!(outcome("retr.p99 > 20ms", &report), GateOutcome::Failed);
        assert_eq!(outcome("retr.1k.pasv.100users.p99>0.02s", &report), GateOutcome::Failed);
        assert_eq!(outcome("p99 > 30ms", &report), GateOutcome::Passed);
        assert_eq!(outcome("p99 >= 25ms", &report), GateOutcome::Failed);
        assert_eq!(outcome("p99 <= 24ms", &report), GateOutcome::Passed);
        assert_eq!(outcome("errors > 0", &report), GateOutcome::Passed);
    }

    #[test]
    fn a_limit_that_is_not_the_servers_excuses_times_and_not_errors() {
        for bound in ["client", "others"] {
            let report = report(&[25.0], bound, 10);
            assert_eq!(outcome("p99 > 20ms", &report), GateOutcome::Inconclusive, "{bound}");
            assert_eq!(outcome("p99 > 30ms", &report), GateOutcome::Passed, "{bound}");
            assert_eq!(outcome("errors > 0", &report), GateOutcome::Failed, "{bound}");
            assert_eq!(outcome("error-share > 9%", &report), GateOutcome::Failed, "{bound}");
            assert_eq!(outcome("error-share > 0.2", &report), GateOutcome::Passed, "{bound}");
        }
    }

    #[test]
    fn values_that_vary_around_the_limit_are_inconclusive() {
        assert_eq!(
            outcome("p99 > 20ms", &report(&[19.0, 21.0, 20.5], "server", 0)),
            GateOutcome::Inconclusive
        );
        assert_eq!(outcome("p99 > 20ms", &report(&[25.0, 25.2, 25.1], "server", 0)), GateOutcome::Failed);
    }

    #[test]
    fn an_unmeasured_metric_does_not_pass() {
        assert_eq!(outcome("server-us > 1us", &report(&[1.0], "server", 0)), GateOutcome::Inconclusive);
    }

    #[test]
    fn a_multiple_needs_an_effect_and_an_interval() {
        let threshold = Threshold::parse("ops < 0.97x").unwrap();
        assert!(threshold.is_relative() && !Threshold::parse("p99 > 20ms").unwrap().is_relative());
        let rule = |low: f64, middle: f64, high: f64| {
            threshold.rule_ratio("retr", Some(&Interval { low, middle, high })).outcome
        };
        assert_eq!(rule(0.93, 0.95, 0.97), GateOutcome::Failed);
        assert_eq!(rule(0.90, 0.95, 0.999), GateOutcome::Failed);
        assert_eq!(rule(0.90, 0.95, 1.01), GateOutcome::Inconclusive, "it may be nothing");
        assert_eq!(rule(0.971, 0.98, 0.99), GateOutcome::Passed, "a real difference that does not matter");
        assert_eq!(rule(0.96, 0.98, 0.99), GateOutcome::Inconclusive);
        assert_eq!(rule(0.98, 1.0, 1.02), GateOutcome::Passed);
        assert_eq!(threshold.rule_ratio("retr", None).outcome, GateOutcome::Inconclusive);
        let error = Threshold::parse("ops < 1.1x").unwrap_err();
        assert!(error.column == 6 && error.wrong.contains("equal servers"), "{error:?}");
        assert!(Threshold::parse("p99 > 1.1 x").is_ok());
    }

    #[test]
    fn words_choose_figures() {
        let report = report(&[25.0], "server", 0);
        let measured = &Figure::all(&report)[0].measured;
        for (text, is_meant) in [
            ("p99 > 1ms", true),
            ("stor.p99 > 1ms", false),
            ("retr.1m.p99 > 1ms", false),
            ("epsv.p99 > 1ms", false),
            ("99users.p99 > 1ms", false),
        ] {
            assert_eq!(Threshold::parse(text).unwrap().chooses(measured), is_meant, "{text}");
        }
    }

    #[test]
    fn errors_point_at_the_column() {
        for (text, column, words) in [
            ("retr.p98 > 20ms", 5, "p999"),
            ("fetch.p99 > 20ms", 0, "mlsd"),
            ("retr.p99 > 20", 11, "ms, us, s"),
            ("retr.p99 > much", 11, "no number"),
            ("retr.p99", 8, ">="),
            ("é.p99 > 20ms", 0, "chooses no figure"),
            ("retr.é > 20ms", 5, "no metric"),
            ("retr.p99 > é", 11, "no number"),
            (" > 1", 1, "no metric"),
            ("", 0, ">="),
        ] {
            let error = Threshold::parse(text).unwrap_err();
            assert!(error.column == column && error.wrong.contains(words), "{text:?}: {error:?}");
        }
        let shown = Threshold::parse("retr.p99 > 20").unwrap_err().to_string();
        assert_eq!(shown.lines().last(), Some("               ^"));
    }
}
