//! How evenly the users were served.

use serde::{Deserialize, Serialize};

use crate::tally::UserTally;

/// Below this share of the median a user is starved.
const STARVED: f64 = 0.5;
/// How many starved users are named.
const NAMED: usize = 10;

/// How evenly the users were served: by bytes, or by operations where these move none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Jain's index: 1 where all got the same, 1/n where one got all. `None` where no user got anything, or where users
    /// were to get different amounts.
    pub jain: Option<f64>,
    /// The share of the worst served user, as a part of the median.
    pub min_over_median: Option<f64>,
    /// How many got less than half of the median.
    pub starved: usize,
    /// The first of them, by their numbers.
    pub starved_users: Vec<u32>,
    /// Each user's rate in bytes a second; `None` where no user did anything.
    #[serde(default)]
    pub goodput: Option<Goodput>,
    /// The longest operation of any user, in milliseconds.
    pub longest_wait_ms: f64,
    /// The user with that operation.
    pub longest_waiting_user: u32,
    /// The longest time in which a transfer moved nothing, between its first byte and its last, in milliseconds.
    #[serde(default)]
    pub longest_gap_ms: f64,
    /// The user with that gap.
    #[serde(default)]
    pub longest_gap_user: u32,
}

/// Each user's rate, over the whole time of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct Goodput {
    /// `kB/s` of 1000 bytes, or `ops/s` where operations move none.
    pub unit: String,
    pub min: f64,
    pub median: f64,
    pub max: f64,
    #[serde(default)]
    pub mean: f64,
    /// The best rate among the worst served hundredth of users.
    #[serde(default)]
    pub slowest_hundredth: Option<f64>,
    /// Rates at every twentieth of the users, in ascending order: 21 numbers.
    pub quantiles: Vec<f64>,
}

/// The number of parts between [`Goodput::quantiles`].
const PARTS: usize = 20;

impl Goodput {
    /// `sorted` has each user's amount in this many seconds.
    fn of(sorted: &[f64], unit: &str, scale: f64, seconds: f64) -> Option<Self> {
        let last = sorted.len().checked_sub(1)? as f64;
        let whose = |part: usize| (part as f64 / PARTS as f64 * last).round() as usize;
        let a_second = |got: f64| got / scale / seconds.max(1e-9);
        let quantiles: Vec<f64> = (0..=PARTS).map(|part| a_second(sorted[whose(part)])).collect();
        let (min, median, max) = (quantiles[0], quantiles[PARTS / 2], quantiles[PARTS]);
        let mean = a_second(sorted.iter().sum::<f64>() / sorted.len() as f64);
        let slowest_hundredth = Some(a_second(sorted[sorted.len() / 100]));
        let unit = unit.to_owned();
        (max > 0.0).then_some(Self { unit, min, median, max, mean, slowest_hundredth, quantiles })
    }
}

/// What the users of a figure were to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// As much as possible in the figure's time.
    All,
    /// The same amount each: what counts is its own time.
    SoMuch,
    /// The jobs of a replayed log.
    Different,
}

impl Fairness {
    /// Of a figure that took this many seconds.
    pub(crate) fn of(users: &[UserTally], due: Due, seconds: f64) -> Self {
        if users.is_empty() {
            return Self::default();
        }
        let moves_bytes = users.iter().any(|user| user.bytes > 0);
        let got = |user: &UserTally| {
            let all = if moves_bytes { user.bytes as f64 } else { user.ops as f64 };
            if due == Due::SoMuch { all * seconds / own_time(user).unwrap_or(seconds).max(1e-9) } else { all }
        };
        let mut sorted: Vec<f64> = users.iter().map(got).collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        let is_starved = |user: &&UserTally| due != Due::Different && got(user) < STARVED * median;
        let mut starved: Vec<u32> = users.iter().filter(is_starved).map(|user| user.number).collect();
        starved.sort_unstable();
        let (unit, scale) = if moves_bytes { ("kB/s", 1e3) } else { ("ops/s", 1.0) };
        let halted = users.iter().max_by_key(|user| user.longest_gap);
        let longest = users.iter().max_by_key(|user| user.longest);
        let is_of = |tells: bool| tells && due != Due::Different;
        Self {
            jain: jain(&sorted).filter(|_| is_of(true)),
            min_over_median: is_of(median > 0.0).then(|| sorted[0] / median),
            starved: starved.len(),
            starved_users: starved.into_iter().take(NAMED).collect(),
            goodput: Goodput::of(&sorted, unit, scale, seconds),
            longest_wait_ms: longest.map_or(0.0, |user| user.longest.as_secs_f64() * 1e3),
            longest_waiting_user: longest.map_or(0, |user| user.number),
            longest_gap_ms: halted.map_or(0.0, |user| user.longest_gap.as_secs_f64() * 1e3),
            longest_gap_user: halted.map_or(0, |user| user.number),
        }
    }
}

