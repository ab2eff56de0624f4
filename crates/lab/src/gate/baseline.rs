//! A report held against an earlier one: better, same, worse, or cannot tell.
//!
//! A difference is claimed only where the 99 % interval of the ratio leaves no room for none **and** the ratio itself
//! is beyond a margin. The interval rests on the repetitions of both reports; where there is only one of each, a rate's
//! rests on pieces of its time. Pieces of one run know nothing of how runs differ, so their margin is the wider
//! one. Times and costs need repetitions, and nothing is claimed of a figure that shows the limit of something
//! else than the server.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};
use thiserror::Error;

use super::GateOutcome;
use super::figure::{Figure, SAMPLES, Samples};
use super::metric::{GateMetric, METRICS, Nature};
use super::threshold::{Ruling, Threshold};
use crate::report::Report;
use millrace_stats::{Confidence, Difference, Interval, unpaired};

/// The compared metrics. `mb` says what `ops` says, and most latencies what `p50` and `p99` do.
const COMPARED: [&str; 6] = ["ops", "p50", "p99", "server-us", "memory", "errors"];

/// Repetitions of the same server, minutes apart on a shared virtual machine, differ by as much without a reason.
const MARGIN: f64 = 0.05;
/// And so do single runs, whatever the pieces of each say.
const MARGIN_OF_BLOCKS: f64 = 0.15;

/// An earlier report.
#[derive(Debug)]
pub struct Baseline {
    report: Value,
}

/// A metric of a figure, then and now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BaselineComparison {
    /// The figure.
    pub figure: String,
    /// The metric.
    pub metric: &'static str,
    /// The earlier value.
    pub then: f64,
    /// Today's.
    pub now: f64,
    /// Now over then, with its 99 % interval.
    pub ratio: Option<Interval>,
    /// The result.
    pub says: Says,
    /// Why it cannot be told.
    pub why: Option<String>,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    /// Today's is better.
    Better,
    /// The difference is too small to matter.
    Same,
    /// Today's is worse.
    Worse,
    /// There may be a difference.
    CannotTell,
}

impl Says {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Same => "same",
            Self::Worse => "worse",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// Why a file is no baseline.
#[derive(Debug, Error)]
pub enum BaselineError {
    /// It is no JSON.
    #[error("it is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is another document of this program.
    #[error("it {0}: a baseline is a --json file of \"millrace bench\"")]
    Other(&'static str),
    /// It is some other JSON.
    #[error("it is no report of millrace bench --json")]
    NoReport,
    /// Its format is of another version.
    #[error("its format is {0}, and this program's {ours}", ours = crate::report::FORMAT)]
    Format(Value),
}

impl Baseline {
    /// Reads the JSON of an earlier report.
    pub fn parse(text: &str) -> Result<Self, BaselineError> {
        let report: Value = serde_json::from_str(text)?;
        match report["cells"].as_array() {
            None => Err(match crate::report::kind::told(text) {
                Some(other) => BaselineError::Other(other),
                None => BaselineError::NoReport,
            }),
            Some(_) if report["format"] != crate::report::FORMAT => {
                Err(BaselineError::Format(report["format"].clone()))
            }
            Some(_) => Ok(Self { report }),
        }
    }

    /// Holds a report against it, figure by figure; what only one of them has is left out.
    pub fn compare(&self, report: &Report) -> Vec<BaselineComparison> {
        compare(&self.report, &report.value())
    }

    /// Judges a threshold that is a multiple of this baseline's values: a ruling for each figure that both have.
    pub fn judge(&self, threshold: &Threshold, report: &Report) -> Vec<Ruling> {
        let (metric, now) = (threshold.metric(), report.value());
        let pairs = pairs(&self.report, &now).into_iter().filter(|(_, now)| threshold.chooses(&now.measured));
        let rulings: Vec<Ruling> = pairs
            .map(|(then, now)| {
                let is_hidden =
                    then.hidden().or_else(|| now.hidden()).is_some() && metric.nature != Nature::Fact;
                let (old, new) = (then.repetitions(metric), now.repetitions(metric));
                let ratio =
                    old.zip(new).filter(|(old, new)| !is_hidden && old.len().min(new.len()) >= SAMPLES);
                let ratio = ratio.and_then(|(old, new)| unpaired(&old, &new, Confidence::P99, 1));
                let name = now.name();
                match then.hidden().or_else(|| now.hidden()).filter(|_| is_hidden) {
                    Some(why) => threshold.rule_hidden(&name, why),
                    None => threshold.rule_ratio(&name, ratio.as_ref()),
                }
            })
            .collect();
        if rulings.is_empty() { vec![threshold.rule_ratio("the baseline", None)] } else { rulings }
    }

