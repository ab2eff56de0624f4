//! A server held against another one that runs at the same time: the comparison for a machine that is not quiet.

use serde::Serialize;
use serde_json::Value;

use super::GateOutcome;
use super::metric::METRICS;
use super::threshold::{Ruling, Threshold};
use crate::race::{Race, RaceError, SlicedLoad, Watcher, mean_ratio};
use millrace_load::figure::Measured;
use millrace_load::units::users;
use serde::Deserialize;

/// The result of a comparison in slices.
#[derive(Debug, Clone, Serialize)]
pub struct InterleavedReport {
    /// The rulings, a threshold after the other.
    pub rulings: Vec<Ruling>,
    /// The ratios that the rulings stand on, candidate over baseline, block by block.
    pub ratios: Vec<Vec<f64>>,
    /// Operations that the candidate let fail, beyond those that the baseline did.
    pub more_failures: u64,
}

impl InterleavedReport {
    /// Returns the worst ruling; operations that only the candidate lets fail are no speed, and a failure.
    pub fn outcome(&self) -> GateOutcome {
        let worst = self.rulings.iter().map(|ruling| ruling.outcome).max();
        worst.unwrap_or(GateOutcome::Inconclusive)
    }
}

/// Holds the second server of a race against its first, until every threshold is decided or the race is at its end.
pub fn compare(
    race: &Race,
    thresholds: &[Threshold],
    watcher: &dyn Watcher,
) -> Result<InterleavedReport, RaceError> {
    let is_decided = |loads: &[SlicedLoad]| {
        rulings(loads, thresholds).iter().all(|ruling| ruling.outcome != GateOutcome::Inconclusive)
    };
    let loads = race.slices(watcher, &is_decided)?;
    let failures = |whose| loads.iter().map(|load| load.failures(whose, read("errors"))).sum::<f64>();
    Ok(InterleavedReport {
        rulings: rulings(&loads, thresholds),
        ratios: thresholds.iter().flat_map(|one| chosen(&loads, one)).map(|(_, ratios)| ratios).collect(),
        more_failures: (failures(1) - failures(0)).max(0.0) as u64,
    })
}

/// Where a metric of this name is read.
fn read(name: &str) -> fn(&Value) -> Option<f64> {
    METRICS.iter().find(|metric| metric.name == name).map_or(|_| None, |metric| metric.read)
}

fn rulings(loads: &[SlicedLoad], thresholds: &[Threshold]) -> Vec<Ruling> {
    let of_threshold = |threshold: &Threshold| {
        let ruling =
            |(name, ratios): (String, Vec<f64>)| threshold.rule_ratio(&name, mean_ratio(&ratios).as_ref());
        chosen(loads, threshold).into_iter().map(ruling).collect::<Vec<_>>()
    };
    thresholds.iter().flat_map(of_threshold).collect()
}

/// The loads that a threshold is about, each with its ratios.
fn chosen(loads: &[SlicedLoad], threshold: &Threshold) -> Vec<(String, Vec<f64>)> {
    let of_load = |load: &SlicedLoad| {
        let measured = Measured::deserialize(load.example()?).ok()?;
        let name = format!("{}, {}", measured.name(), users(measured.users));
        threshold.chooses(&measured).then(|| (name, load.ratios(threshold.metric().read)))
    };
    loads.iter().filter_map(of_load).collect()
}
