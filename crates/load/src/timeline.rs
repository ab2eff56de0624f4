//! How a figure went, in points over time: at most [`MOST`] of them, however long it takes.
//!
//! Points are counts since the beginning, so that leaving some of them out loses nothing but detail.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// More would not be seen in a plot.
const MOST: usize = 400;

/// How far a figure had come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct Moment {
    pub seconds: f64,
    pub ops: u64,
    pub bytes: u64,
    pub faults: u64,
    /// The sum of the latencies of `ops`.
    pub waited_us: u64,
}

/// The points so far.
#[derive(Debug)]
pub(crate) struct Timeline {
    moments: Vec<Moment>,
    /// Of so many that come, one is kept.
    every: usize,
    seen: usize,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self { moments: Vec::new(), every: 1, seen: 0 }
    }

    pub(crate) fn note(&mut self, moment: Moment) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.every) {
            return;
        }
        self.moments.push(moment);
        if self.moments.len() == MOST {
            let mut at = 0;
            self.moments.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.every *= 2;
        }
    }

    /// Adds the final state if it differs from the last point, so that the end is drawn, too. It replaces a point
    /// shortly before it.
    pub(crate) fn ending(mut self, end: Moment) -> Vec<Moment> {
        let mut lasts = self.moments.iter().rev().map(|moment| moment.seconds);
        let (last, before) = (lasts.next(), lasts.next().unwrap_or(0.0));
        if let Some(last) = last {
            if end.seconds <= last {
                return self.moments;
            }
            if end.seconds - last < (last - before) / 2.0 {
                self.moments.pop();
            }
        }
        self.moments.push(end);
        self.moments
    }
}

/// The same by a clock that begins so much later, which is when operations could begin.
pub(crate) fn since(later: Duration, moments: Vec<Moment>) -> Vec<Moment> {
    let later = later.as_secs_f64();
    let by_it = moments.into_iter().map(|moment| Moment { seconds: moment.seconds - later, ..moment });
    by_it.filter(|moment| moment.seconds > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_second(seconds: f64) -> Moment {
        Moment { seconds, ops: seconds as u64, bytes: 0, faults: 0, waited_us: 0 }
    }

    #[test]
    fn the_end_after_the_last_point_is_included() {
        let ends = |points: &[f64], end: f64| {
            let mut timeline = Timeline::new();
            points.iter().for_each(|&seconds| timeline.note(at_second(seconds)));
            timeline.ending(at_second(end)).iter().map(|moment| moment.seconds).collect::<Vec<_>>()
        };
        assert_eq!(ends(&[], 0.1), [0.1]);
        assert_eq!(ends(&[1.0, 2.0], 2.75), [1.0, 2.0, 2.75]);
        assert_eq!(ends(&[1.0, 2.0], 2.25), [1.0, 2.25], "no piece is much shorter than the others");
        assert_eq!(ends(&[1.0, 2.0], 2.0), [1.0, 2.0]);
    }

    #[test]
    fn a_long_run_has_no_more_points_than_a_short_one_and_they_are_evenly_spaced() {
        for length in [10, MOST, 5 * MOST, 100 * MOST + 7] {
            let mut timeline = Timeline::new();
            for at in 1..=length {
                timeline.note(at_second(at as f64));
            }
            let moments = timeline.moments;
            assert!((MOST / 2 - 1..=MOST).contains(&moments.len()) || moments.len() == length);
            let step = moments[0].seconds;
            assert!(moments.iter().zip(1..).all(|(moment, at)| moment.seconds == step * f64::from(at)));
        }
    }
}
