//! Latencies in fixed memory, whose percentiles are within 0.1 %, and which add up across workers.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Counted from a microsecond: nothing over a socket is faster.
const LOWEST_NS: u64 = 1_000;
/// Counted up to an hour, which is longer than any run; higher values count as an hour.
const HIGHEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Latencies of one kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Sparse", into = "Sparse")]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// Exact, where the histogram's own would be a bucket's edge.
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS);
        Self { histogram: histogram.expect("the bounds are valid"), max_ns: 0 }
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets all, and keeps the memory.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.max_ns = 0;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The mean, in milliseconds; 0 of none.
    pub fn mean_ms(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.histogram.mean() / 1e6 }
    }

    /// The latency that this share (0 to 1) do not exceed, in milliseconds.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share).min(self.max_ns) as f64 / 1e6
    }

    /// The least, in milliseconds; 0 of none.
    pub fn min_ms(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.histogram.min() as f64 / 1e6 }
    }

    /// The percentiles that a report shows.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            count: self.count(),
            mean_ms: rounded(self.mean_ms()),
            p50_ms: rounded(self.quantile_ms(0.5)),
            p90_ms: rounded(self.quantile_ms(0.9)),
            p99_ms: rounded(self.quantile_ms(0.99)),
            p999_ms: rounded(self.quantile_ms(0.999)),
            max_ms: rounded(self.max_ns as f64 / 1e6),
        }
    }

    /// The curve, for the JSON: (upper edge in microseconds, count) of each bucket that is not empty.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        self.histogram
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to().div_ceil(1000), bucket.count_since_last_iteration()))
            .collect()
    }
}

/// The form sent between processes: the non-empty buckets, in nanoseconds, and the maximum.
#[derive(Serialize, Deserialize)]
struct Sparse(Vec<(u64, u64)>, u64);

impl From<Latencies> for Sparse {
    fn from(latencies: Latencies) -> Self {
        let buckets = latencies.histogram.iter_recorded();
        let buckets = buckets.map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()));
        Self(buckets.collect(), latencies.max_ns)
    }
}

impl From<Sparse> for Latencies {
    fn from(Sparse(buckets, max_ns): Sparse) -> Self {
        let mut latencies = Self { max_ns, ..Self::default() };
        for (value, count) in buckets {
            latencies.histogram.saturating_record_n(value, count);
        }
        latencies
    }
}

/// To the microsecond: the clock and the scheduler know no better.
fn rounded(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}

/// The figures of a distribution of latencies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct Percentiles {
    pub count: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_merged_workers_are_those_of_all() {
        let (mut one, mut two, mut all) = (Latencies::default(), Latencies::default(), Latencies::default());
        for ms in 1..=1000 {
            let latency = Duration::from_millis(ms);
            if ms % 3 == 0 {
                one.record(latency)
            } else {
                two.record(latency)
            }
            all.record(latency);
        }
        one.add(&two);
        assert_eq!(one.percentiles(), all.percentiles());
        assert!((one.quantile_ms(0.99) - 990.0).abs() < 1.0);
        assert_eq!(one.percentiles().max_ms, 1000.0);
    }

    #[test]
    fn a_histogram_sent_to_another_process_is_equal() {
        let mut latencies = Latencies::default();
        (1..5000u64).for_each(|us| latencies.record(Duration::from_micros(us * us)));
        let passed: Latencies = serde_json::from_str(&serde_json::to_string(&latencies).unwrap()).unwrap();
        assert_eq!((passed.percentiles(), passed.buckets()), (latencies.percentiles(), latencies.buckets()));
    }

    #[test]
    fn none_and_the_endless_are_fine() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentiles(), Percentiles::default());
        latencies.record(Duration::MAX);
        latencies.record(Duration::ZERO);
        assert_eq!(latencies.count(), 2);
    }
}
