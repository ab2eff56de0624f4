//! Statistics of figures that vary: medians, ratios with their intervals, whether the machine was steady
//! ([`Drift`]), latencies in a [`histogram`], a course over time ([`timeline`]), and how to write such figures ([`units`]).
//!
//! Rates and times are compared as **ratios**: "1.3 times" means the same for a small and a large figure. The mean of
//! the ratios' logarithms is what an interval is for, and an interval that holds 1 means: no difference was seen.
//!
//! An interval is the wider one, at each end, of the bootstrap's (B. Efron, 1979) and of Student's. A bootstrap of five
//! values cannot look beyond the five, and would be wrong in one case of sixteen; Student's knows how little five
//! values say, but trusts that they are normal. Equal seeds give equal intervals.

mod drift;
pub mod histogram;
mod random;
pub mod timeline;
pub mod units;

use serde::{Deserialize, Serialize};

pub use self::drift::{Drift, Stillness};
pub use self::random::Random;

/// How often a bootstrap draws. The ends of an interval of 99 % then stand on 20 draws each.
const DRAWS: usize = 4000;

/// The middle value, or the mean of the two in the middle; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Two-sided 95 % quantiles of Student's t, for 2 to 14 degrees of freedom; beyond, the normal one is near.
const STUDENT: [f64; 13] = [4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14];

/// Half of the 95 % confidence interval of a mean.
pub fn plus_minus(samples: &[f64], mean: f64) -> Option<f64> {
    // Of two, it would be some thirteen times their difference: a number that only looks like one.
    let freedom = samples.len().checked_sub(1).filter(|&freedom| freedom > 1)?;
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / freedom as f64;
    let student = STUDENT.get(freedom - 2).copied().unwrap_or(2.0);
    Some(student * (variance / samples.len() as f64).sqrt())
}

/// How seldom an interval may miss the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confidence {
    /// In one case of twenty.
    #[serde(rename = "95 %")]
    P95,
    /// In one case of a hundred.
    #[serde(rename = "99 %")]
    P99,
}

impl Confidence {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::P95 => "95 %",
            Self::P99 => "99 %",
        }
    }

    /// The share that lies beyond each end.
    fn tail(self) -> f64 {
        match self {
            Self::P95 => 0.025,
            Self::P99 => 0.005,
        }
    }

    /// Student's two-sided quantile. Beyond ten degrees of freedom it is Fisher's expansion around the normal one
    /// (Abramowitz and Stegun 26.7.5), within 0.005.
    fn student(self, freedom: f64) -> f64 {
        const P95: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
        const P99: [f64; 10] = [63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169];
        let (table, normal) = match self {
            Self::P95 => (P95, 1.959_964),
            Self::P99 => (P99, 2.575_829),
        };
        // A value between two rows takes the upper, wider one.
        if let Some(quantile) = table.get((freedom.max(1.0) as usize) - 1) {
            return *quantile;
        }
        let [x, x3, x5, x7] = [1, 3, 5, 7].map(|power| f64::powi(normal, power));
        let first = (x3 + x) / 4.0;
        let second = (5.0 * x5 + 16.0 * x3 + 3.0 * x) / 96.0;
        let third = (3.0 * x7 + 19.0 * x5 + 17.0 * x3 - 15.0 * x) / 384.0;
        x + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
    }
}

/// A value, and between which ends the truth lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The value.
    pub middle: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Returns true if a value lies in it.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    fn map(self, with: impl Fn(f64) -> f64) -> Self {
        Self { low: with(self.low), middle: with(self.middle), high: with(self.high) }
    }
}

/// The meaning of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// The second is higher.
    Higher,
    /// The second is lower.
    Lower,
    /// They are equal, apart from a negligible difference.
    Same,
    /// There may be one: the figures vary too much to tell.
    Unclear,
}

impl Difference {
    /// The meaning of a ratio's interval, where a difference below `margin` (0.05 is a twentieth) does not count.
    pub fn of(ratio: &Interval, margin: f64) -> Self {
        if ratio.low >= 1.0 / (1.0 + margin) && ratio.high <= 1.0 + margin {
            Self::Same
        } else if ratio.low > 1.0 {
            Self::Higher
        } else if ratio.high < 1.0 {
            Self::Lower
        } else {
            Self::Unclear
        }
    }
}

