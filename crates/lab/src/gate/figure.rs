//! A figure as the gate sees it: what was measured, and the repetitions of it.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::metric::{GateMetric, Nature};
use millrace_load::figure::Measured;
use millrace_load::units::users;
use millrace_stats::{Confidence, Interval, mean};

/// Samples that an interval needs; two values say next to nothing of how a third would be.
pub(super) const SAMPLES: usize = 3;
/// Into this many pieces the time of one repetition is cut, where there are no other repetitions.
const BLOCKS: usize = 12;

/// The repetitions of one cell.
#[derive(Debug)]
pub(super) struct Figure<'a> {
    /// Without what tells the repetitions apart.
    pub(super) measured: Measured,
    cells: Vec<&'a Value>,
}

/// A figure's values for one metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Samples {
    /// One for each repetition.
    Repetitions(Vec<f64>),
    /// One for each piece of the only repetition's time: they know nothing of how runs differ.
    Blocks(Vec<f64>),
}

impl Samples {
    pub(super) fn values(&self) -> &[f64] {
        match self {
            Self::Repetitions(values) | Self::Blocks(values) => values,
        }
    }
}

impl<'a> Figure<'a> {
    /// The figures of a report, in its order.
    pub(super) fn all(report: &'a Value) -> Vec<Self> {
        let mut figures: Vec<Self> = Vec::new();
        for cell in report["cells"].as_array().into_iter().flatten() {
            let Ok(measured) = Measured::deserialize(cell) else { continue };
            // The number of threads belongs to the client, and not to the load.
            let measured = Measured { repetition: 0, seed: 0, threads: 0, ..measured };
            match figures.iter_mut().find(|figure| figure.measured == measured) {
                Some(figure) => figure.cells.push(cell),
                None => figures.push(Self { measured, cells: vec![cell] }),
            }
        }
        figures
    }

    /// `retr 1k pasv, 100 users`.
    pub(super) fn name(&self) -> String {
        format!("{}, {}", self.measured.name(), users(self.measured.users))
    }

    /// How it was taken, where the report says that.
    pub(super) fn settings(&self) -> Option<&'a Map<String, Value>> {
        self.cells.first()?.get("settings")?.as_object()
    }

    /// Why nothing is known about the server, where a part of the values shows another limit.
    pub(super) fn hidden(&self) -> Option<&'static str> {
        let is = |bound: &str| self.cells.iter().any(|cell| cell["verdict"]["bound"] == bound);
        let reasons =
            [("client", "the client was at its limit"), ("others", "other programs had the processors")];
        reasons.into_iter().find(|reason| is(reason.0)).map(|reason| reason.1)
    }

    /// A metric's values: `None` where it was not measured in every repetition.
    pub(super) fn repetitions(&self, metric: &GateMetric) -> Option<Vec<f64>> {
        self.cells.iter().map(|cell| (metric.read)(cell)).collect()
    }

    /// The repetitions, or pieces of the only one where that is possible.
    pub(super) fn samples(&self, metric: &GateMetric) -> Option<Samples> {
        let repetitions = self.repetitions(metric)?;
        let blocks = match &self.cells[..] {
            [cell] if metric.nature == Nature::Rate => blocks(cell),
            _ => None,
        };
        Some(blocks.map_or(Samples::Repetitions(repetitions), Samples::Blocks))
    }

    /// The value of a metric, with its confidence interval where that is known.
    pub(super) fn value(&self, metric: &GateMetric) -> Option<Interval> {
        let values = self.repetitions(metric)?;
        let exact = |value| Interval { low: value, middle: value, high: value };
        match metric.nature {
            // A single failure is a fact.
            Nature::Fact => values.into_iter().reduce(f64::max).map(exact),
            _ if values.len() >= SAMPLES => mean(&values, Confidence::P95, 1),
            _ => Some(exact(values.iter().sum::<f64>() / values.len() as f64)),
        }
    }
}

/// Operations a second in pieces of the measured time, which the timeline counts.
fn blocks(cell: &Value) -> Option<Vec<f64>> {
    let moments: Vec<(f64, f64)> = cell["timeline"]
        .as_array()?
        .iter()
        .filter_map(|moment| Some((moment["seconds"].as_f64()?, moment["ops"].as_f64()?)))
        .collect();
    let step = moments.len() / BLOCKS;
    if step == 0 {
        return None;
    }
    let edges: Vec<(f64, f64)> =
        [(0.0, 0.0)].into_iter().chain(moments.chunks_exact(step).map(|chunk| chunk[step - 1])).collect();
    Some(edges.windows(2).map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gate::metric::METRICS;

    #[test]
    fn repetitions_of_a_cell_are_one_figure() {
        let cell = |size: u64, repetition: u32, ops: f64| {
            json!({"op": "retr", "size": size, "mode": "pasv", "users": 9, "repetition": repetition,
                   "ops_per_s": ops, "verdict": {"bound": "server"}})
        };
        let report = json!({"cells": [cell(1024, 0, 5.0), cell(1024, 1, 7.0), cell(1, 0, 9.0)]});
        let figures = Figure::all(&report);
        assert_eq!(
            figures.iter().map(|figure| figure.name()).collect::<Vec<_>>(),
            ["retr 1k pasv, 9 users", "retr 1 pasv, 9 users"]
        );
        let ops = METRICS.iter().find(|metric| metric.name == "ops").unwrap();
        assert_eq!(figures[0].repetitions(ops), Some(vec![5.0, 7.0]));
        assert_eq!(figures[0].value(ops).unwrap().middle, 6.0);
        let p99 = METRICS.iter().find(|metric| metric.name == "p99").unwrap();
        assert_eq!(figures[0].value(p99), None);
    }

    #[test]
    fn a_timeline_gives_the_pieces_of_a_rate() {
        // 100 operations each 0.2 s, for 5 s.
        let timeline: Vec<Value> =
            (1..=25).map(|n| json!({"seconds": f64::from(n) * 0.2, "ops": n * 100})).collect();
        let pieces = blocks(&json!({ "timeline": timeline })).unwrap();
        assert_eq!(pieces.len(), 12);
        assert!(pieces.iter().all(|rate| (rate - 500.0).abs() < 1e-6), "{pieces:?}");
        assert_eq!(blocks(&json!({ "timeline": timeline[..9] })), None);
    }
}
