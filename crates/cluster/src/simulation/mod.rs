//! Deterministic simulation of leases, fencing and sweeping: up to 100 nodes, their database and their clocks, from one seed.
//!
//! ```text
//!   seed -> Draw -> World::act: a fault | clients log in and out | bans change
//!                   World::advance: keepers wake, questions arrive, answers come
//!                        |
//!                        +---- after each step: Invariants ------------------------------------+
//!                        +---- at the end: all is calm, and the counts equal what is there -----+
//! ```
//!
//! **What is real.** The lease, the book of places, the exchange of bans, and the bans (`lease.rs`, `book.rs`,
//! `ban_sync.rs`, `limits`). **What is simulated.** *The database* ([`database`]): memory, that does what the SQL does.
//! *Time*, and the clock of each node, up to 10 % fast or slow. *The threads* that ask ([`node`]): messages, so that anything
//! may happen between a question, its execution, and its answer.
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
//! ```text
//! SIMULATION_SEED=17 cargo test -p millrace-cluster --lib simulation -- --nocapture
//! SIMULATION_SEEDS=100000 cargo test --release -p millrace-cluster --lib simulation
//! ```

mod database;
mod draw;
mod invariants;
mod node;
mod world;

use std::env;

use self::world::World;

/// How many seeds are tried where nothing else is said.
const SEEDS: u64 = 200;

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
