//! Deterministic simulation: a whole server of FTP, its clients and its clock, driven from one seed.
//!
//! ```text
//!   seed -> Draw -> World::step: a client acts | the worker has a turn | a pool does a job | time passes
//!                        |                                                                     |
//!                        +---- after each step: Invariants::check ----------------------------+
//!                        +---- at the end: all clients leave, and nothing may be left ---------+
//! ```
//!
//! **What is real.** The worker (`runtime/src/worker/`) with its event loop, wheel and inbox; control connections
//! (`ftp-server`), sessions (`ftp`), transfers, admission, the passive pool, logins, limits and bans, uploads that wait
//! for hooks, as `running/assembling.rs` puts them together. The jobs of the blocking pools are the real ones.
//!
//! **What is simulated.** *Time*: `Clock::Set`. *Threads*: pools without threads, whose jobs wait until the scheduler
//! picks one, in any order, so that a disk or a hook is quick, slow or stuck. *Sockets*: Unix sockets within this thread
//! in place of TCP; their names stand for addresses and ports ([`sockets`]). *Files*: memory, with `WouldWait`, `EIO` and
//! `ENOSPC` as is drawn ([`files`]). *Hooks* that refuse or panic ([`hooks`]), *accounts* that are slow or cannot be
//! reached ([`accounts`]). *Ports* that another program has, and descriptors that run out.
//!
//! **Clients** ([`client`]) wait for replies or pipeline, read slowly, say `ABOR`, `QUIT` or nonsense at any time, ask for
//! ports that they do not use, and cut either line at any point. Some have the server connect to them (`PORT`, `EPRT`):
//! the connection is there at once, late or never, or is refused; or they name an address that is another's.
//!
//! **Not simulated.** TLS, whose keys no seed draws; HTTP/2; the queue of deliveries of hooks (`hooks/src/queue.rs`), which is a
//! file of a real disk, with threads of its own. Their tests are elsewhere: `sessions/tls.rs`, `http/http2.rs`,
//! `crashes/kills.rs`.
//!
//! **Invariants** ([`conversation`], [`errand`], [`invariants`]). Every line has one final reply, in order. No 226 without a
//! commit of exactly what was sent; after any other reply the file is what it was. What a download brings was the file
//! once. A port is one session's of its address. The server connects to no address but its client's, and to no low port. Limits on sessions are never exceeded; downloads keep their rate. In the
//! end every client has its replies, every session has ended, every port, place and count is free, hooks have heard of
//! everything, and nothing has panicked.
//!
//! A seed that fails prints itself, what happened, and how to run it again:
//!
//! ```text
//! SIMULATION_SEED=17 cargo test -p millrace-server --lib simulation
//! SIMULATION_SEEDS=1000000 cargo test --release -p millrace-server --lib simulation
//! ```

mod accounts;
mod client;
mod conversation;
mod draw;
mod errand;
mod files;
mod hooks;
mod invariants;
mod panics;
mod sockets;
mod strangers;
mod violation;
mod visitor;
mod world;

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::world::World;

/// How many seeds are tried where nothing else is said.
const SEEDS: u64 = 10_000;

/// More would take processors from other tests.
const THREADS: usize = 2;

/// A seed takes some milliseconds.
const HANG: Duration = Duration::from_secs(30);

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Runs a seed, and a second time with a trace if it fails.
fn try_seed(seed: u64) {
    if World::new(seed, false).run().is_err() {
        show_seed(seed);
    }
}

/// Runs a seed, prints what happened, and fails if the seed does.
fn show_seed(seed: u64) {
    let mut world = World::new(seed, true);
    let result = world.run();
    println!("{}", world.trace());
    if let Err(violation) = result {
        panic!(
            "seed {seed}: {violation}\n\
             SIMULATION_SEED={seed} cargo test -p millrace-server --lib simulation\n"
        );
    }
}

#[test]
fn every_seed_keeps_the_invariants() {
    panics::watch();
    if let Some(seed) = number("SIMULATION_SEED") {
        return show_seed(seed);
    }
    let (next, end) = (AtomicU64::new(0), number("SIMULATION_SEEDS").unwrap_or(SEEDS));
    let now: [AtomicU64; THREADS] = Default::default();
    let work = &|now: &AtomicU64| {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < end) {
            now.store(seed, Ordering::Relaxed);
            try_seed(seed);
        }
    };
    thread::scope(|scope| {
        let threads = now.each_ref().map(|now| scope.spawn(move || work(now)));
        watch_for_hangs(&now, || threads.each_ref().map(|thread| thread.is_finished()));
    });
}

/// Waits until all threads have ended, and ends the program if one of them is at the same seed for too long.
fn watch_for_hangs(now: &[AtomicU64; THREADS], are_over: impl Fn() -> [bool; THREADS]) {
    let mut seen: Vec<(u64, Instant)> = now.iter().map(|_| (0, Instant::now())).collect();
    while are_over().contains(&false) {
        thread::park_timeout(Duration::from_millis(100));
        for ((now, (seed, since)), is_over) in now.iter().zip(&mut seen).zip(are_over()) {
            let present = now.load(Ordering::Relaxed);
            if present != *seed {
                (*seed, *since) = (present, Instant::now());
            } else if since.elapsed() > HANG && !is_over {
                eprintln!("seed {seed} hangs; SIMULATION_SEED={seed} runs it alone");
                std::process::abort();
            }
        }
    }
}

#[test]
fn a_seed_does_the_same_each_time() {
    panics::watch();
    for seed in 0..20 {
        let [first, second] = [(), ()].map(|()| {
            let mut world = World::new(seed, true);
            let result = world.run();
            (world.trace(), result)
        });
        assert!(first == second, "seed {seed} differs:\n{}\n---\n{}", first.0, second.0);
    }
}
