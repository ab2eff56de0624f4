//! The compared metrics, and the result of a comparison.

use serde::{Deserialize, Serialize};

use millrace_load::figure::CellReport;
use millrace_stats::{Confidence, Difference, Interval, median, paired};

/// A race makes dozens of claims: with 95 % some of them would be wrong in most races.
pub(super) const CONFIDENCE: Confidence = Confidence::P99;
/// Smaller differences do not matter for the choice of a server.
pub(super) const MARGIN: f64 = 0.05;
/// The metric that needs neither an idle machine nor a fast client.
pub(super) const SERVER_CPU: &str = "server CPU";

/// A compared metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// More of it is better.
    pub more_is_better: bool,
    pub(super) of: fn(&CellReport) -> Option<f64>,
}

/// Everything that is compared: the first that applies to a load is its **main** metric.
pub const METRICS: [Metric; 9] = [
    Metric {
        name: "users left",
        unit: "users",
        more_is_better: true,
        of: |cell| cell.standing.as_ref().map(|standing| f64::from(standing.left)),
    },
    Metric {
        name: "memory of an idle session",
        unit: "KiB",
        more_is_better: false,
        of: |cell| cell.pss_kib_per_session,
    },
    Metric {
        name: "rate",
        unit: "MB/s",
        more_is_better: true,
        of: |cell| cell.is_of_bytes().then_some(cell.mb_per_s),
    },
    Metric {
        name: "rate",
        unit: "ops/s",
        more_is_better: true,
        of: |cell| (!cell.is_of_bytes() && !is_idle(cell)).then_some(cell.ops_per_s),
    },
    Metric {
        name: "p99",
        unit: "ms",
        more_is_better: false,
        of: |cell| cell.has_operations().then_some(cell.latency.p99_ms),
    },
    Metric {
        name: SERVER_CPU,
        unit: "us/op",
        more_is_better: false,
        of: |cell| cell.server_us_per_op.filter(|_| !is_idle(cell)),
    },
    Metric {
        name: "server memory",
        unit: "MiB",
        more_is_better: false,
        of: |cell| Some(cell.audit.server.as_ref()?.pss_kib_after as f64 / 1024.0),
    },
    Metric {
        name: "longest stall",
        unit: "ms",
        more_is_better: false,
        of: |cell| cell.has_operations().then_some(cell.fairness.longest_wait_ms),
    },
    Metric {
        name: "fairness",
        unit: "least of a user over the median",
        more_is_better: true,
        of: |cell| cell.fairness.min_over_median.filter(|_| !is_idle(cell) && cell.ops > 0),
    },
];

fn is_idle(cell: &CellReport) -> bool {
    cell.measured.op == "idle"
}

/// A metric of one contestant, and against the reference.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// The name in [`METRICS`].
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// More of it is better.
    pub more_is_better: bool,
    /// For each block; `null` where it is missing.
    pub samples: Vec<Option<f64>>,
    /// The middle one.
    pub median: f64,
    /// This contestant's over the reference's, of figures of one block; none of the reference itself.
    pub ratio: Option<Interval>,
    /// The result.
    pub outcome: Option<Outcome>,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Than the reference.
    Better,
    /// Than the reference.
    Worse,
    /// No difference that matters.
    Same,
    /// No difference was seen, but the figures vary too much to exclude one.
    Unclear,
}

impl Outcome {
    /// For a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Unclear => "cannot tell",
        }
    }
}

impl Comparison {
    /// `None` where nothing was measured.
    pub(super) fn new(
        metric: Metric,
        samples: &[Option<f64>],
        reference: Option<&Vec<Option<f64>>>,
        seed: u64,
    ) -> Option<Self> {
        let present: Vec<f64> = samples.iter().copied().flatten().collect();
        let ratio = reference.and_then(|reference| {
            let pairs =
                reference.iter().zip(samples).filter_map(|(first, second)| Some(((*first)?, (*second)?)));
            paired(&pairs.collect::<Vec<_>>(), CONFIDENCE, seed)
        });
        let outcome = ratio.map(|ratio| match (Difference::of(&ratio, MARGIN), metric.more_is_better) {
            (Difference::Same, _) => Outcome::Same,
            (Difference::Unclear, _) => Outcome::Unclear,
            (Difference::Higher, true) | (Difference::Lower, false) => Outcome::Better,
            (Difference::Higher, false) | (Difference::Lower, true) => Outcome::Worse,
        });
        Some(Self {
            metric: metric.name.to_owned(),
            unit: metric.unit.to_owned(),
            more_is_better: metric.more_is_better,
            median: median(&present)?,
            samples: samples.to_vec(),
            ratio,
            outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_stats::Random;

    fn comparison(metric: usize, reference: &[f64], own: &[f64]) -> Comparison {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        Comparison::new(METRICS[metric], &some(own), Some(&some(reference)), 1).unwrap()
    }

    #[test]
    fn more_is_better_for_rates_and_worse_for_costs() {
        let (few, many) = ([100.0, 102.0, 99.0, 101.0, 100.0], [200.0, 203.0, 198.0, 202.0, 199.0]);
        let (rate, memory) = (3, 1);
        assert_eq!(comparison(rate, &few, &many).outcome, Some(Outcome::Better));
        assert_eq!(comparison(rate, &many, &few).outcome, Some(Outcome::Worse));
        assert_eq!(comparison(memory, &few, &many).outcome, Some(Outcome::Worse));
        assert_eq!(comparison(memory, &few, &few).outcome, Some(Outcome::Same));
    }

    #[test]
    fn noisy_figures_are_unclear() {
        let noisy = comparison(3, &[100.0, 50.0, 180.0, 70.0], &[90.0, 160.0, 60.0, 140.0]);
        assert_eq!(noisy.outcome, Some(Outcome::Unclear));
    }

    /// An A/A race as a busy machine makes them: a mood that lasts for a block, and a noise of each figure of which
    /// now and then one takes twice as long.
    fn race_of_a_server_with_itself(seed: u64) -> Comparison {
        let mut random = Random::new(seed);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let mood = 1000.0 * (random.normal() * 0.4).exp();
            for side in [&mut first, &mut second] {
                let hit = if random.below(10) == 0 { 0.5 } else { 1.0 };
                side.push(mood * hit * (random.normal() * 0.05).exp());
            }
        }
        comparison(3, &first, &second)
    }

    #[test]
    fn races_of_a_server_with_itself_find_no_difference() {
        let races: Vec<Comparison> = (0..20).map(race_of_a_server_with_itself).collect();
        let holds = races.iter().filter(|race| race.ratio.unwrap().holds(1.0)).count();
        assert!(holds >= 18, "the interval holds \"no difference\" in {holds} of 20");
        let decided = |race: &&Comparison| matches!(race.outcome, Some(Outcome::Better | Outcome::Worse));
        assert!(races.iter().filter(decided).count() <= 2);
    }

    #[test]
    fn a_block_without_a_figure_is_left_out() {
        let own = [Some(2.0), None, Some(2.0), Some(2.0)];
        let reference = vec![Some(1.0), Some(1.0), None, Some(1.0)];
        let comparison = Comparison::new(METRICS[3], &own, Some(&reference), 1).unwrap();
        assert_eq!((comparison.median, comparison.ratio.map(|ratio| ratio.middle)), (2.0, Some(2.0)));
        assert!(Comparison::new(METRICS[3], &[None, None], None, 1).is_none());
    }
}
