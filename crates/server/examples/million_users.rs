//! How long a login of one user of many in the database of `millrace user` takes: the look-up alone, then all of it
//! but the hash, which is computed before the clock runs and remembered.
//!
//! `cargo run --release -p millrace-server --example million_users -- 1000000`

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_server::auth::{Chain, Database, Found, Group, Homes, Profile, Source, Stored, User};
use millrace_server::{Attempt, Authenticator, Decision};
use millrace_storage::LocalOptions;

/// The hash of `password`.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

const LOGINS: u64 = 50_000;

const THREADS: u64 = 2;

/// Users, from all over the database, whose logins are remembered when the clock runs.
const KNOWN: u64 = 2_000;

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let folder = std::env::temp_dir().join(format!("millrace-users-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder for the database");
    measure(&folder, count);
    let _ = std::fs::remove_dir_all(&folder);
}

fn measure(folder: &Path, count: u64) {
    let file = folder.join("users.db");
    fill(&file, count);
    let database = Database::open(&file).expect("the same database");
    times("look-ups", count, 1, |name| {
        let found = database.find(&Attempt::new(name.as_bytes(), b""));
        matches!(found, Ok(Found::User(..)))
    });
    let homes = Arc::new(Homes::new(folder.to_owned(), LocalOptions::default()));
    let group = Group { name: "customers".to_owned(), profile: Profile::default() };
    let chain = Chain::new(homes).group(group).source(database);
    let log_in = |name: &str| {
        let decision = chain.authenticate(&Attempt::new(name.as_bytes(), b"password"));
        matches!(decision, Decision::Granted(_))
    };
    let stride = (count / KNOWN).max(1);
    (0..count).step_by(stride as usize).for_each(|number| assert!(log_in(&name(number))));
    times("logins without their hash", count, stride, log_in);
}

fn fill(file: &Path, count: u64) {
    let database = Database::open_or_make(file).expect("a database");
    let begun = Instant::now();
    for first in (0..count).step_by(10_000) {
        let users: Vec<Stored> = (first..count.min(first + 10_000)).map(user).collect();
        database.put(&users).expect("users are put");
    }
    let size = file.metadata().map_or(0, |file| file.len());
    println!("{count} users in {:.1} s, {} MB", begun.elapsed().as_secs_f64(), size / 1_000_000);
}

/// Users at random, every so manieth, by some threads at a time.
fn times(what: &str, count: u64, stride: u64, one: impl Fn(&str) -> bool + Sync) {
    let one = &one;
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|seed| scope.spawn(move || draw(count, stride, seed, one))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread fails")).collect()
    });
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (median, late, later, last) = (at(0.5), at(0.99), at(0.999), at(1.0));
    println!(
        "{} {what} by {THREADS} threads: p50 {median:?}, p99 {late:?}, p99.9 {later:?}, most {last:?}",
        times.len()
    );
}

fn user(number: u64) -> Stored {
    let profile: Profile = serde_json::from_str(r#"{"access": "ro", "sessions": 4}"#).expect("a profile");
    let user = User { name: name(number), groups: vec!["customers".to_owned()], profile };
    Stored { user, hash: Some(HASH.to_owned()) }
}

fn name(number: u64) -> String {
    format!("user{number:08}")
}

fn draw(count: u64, stride: u64, seed: u64, one: &impl Fn(&str) -> bool) -> Vec<Duration> {
    let mut random = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut draw = || {
        let name = name(next() % (count / stride) * stride);
        let begun = Instant::now();
        assert!(one(&name), "{name} is there");
        begun.elapsed()
    };
    (0..LOGINS / THREADS).map(|_| draw()).collect()
}