/// The mean of samples; of fewer than two nothing can be said.
pub fn mean(samples: &[f64], confidence: Confidence, seed: u64) -> Option<Interval> {
    let spread = Spread::of(samples)?;
    let half = confidence.student(spread.freedom) * spread.error;
    let mut random = Random::new(seed);
    let drawn = draws(|| resampled_mean(samples, &mut random));
    Some(widest(spread.mean, half, &drawn, confidence))
}

/// `second / first` of pairs that were taken together, so that what moved both drops out.
///
/// Pairs with a figure that is not above 0 have no ratio and are left out.
pub fn paired(pairs: &[(f64, f64)], confidence: Confidence, seed: u64) -> Option<Interval> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(first, second)| *first > 0.0 && *second > 0.0)
        .map(|(first, second)| (second / first).ln())
        .collect();
    Some(mean(&logs, confidence, seed)?.map(f64::exp))
}

/// `second / first` of figures that were taken at different times: yesterday's and today's.
pub fn unpaired(first: &[f64], second: &[f64], confidence: Confidence, seed: u64) -> Option<Interval> {
    let logs = |figures: &[f64]| -> Vec<f64> {
        figures.iter().filter(|figure| **figure > 0.0).map(|figure| figure.ln()).collect()
    };
    let (first, second) = (logs(first), logs(second));
    let (one, two) = (Spread::of(&first)?, Spread::of(&second)?);
    // Welch: the two need not vary alike.
    let variance = one.error.powi(2) + two.error.powi(2);
    let shares = one.error.powi(4) / one.freedom + two.error.powi(4) / two.freedom;
    let freedom = if shares > 0.0 { variance.powi(2) / shares } else { one.freedom.min(two.freedom) };
    let half = confidence.student(freedom) * variance.sqrt();
    let mut random = Random::new(seed);
    let drawn = draws(|| resampled_mean(&second, &mut random) - resampled_mean(&first, &mut random));
    Some(widest(two.mean - one.mean, half, &drawn, confidence).map(f64::exp))
}

/// The statistics of samples.
struct Spread {
    mean: f64,
    /// Standard error of the mean.
    error: f64,
    /// Degrees of freedom.
    freedom: f64,
}

impl Spread {
    fn of(samples: &[f64]) -> Option<Self> {
        if samples.len() < 2 {
            return None;
        }
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
        Some(Self { mean, error: (squares / (count - 1.0) / count).sqrt(), freedom: count - 1.0 })
    }
}

fn resampled_mean(samples: &[f64], random: &mut Random) -> f64 {
    (0..samples.len()).map(|_| samples[random.below(samples.len())]).sum::<f64>() / samples.len() as f64
}

fn draws(mut draw: impl FnMut() -> f64) -> Vec<f64> {
    let mut drawn: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    drawn.sort_by(f64::total_cmp);
    drawn
}

