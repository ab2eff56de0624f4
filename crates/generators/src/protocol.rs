//! What a generator and the process that leads the run say to each other, a line of JSON each.
//!
//! The leading process writes to the generator's standard input and reads its standard output, through OpenSSH's client where
//! the generator is on another machine. Neither uses anything else of the other: no port is opened, and the target's password
//! is in no command line.
//!
//! ```text
//! leading process                                   generator (`millrace bench-generator`)
//!                                       <-----    Hello: protocol, machine, processors, descriptors
//!   Ping(n)                             ----->
//!                                       <-----    Pong(n, clock)         several times: see `clock`
//!   Load: target, cell, share           ----->    begins
//!                                       <-----    Live: counts of each worker, ten times a second
//!   meets those who stand in for others <-----    Here: all its workers have come to a meeting
//!   Go(moment of the generator's clock) ----->    sleeps until then; all workers go on
//!   Stop: end early                     ----->
//!                                       <-----    Done: counts, course and audit; or Failed: why not
//! ```
//!
//! There are five meetings (`driver` of the crate `load` names them). After the second and the fourth operations begin, so
//! their `Go` names a moment a little ahead, the same for all generators once each has it by its own clock.
//!
//! A generator whose input ends stops and ends, so that a leading process that dies leaves none behind. A generator is lost
//! when its output ends, or nothing was heard of it for [`SILENCE`].

use std::time::Duration;

use millrace_load::elsewhere::LoadOrder;
use millrace_load::host::Audit;
use millrace_load::tally::{Counts, Tally};
use millrace_load::timeline::Moment;
use serde::{Deserialize, Serialize};

/// The argument that has the program be a generator.
pub const COMMAND: &str = "bench-generator";
/// Changes with every change of the messages; both sides are of one build, and this tells where they are not.
pub(crate) const PROTOCOL: u32 = 1;
/// For so long nothing may be heard of a generator that puts a load on.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

/// A message to a generator.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Ping(u32),
    Load(Box<LoadOrder>),
    /// Go on at this moment, in nanoseconds of the generator's clock; 0 is at once.
    Go(u64),
    Stop,
}

/// A message from a generator.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Hello(Hello),
    /// With nanoseconds of its clock, which runs since its machine started.
    Pong(u32, u64),
    Live(Vec<Counts>),
    Here,
    Done(Box<Done>),
    Failed(String),
}

/// What a generator is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) host: String,
    /// The same for two processes that see each other's threads.
    pub(crate) machine: String,
    /// The same for two processes that share a loopback.
    pub(crate) network: String,
    pub(crate) cores: usize,
    pub(crate) descriptors: u64,
}

/// What a generator has done, with moments of its own clock.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) tally: Tally,
    pub(crate) timeline: Vec<Moment>,
    pub(crate) audit: Audit,
}

/// Returns a message as a line.
pub(crate) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("a message has no map with keys that are no text");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the leading process has of a generator's counts.
    fn passed(tally: Tally) -> Tally {
        let done = Done { tally, timeline: Vec::new(), audit: Audit::default() };
        let Ok(Report::Done(done)) = serde_json::from_slice(&line(&Report::Done(Box::new(done)))) else {
            panic!()
        };
        done.tally
    }

    proptest! {
        // Histograms are large: more cases would take long.
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn what_generators_count_is_what_one_process_counts(
            operations in proptest::collection::vec((0u64..90_000_000_000, 0usize..5, 0u64..1 << 40), 0..300),
        ) {
            let mut parts: [Tally; 5] = Default::default();
            let mut one = Tally::default();
            for (nanoseconds, part, bytes) in operations {
                let took = Duration::from_nanos(nanoseconds);
                for tally in [&mut parts[part], &mut one] {
                    tally.latency.record(took);
                    tally.first_byte.record(took / 3);
                    tally.bytes += bytes;
                }
            }
            let mut sum = Tally::default();
            parts.into_iter().for_each(|part| sum.add(passed(part)));
            for (merged, counted) in [(&sum.latency, &one.latency), (&sum.first_byte, &one.first_byte)] {
                prop_assert_eq!(merged.buckets(), counted.buckets());
                prop_assert_eq!(merged.percentiles(), counted.percentiles());
            }
            prop_assert_eq!(sum.bytes, one.bytes);
        }
    }
}
