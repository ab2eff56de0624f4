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
pub struct Timeline {
    moments: Vec<Moment>,
    /// Of this many that come, one is kept.
    every: usize,
    seen: usize,
}

impl Timeline {
    /// Returns one without points.
    #[allow(clippy::new_without_default)] // `every` is not 0
    pub fn new() -> Self {
        Self { moments: Vec::new(), every: 1, seen: 0 }
    }

    /// Adds a point, or leaves it out where there are many.
    pub fn note(&mut self, moment: Moment) {
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
    pub fn ending(mut self, end: Moment) -> Vec<Moment> {
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
pub fn since(later: Duration, moments: Vec<Moment>) -> Vec<Moment> {
    let later = later.as_secs_f64();
    let by_it = moments.into_iter().map(|moment| Moment { seconds: moment.seconds - later, ..moment });
    by_it.filter(|moment| moment.seconds > 0.0).collect()
}

/// Adds up the courses of several, all since one moment: at the points of each, with what the others had then, between
/// two of their points in proportion.
pub fn merged(courses: &[Vec<Moment>]) -> Vec<Moment> {
    let mut points: Vec<f64> = courses.iter().flatten().map(|moment| moment.seconds).collect();
    points.sort_by(f64::total_cmp);
    points.dedup();
    // Each had its points as often: as many of all tell no less.
    let every = courses.len().max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.into_iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last);
    kept.map(|(_, seconds)| {
        courses
            .iter()
            .fold(Moment { seconds, ..Moment::default() }, |sum, course| sum.and(at(course, seconds)))
    })
    .collect()
}

/// Returns what one had at a moment.
fn at(course: &[Moment], seconds: f64) -> Moment {
    let next = course.partition_point(|moment| moment.seconds < seconds);
    let before = next.checked_sub(1).map_or_else(Moment::default, |last| course[last]);
    let Some(after) = course.get(next) else { return before };
    let share = (seconds - before.seconds) / (after.seconds - before.seconds).max(1e-9);
    let between =
        |before: u64, after: u64| before + (after.saturating_sub(before) as f64 * share).round() as u64;
    Moment {
        seconds,
        ops: between(before.ops, after.ops),
        bytes: between(before.bytes, after.bytes),
        faults: between(before.faults, after.faults),
        waited_us: between(before.waited_us, after.waited_us),
    }
}

impl Moment {
    /// Adds the counts of another at the same time.
    fn and(self, other: Self) -> Self {
        Self {
            seconds: self.seconds,
            ops: self.ops + other.ops,
            bytes: self.bytes + other.bytes,
            faults: self.faults + other.faults,
            waited_us: self.waited_us + other.waited_us,
        }
    }
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

    #[test]
    fn courses_of_several_add_up_at_the_points_of_each() {
        let course = |points: &[(f64, u64)]| {
            let moment = |&(seconds, ops): &(f64, u64)| Moment { seconds, ops, ..Moment::default() };
            points.iter().map(moment).collect::<Vec<_>>()
        };
        let one = course(&[(1.0, 10), (3.0, 30)]);
        let other = course(&[(2.0, 100), (4.0, 100)]);
        let sum: Vec<_> =
            merged(&[one.clone(), other]).iter().map(|moment| (moment.seconds, moment.ops)).collect();
        assert_eq!(sum, [(1.0, 60), (3.0, 130), (4.0, 130)]);
        assert_eq!(merged(std::slice::from_ref(&one)), one, "one alone is as it was");
        assert!(merged(&[]).is_empty());
    }
}
