//! Compares a generator's clock with the leading process's.
//!
//! Of a round trip the answer's clock reading lies between question and answer. Taken to lie in the middle it is wrong by at
//! most half of the round trip (Cristian, 1989); of several the quickest therefore tells most, and the delays that queues add
//! do not matter.

use std::time::Duration;

/// How many round trips are made.
pub(crate) const ROUND_TRIPS: u32 = 12;

/// A question and its answer, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// When it was asked, by the own clock.
    pub(crate) asked: u64,
    /// What the other clock said.
    pub(crate) said: u64,
    /// When the answer came, by the own clock.
    pub(crate) answered: u64,
}

impl RoundTrip {
    fn took(&self) -> u64 {
        self.answered.saturating_sub(self.asked)
    }
}

/// By how much another clock is ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    /// The other clock minus the own, in nanoseconds.
    pub(crate) ahead_ns: i64,
    /// By how much that may be wrong.
    pub(crate) error: Duration,
}

impl Offset {
    /// Estimates it by the quickest of several round trips; `None` of none.
    pub(crate) fn estimate(trips: &[RoundTrip]) -> Option<Self> {
        let best = trips.iter().min_by_key(|trip| trip.took())?;
        let middle = best.asked + best.took() / 2;
        let ahead_ns = best.said as i64 - middle as i64;
        Some(Self { ahead_ns, error: Duration::from_nanos(best.took().div_ceil(2)) })
    }

    /// Returns what the other clock says when the own one says `own`.
    pub(crate) fn theirs(self, own: u64) -> u64 {
        own.saturating_add_signed(self.ahead_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A clock that is `skew` ahead answers after `there`, and the answer takes `back`.
    fn trip(asked: u64, skew: i64, there: u64, back: u64) -> RoundTrip {
        RoundTrip { asked, said: (asked + there).saturating_add_signed(skew), answered: asked + there + back }
    }

    #[test]
    fn the_quickest_round_trip_decides() {
        let (start, skew) = (50 * SECOND, -7 * SECOND as i64);
        let slow = trip(start, skew, 40_000_000, 1_000_000);
        let quick = trip(start + SECOND, skew, 120_000, 80_000);
        let offset = Offset::estimate(&[slow, quick, slow]).unwrap();
        assert_eq!(offset, Offset { ahead_ns: skew + 20_000, error: Duration::from_nanos(100_000) });
        assert_eq!(offset.theirs(60 * SECOND), 53 * SECOND + 20_000);
        assert_eq!(Offset::estimate(&[]), None);
    }

    proptest! {
        #[test]
        fn the_estimate_is_within_its_error(
            skew in -1000i64..1000,
            delays in proptest::collection::vec((0u64..50_000_000, 0u64..50_000_000), 1..20),
        ) {
            let skew = skew * SECOND as i64;
            let start = 2000 * SECOND;
            let trips: Vec<_> = (0u64..)
                .zip(&delays)
                .map(|(at, &(there, back))| trip(start + at * SECOND, skew, there, back))
                .collect();
            let offset = Offset::estimate(&trips).unwrap();
            let wrong = offset.ahead_ns.abs_diff(skew);
            prop_assert!(wrong <= offset.error.as_nanos() as u64 + 1, "{wrong} of {offset:?}");
            let quickest = delays.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert!(offset.error <= Duration::from_nanos(quickest / 2 + 1));
        }
    }
}
