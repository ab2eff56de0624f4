//! The results of a race: every figure, and every comparison with its interval.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::comparison::{CONFIDENCE, MARGIN, Outcome};
use super::entrant::{Entrant, Server, Started};
use super::scenario::{Scenario, Standing};
use super::{Figure, Race};
use crate::report::table::Table;
use crate::report::{Machine, kind, lines};
use millrace_load::figure::CellReport;
use millrace_load::plan::Plan;
use millrace_load::run::Ending;
use millrace_load::units::counted;
use millrace_stats::{Confidence, Drift};

/// Changes when the meaning of a field does.
const FORMAT: u32 = 1;
const KIND: &str = "race";
/// How deep a figure of a block lies: in a scenario, in a standing, in its cells.
const DEPTH: usize = 6;
/// Why a file is no report of a race.
#[derive(Debug, Error)]
pub enum ReportError {
    /// It is another document of this program.
    #[error("{0}")]
    Other(&'static str),
    /// It has another form.
    #[error("is no report of a race: {0}")]
    Json(serde_json::Error),
    /// It is of another kind, or of another version.
    #[error("is a report of kind {kind} in format {format}")]
    Format {
        /// Its kind.
        kind: String,
        /// Its version.
        format: u32,
    },
}

/// The results of a race.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RaceReport {
    /// Of the JSON.
    pub format: u32,
    /// The kind of the file, for programs that read both: `race`.
    pub kind: String,
    /// This program's.
    pub version: String,
    /// The preset.
    pub plan: String,
    /// A description of the race.
    pub summary: String,
    /// The command that repeats the race, without passwords; empty where it is not known.
    #[serde(default)]
    pub command: String,
    /// The settings that the quick form of the preset shortened, in words; empty in the full form.
    #[serde(default)]
    pub quick: Vec<String>,
    /// The preset was in the form that its document had, flaws and all.
    #[serde(default)]
    pub as_published: bool,
    /// When the race began, in seconds since 1970.
    pub began: u64,
    /// How long it took.
    pub seconds: f64,
    /// Client and servers run on it.
    pub machine: Machine,
    /// How many times each figure was taken.
    pub blocks: u32,
    /// Of every order that was drawn, and of the intervals.
    pub seed: u64,
    /// How seldom an interval misses the truth.
    pub confidence: Confidence,
    /// A difference below this share does not count.
    pub margin: f64,
    /// The reference's index in `contestants`.
    pub against: usize,
    /// The participants.
    pub contestants: Vec<Contestant>,
    /// One a load.
    pub scenarios: Vec<Scenario>,
    /// How still the machine kept.
    pub sentinel: SentinelReport,
    /// The document's tables, with its numbers and those of each contestant.
    pub tables: Vec<Table>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The race in sentences, for who reads nothing else.
    pub conclusions: Vec<String>,
    /// The doubts about the figures.
    pub warnings: Vec<String>,
    /// Whether every block is there.
    #[serde(default)]
    pub ending: Ending,
}

/// A participant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contestant {
    /// No two are alike.
    pub label: String,
    /// The version that it reports, if it was started for the race.
    pub version: Option<String>,
    /// How it was started; ports and folders are those of the first block.
    pub argv: Vec<String>,
    /// How it serves many.
    pub model: Option<String>,
    /// How a login is checked.
    pub auth: Option<String>,
}

/// How still the machine kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentinelReport {
    /// The time of the same small work before, between and after the blocks, in milliseconds.
    pub readings_ms: Vec<f64>,
    /// The resulting drift.
    pub drift: Drift,
    /// In a sentence.
    pub words: String,
}

impl Contestant {
    pub(super) fn new(entrant: &Entrant, started: &Started) -> Self {
        let label = entrant.label.clone();
        match &entrant.server {
            Server::Url(_) => Self { label, version: None, argv: Vec::new(), model: None, auth: None },
            Server::Known { installed, .. } => Self {
                label,
                version: Some(installed.version.clone()),
                argv: started.process.as_ref().map(|process| process.argv.clone()).unwrap_or_default(),
                model: Some(installed.peer.model.to_owned()),
                auth: Some(installed.peer.auth.to_owned()),
            },
        }
    }
}