/// Of Student's interval and the bootstrap's, the outer end at each side.
fn widest(middle: f64, half: f64, drawn: &[f64], confidence: Confidence) -> Interval {
    let beyond = (drawn.len() as f64 * confidence.tail()) as usize;
    Interval {
        low: (middle - half).min(drawn[beyond]),
        middle,
        high: (middle + half).max(drawn[drawn.len() - 1 - beyond]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// In which share of 400 experiments, of this many samples each, the interval holds the truth.
    fn coverage(
        count: usize,
        confidence: Confidence,
        sample: impl Fn(&mut Random) -> f64,
        truth: f64,
    ) -> f64 {
        let mut random = Random::new(count as u64);
        let experiments = (0..400).filter(|&seed| {
            let samples: Vec<f64> = (0..count).map(|_| sample(&mut random)).collect();
            mean(&samples, confidence, seed).unwrap().holds(truth)
        });
        experiments.count() as f64 / 400.0
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        for count in [3, 6] {
            let normal = |random: &mut Random| 10.0 + random.normal();
            let [p95, p99] =
                [Confidence::P95, Confidence::P99].map(|level| coverage(count, level, normal, 10.0));
            assert!((0.92..=0.995).contains(&p95), "{count}: {p95}");
            assert!((0.975..=1.0).contains(&p99), "{count}: {p99}");
        }
    }

    #[test]
    fn a_lopsided_noise_does_not_break_them() {
        // Now and then everything takes twice as long: what a busy machine does.
        let sample =
            |random: &mut Random| if random.below(5) == 0 { 2.0 } else { 1.0 + 0.02 * random.normal() };
        assert!(coverage(10, Confidence::P99, sample, 1.2) >= 0.85);
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn pairs_see_what_their_common_noise_hides() {
        let mut random = Random::new(1);
        let pairs: Vec<(f64, f64)> = (0..8)
            .map(|_| {
                let mood = (random.normal() * 0.4).exp();
                (1000.0 * mood, 1200.0 * mood * (1.0 + random.normal() * 0.01))
            })
            .collect();
        let ratio = paired(&pairs, Confidence::P99, 1).unwrap();
        assert!(ratio.holds(1.2) && Difference::of(&ratio, 0.02) == Difference::Higher, "{ratio:?}");
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let blind = unpaired(&first, &second, Confidence::P99, 1).unwrap();
        assert_eq!(Difference::of(&blind, 0.02), Difference::Unclear, "{blind:?}");
    }

    #[test]
    fn unpaired_figures_differ_where_they_are_far_apart() {
        let mut random = Random::new(5);
        let mut around =
            |middle: f64| -> Vec<f64> { (0..6).map(|_| middle * (1.0 + random.normal() * 0.03)).collect() };
        let (old, slower, same) = (around(100.0), around(70.0), around(100.0));
        let ratio = unpaired(&old, &slower, Confidence::P99, 1).unwrap();
        assert!(ratio.holds(0.7) && Difference::of(&ratio, 0.05) == Difference::Lower, "{ratio:?}");
        assert!(unpaired(&old, &same, Confidence::P99, 1).unwrap().holds(1.0));
        assert_eq!(unpaired(&[1.0], &same, Confidence::P99, 1), None);
    }

    #[test]
    fn a_difference_is_the_same_only_within_the_margin() {
        let interval = |low, high| Interval { low, middle: 1.0, high };
        assert_eq!(Difference::of(&interval(0.99, 1.02), 0.05), Difference::Same);
        assert_eq!(Difference::of(&interval(1.01, 1.02), 0.05), Difference::Same);
        assert_eq!(Difference::of(&interval(1.01, 1.2), 0.05), Difference::Higher);
        assert_eq!(Difference::of(&interval(0.5, 0.9), 0.05), Difference::Lower);
        assert_eq!(Difference::of(&interval(0.8, 1.3), 0.05), Difference::Unclear);
    }

    #[test]
    fn equal_figures_have_an_interval_without_width() {
        let ratio = paired(&[(2.0, 3.0); 4], Confidence::P99, 9).unwrap();
        assert!((ratio.high - ratio.low).abs() < 1e-9 && (ratio.middle - 1.5).abs() < 1e-9);
    }

    #[test]
    fn students_quantiles_go_on_beyond_the_table() {
        for (level, freedom, quantile) in
            [(Confidence::P95, 11.0, 2.201), (Confidence::P99, 11.0, 3.106), (Confidence::P99, 30.0, 2.750)]
        {
            assert!((level.student(freedom) - quantile).abs() < 0.005, "{level:?} {freedom}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn nothing_makes_an_interval_lie_about_its_order(
            pairs in prop::collection::vec((0.0..1e9f64, 0.0..1e9f64), 0..12), seed: u64,
        ) {
            let possible = pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).count() >= 2;
            let ratio = paired(&pairs, Confidence::P95, seed);
            prop_assert_eq!(ratio.is_some(), possible);
            prop_assert_eq!(ratio, paired(&pairs, Confidence::P95, seed), "a seed is an answer");
            if let Some(ratio) = ratio {
                prop_assert!(ratio.low <= ratio.middle && ratio.middle <= ratio.high);
            }
        }

        #[test]
        fn turning_the_pairs_round_turns_the_ratio_round(
            pairs in prop::collection::vec((1.0..1e6f64, 1.0..1e6f64), 2..12),
        ) {
            let turned: Vec<_> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let (there, back) = (paired(&pairs, Confidence::P99, 1), paired(&turned, Confidence::P99, 1));
            prop_assert!((there.unwrap().middle * back.unwrap().middle - 1.0).abs() < 1e-6);
        }
    }
}
