//! A server held against another one that runs at the same time: the comparison for a machine that is not quiet.

use serde::Serialize;
use serde_json::Value;

use super::GateOutcome;
use super::metric::METRICS;
use super::threshold::{Ruling, Threshold};
use crate::race::{Race, RaceError, SlicedLoad, Watcher};
use millrace_load::figure::Measured;
use millrace_load::units::users;
use serde::Deserialize;

/// The result of a comparison in slices.
#[derive(Debug, Clone, Serialize)]
pub struct InterleavedReport {
    /// The rulings, a threshold after the other.
    pub rulings: Vec<Ruling>,
    /// The ratios of the rate, candidate over baseline, block by block, for each load.
    pub rates: Vec<Vec<f64>>,
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
        rates: loads.iter().map(|load| load.ratios(read("ops"))).collect(),
        more_failures: (failures(1) - failures(0)).max(0.0) as u64,
    })
}

/// Where a metric of this name is read.
fn read(name: &str) -> fn(&Value) -> Option<f64> {
    METRICS.iter().find(|metric| metric.name == name).map_or(|_| None, |metric| metric.read)
}

fn rulings(loads: &[SlicedLoad], thresholds: &[Threshold]) -> Vec<Ruling> {
    let of_threshold = |threshold: &Threshold| {
        let chosen = loads.iter().filter_map(|load| {
            let measured = Measured::deserialize(load.example()?).ok()?;
            let name = format!("{}, {}", measured.name(), users(measured.users));
            let ruling = || threshold.rule_ratio(&name, load.ratio(threshold.metric().read).as_ref());
            threshold.chooses(&measured).then(ruling)
        });
        chosen.collect::<Vec<_>>()
    };
    thresholds.iter().flat_map(of_threshold).collect()
}