impl RaceReport {
    pub(super) fn new(
        race: &Race,
        plan: &Plan,
        began: SystemTime,
        contestants: Vec<Contestant>,
        figures: Vec<Figure>,
        readings_ms: Vec<f64>,
        ending: Ending,
    ) -> Self {
        let mut tables = Vec::new();
        for (entrant, contestant) in contestants.iter().enumerate() {
            let cells: Vec<CellReport> = figures
                .iter()
                .filter(|figure| figure.entrant == entrant)
                .filter_map(|figure| figure.outcome.as_ref().ok().cloned())
                .collect();
            tables.extend(Table::all(plan, &cells).into_iter().map(|table| {
                let title = format!("{}: {}", contestant.label, table.title);
                Table { title, ..table }
            }));
        }
        let scenarios = race.cells.iter().enumerate().map(|(at, cell)| {
            let of_cell = || figures.iter().filter(move |figure| figure.cell == at);
            Scenario::new(race, cell, &|entrant| {
                of_cell().filter(|figure| figure.entrant == entrant).collect()
            })
        });
        let scenarios: Vec<Scenario> = scenarios.collect();
        let drift = Drift::of(&readings_ms, race.seed);
        let mut report = Self {
            format: FORMAT,
            kind: KIND.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: plan.name.clone(),
            summary: plan.summary.clone(),
            command: String::new(), // the program knows it
            as_published: plan.as_published,
            quick: plan.quick.clone(),
            began: began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            seconds: began.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64()),
            machine: Machine::this(),
            blocks: race.blocks,
            seed: race.seed,
            confidence: CONFIDENCE,
            margin: MARGIN,
            against: race.against,
            contestants,
            scenarios,
            sentinel: SentinelReport { words: drift.words(), readings_ms, drift },
            tables,
            notes: plan.notes.clone(),
            conclusions: Vec::new(),
            warnings: race.warnings.clone(),
            ending,
        };
        report.conclude();
        report.warn();
        report
    }

    /// The preset, and in which form it ran.
    pub fn titled(&self) -> String {
        crate::report::titled(&self.plan, self.as_published, &self.quick)
    }

    /// As JSON for readers: a figure of one block stands on one line.
    pub fn json(&self) -> String {
        let value = serde_json::to_value(self).expect("a report has no map with keys that are no text");
        lines::render(&value, DEPTH)
    }

    /// Reads a report that [`RaceReport::json`] wrote.
    pub fn parse(text: &str) -> Result<Self, ReportError> {
        let other = |error: serde_json::Error| match kind::told(text) {
            Some(other) if !other.contains("race --read") => ReportError::Other(other),
            _ => ReportError::Json(error),
        };
        let mut report: Self = serde_json::from_str(text).map_err(other)?;
        if report.kind != KIND || report.format != FORMAT {
            return Err(ReportError::Format { kind: report.kind, format: report.format });
        }
        // An earlier build may have worded its conclusions worse.
        report.conclude();
        report.tables.retain(Table::says_anything);
        let words = report.sentinel.words.clone();
        report.warnings.retain(|warning| !warning.starts_with(&words)); // the conclusions say it
        Ok(report)
    }

    /// The label of the reference.
    pub fn reference(&self) -> &str {
        &self.contestants[self.against].label
    }

    /// Returns true if bytes were wrong somewhere.
    pub fn has_wrong_data(&self) -> bool {
        let cells =
            || self.scenarios.iter().flat_map(|scenario| &scenario.standings).flat_map(|one| &one.cells);
        cells().any(|cell| cell.faults.kinds().any(|kind| kind.fault.is_wrong_data()))
    }

    /// Returns true if any server's operations or logins failed.
    pub fn has_failures(&self) -> bool {
        (0..self.contestants.len()).any(|at| self.failed(at) > 0)
    }

    /// Returns true if a figure could not be measured although the user did not end the race.
    pub fn has_gaps(&self) -> bool {
        if self.ending == Ending::Interrupted {
            return false;
        }
        let standings = || self.scenarios.iter().flat_map(|scenario| &scenario.standings);
        standings().any(|standing| standing.cells.len() < self.blocks as usize)
    }

    /// Returns true if the figures vary too much, or are too few, for any main comparison to say anything.
    pub fn is_inconclusive(&self) -> bool {
        self.scenarios
            .iter()
            .flat_map(|scenario| scenario.standings.iter().filter_map(|standing| standing.main()))
            .filter_map(|main| main.outcome)
            .all(|outcome| outcome == Outcome::Unclear)
    }

    fn warn(&mut self) {
        for scenario in &self.scenarios {
            for standing in scenario.standings.iter().filter(|standing| !standing.failures.is_empty()) {
                let gaps = (self.blocks as usize).saturating_sub(standing.cells.len());
                let what = match gaps {
                    gaps if gaps > 0 && self.ending != Ending::Interrupted => {
                        format!("{gaps} of {} could not be taken", counted(self.blocks.into(), "figure"))
                    }
                    _ => {
                        let all = counted(standing.ops + standing.errors, "operation");
                        format!("{} of {all} failed", standing.errors)
                    }
                };
                let (who, at, first) = (&standing.contestant, &scenario.title, &standing.failures[0]);
                self.warnings.push(format!("{who} at {at}: {what}, first: {first}"));
            }
        }
        self.warn_of("This client was at its limit", |standing| standing.client_bound);
        self.warn_of("Other programs or virtual machines had the processors", |standing| {
            standing.others_bound
        });
    }

    /// `...: millrace in 3 of 7 loads`, where that was so in most blocks of these.
    fn warn_of(&mut self, what: &str, blocks: fn(&Standing) -> usize) {
        let of_one = |(at, one): (usize, &Contestant)| {
            let standings = self.scenarios.iter().map(|scenario| &scenario.standings[at]);
            let most = standings.filter(|standing| blocks(standing) * 2 > standing.cells.len()).count();
            (most > 0).then(|| {
                format!("{} in {most} of {}", one.label, counted(self.scenarios.len() as u64, "load"))
            })
        };
        let told: Vec<String> = self.contestants.iter().enumerate().filter_map(of_one).collect();
        if !told.is_empty() {
            self.warnings.push(format!(
                "{what}: {}. There a rate says little, and the server may be faster than shown; its CPU for an operation \
                 is still true.",
                told.join(", ")
            ));
        }
    }
}
