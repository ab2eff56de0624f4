//! What was measured, and the forms in which it is shown.
//!
//! A [`Report`] is data; [`text`], [`csv`], [`markdown`] and [`Report::json`] are renderings of the same numbers.

mod cell;
pub mod csv;
mod doubts;
pub mod html;
pub(crate) mod kind;
pub(crate) mod lines;
pub(crate) mod load;
mod machine;
pub mod markdown;
mod measured;
pub mod summary;
pub mod table;
pub mod text;
mod users;
pub mod zb;

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub(crate) use self::cell::Figures;
pub use self::cell::{CellReport, Commands, InStep, TlsFigures};
pub use self::machine::Machine;
pub use self::measured::Measured;
use crate::plan::Plan;

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
    /// What it is.
    pub summary: String,
    /// What the quick form of the preset shortened, in words; nothing in the full one.
    #[serde(default)]
    pub quick: Vec<String>,
    /// The preset was in the form that its document had, flaws and all.
    #[serde(default)]
    pub as_published: bool,
    /// The server, without its password.
    pub target: String,
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
    /// What a reader of them must know.
    pub notes: Vec<String>,
    /// One a cell of the plan.
    pub cells: Vec<CellReport>,
    /// What should be known before a figure is believed.
    pub warnings: Vec<String>,
    /// Whether it is all there.
    #[serde(default)]
    pub ending: Ending,
}

/// Settings, as flags.
pub(crate) struct Set {
    /// Whose they are; nothing for those of every figure.
    pub(crate) load: Option<String>,
    pub(crate) said: String,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Everything was measured.
    #[default]
    Complete,
    /// Somebody would not wait: what is there is right, and not all.
    Interrupted,
    /// The server, or this machine, could not go on.
    Failed(String),
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        address: SocketAddr,
        began: SystemTime,
        mut cells: Vec<CellReport>,
    ) -> Self {
        compare_with_calm(&mut cells);
        load::compare_with_fewer(&mut cells);
        let mut report = Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: plan.name.clone(),
            summary: plan.summary.clone(),
            as_published: plan.as_published,
            quick: plan.quick.clone(),
            target: plan.target.to_string(),
            address,
            server: plan.base.server_pid.and_then(crate::host::command_line),
            began: began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            tables: table::Table::all(plan, &cells),
            notes: plan.notes.clone(),
            cells,
            warnings: Vec::new(),
            ending: Ending::Complete,
        };
        report.warnings = report.unsteady();
        report
    }

    /// Claims that repetitions of a figure differ so much that they have no mean to speak of.
    pub fn is_unsteady(&self) -> bool {
        !self.unsteady().is_empty()
    }

    /// What a quick form repeats says nothing anyway.
    fn unsteady(&self) -> Vec<String> {
        let loads = if self.quick.is_empty() { load::loads(self) } else { Vec::new() };
        loads.iter().flat_map(load::Load::unsteady).collect()
    }

    /// How it was measured: what holds for every figure, then what single loads have besides. What a figure's name says
    /// is not said again.
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
        for load in load::loads(self) {
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
        // What an earlier build said worse of the same figures.
        report.tables.retain(table::Table::says_anything);
        load::compare_with_fewer(&mut report.cells);
        match report.format {
            FORMAT => Ok(report),
            format => Err(format!("is in format {format}, and this program's is {FORMAT}")),
        }
    }

    /// What [`Report::json`] says, for those who read it.
    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a report has no map with keys that are no text")
    }

    /// Claims that bytes were wrong somewhere.
    pub fn has_wrong_data(&self) -> bool {
        self.cells.iter().any(|cell| cell.faults.kinds().any(|kind| kind.fault.is_wrong_data()))
    }
}

/// Sets beside each figure amid bad users what the same was without them.
fn compare_with_calm(cells: &mut [CellReport]) {
    for at in 0..cells.len() {
        let calm = Measured { bad_users: 0, ..cells[at].measured.clone() };
        let p99_ms = cells.iter().find(|cell| cell.measured == calm).map(|cell| cell.latency.p99_ms);
        if let Some(chaos) = &mut cells[at].chaos {
            chaos.calm_p99_ms = p99_ms;
        }
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

/// What the quick form was, in a sentence: nothing of the full one.
pub(crate) fn quick_sentence(quick: &[String]) -> Option<String> {
    let all = quick.join("; ");
    (!quick.is_empty()).then(|| {
        format!("This was the quick form, which shows that all works: its figures are no answer ({all}).")
    })
}

/// Bytes as people write them: `1k`, `16m`.
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [(30, "g"), (20, "m"), (10, "k")];
    let unit = units.iter().find(|(bits, _)| bytes >= 1 << bits && bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| bytes.to_string(), |(bits, name)| format!("{}{name}", bytes >> bits))
}

/// The same in words: `1 KiB`, `1666 bytes`.
pub(crate) fn size_in_words(bytes: u64) -> String {
    let short = short_size(bytes);
    let units = [('k', "KiB"), ('m', "MiB"), ('g', "GiB")];
    let found = units.iter().find_map(|(short_unit, unit)| Some((short.strip_suffix(*short_unit)?, unit)));
    match (found, bytes) {
        (Some((count, unit)), _) => format!("{count} {unit}"),
        (None, 1) => "1 byte".to_owned(),
        (None, _) => format!("{short} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_words_have_their_unit() {
        let sizes = [1, 1666, 1 << 10, 10 << 20, 1_024_000, 2 << 30];
        let words = ["1 byte", "1666 bytes", "1 KiB", "10 MiB", "1000 KiB", "2 GiB"];
        assert_eq!(sizes.map(size_in_words), words);
    }

    #[test]
    fn sizes_are_short_where_they_are_round() {
        assert_eq!(
            ["0", "1000", "1k", "1536", "16m", "2g"].map(String::from),
            [0, 1000, 1024, 1536, 16 << 20, 2 << 30].map(short_size)
        );
    }
}
