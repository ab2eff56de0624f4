//! `--fail-if` and `--baseline`: whether the figures are good enough, for a script that asks.

use std::fs;

use millrace_lab::gate::baseline::{self, Baseline};
use millrace_lab::gate::threshold::Threshold;
use millrace_lab::gate::{GateOutcome, text};
use millrace_lab::report::Report;
use millrace_load::figure::CellReport;
use millrace_load::plan::Plan;

use super::Bench;
use crate::failure::Failure;

/// The conditions on a report.
pub(super) struct Gate {
    thresholds: Vec<Threshold>,
    baseline: Option<Baseline>,
}

/// The gate's result.
pub(super) struct Judgement {
    /// Tables and sentences; empty where nothing was asked.
    pub(super) text: String,
    /// The outcome; `None` without thresholds.
    pub(super) outcome: Option<GateOutcome>,
}

impl Gate {
    /// Reads everything, so that what makes no sense is said before the load.
    pub(super) fn open(arguments: &Bench, plan: &Plan) -> Result<Self, Failure> {
        let cells = plan.cells();
        let threshold = |text: &String| {
            let threshold = Threshold::parse(text)
                .map_err(|error| Failure::Configuration(format!("--fail-if: {error}")))?;
            match threshold.applies(&cells) {
                true => Ok(threshold),
                false => Err(Failure::Configuration(format!(
                    "--fail-if {text:?}: no figure of this run is meant, so it would never fail."
                ))),
            }
        };
        Ok(Self {
            thresholds: arguments.fail_if.iter().map(threshold).collect::<Result<_, _>>()?,
            baseline: arguments.baseline.as_deref().map(read).transpose()?,
        })
    }

    /// Returns true if a threshold says how many operations of this figure may fail.
    pub(super) fn allows_failures(&self, cell: &CellReport) -> bool {
        self.thresholds.iter().any(|threshold| threshold.allows_failures(cell))
    }

    /// Judges a report.
    pub(super) fn judge(&self, report: &Report) -> Judgement {
        let mut judgement = Judgement { text: String::new(), outcome: None };
        if let Some(baseline) = &self.baseline {
            let comparisons = baseline.compare(report);
            judgement.text += &format!("\n{}", text::comparisons(&comparisons, &baseline.cautions(report)));
            judgement.outcome = Some(baseline::outcome(&comparisons));
        }
        for (index, threshold) in self.thresholds.iter().enumerate() {
            let rulings = threshold.judge(report);
            let worst = rulings.iter().map(|ruling| ruling.outcome).max();
            judgement.outcome = judgement.outcome.max(worst);
            if index == 0 {
                judgement.text.push('\n');
            }
            judgement.text += &text::rulings(&rulings);
        }
        judgement
    }
}

fn read(path: &std::path::Path) -> Result<Baseline, Failure> {
    let wrong = |what: String| Failure::Configuration(format!("--baseline {}: {what}.", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Baseline::parse(&text).map_err(|error| wrong(error.to_string()))
}
