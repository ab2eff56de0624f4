//! Two servers that are loaded at the same time, in short slices, so that whatever disturbs the machine disturbs both.
//!
//! A block starts both servers afresh, since a process differs from the next by where its memory lies, and takes slices, in
//! each of which a client of its own loads each server. Its sample is the median of its pairs' ratios, to which a few disturbed slices do
//! nothing; an interval is of the samples of the blocks. Figures are looked at after 6, 12, 24 and 48 blocks.

use std::thread;

use serde_json::Value;

use super::{Course, Race, RaceError, Ready, Watcher};
use millrace_load::figure::CellReport;
use millrace_load::plan::Cell;
use millrace_load::progress::{Progress, Snapshot};
use millrace_load::run::RunError;
use millrace_load::stop::Stop;
use millrace_stats::{Confidence, Interval, Random, median, paired};

/// After this many blocks it may be decided; the last is the end.
const LOOKS: [u32; 4] = [6, 12, 24, 48];
/// Slices of a block, of each load.
const PAIRS: usize = 6;

/// The settings of a slice, where no flag says otherwise.
pub const SLICE: [(&str, &str); 2] = [("duration", "300ms"), ("warm-up", "20ms")];

/// The pairs of a load: the reports of the baseline and of the candidate, block by block.
#[derive(Debug, Clone, Default)]
pub struct SlicedLoad {
    /// The blocks, each of its pairs.
    blocks: Vec<Vec<[Value; 2]>>,
}

impl SlicedLoad {
    /// Returns the ratios of a value, candidate over baseline: one a block, the median of its pairs.
    pub fn ratios(&self, read: fn(&Value) -> Option<f64>) -> Vec<f64> {
        let of_pair = |[first, second]: &[Value; 2]| {
            let (first, second) = (read(first)?, read(second)?);
            (first > 0.0 && second > 0.0).then(|| second / first)
        };
        let blocks = self.blocks.iter();
        blocks.filter_map(|pairs| median(&pairs.iter().filter_map(of_pair).collect::<Vec<_>>())).collect()
    }

    /// Returns a report of the candidate, as an example.
    pub fn example(&self) -> Option<&Value> {
        Some(&self.blocks.first()?.first()?[1])
    }

    /// Returns the number of operations of the baseline or the candidate that failed.
    pub fn failures(&self, whose: usize, read: fn(&Value) -> Option<f64>) -> f64 {
        self.blocks.iter().flatten().filter_map(|pair| read(&pair[whose])).sum()
    }
}

/// Returns the mean of ratios, with its 99 % interval.
pub fn mean_ratio(ratios: &[f64]) -> Option<Interval> {
    let pairs: Vec<(f64, f64)> = ratios.iter().map(|ratio| (1.0, *ratio)).collect();
    paired(&pairs, Confidence::P99, 1)
}

impl Race {
    /// Takes slices of two servers until `is_decided`, or until the last look.
    pub fn slices(
        &self,
        watcher: &dyn Watcher,
        is_decided: &dyn Fn(&[SlicedLoad]) -> bool,
    ) -> Result<Vec<SlicedLoad>, RaceError> {
        let mut draws = Random::new(self.seed);
        let mut loads = vec![SlicedLoad::default(); self.cells.len()];
        let mut course = Course::new(self, watcher);
        for look in LOOKS {
            while loads.first().is_some_and(|load| (load.blocks.len() as u32) < look) {
                let ready = course.start_all(&mut draws)?;
                for (cell, load) in loads.iter_mut().enumerate() {
                    load.blocks.push(course.pairs(cell, &ready, &mut draws)?);
                }
                course.end(ready)?;
            }
            if is_decided(&loads) {
                break;
            }
        }
        Ok(loads)
    }
}

