//! Deterministic simulation of quotas that nodes share: the real ledgers of up to 100 nodes, the files of one tree, and the
//! database, from one seed.
//!
//! **What is real.** The ledger with its tallies and shares (`millrace_storage::quota`), the storage in memory, and the lease.
//! **What is simulated.** The tables ([`table`]), the way to them ([`door`]), and time ([`world`]). A ledger waits for its
//! answers on the stack of its thread; what other nodes do meanwhile is done above it on the same stack, so at most four
//! nodes wait at a time, and the one that began last goes on first. A name that another node has locked is not waited for.
//!
//! **Faults.** Nodes are killed, stopped for several leases and continued, and cut off. Questions and answers are lost, and
//! questions are executed up to eight seconds later, when the node has given them up, and has asked others since. In a third of
//! the seeds nodes are killed alone.
//!
//! **Invariants.** Where nodes are killed and nothing else happens, the tree never holds more than its quota. Where more goes
//! wrong, it may hold more by what each node that was taken for dead had reserved, and by an eighth of what was left for each
//! question without an answer. When all is calm, the database has exactly what is stored, or says that it has not, and has it after
//! one count; no share and no lock is left.
//!
//! Not simulated: a crash of the database, and changes that a node makes without it before it is killed
//! ([`World::kill`] spares those).

mod door;
mod table;
mod world;

use self::world::World;
use super::variable;

/// How many seeds are tried where nothing else is said.
const SEEDS: u64 = 300;

/// Runs a seed, and a second time with its trace if it fails.
fn run(seed: u64, traces: bool) {
    let world = World::new(seed, traces);
    let result = world.run();
    if result.is_err() && !traces {
        return run(seed, true);
    }
    if traces {
        println!("{}", world.trace());
    }
    if let Err(violation) = result {
        panic!(
            "seed {seed}: {violation}\nSIMULATION_SEED={seed} cargo test -p millrace-cluster --lib simulation::quotas\n"
        );
    }
}

#[test]
fn every_seed_of_shared_quotas_keeps_the_invariants() {
    match variable("SIMULATION_SEED") {
        Some(seed) => run(seed, true),
        None => (0..variable("SIMULATION_SEEDS").unwrap_or(SEEDS)).for_each(|seed| run(seed, false)),
    }
}

#[test]
fn a_seed_of_shared_quotas_does_the_same_each_time() {
    for seed in 1..6 {
        let [first, second] = [(), ()].map(|()| {
            let world = World::new(seed, true);
            let result = world.run();
            (world.trace(), result)
        });
        assert!(first == second, "seed {seed} differs");
    }
}