/// R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness (1984): (sum x)^2 / (n * sum x^2).
fn jain(shares: &[f64]) -> Option<f64> {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// From a user's first beginning to its last end, in seconds.
fn own_time(user: &UserTally) -> Option<f64> {
    Some(user.ended?.saturating_duration_since(user.began?).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(ops: &[u64]) -> Vec<UserTally> {
        (0..).zip(ops).map(|(number, &ops)| UserTally { number, ops, ..UserTally::default() }).collect()
    }

    #[test]
    fn even_shares_are_fair() {
        let fairness = Fairness::of(&users(&[10; 50]), Due::All, 1.0);
        assert_eq!((fairness.jain, fairness.min_over_median, fairness.starved), (Some(1.0), Some(1.0), 0));
    }

    #[test]
    fn one_who_gets_all_is_not() {
        let fairness = Fairness::of(&users(&[0, 0, 0, 9]), Due::All, 1.0);
        assert_eq!((fairness.jain, fairness.min_over_median), (Some(0.25), None));
    }

    #[test]
    fn the_starved_are_named() {
        let mut ops = [100; 100];
        ops[42] = 3;
        let fairness = Fairness::of(&users(&ops), Due::All, 1.0);
        assert_eq!((fairness.starved, &fairness.starved_users[..]), (1, &[42][..]));
        assert!((fairness.min_over_median.unwrap() - 0.03).abs() < 1e-9 && fairness.jain.unwrap() < 0.995);
    }

    #[test]
    fn the_longest_waiting_user_is_named() {
        let mut all = users(&[5; 9]);
        for (user, ms) in all.iter_mut().zip([30, 40, 20, 1400, 50]) {
            user.longest = std::time::Duration::from_millis(ms);
            user.longest_gap = user.longest / 2;
        }
        let fairness = Fairness::of(&all, Due::All, 1.0);
        assert_eq!((fairness.longest_wait_ms, fairness.longest_waiting_user), (1400.0, 3));
        assert_eq!((fairness.longest_gap_ms, fairness.longest_gap_user), (700.0, 3));
    }

    #[test]
    fn no_users_do_not_divide_by_zero() {
        assert_eq!(Fairness::of(&[], Due::All, 1.0), Fairness::default());
        assert_eq!(Fairness::of(&users(&[0, 0]), Due::All, 1.0).jain, None);
    }

    #[test]
    fn the_users_rates_are_a_distribution() {
        let ops: Vec<u64> = (0..=100).rev().collect();
        let mut all = users(&ops);
        let goodput = Fairness::of(&all, Due::All, 2.0).goodput.unwrap();
        assert_eq!(
            (goodput.unit.as_str(), goodput.min, goodput.median, goodput.max),
            ("ops/s", 0.0, 25.0, 50.0)
        );
        assert_eq!((goodput.quantiles.len(), goodput.quantiles[1], goodput.quantiles[19]), (21, 2.5, 47.5));
        all[3].bytes = 8000;
        let goodput = Fairness::of(&all, Due::All, 2.0).goodput.unwrap();
        assert_eq!((goodput.unit.as_str(), goodput.median, goodput.max), ("kB/s", 0.0, 4.0));
        assert_eq!(Fairness::of(&users(&[0, 0]), Due::All, 1.0).goodput, None);
    }

    /// Four users with one file each, of which one got it at half of the others' speed.
    #[test]
    fn users_with_equal_amounts_are_compared_by_their_own_time() {
        let opened = std::time::Instant::now();
        let mut all = users(&[1; 4]);
        for (user, ms) in all.iter_mut().zip([10, 20, 10, 10]) {
            user.bytes = 1000;
            user.began = Some(opened);
            user.ended = Some(opened + std::time::Duration::from_millis(ms));
        }
        let fairness = Fairness::of(&all, Due::SoMuch, 0.02);
        assert!((fairness.min_over_median.unwrap() - 0.5).abs() < 1e-9, "{fairness:?}");
        let goodput = fairness.goodput.unwrap();
        assert!((goodput.median - 100.0).abs() < 1e-9 && (goodput.min - 50.0).abs() < 1e-9, "{goodput:?}");
        assert_eq!(Fairness::of(&all, Due::All, 0.02).min_over_median, Some(1.0));
    }

    #[test]
    fn users_with_different_amounts_are_not_compared() {
        let fairness = Fairness::of(&users(&[1, 50, 100]), Due::Different, 1.0);
        assert_eq!((fairness.jain, fairness.min_over_median, fairness.starved), (None, None, 0));
        assert!(fairness.goodput.is_some());
    }
}