impl Course<'_> {
    /// Starts all servers, in an order that is drawn: what the first one gets from the machine, each gets in its turn.
    fn start_all(&mut self, draws: &mut Random) -> Result<Vec<Ready>, RaceError> {
        let mut order: Vec<usize> = (0..self.race.entrants.len()).collect();
        draws.shuffle(&mut order);
        let mut started =
            order.into_iter().map(|at| Ok((at, self.start(at)?))).collect::<Result<Vec<_>, RaceError>>()?;
        started.sort_by_key(|(at, _)| *at);
        Ok(started.into_iter().map(|(_, ready)| ready).collect())
    }

    /// Takes the pairs of a load in a block: both servers are loaded at the same time, by clients of their own.
    fn pairs(
        &mut self,
        cell: usize,
        ready: &[Ready],
        draws: &mut Random,
    ) -> Result<Vec<[Value; 2]>, RaceError> {
        let mut pairs = Vec::new();
        for pair in 0..PAIRS {
            self.go_on()?;
            let progress = Unseen(self.watcher.stop());
            let mut order: Vec<usize> = (0..ready.len()).collect();
            draws.shuffle(&mut order);
            let figures = thread::scope(|scope| {
                let take = |&at: &usize| {
                    let what = Cell { repetition: pair as u32, ..ready[at].cells[cell].clone() };
                    let (station, progress) = (&ready[at].station, &progress);
                    (at, scope.spawn(move || station.take(&what, (0, 1), progress)))
                };
                let begun: Vec<_> = order.iter().map(take).collect();
                begun.into_iter().map(|(at, taken)| (at, taken.join())).collect::<Vec<_>>()
            });
            self.go_on()?;
            let mut both = [Value::Null, Value::Null];
            for (at, figure) in figures {
                let mut report = figure.map_err(|_| RunError::Interrupted)??;
                report.timeline.clear();
                report.histogram.clear();
                both[at] = serde_json::to_value(&report).unwrap_or_default();
            }
            pairs.push(both);
        }
        Ok(pairs)
    }
}

/// Passes on the request to end.
struct Unseen<'a>(&'a Stop);

impl Progress for Unseen<'_> {
    fn tell(&self, _: &Snapshot<'_>) {}
    fn cell_done(&self, _: &CellReport) {}
    fn stop(&self) -> &Stop {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ops(cell: &Value) -> Option<f64> {
        cell["ops"].as_f64()
    }

    /// Blocks of pairs in which the machine's mood changes, and one slice of thirty is disturbed.
    fn load(seed: u64, blocks: usize, factor: f64) -> SlicedLoad {
        let mut random = Random::new(seed);
        let pair = |random: &mut Random| {
            let mood = 1000.0 * (random.normal() * 0.3).exp();
            [1.0, factor].map(|of| {
                let disturbed = if random.below(30) == 0 { 0.5 } else { 1.0 };
                json!({"ops": mood * of * disturbed * (random.normal() * 0.03).exp()})
            })
        };
        let block = |_| (0..PAIRS).map(|_| pair(&mut random)).collect();
        SlicedLoad { blocks: (0..blocks).map(block).collect() }
    }

    #[test]
    fn a_twentieth_is_found_amid_disturbances_and_nothing_where_nothing_is() {
        let ratio = |seed, factor| mean_ratio(&load(seed, 12, factor).ratios(ops)).unwrap();
        let slower = (0..50).filter(|&seed| ratio(seed, 0.95).middle < 0.97 && ratio(seed, 0.95).high < 1.0);
        let alarms = (0..50).filter(|&seed| ratio(seed, 1.0).middle < 0.97 && ratio(seed, 1.0).high < 1.0);
        let (found, alarms) = (slower.count(), alarms.count());
        assert!(found >= 40 && alarms == 0, "{found} found, {alarms} false alarms of 50");
    }

    #[test]
    fn a_pair_without_a_value_is_left_out() {
        let mut load = load(1, 3, 1.0);
        load.blocks[1] = vec![[json!({"ops": 0.0}), json!({"ops": 3.0})], [json!({}), json!({"ops": 3.0})]];
        assert_eq!(load.ratios(ops).len(), 2);
        assert_eq!(mean_ratio(&SlicedLoad::default().ratios(ops)), None);
    }
}
