//! How long it takes to find one user of many in the database of `millrace user`, beside the hash.
//!
//! `cargo run --release -p millrace-server --example million_users -- 1000000`

use std::path::Path;
use std::time::{Duration, Instant};

use millrace_server::Attempt;
use millrace_server::auth::{Database, Found, Profile, Source, Stored, User};

const HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$iwtn8sHj8HHBqpNHeraeCQ$YDatr6pLewJzq+C5mES5Pcv/+m3c/to6wAJNlvyY7qc";

const LOOK_UPS: u64 = 100_000;

const THREADS: u64 = 2;

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let folder = std::env::temp_dir().join(format!("millrace-users-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder for the database");
    let file = folder.join("users.db");
    measure(&file, count);
    let _ = std::fs::remove_dir_all(&folder);
}

fn measure(file: &Path, count: u64) {
    let database = Database::open_or_make(file).expect("a database");
    let begun = Instant::now();
    for first in (0..count).step_by(10_000) {
        let users: Vec<Stored> = (first..count.min(first + 10_000)).map(user).collect();
        database.put(&users).expect("users are put");
    }
    let size = file.metadata().map_or(0, |file| file.len());
    println!("{count} users in {:.1} s, {} MB", begun.elapsed().as_secs_f64(), size / 1_000_000);
    let database = Database::open(file).expect("the same database");
    let database = &database;
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let look = |seed| scope.spawn(move || look_up(database, count, seed));
        let threads: Vec<_> = (0..THREADS).map(look).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread fails")).collect()
    });
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{} look-ups by {THREADS} threads: p50 {:?}, p99 {:?}, p99.9 {:?}, most {:?}",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn user(number: u64) -> Stored {
    let profile: Profile =
        serde_json::from_str(r#"{"directory": "home/{user}", "sessions": 4}"#).expect("a profile");
    let user = User { name: name(number), groups: vec!["customers".to_owned()], profile };
    Stored { user, hash: Some(HASH.to_owned()) }
}

fn name(number: u64) -> String {
    format!("user{number:08}")
}

fn look_up(database: &Database, count: u64, seed: u64) -> Vec<Duration> {
    let mut random = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut one = || {
        let name = name(next() % count);
        let begun = Instant::now();
        let found = database.find(&Attempt::new(name.as_bytes(), b""));
        assert!(matches!(found, Ok(Found::User(..))), "{name} is there");
        begun.elapsed()
    };
    (0..LOOK_UPS / THREADS).map(|_| one()).collect()
}
