//! `--fail-if` and `--baseline`: whether the figures are good enough, for a script that asks.

use std::fs;
use std::process::ExitCode;

use millrace_lab::gate::baseline::{self, Baseline};
use millrace_lab::gate::threshold::Threshold;
use millrace_lab::gate::{GateOutcome, interleaved, text};
use millrace_lab::peers::end_all;
use millrace_lab::race::{self, Entrant, RaceError, SLICE};
use millrace_lab::report::Report;
use millrace_load::figure::CellReport;
use millrace_load::plan::Plan;
use millrace_load::run::RunError;
use millrace_load::stop::Stop;
use millrace_load::units::counted;
use millrace_terminal::{Failure, print};

use super::flags::Bench;
use super::output::{Sink, write};
use super::{advise_race as advise, report_on_signals};

/// Exit status: slower than the baseline.
const SLOWER: u8 = 4;
/// Exit status: whether it is slower cannot be told.
const CANNOT_TELL: u8 = 5;

/// The threshold where none is given.
const USUAL: &str = "server-us > 1.03x";

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
    /// The outcome of those against a baseline, which has exit codes of its own.
    pub(super) relative: Option<GateOutcome>,
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
        let gate = Self {
            thresholds: arguments.fail_if.iter().map(threshold).collect::<Result<_, _>>()?,
            baseline: arguments.baseline.as_deref().map(read).transpose()?,
        };
        if gate.baseline.is_none() && gate.thresholds.iter().any(Threshold::is_relative) {
            return Err(Failure::Configuration(
                "--fail-if: a value that ends in x is a multiple of a baseline's: it takes --baseline or --baseline-server."
                    .to_owned(),
            ));
        }
        Ok(gate)
    }

    /// Returns true if a threshold says how many operations of this figure may fail.
    pub(super) fn allows_failures(&self, cell: &CellReport) -> bool {
        self.thresholds.iter().any(|threshold| threshold.allows_failures(cell))
    }

    /// Judges a report.
    pub(super) fn judge(&self, report: &Report) -> Judgement {
        let mut judgement = Judgement { text: String::new(), outcome: None, relative: None };
        if let Some(baseline) = &self.baseline {
            let comparisons = baseline.compare(report);
            judgement.text += &format!("\n{}", text::comparisons(&comparisons, &baseline.cautions(report)));
            // A threshold says which differences matter.
            let is_free = !self.thresholds.iter().any(Threshold::is_relative);
            judgement.outcome = is_free.then(|| baseline::outcome(&comparisons));
        }
        for (index, threshold) in self.thresholds.iter().enumerate() {
            let against = self.baseline.as_ref().filter(|_| threshold.is_relative());
            let rulings = against.map_or_else(|| threshold.judge(report), |one| one.judge(threshold, report));
            let worst = rulings.iter().map(|ruling| ruling.outcome).max();
            match threshold.is_relative() {
                true => judgement.relative = judgement.relative.max(worst),
                false => judgement.outcome = judgement.outcome.max(worst),
            }
            if index == 0 {
                judgement.text.push('\n');
            }
            judgement.text += &text::rulings(&rulings);
        }
        judgement
    }
}

impl Judgement {
    /// Returns the exit status: what was asked against a baseline decides where nothing else speaks against the run.
    pub(super) fn status(&self, otherwise: u8) -> u8 {
        match (otherwise, self.relative) {
            (super::FAILED, _) | (_, None) => otherwise,
            (_, Some(outcome)) => relative_status(outcome).max(otherwise),
        }
    }
}

/// Returns the exit status of thresholds against a baseline.
fn relative_status(outcome: GateOutcome) -> u8 {
    match outcome {
        GateOutcome::Passed => 0,
        GateOutcome::Inconclusive => CANNOT_TELL,
        GateOutcome::Failed => SLOWER,
    }
}

/// `--baseline-server`: loads both servers in turn, and says whether the target is slower.
pub(super) fn interleaved(arguments: &Bench, baseline: &str, target: &str) -> Result<ExitCode, Failure> {
    let usual = [USUAL.to_owned()];
    let texts = if arguments.fail_if.is_empty() { &usual[..] } else { &arguments.fail_if[..] };
    let wrong = |error: &dyn std::fmt::Display| Failure::Configuration(format!("--fail-if: {error}"));
    let thresholds = texts.iter().map(|text| Threshold::parse(text).map_err(|error| wrong(&error)));
    let thresholds: Vec<Threshold> = thresholds.collect::<Result<_, _>>()?;
    if !thresholds.iter().all(Threshold::is_relative) {
        return Err(wrong(&"with --baseline-server each value is a multiple of its, and ends in x."));
    }
    let entrants = [baseline, target].map(Entrant::parse).into_iter().collect::<Result<_, _>>();
    let said = arguments.settings();
    let unsaid = SLICE.iter().filter(|slice| !said.iter().any(|flag| flag.0 == slice.0)).copied();
    let flags: Vec<(&str, &str)> = said.iter().copied().chain(unsaid).collect();
    let settings =
        race::Settings { seed: 1, helper: std::env::current_exe().ok(), ..race::Settings::default() };
    let race = race::Race::new(entrants.map_err(advise)?, None, &flags, settings).map_err(advise)?;
    let [json, _, _, _] = Sink::open_all([&arguments.json, &None, &None, &None])?;
    report_on_signals(&super::STOP, end_all)?;
    let found = match interleaved::compare(&race, &thresholds, &Quiet) {
        Err(RaceError::Run(RunError::Interrupted)) => return Ok(ExitCode::from(CANNOT_TELL)),
        found => found.map_err(advise)?,
    };
    print(&text::rulings(&found.rulings))?;
    write(json, || serde_json::to_string_pretty(&found).unwrap_or_default())?;
    if found.more_failures > 0 {
        eprintln!("millrace: {} of the target failed.", counted(found.more_failures, "operation"));
        return Ok(ExitCode::from(super::FAILED));
    }
    Ok(ExitCode::from(relative_status(found.outcome())))
}

/// Only the request to end is heard.
struct Quiet;

impl race::Watcher for Quiet {
    fn begins(&self, _: &race::Turn<'_>) {}
    fn stop(&self) -> &Stop {
        &super::STOP
    }
}

fn read(path: &std::path::Path) -> Result<Baseline, Failure> {
    let wrong = |what: String| Failure::Configuration(format!("--baseline {}: {what}.", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Baseline::parse(&text).map_err(|error| wrong(error.to_string()))
}
