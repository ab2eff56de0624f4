//! The parts that generators had in a figure.

use serde::{Deserialize, Serialize};

use super::{CellReport, LoadSummary};
use crate::fault::Fault;
use crate::host::Audit;
use crate::plan::Op;
use crate::tally::Tally;
use crate::units::rate;
use crate::verdict::{Bound, Verdict, judge};

/// A generator's part in a figure, and what it had of its machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorShare {
    /// Which of the generators it is, from 1.
    pub number: usize,
    /// As `--from` names it; of several local ones, with a number.
    pub name: String,
    /// The host that it runs on.
    pub host: String,
    /// It shares the machine of the process that leads the run.
    pub is_here: bool,
    /// Its workers.
    pub threads: usize,
    /// Its users.
    pub users: u32,
    /// Operations that ended well.
    pub ops: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Bytes of data connections.
    pub bytes: u64,
    /// How long after the common moment its first operation could begin, in milliseconds.
    pub start_ms: f64,
    /// By how much its clock may be off from the leading process's: half of the quickest round trip, in milliseconds.
    pub clock_error_ms: f64,
    /// CPU of its workers, in seconds.
    pub cpu_seconds: f64,
    /// The share of a processor that its busiest worker used, 0 to 1.
    pub busiest_thread: f64,
    /// The share of its machine's processors that did anything, 0 to 1.
    pub machine_busy: f64,
    /// By how much a thread of it woke up too late, at the 99th percentile, in milliseconds.
    pub lag_p99_ms: f64,
    /// How many descriptors it may have, and how many its users need.
    pub descriptors: u64,
    /// See there.
    pub descriptors_needed: u64,
    /// Why it was the limit of the figure, if it was.
    pub limit: Option<String>,
}

impl GeneratorShare {
    /// Fills in what a generator has counted and what its machine did. On the machine of the leading process that one's own
    /// audit says what the limit was.
    pub fn counted(self, op: Op, tally: &Tally, audit: &Audit) -> Self {
        let load = LoadSummary {
            op,
            has_black_holes: false,
            ops: tally.latency.count(),
            failed: tally.faults.of_server(),
            slowest_ms: tally.latency.percentiles().max_ms,
            client_faults: tally.faults.of(Fault::Client),
            missed: 0,
        };
        let verdict = judge(audit, load);
        let is_limit = !self.is_here && verdict.bound.hides_the_server();
        Self {
            ops: load.ops,
            failed: tally.faults.count(),
            bytes: tally.bytes,
            cpu_seconds: audit.client.cpu_seconds,
            busiest_thread: audit.client.busiest_thread,
            machine_busy: audit.machine_busy,
            lag_p99_ms: audit.client.lag_p99_ms,
            limit: verdict.evidence.into_iter().next().filter(|_| is_limit),
            ..self
        }
    }

    /// In a line: `ssh://a: 1000 operations (33 %), started 0.4 ms after the common moment (clock within 0.1 ms), ...`.
    pub fn words(&self, all: u64) -> String {
        let share = self.ops as f64 / all.max(1) as f64 * 100.0;
        let limit = self.limit.as_ref().map_or_else(String::new, |why| format!("; it was the limit: {why}"));
        format!(
            "{}: {} operations ({share:.1} %) of {} users, {} failed, {} MB; began {:+.2} ms from the common moment (clocks \
             within {:.2} ms); used {:.2} s of processors, its busiest thread {:.0} %; {} of {} descriptors{limit}",
            self.name,
            self.ops,
            self.users,
            self.failed,
            rate(self.bytes as f64 / 1e6),
            self.start_ms,
            self.clock_error_ms,
            self.cpu_seconds,
            self.busiest_thread * 100.0,
            self.descriptors_needed,
            self.descriptors
        )
    }

    /// The milliseconds between the first and the last start of several.
    pub fn spread_ms(shares: &[Self]) -> f64 {
        let starts = || shares.iter().map(|share| share.start_ms);
        starts().fold(f64::MIN, f64::max) - starts().fold(f64::MAX, f64::min)
    }
}

impl CellReport {
    /// Returns true if generators were the limit: the figure is invalid.
    pub fn is_of_its_generators(&self) -> bool {
        !self.generators.is_empty() && self.verdict.bound == Bound::Client
    }
}

/// Returns the verdict on a figure in which a generator was the limit, or else the one that there is.
pub(super) fn judged(verdict: Verdict, shares: &[GeneratorShare]) -> Verdict {
    let limits = shares.iter().filter_map(|share| Some(format!("{}: {}", share.name, share.limit.as_ref()?)));
    let mut evidence: Vec<String> = limits.collect();
    if evidence.is_empty() {
        return verdict;
    }
    evidence.extend(verdict.evidence);
    Verdict { bound: Bound::Client, evidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ClientAudit;

    /// A generator whose busiest thread used so much of a processor.
    fn generator(is_here: bool, busiest_thread: f64) -> GeneratorShare {
        let client = ClientAudit { busiest_thread, ..ClientAudit::default() };
        let audit = Audit { seconds: 5.0, cores: 4, client, ..Audit::default() };
        let mut tally = Tally::default();
        (0..200).for_each(|_| tally.latency.record(std::time::Duration::from_millis(1)));
        let share = GeneratorShare { name: "ssh://a".to_owned(), is_here, ..GeneratorShare::default() };
        share.counted(Op::Retr, &tally, &audit)
    }

    #[test]
    fn a_generator_that_was_the_limit_decides_the_verdict() {
        let of_server = || Verdict { bound: Bound::Server, evidence: vec!["the server was full".to_owned()] };
        for (is_here, busiest, bound) in
            [(false, 0.97, Bound::Client), (false, 0.5, Bound::Server), (true, 0.97, Bound::Server)]
        {
            let share = generator(is_here, busiest);
            assert_eq!((share.ops, share.limit.is_some()), (200, bound == Bound::Client));
            let verdict = judged(of_server(), &[generator(false, 0.1), share]);
            assert_eq!(verdict.bound, bound, "{verdict:?}");
            assert!(verdict.evidence.contains(&"the server was full".to_owned()));
        }
        let words = generator(false, 0.97).words(400);
        assert!(
            words.starts_with("ssh://a: 200 operations (50.0 %)")
                && words.contains("it was the limit: a thread"),
            "{words}"
        );
    }
}
