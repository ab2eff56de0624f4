//! One load: what every contestant did under it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::comparison::{Comparison, METRICS};
use super::entrant::Entrant;
use super::{Figure, Race};
use crate::report::text;
use millrace_load::figure::{CellReport, Measured};
use millrace_load::plan::{Cell, Op};
use millrace_load::verdict::Bound;

/// A load that was put on all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scenario {
    /// `retr 1k pasv, 100 users`.
    pub name: String,
    /// In words.
    pub title: String,
    /// What it measures.
    pub measured: Option<Measured>,
    /// In the order of `contestants`.
    pub standings: Vec<Standing>,
}

/// The results of one contestant under one load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Standing {
    /// Its label.
    pub contestant: String,
    /// Medians and comparisons, the main one first.
    pub comparisons: Vec<Comparison>,
    /// Operations that ended well, and that did not, in all blocks.
    pub ops: u64,
    /// See there.
    pub errors: u64,
    /// The texts of the first failures.
    pub failures: Vec<String>,
    /// Blocks in which the client was at its limit, and the figure says little of the server.
    pub client_bound: usize,
    /// Blocks in which other programs, or other virtual machines, had the processors.
    #[serde(default)]
    pub others_bound: usize,
    /// The latencies of all blocks: (upper edge in microseconds, count).
    pub histogram: Vec<(u64, u64)>,
    /// A figure a block, without time line and histogram.
    pub cells: Vec<CellReport>,
}

impl Scenario {
    pub(super) fn new<'a>(race: &Race, cell: &Cell, figures: &dyn Fn(usize) -> Vec<&'a Figure>) -> Self {
        let all: Vec<Vec<&Figure>> = (0..race.entrants.len()).map(figures).collect();
        let samples: Vec<Samples> = all.iter().map(|figures| Samples::of(figures, race.blocks)).collect();
        let standings = race.entrants.iter().zip(&all).enumerate().map(|(at, (entrant, figures))| {
            let reference = (at != race.against).then(|| &samples[race.against]);
            Standing::new(entrant, figures, &samples[at], reference, race.seed)
        });
        let standings: Vec<Standing> = standings.collect();
        let first = standings.iter().flat_map(|standing| &standing.cells).next();
        let name = first.map_or_else(|| cell.op.to_string(), text::name);
        // A preset's steps may differ in nothing else that a name says.
        let name = cell.settings.label.as_ref().map_or(name.clone(), |label| format!("{name} {label}"));
        let users = cell.users;
        Self {
            name: format!("{name}, {users} {}", if users == 1 { "user" } else { "users" }),
            title: title(cell),
            measured: first.map(|cell| cell.measured.clone()),
            standings,
        }
    }
}

/// A load in words.
fn title(cell: &Cell) -> String {
    let what = match cell.op {
        Op::Get if !cell.settings.keep_alive => "requests by new connections".to_owned(),
        Op::Get => "requests by kept connections".to_owned(),
        Op::Idle => "memory of idle sessions".to_owned(),
        _ => Measured::of(cell).words(),
    };
    format!("{what} by {}", cell.users)
}

/// The next edge, in microseconds, of those that are 2 to 3 % apart: what a plot can show.
fn coarse(edge_us: u64) -> u64 {
    let shift = (u64::BITS - edge_us.leading_zeros()).saturating_sub(6);
    edge_us.div_ceil(1 << shift) << shift
}

/// Of each metric, the blocks' values.
struct Samples([Vec<Option<f64>>; METRICS.len()]);

impl Samples {
    fn of(figures: &[&Figure], blocks: u32) -> Self {
        Self(METRICS.map(|metric| {
            let of_block = |block| {
                let figure = figures.iter().find(|figure| figure.block == block)?;
                (metric.of)(figure.outcome.as_ref().ok()?)
            };
            (0..blocks).map(of_block).collect()
        }))
    }
}

impl Standing {
    fn new(
        entrant: &Entrant,
        figures: &[&Figure],
        samples: &Samples,
        reference: Option<&Samples>,
        seed: u64,
    ) -> Self {
        let mut cells: Vec<CellReport> =
            figures.iter().filter_map(|figure| figure.outcome.as_ref().ok().cloned()).collect();
        let mut histogram = BTreeMap::new();
        for cell in &mut cells {
            for (edge, count) in std::mem::take(&mut cell.histogram) {
                *histogram.entry(coarse(edge)).or_insert(0) += count;
            }
            cell.timeline.clear();
        }
        let comparisons = METRICS.iter().enumerate().filter_map(|(at, &metric)| {
            let against = reference.map(|reference| &reference.0[at]);
            Comparison::new(metric, &samples.0[at], against, seed)
        });
        let texts = cells.iter().flat_map(|cell| cell.login_faults.kinds().chain(cell.faults.kinds()));
        let texts = texts.filter_map(|kind| kind.first.first().cloned());
        let missing =
            figures.iter().filter_map(|figure| figure.outcome.as_ref().err().map(ToString::to_string));
        let mut failures: Vec<String> = missing.chain(texts).collect();
        failures.dedup();
        failures.truncate(3);
        let bound = |bound| cells.iter().filter(|cell| cell.verdict.bound == bound).count();
        Self {
            contestant: entrant.label.clone(),
            comparisons: comparisons.collect(),
            ops: cells.iter().map(|cell| cell.ops).sum(),
            errors: cells.iter().map(CellReport::failures).sum(),
            failures,
            client_bound: bound(Bound::Client),
            others_bound: bound(Bound::Others),
            histogram: histogram.into_iter().collect(),
            cells,
        }
    }

    /// How many of its blocks were long enough to see whose limit they show.
    pub fn blocks_seen(&self) -> usize {
        self.cells.iter().filter(|cell| !cell.is_too_short()).count()
    }

    /// The main comparison of the load: memory, or the rate.
    pub fn main(&self) -> Option<&Comparison> {
        self.comparisons.first()
    }

    /// A comparison by its metric's name.
    pub fn of(&self, name: &str) -> Option<&Comparison> {
        self.comparisons.iter().find(|comparison| comparison.metric == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_of_a_curve_are_near_one_another_and_never_lower() {
        for edge in [0, 1, 63, 64, 65, 1000, 123_456, 3_600_000_000] {
            let coarse = coarse(edge);
            assert!(coarse >= edge && coarse as f64 <= edge as f64 * 1.032, "{edge}: {coarse}");
        }
    }
}
