//! The sentinel: the same small work again and again, between the figures, tells whether the machine kept still.
//!
//! It cannot say what a drift did to a figure; it says whether a figure of the beginning may be held against one of
//! the end. Paired differences are taken within a block and suffer less.

use serde::{Deserialize, Serialize};

use super::{Random, median};

/// A machine whose readings lie within this share of their median is steady, whatever their trend.
const STEADY: f64 = 0.05;
/// A trend is believed when so small a share of random orders shows one as strong.
const SIGNIFICANT: f64 = 0.02;
const ORDERS: u32 = 2000;

/// How still a machine kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// From the first reading to the last along the trend, over their median: 0.1 is a tenth more.
    pub trend: f64,
    /// Half of the span between the lowest and the highest reading, over their median.
    pub spread: f64,
    /// The result.
    pub kind: Stillness,
}

/// The meaning of the readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stillness {
    /// They hardly differ.
    Steady,
    /// They differ, without a direction: other work came and went.
    Restless,
    /// They went one way: the machine was another one at the end.
    Drifting,
    /// Too few to say.
    Unknown,
}

impl Drift {
    /// Of readings in the order in which they were taken.
    pub fn of(readings: &[f64], seed: u64) -> Self {
        let middle = median(readings).filter(|middle| *middle > 0.0);
        let (Some(middle), true) = (middle, readings.len() >= 4) else {
            return Self { trend: 0.0, spread: 0.0, kind: Stillness::Unknown };
        };
        let low = readings.iter().copied().fold(f64::INFINITY, f64::min);
        let high = readings.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread = (high - low) / 2.0 / middle;
        let slope = slope(readings);
        let trend = slope * (readings.len() - 1) as f64 / middle;
        let kind = match () {
            () if spread <= STEADY => Stillness::Steady,
            () if trend.abs() > STEADY && is_significant(readings, slope, seed) => Stillness::Drifting,
            () => Stillness::Restless,
        };
        Self { trend, spread, kind }
    }

    /// In a sentence.
    pub fn words(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        match self.kind {
            Stillness::Steady => {
                format!("The machine kept still: its sentinel stayed within {}.", percent(self.spread))
            }
            Stillness::Restless => format!(
                "The machine was restless: its sentinel moved by ±{}, without a direction. Other work ran on it.",
                percent(self.spread)
            ),
            Stillness::Drifting => format!(
                "The machine drifted: at the end the same work took {} {} than at the beginning.",
                percent(self.trend.abs()),
                if self.trend > 0.0 { "longer" } else { "less" }
            ),
            Stillness::Unknown => "Too few sentinels to say whether the machine kept still.".to_owned(),
        }
    }
}

/// A reading more, by the median of the slopes between any two (Theil and Sen): one bad reading moves it little.
fn slope(readings: &[f64]) -> f64 {
    let pairs = readings.iter().enumerate().flat_map(|(at, first)| {
        readings[at + 1..].iter().zip(1u32..).map(move |(second, apart)| (second - first) / f64::from(apart))
    });
    median(&pairs.collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Returns true if few random orders of the readings have as steep a slope.
fn is_significant(readings: &[f64], slope_seen: f64, seed: u64) -> bool {
    let (mut random, mut order) = (Random::new(seed), readings.to_vec());
    let as_steep = (0..ORDERS).filter(|_| {
        random.shuffle(&mut order);
        slope(&order).abs() >= slope_seen.abs()
    });
    (as_steep.count() as f64) < SIGNIFICANT * f64::from(ORDERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(count: u32, value: impl Fn(u32, f64) -> f64) -> Vec<f64> {
        let mut random = Random::new(3);
        (0..count).map(|at| value(at, random.normal())).collect()
    }

    #[test]
    fn a_still_machine_is_steady() {
        assert_eq!(Drift::of(&readings(12, |_, noise| 50.0 + noise * 0.5), 1).kind, Stillness::Steady);
    }

    #[test]
    fn noise_without_a_direction_is_no_drift() {
        let wrong = (0..50).filter(|&seed| {
            let mut random = Random::new(seed);
            let noise: Vec<f64> = (0..10).map(|_| 50.0 + random.normal() * 8.0).collect();
            Drift::of(&noise, seed).kind == Stillness::Drifting
        });
        assert!(wrong.count() <= 4);
    }

    #[test]
    fn a_machine_that_grows_slower_drifts() {
        let drift = Drift::of(&readings(10, |at, noise| 50.0 + f64::from(at) * 2.0 + noise), 1);
        assert_eq!(drift.kind, Stillness::Drifting);
        assert!((0.2..0.45).contains(&drift.trend), "{drift:?}");
        assert!(drift.words().contains("longer"));
    }

    #[test]
    fn one_bad_moment_is_no_drift() {
        let mut steady = readings(10, |_, noise| 50.0 + noise);
        steady[9] = 500.0;
        assert_eq!(Drift::of(&steady, 1).kind, Stillness::Restless);
    }

    #[test]
    fn few_readings_say_nothing() {
        assert_eq!(Drift::of(&[1.0, 2.0], 1).kind, Stillness::Unknown);
        assert_eq!(Drift::of(&[0.0; 9], 1).kind, Stillness::Unknown);
    }
}
