//! The report of a run, and its formats.
//!
//! A [`Report`] is data; [`text`], [`csv`], [`markdown`] and [`Report::json`] are renderings of the same numbers.

pub mod command;
pub mod csv;
pub(crate) mod kind;
pub(crate) mod lines;
mod machine;
pub mod markdown;
pub mod summary;
pub mod table;
#[cfg(test)]
mod tests;
pub mod text;
mod users;
pub mod zb;

use std::net::SocketAddr;
use std::time::UNIX_EPOCH;

use millrace_load::figure::CellReport;
use millrace_load::plan::Plan;
use millrace_load::run::{Ending, Measurement};
use millrace_load::series::{self, LoadSeries, loads};
use serde::{Deserialize, Serialize};

pub use self::machine::Machine;

/// Changes when the meaning of a field does.
pub(crate) const FORMAT: u32 = 1;
/// Levels of the JSON that have a line for each field: down to those of a figure.
const LINES: usize = 3;

/// All figures of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of the JSON.
    pub format: u32,
    /// This program's.
    pub version: String,
    /// The preset.
    pub plan: String,
    /// A description of the run.
    pub summary: String,
    /// The settings that the quick form of the preset shortened, in words; empty in the full form.
    #[serde(default)]
    pub quick: Vec<String>,
    /// The preset was in the form that its document had, flaws and all.
    #[serde(default)]
    pub as_published: bool,
    /// The server, without its password.
    pub target: String,
    /// The command that repeats the run, without passwords; empty where it is not known.
    #[serde(default)]
    pub command: String,
    /// Where it was found.
    pub address: SocketAddr,
    /// The command line of its process, where that is known.
    pub server: Option<String>,
    /// When the run began, in seconds since 1970.
    pub began: u64,
    /// The client's machine.
    pub machine: Machine,
    /// The document's tables, with its numbers and these.
    pub tables: Vec<table::Table>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// One a cell of the plan.
    pub cells: Vec<CellReport>,
    /// The doubts about the figures.
    pub warnings: Vec<String>,
    /// Whether it is all there.
    #[serde(default)]
    pub ending: Ending,
}

/// Settings, as flags.
pub(crate) struct Set {
    /// The load that they belong to; `None` for all.
    pub(crate) load: Option<String>,
    pub(crate) said: String,
}

impl Report {
    /// Puts together what a plan has measured.
    pub fn of(plan: &Plan, measurement: Measurement) -> Self {
        let Measurement { address, began, cells, ending, warnings } = measurement;
        let mut report = Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: plan.name.clone(),
            summary: plan.summary.clone(),
            as_published: plan.as_published,
            quick: plan.quick.clone(),
            target: plan.target.to_string(),
            command: String::new(), // the program knows it
            address,
            server: plan.base.server_pid.and_then(command::of_process),
            began: began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            tables: table::Table::all(plan, &cells),
            notes: plan.notes.clone(),
            cells,
            warnings: Vec::new(),
            ending,
        };
        report.warnings = report.unsteady();
        report.warnings.extend(warnings);
        report
    }

    /// Returns true if repetitions of a figure differ so much that they have no mean to speak of.
    pub fn is_unsteady(&self) -> bool {
        !self.unsteady().is_empty()
    }

    /// Repetitions in a quick form are meaningless anyway.
    fn unsteady(&self) -> Vec<String> {
        let loads = if self.quick.is_empty() { loads(&self.cells) } else { Vec::new() };
        loads.iter().flat_map(LoadSeries::unsteady).collect()
    }

    /// The settings of the measurement: those of every figure, then those of single loads. Settings in a figure's name
    /// are not repeated.
    pub(crate) fn settings(&self) -> Vec<Set> {
        const NAMED: [&str; 6] = ["ops", "size", "users", "mode", "label", "server-pid"];
        let is_shared = |setting: &(&String, &String)| {
            self.cells.iter().all(|cell| cell.settings.get(setting.0) == Some(setting.1))
        };
        let of = |cell: &CellReport, shared: bool| {
            let said = cell.settings.iter().filter(|setting| !NAMED.contains(&setting.0.as_str()));
            let some = said.filter(|setting| is_shared(setting) == shared);
            some.map(|(name, value)| format!("--{name} {value}")).collect::<Vec<_>>().join(" ")
        };
        let Some(first) = self.cells.first() else { return Vec::new() };
        let mut told = vec![Set { load: None, said: of(first, true) }];
        told.retain(|set| !set.said.is_empty()); // earlier builds noted none
        for load in loads(&self.cells) {
            let own = load.cells.first().map(|cell| of(cell, false)).unwrap_or_default();
            if !own.is_empty() {
                told.push(Set { load: Some(load.title), said: own });
            }
        }
        told
    }

    /// The preset, and in which form it ran.
    pub fn titled(&self) -> String {
        titled(&self.plan, self.as_published, &self.quick)
    }

    /// As JSON, in lines for people.
    pub fn json(&self) -> String {
        lines::render(&self.value(), LINES)
    }

    /// Reads a report that [`Report::json`] wrote. The error is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let other = |error: serde_json::Error| match kind::told(text) {
            Some(other) if !other.contains("bench --read") => other.to_owned(),
            _ => format!("is no report of a load: {error}"),
        };
        let mut report: Self = serde_json::from_str(text).map_err(other)?;
        // An earlier build may have worded them worse.
        report.tables.retain(table::Table::says_anything);
        series::compare_with_fewer(&mut report.cells);
        match report.format {
            FORMAT => Ok(report),
            format => Err(format!("is in format {format}, and this program's is {FORMAT}")),
        }
    }

    /// The content of [`Report::json`] for tests.
    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a report has no map with keys that are no text")
    }

    /// Returns true if bytes were wrong somewhere.
    pub fn has_wrong_data(&self) -> bool {
        self.cells.iter().any(|cell| cell.faults.kinds().any(|kind| kind.fault.is_wrong_data()))
    }
}

/// A preset's name; of its quick form, that it was no more.
pub(crate) fn titled(plan: &str, as_published: bool, quick: &[String]) -> String {
    let published = if as_published { ", as published" } else { "" };
    format!("{plan}{}{published}", if quick.is_empty() { "" } else { ", QUICK FORM" })
}

/// For other programs: `quick`, or `full`.
pub(crate) fn form(quick: &[String]) -> &'static str {
    if quick.is_empty() { "full" } else { "quick" }
}

/// A sentence about the quick form: `None` for the full one.
pub(crate) fn quick_sentence(quick: &[String]) -> Option<String> {
    let all = quick.join("; ");
    (!quick.is_empty()).then(|| {
        format!("This was the quick form, which shows that all works: its figures are no answer ({all}).")
    })
}