    /// Doubts about a comparison: another machine, another program.
    pub fn cautions(&self, report: &Report) -> Vec<String> {
        let now = report.value();
        let differs = |(pointer, what): &(&str, &str)| {
            let (then, now) = (self.report.pointer(pointer)?, now.pointer(pointer)?);
            (then != now).then(|| format!("{what} was {}, and is {}", words(then), words(now)))
        };
        let settings = otherwise(&self.report, &now);
        let schemes = [&self.report, &now].map(scheme);
        let spoken = (schemes[0] != schemes[1])
            .then(|| format!("the target was {}://, and is {}://", schemes[0], schemes[1]));
        CIRCUMSTANCES.iter().filter_map(differs).chain(spoken).chain(settings).collect()
    }
}

/// How a report's server was spoken to; addresses and accounts may differ.
fn scheme(report: &Value) -> &str {
    report["target"].as_str().and_then(|target| target.split_once("://")).map_or("", |parts| parts.0)
}

/// Of figures that both reports have, what was set otherwise: the same name is then of another load.
fn otherwise(then: &Value, now: &Value) -> BTreeSet<String> {
    let mut differences = BTreeSet::new();
    for (then, now) in pairs(then, now) {
        let (Some(old), Some(new)) = (then.settings(), now.settings()) else { continue };
        for name in old.keys().chain(new.keys()).filter(|name| !FREE.contains(&name.as_str())) {
            let said =
                |settings: &Map<String, Value>| settings.get(name).map_or("not said".to_owned(), words);
            if old.get(name) != new.get(name) {
                differences.insert(format!("--{name} was {}, and is {}", said(old), said(new)));
            }
        }
    }
    differences
}

/// Settings that may differ: those that a figure's name has, that say how often it is taken, or which process to look at.
const FREE: [&str; 9] = ["ops", "size", "users", "mode", "label", "server-pid", "repeat", "cycle", "seed"];

/// Figures of the same.
fn pairs<'a>(then: &'a Value, now: &'a Value) -> Vec<(Figure<'a>, Figure<'a>)> {
    let mut of_then = Figure::all(then);
    let find = |now: Figure<'a>| {
        let at = of_then.iter().position(|then| then.measured == now.measured)?;
        Some((of_then.swap_remove(at), now))
    };
    Figure::all(now).into_iter().filter_map(find).collect()
}

/// The circumstances that should be equal in both reports.
const CIRCUMSTANCES: [(&str, &str); 5] = [
    ("/version", "the benchmark"),
    ("/machine/kernel", "the kernel"),
    ("/machine/processor", "the processor"),
    ("/machine/cores", "the number of its cores"),
    ("/machine/memory_mib", "the memory in MiB"),
];

fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The combined result of all comparisons.
pub fn outcome(comparisons: &[BaselineComparison]) -> GateOutcome {
    let tells = |comparison: &&BaselineComparison| comparison.says != Says::CannotTell;
    match () {
        () if comparisons.iter().any(|comparison| comparison.says == Says::Worse) => GateOutcome::Failed,
        // One clear result is enough: noisy percentiles beside a stable rate do not fail.
        () if comparisons.iter().find(tells).is_none() => GateOutcome::Inconclusive,
        () if rates(comparisons).any(|rate| rate.says == Says::CannotTell) => GateOutcome::Inconclusive,
        () => GateOutcome::Passed,
    }
}

fn rates(comparisons: &[BaselineComparison]) -> impl Iterator<Item = &BaselineComparison> {
    comparisons.iter().filter(|comparison| comparison.metric == "ops")
}

fn compare(then: &Value, now: &Value) -> Vec<BaselineComparison> {
    let mut comparisons = Vec::new();
    for (then, now) in &pairs(then, now) {
        let metrics = METRICS.iter().filter(|metric| COMPARED.contains(&metric.name));
        comparisons.extend(metrics.filter_map(|metric| of_metric(metric, then, now)));
    }
    comparisons
}

