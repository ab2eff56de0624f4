//! When operations begin.
//!
//! In a *closed loop* a user begins its next operation when the last has ended, after thinking. A server that stalls is
//! then asked less while it stalls, so that the latencies of the operations that it delayed are missing (coordinated
//! omission). At a *fixed rate* every operation has a moment at which it was meant to begin, whatever the server does;
//! its latency counts from that moment, and the time since its actual beginning is recorded, too.

use std::time::{Duration, Instant};

/// How the next operation is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// When the last has ended and the user has thought.
    Closed {
        /// How long it thinks.
        think: Duration,
    },
    /// This many a second, over all users.
    Rate(f64),
}

/// The intended beginnings of one worker's share of a fixed rate.
#[derive(Debug, Clone)]
pub struct Arrivals {
    start: Instant,
    /// Between two of this worker's.
    gap: f64,
    /// Of the first, so that workers take turns.
    shift: f64,
    taken: u64,
    until: Instant,
}

impl Arrivals {
    /// The share of worker `index` of `workers` in `rate` operations a second, from `start` until `until`.
    pub fn new(rate: f64, index: usize, workers: usize, start: Instant, until: Instant) -> Self {
        let shift = index as f64 / rate;
        Self { start, gap: workers as f64 / rate, shift, taken: 0, until }
    }

    /// When the next one is meant to begin; `None` when the time is over.
    pub fn next(&self) -> Option<Instant> {
        let at = self.start + Duration::from_secs_f64(self.shift + self.gap * self.taken as f64);
        (at < self.until).then_some(at)
    }

    /// Takes the next one if its moment has come.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next().filter(|&at| at <= now)?;
        self.taken += 1;
        Some(due)
    }

    /// How many are due and not taken: they found no free user.
    pub fn behind(&self, now: Instant) -> u64 {
        let mut rest = self.clone();
        std::iter::from_fn(|| rest.take(now)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_a_rate_and_take_turns() {
        let start = Instant::now();
        let until = start + Duration::from_secs(1);
        let mut moments = Vec::new();
        for index in 0..2 {
            let mut arrivals = Arrivals::new(10.0, index, 2, start, until);
            while let Some(at) = arrivals.take(until) {
                moments.push((at - start).as_millis());
            }
            assert_eq!(arrivals.next(), None);
        }
        moments.sort_unstable();
        assert_eq!(moments, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
    }

    #[test]
    fn a_late_arrival_keeps_its_intended_time() {
        let start = Instant::now();
        let mut arrivals = Arrivals::new(100.0, 0, 1, start, start + Duration::from_secs(10));
        let late = start + Duration::from_millis(55);
        assert_eq!(arrivals.behind(late), 6);
        assert_eq!(arrivals.take(late), Some(start));
        assert_eq!(arrivals.take(late), Some(start + Duration::from_millis(10)));
        assert_eq!(arrivals.behind(late), 4);
        assert_eq!(arrivals.take(start), None);
        assert_eq!(arrivals.behind(start + Duration::from_secs(99)), 998);
    }
}
