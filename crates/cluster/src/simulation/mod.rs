//! Deterministic simulation of a cluster: up to 100 nodes, their database and their clocks, from one seed. Quotas have a
//! simulation of their own ([`quotas`]).
//!
//! ```text
//!   seed -> Draw -> World::act: a fault | clients log in and out | bans change
//!                   World::advance: keepers wake, questions arrive, answers come
//!                        |
//!                        +---- after each step: Invariants ------------------------------------+
//!                        +---- at the end: all is calm, and the counts equal what is there -----+
//! ```
//!
//! **What is real.** The lease, the book of places, the exchange of bans, the bans with their counts of failed logins, and the
//! known locks of WebDAV (`lease.rs`, `book.rs`, `ban_sync.rs`, `known_locks.rs`, `limits`). **What is simulated.** *The
//! database* ([`database`], [`tables`]): memory, that does what the SQL does. *Time*, and the clock of each node, up to 10 % fast
//! or slow. *The threads* that ask ([`node`], [`tasks`]): messages, so that anything may happen between a question, its
//! execution, and its answer. *How much of a rate is needed*, which a draw decides.
//!
//! **Faults.** Nodes are killed and started anew, stopped and continued, cut off from the database. Questions and answers are
//! lost or late, also after the node has given up waiting. The database is away, or crashes, and loses its unlogged tables.
//!
//! **Invariants** ([`invariants`]). The database counts every session of a node that is registered. No session begins at a
//! node whose registration has ended, and none over the limit. Over the limit may be sessions alone that ran on while their
//! node was silent for longer than its lease. Writes under an epoch that has ended change nothing. A silent node is gone
//! after 10 s, a ban is everywhere after 2.5 s, where the database can be asked. When all is calm every count equals what is
//! held, the dead have left nothing, and all nodes have the same bans.
//!
//! **Promises** ([`promises`]). A node that has not been told otherwise writes an upload only while no other node has locked it
//! since, and one that is told to be a file is one. An errand is performed once at most, and what is answered was performed.
//! The parts of a rate that the database has given are never more than the rate, and those that healthy nodes use for a moment
//! at most, while answers are on their way. No ban without as many failed logins. A lock of WebDAV that a client has had for
//! 2.5 s is known to all healthy nodes, and no node says that there are none when one is 5 s old. When all is calm nothing is
//! locked, nine tenths of the rate are used where all want it, guesses at all nodes ban at all of them, and all nodes answer
//! an errand and forget it.
//!
//! Not simulated: secrets of TLS, which are older than a seed lasts; logins to the dashboard, events and audit copies, of which
//! the database decides alone.
//!
//! ```text
//! SIMULATION_SEED=17 cargo test -p millrace-cluster --lib simulation -- --nocapture
//! SIMULATION_SEEDS=100000 cargo test --release -p millrace-cluster --lib simulation
//! ```

mod actions;
mod database;
mod draw;
mod invariants;
mod node;
mod promises;
mod questions;
mod quotas;
mod tables;
mod tasks;
mod world;

use std::env;

use self::world::World;

/// How many seeds are tried where nothing else is said.
const SEEDS: u64 = 100;

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Runs a seed, and a second time with its trace if it fails.
fn run(seed: u64, traces: bool) {
    let mut world = World::new(seed, traces);
    let result = world.run();
    if result.is_err() && !traces {
        return run(seed, true);
    }
    if traces {
        println!("{}", world.trace());
    }
    if let Err(violation) = result {
        panic!(
            "seed {seed}: {violation}\nSIMULATION_SEED={seed} cargo test -p millrace-cluster --lib simulation\n"
        );
    }
}

#[test]
fn every_seed_of_a_cluster_keeps_the_invariants() {
    match variable("SIMULATION_SEED") {
        Some(seed) => run(seed, true),
        None => (0..variable("SIMULATION_SEEDS").unwrap_or(SEEDS)).for_each(|seed| run(seed, false)),
    }
}

#[test]
fn a_seed_of_a_cluster_does_the_same_each_time() {
    for seed in 0..5 {
        let [first, second] = [(), ()].map(|()| {
            let mut world = World::new(seed, true);
            let result = world.run();
            (world.trace(), result)
        });
        assert!(first == second, "seed {seed} differs");
    }
}