/// `None` where either was not measured, or there is nothing to compare.
fn of_metric(metric: &GateMetric, then: &Figure<'_>, now: &Figure<'_>) -> Option<BaselineComparison> {
    let (old, new) = (then.samples(metric)?, now.samples(metric)?);
    let (before, after) = (then.value(metric)?.middle, now.value(metric)?.middle);
    if before == 0.0 && after == 0.0 {
        return None;
    }
    let mut comparison = BaselineComparison {
        figure: now.name(),
        metric: metric.name,
        then: before,
        now: after,
        ratio: None,
        says: Says::CannotTell,
        why: None,
    };
    if metric.name == "errors" {
        comparison.says = if after > before { Says::Worse } else { Says::Better };
        return Some(comparison);
    }
    if let Some(why) = then.hidden().or_else(|| now.hidden()) {
        comparison.why = Some(why.to_owned());
        return Some(comparison);
    }
    let margin = match (&old, &new) {
        (Samples::Repetitions(_), Samples::Repetitions(_)) => MARGIN,
        _ => MARGIN_OF_BLOCKS,
    };
    let counts = old.values().len().min(new.values().len());
    comparison.ratio =
        (counts >= SAMPLES).then(|| unpaired(old.values(), new.values(), Confidence::P99, 1)).flatten();
    let Some(ratio) = &comparison.ratio else {
        let whose = match (old.values().len() < SAMPLES, new.values().len() < SAMPLES) {
            (true, false) => "the baseline lacks them, make it anew with",
            (true, true) => "the baseline and this report lack them, make both anew with",
            _ => "this report lacks them,",
        };
        comparison.why = Some(format!("it takes {SAMPLES} repetitions, better 5; {whose} --repeat 5"));
        return Some(comparison);
    };
    (comparison.says, comparison.why) = say(ratio, margin, metric.less_is_better);
    Some(comparison)
}

