//! How evenly the users were served.

use serde::{Deserialize, Serialize};

use crate::tally::UserTally;

/// A user with less than this share of the median is starved.
const STARVED: f64 = 0.5;
/// How many of these are named.
const NAMED: usize = 10;

/// How evenly the users were served: by bytes, or by operations where these move none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Jain's index: 1 where all got the same, 1/n where one got all.
    pub jain: f64,
    /// The least that a user got, against the median.
    pub min_over_median: f64,
    /// How many got less than half of the median.
    pub starved: usize,
    /// The first of them, by their numbers.
    pub starved_users: Vec<u32>,
    /// The longest operation of any user, in milliseconds.
    pub longest_wait_ms: f64,
    /// And whose it was.
    pub longest_waiting_user: u32,
}

impl Fairness {
    pub(crate) fn of(users: &[UserTally]) -> Self {
        if users.is_empty() {
            return Self::default();
        }
        let moves_bytes = users.iter().any(|user| user.bytes > 0);
        let got = |user: &UserTally| if moves_bytes { user.bytes as f64 } else { user.ops as f64 };
        let mut sorted: Vec<f64> = users.iter().map(got).collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        let mut starved: Vec<u32> =
            users.iter().filter(|user| got(user) < STARVED * median).map(|user| user.number).collect();
        starved.sort_unstable();
        let longest = users.iter().max_by_key(|user| user.longest);
        Self {
            jain: jain(&sorted),
            min_over_median: if median > 0.0 { sorted[0] / median } else { 0.0 },
            starved: starved.len(),
            starved_users: starved.into_iter().take(NAMED).collect(),
            longest_wait_ms: longest.map_or(0.0, |user| user.longest.as_secs_f64() * 1e3),
            longest_waiting_user: longest.map_or(0, |user| user.number),
        }
    }
}

/// R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness (1984): (sum x)^2 / (n * sum x^2).
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(ops: &[u64]) -> Vec<UserTally> {
        (0..).zip(ops).map(|(number, &ops)| UserTally { number, ops, ..UserTally::default() }).collect()
    }

    #[test]
    fn even_shares_are_fair() {
        let fairness = Fairness::of(&users(&[10; 50]));
        assert_eq!((fairness.jain, fairness.min_over_median, fairness.starved), (1.0, 1.0, 0));
    }

    #[test]
    fn one_who_gets_all_is_not() {
        let fairness = Fairness::of(&users(&[0, 0, 0, 9]));
        assert_eq!(fairness.jain, 0.25);
    }

    #[test]
    fn the_starved_are_named() {
        let mut ops = [100; 100];
        ops[42] = 3;
        let fairness = Fairness::of(&users(&ops));
        assert_eq!((fairness.starved, &fairness.starved_users[..]), (1, &[42][..]));
        assert!((fairness.min_over_median - 0.03).abs() < 1e-9 && fairness.jain < 0.995);
    }

    #[test]
    fn nobody_is_no_division_by_zero() {
        assert_eq!(Fairness::of(&[]), Fairness::default());
        assert_eq!(Fairness::of(&users(&[0, 0])).jain, 0.0);
    }
}
