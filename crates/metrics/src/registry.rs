//! Shards, in which workers count, and the registry that adds them up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::rows::{BUCKETS, CELLS, HISTOGRAM, METHODS, Metric, VERBS};
use super::snapshot::Snapshot;

/// The counts of one worker. It has its own cache lines: two of them, as processors fetch pairs.
#[repr(align(128))]
pub struct Shard {
    cells: [AtomicU64; CELLS],
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").finish_non_exhaustive()
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self { cells: [const { AtomicU64::new(0) }; CELLS] }
    }
}

/// A command of FTP, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verb(u8);

impl Verb {
    /// A command that has no series of its own.
    pub const OTHER: Self = Self(VERBS.len() as u8 - 1);

    /// Finds a command by its name, in whatever letters.
    pub fn of(name: &[u8]) -> Self {
        let known = VERBS.iter().position(|verb| verb.as_bytes().eq_ignore_ascii_case(name));
        known.map_or(Self::OTHER, |place| Self(place as u8))
    }
}

impl Shard {
    /// Adds to a series, by the places of the values of its labels. Where no row has them, nothing is counted.
    pub fn add(&self, metric: Metric, labels: &[usize], amount: u64) {
        let cell = metric.cell(labels);
        debug_assert!(cell.is_some(), "{metric:?} has no series {labels:?}");
        if let Some(cell) = cell {
            self.add_at(cell, amount);
        }
    }

    /// Adds a time to a series, in microseconds.
    pub fn add_time(&self, metric: Metric, labels: &[usize], time: Duration) {
        self.add(metric, labels, micros(time));
    }

    /// Adds an observation to a histogram.
    pub fn observe(&self, metric: Metric, labels: &[usize], time: Duration) {
        let cell = metric.cell(labels).filter(|_| metric.row().width() == HISTOGRAM);
        debug_assert!(cell.is_some(), "{metric:?} has no histogram {labels:?}");
        if let Some(cell) = cell {
            let time = micros(time);
            self.add_at(cell + BUCKETS.partition_point(|bound| *bound < time), 1);
            self.add_at(cell + HISTOGRAM - 1, time);
        }
    }

    /// Counts a request of HTTP, by its method and the status of its answer.
    pub fn add_request(&self, method: &str, status: u16) {
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len() - 1);
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.add(Metric::Requests, &[method, class], 1);
    }

    /// Counts a command of FTP, by the code of the reply that ends it.
    pub fn add_command(&self, verb: Verb, code: u16) {
        let class = usize::from(code / 100).clamp(2, 5) - 2;
        self.add(Metric::Commands, &[usize::from(verb.0), class], 1);
    }

    fn add_at(&self, cell: usize, amount: u64) {
        // Most answers of HTTP take no time, by the clock of a turn.
        if amount == 0 {
            return;
        }
        if let Some(cell) = self.cells.get(cell) {
            cell.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The counts of a server.
#[derive(Debug, Default)]
pub struct Registry {
    /// For threads that count seldom.
    shared: Arc<Shard>,
    /// Locked to add one, and for a scrape.
    shards: Mutex<Vec<Arc<Shard>>>,
}

impl Registry {
    /// Makes a shard for a worker.
    pub fn shard(&self) -> Arc<Shard> {
        let shard = Arc::<Shard>::default();
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&shard));
        shard
    }

    /// Returns the shard of threads that count seldom.
    pub fn shared(&self) -> &Arc<Shard> {
        &self.shared
    }

    /// Adds up a series that is no histogram.
    pub fn total(&self, metric: Metric, labels: &[usize]) -> u64 {
        metric.cell(labels).and_then(|cell| self.sums().get(cell).copied()).unwrap_or(0)
    }

    /// Adds up all series of a metric that is no histogram.
    pub fn sum(&self, metric: Metric) -> u64 {
        let row = metric.row();
        let first = metric.cell(&vec![0; row.labels.len()]);
        let cells = first.map_or(0..0, |first| first..first + row.series() * row.width());
        self.sums().get(cells).map_or(0, |cells| cells.iter().sum())
    }

    /// Returns what was counted until now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.sums())
    }

    /// Adds up all cells.
    fn sums(&self) -> Vec<u64> {
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = vec![0_u64; CELLS];
        for shard in shards.iter().chain([&self.shared]) {
            for (sum, cell) in sums.iter_mut().zip(&shard.cells) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_by_verb_and_reply_and_clients_make_no_series() {
        let registry = Registry::default();
        let shard = registry.shared();
        shard.add_command(Verb::of(b"RETR"), 226);
        shard.add_command(Verb::of(b"retr"), 250);
        shard.add_command(Verb::of(b"RETR"), 550);
        shard.add_command(Verb::of(b"RETRY"), 500);
        shard.add_command(Verb::of(b""), 999);
        let place = VERBS.iter().position(|verb| *verb == "RETR").unwrap();
        assert_eq!(registry.total(Metric::Commands, &[place, 0]), 2);
        assert_eq!(registry.total(Metric::Commands, &[place, 3]), 1);
        assert_eq!(registry.total(Metric::Commands, &[VERBS.len() - 1, 3]), 2);
        assert_eq!(registry.sum(Metric::Commands), 5);
    }

    #[test]
    fn shards_add_up_also_when_their_worker_has_ended() {
        let registry = Registry::default();
        let (one, other) = (registry.shard(), registry.shard());
        one.add(Metric::Logins, &[0], 2);
        other.add(Metric::Logins, &[0], 3);
        registry.shared().add(Metric::Logins, &[1], 4);
        drop(one);
        assert_eq!(registry.total(Metric::Logins, &[0]), 5);
        assert_eq!(registry.total(Metric::Logins, &[1]), 4);
        assert_eq!(registry.total(Metric::Logins, &[2]), 0);
        assert_eq!(registry.sum(Metric::Logins), 9);
    }

    #[test]
    fn an_observation_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        for (time, bucket) in [
            (Duration::ZERO, 0),
            (Duration::from_micros(100), 0),
            (Duration::from_micros(101), 1),
            (Duration::from_secs(1800), BUCKETS.len() - 1),
            (Duration::from_secs(86_400), BUCKETS.len()),
        ] {
            let registry = Registry::default();
            registry.shared().observe(Metric::WorkerTurn, &[], time);
            let (first, sums) = (Metric::WorkerTurn.cell(&[]).unwrap(), registry.sums());
            assert_eq!(sums[first + bucket], 1, "{time:?}");
            assert_eq!(u128::from(sums[first + HISTOGRAM - 1]), time.as_micros());
        }
    }

    #[test]
    fn unknown_methods_share_a_series() {
        let registry = Registry::default();
        for (method, status) in [("GET", 200), ("BREW", 418), ("", 400), ("get", 999)] {
            registry.shared().add_request(method, status);
        }
        assert_eq!(registry.total(Metric::Requests, &[0, 1]), 1);
        assert_eq!(registry.total(Metric::Requests, &[METHODS.len() - 1, 3]), 2);
        assert_eq!(registry.total(Metric::Requests, &[METHODS.len() - 1, 4]), 1);
    }
}