fn say(ratio: &Interval, margin: f64, less_is_better: bool) -> (Says, Option<String>) {
    let is_small = ratio.middle <= 1.0 + margin && ratio.middle >= 1.0 / (1.0 + margin);
    match Difference::of(ratio, margin) {
        Difference::Same => (Says::Same, None),
        Difference::Higher | Difference::Lower if is_small => {
            (Says::CannotTell, Some(format!("runs differ by {:.0} % without a reason", margin * 100.0)))
        }
        Difference::Higher => (if less_is_better { Says::Worse } else { Says::Better }, None),
        Difference::Lower => (if less_is_better { Says::Better } else { Says::Worse }, None),
        Difference::Unclear => (Says::CannotTell, Some("it varies too much".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use millrace_stats::Random;

    /// A report of repetitions with these rates; p99 goes the other way.
    fn report(rates: &[f64], bound: &str) -> Value {
        let cells = rates.iter().zip(0..).map(|(ops, repetition)| {
            json!({"op": "retr", "size": 1024, "users": 9, "repetition": repetition, "ops_per_s": ops,
                   "latency": {"p50_ms": 1e5 / ops, "p99_ms": 3e5 / ops}, "ops": 90,
                   "verdict": {"bound": bound}, "faults": [], "login_faults": []})
        });
        json!({"format": 1, "cells": cells.collect::<Vec<_>>()})
    }

    fn says(then: &Value, now: &Value) -> Vec<(&'static str, Says)> {
        compare(then, now).into_iter().map(|comparison| (comparison.metric, comparison.says)).collect()
    }

    fn around(random: &mut Random, middle: f64, noise: f64) -> Vec<f64> {
        (0..5).map(|_| middle * (noise * random.normal()).exp()).collect()
    }

    #[test]
    fn a_report_without_repetitions_is_named() {
        let (few, many) = (report(&[1000.0], "server"), report(&[990.0, 1000.0, 1010.0], "server"));
        let why = |then: &Value, now: &Value| {
            let all = compare(then, now);
            all.iter().find(|one| one.metric == "p99").and_then(|one| one.why.clone()).unwrap()
        };
        assert!(why(&few, &many).contains("; the baseline lacks them, make it anew with --repeat 5"));
        assert!(why(&many, &few).contains("; this report lacks them, --repeat 5"));
        assert!(why(&few, &few).contains("; the baseline and this report lack them"));
    }

    #[test]
    fn slower_is_worse_in_rate_and_time() {
        let (then, now) =
            (report(&[1000.0, 1010.0, 990.0], "server"), report(&[700.0, 705.0, 710.0], "server"));
        let all = [("ops", Says::Worse), ("p50", Says::Worse), ("p99", Says::Worse)];
        assert_eq!(says(&then, &now), all);
        assert_eq!(says(&now, &then), all.map(|(metric, _)| (metric, Says::Better)));
        assert_eq!(outcome(&compare(&then, &now)), GateOutcome::Failed);
        assert_eq!(outcome(&compare(&now, &then)), GateOutcome::Passed);
    }

    #[test]
    fn the_same_server_is_the_same_or_cannot_be_told() {
        let mut random = Random::new(4);
        let mut alarms = 0;
        for _ in 0..50 {
            let (then, now) = (around(&mut random, 1000.0, 0.04), around(&mut random, 1000.0, 0.04));
            let said = says(&report(&then, "server"), &report(&now, "server"));
            alarms += usize::from(said.iter().any(|(_, says)| matches!(says, Says::Worse | Says::Better)));
        }
        assert!(alarms <= 2, "{alarms} of 50 claim a difference");
    }

    #[test]
    fn quiet_runs_are_the_same() {
        let report = report(&[1000.0, 1002.0, 998.0, 1001.0], "server");
        assert!(says(&report, &report).iter().all(|(_, says)| *says == Says::Same));
        assert_eq!(outcome(&compare(&report, &report)), GateOutcome::Passed);
    }

    #[test]
    fn a_limit_that_is_not_the_servers_tells_nothing() {
        for (bound, why) in [("client", "client was at"), ("others", "other programs had the processors")] {
            let (then, now) = (report(&[1000.0; 3], "server"), report(&[500.0; 3], bound));
            assert!(says(&then, &now).iter().all(|(_, says)| *says == Says::CannotTell));
            let compared = compare(&then, &now);
            assert!(compared.iter().all(|one| one.why.as_ref().is_some_and(|said| said.contains(why))));
            assert_eq!(outcome(&compared), GateOutcome::Inconclusive);
        }
    }

    #[test]
    fn one_repetition_has_only_the_pieces_of_its_rate() {
        let with_timeline = |ops: f64| {
            let mut report = report(&[ops], "server");
            let moments =
                (1..=25).map(|n| json!({"seconds": f64::from(n) / 5.0, "ops": f64::from(n) * ops / 5.0}));
            report["cells"][0]["timeline"] = moments.collect();
            report
        };
        let (then, now) = (with_timeline(1000.0), with_timeline(700.0));
        let all = [("ops", Says::Worse), ("p50", Says::CannotTell), ("p99", Says::CannotTell)];
        assert_eq!(says(&then, &now), all);
        // Single runs differ by as much without a reason.
        assert_eq!(says(&then, &with_timeline(900.0))[0].1, Says::Same);
    }

    #[test]
    fn new_errors_are_worse_and_other_figures_are_left_out() {
        let (then, mut now) = (report(&[1000.0; 3], "server"), report(&[1000.0; 3], "server"));
        now["cells"][1]["faults"] = json!([{"fault": "timeout", "count": 1}]);
        assert_eq!(says(&then, &now).last(), Some(&("errors", Says::Worse)));
        now["cells"].as_array_mut().unwrap().iter_mut().for_each(|cell| cell["users"] = json!(10));
        assert!(says(&then, &now).is_empty());
        assert_eq!(outcome(&[]), GateOutcome::Inconclusive);
    }

    #[test]
    fn only_reports_are_read() {
        assert!(Baseline::parse("{").unwrap_err().to_string().contains("no JSON"));
        assert!(Baseline::parse("{}").unwrap_err().to_string().contains("no report"));
        assert!(
            Baseline::parse(r#"{"format": 99, "cells": []}"#)
                .unwrap_err()
                .to_string()
                .contains("format is 99")
        );
        assert!(Baseline::parse(&report(&[1.0], "server").to_string()).is_ok());
    }
}
