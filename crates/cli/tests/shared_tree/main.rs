//! Three servers that share one tree: its names in PostgreSQL, its contents in a bucket.
//!
//! | test | what happens to it | long form |
//! |---|---|---|
//! | [`killed_nodes_lose_nothing_that_was_acknowledged`] | `kill -9` of random nodes | `MILLRACE_SHARED_UPLOADS=10000 MILLRACE_SHARED_KILLS=100` |
//! | [`a_database_and_a_store_that_are_away_lose_nothing`] | the database is killed, then the store is stopped | `MILLRACE_SHARED_OUTAGE=60` (seconds) |
//!
//! Meanwhile clients read, write and remove a few names at random, at random nodes, by FTP and HTTP, and keep a
//! [`history`]. In the end: every read found a version that was whole, and none that was older than one already
//! acknowledged; the nodes agree; every object of the bucket has a row; and every upload has had its event, once.
//! `MILLRACE_SHARED_SECONDS=3600` makes the first test last that long instead.

mod client;
#[path = "../../../s3/tests/common/mod.rs"]
mod common;
#[path = "../../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
mod history;
mod node;
#[path = "../../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;
#[path = "../crashes/receiver.rs"]
mod receiver;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Server, names};
use history::{History, NONE, Version};
use node::{Addresses, Node};
use postgresql::Postgres;
use receiver::Receiver;

const NODES: usize = 3;
const CLIENTS: usize = 6;

/// The names that clients use; few, so that they meet.
const NAMES: usize = 12;

/// How long what is on its way may take; behind a long run, what the nodes remove.
const PATIENCE: Duration = Duration::from_secs(600);

fn number(variable: &str, short: u64) -> u64 {
    std::env::var(variable).map_or(short, |number| number.parse().expect("a number"))
}

/// Numbers that look random, the same for each seed.
struct Noise(u64);

impl Noise {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// The content of a version: small, but for one in 300, which takes two parts.
fn content(version: Version) -> Vec<u8> {
    let times = if version.is_multiple_of(300) { 800_000 } else { 1 + version % 300 };
    format!("{version:08}").repeat(times as usize).into_bytes()
}

/// The version that a body is, if it is whole.
fn version_of(body: &[u8]) -> Option<Version> {
    let version = std::str::from_utf8(body.get(..8)?).ok()?.parse().ok()?;
    (body == content(version)).then_some(version)
}

/// What the clients of a test share.
struct Shared {
    addresses: Mutex<[Addresses; NODES]>,
    history: History,
    version: AtomicU64,
    acknowledged: AtomicUsize,
    has_ended: AtomicBool,
    torn: Mutex<Vec<String>>,
}

impl Shared {
    fn new(nodes: &[Node; NODES]) -> Self {
        Self {
            addresses: Mutex::new([0, 1, 2].map(|number| nodes[number].addresses())),
            history: History::default(),
            // The first large one is soon.
            version: AtomicU64::new(NONE + 270),
            acknowledged: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            torn: Mutex::new(Vec::new()),
        }
    }

    fn moved(&self, number: usize, node: &Node) {
        self.addresses.lock().unwrap()[number] = node.addresses();
    }

    /// Reads a name at a node; `None` where the answer says nothing of the file.
    fn read(&self, at: Addresses, name: &str) -> Option<Version> {
        self.history.read(name, || match client::ask(at.http, "GET", &format!("/b/{name}"), b"") {
            Ok((200, body)) => version_of(&body).or_else(|| {
                self.torn.lock().unwrap().push(format!("{name}: {} bytes", body.len()));
                None
            }),
            Ok((404, _)) => Some(NONE),
            _ => None,
        })
    }

    fn write(&self, at: Addresses, name: &str, by_ftp: bool) {
        let version = self.version.fetch_add(1, Ordering::Relaxed);
        let (path, content) = (format!("/b/{name}"), content(version));
        let begun = self.history.begin(name, version);
        let is_done = match by_ftp {
            true => client::store(at.ftp, &path, &content).is_ok_and(|reply| reply.starts_with("226")),
            false => client::ask(at.http, "PUT", &path, &content).is_ok_and(|(status, _)| status / 100 == 2),
        };
        if is_done {
            self.history.acknowledge(&begun);
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn remove(&self, at: Addresses, name: &str) {
        let begun = self.history.begin(name, NONE);
        if let Ok((204, _)) = client::ask(at.http, "DELETE", &format!("/b/{name}"), b"") {
            self.history.acknowledge(&begun);
        }
    }

    /// A client, until the end.
    fn run(&self, seed: u64) {
        let mut noise = Noise(seed);
        while !self.has_ended.load(Ordering::Relaxed) {
            let name = format!("name-{}", noise.below(NAMES));
            let at = self.addresses.lock().unwrap()[noise.below(NODES)];
            match noise.below(20) {
                0..9 => drop(self.read(at, &name)),
                9..15 => self.write(at, &name, false),
                15..18 => self.write(at, &name, true),
                _ => self.remove(at, &name),
            }
        }
    }

    /// Waits for this many acknowledged uploads, or for a moment.
    fn wait(&self, uploads: usize, end: Instant) {
        while self.acknowledged.load(Ordering::Relaxed) < uploads && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

struct Site {
    database: Postgres,
    store: Server,
    receiver: Receiver,
    nodes: [Node; NODES],
}

impl Site {
    fn new(test: &str) -> Option<Self> {
        let (database, store) = (Postgres::new()?, Server::seaweed()?);
        // Makes the bucket.
        drop(store.storage(""));
        let receiver = Receiver::start();
        let start = |number| Node::start(test, number, &database, store.port, receiver.port);
        let nodes = [0, 1, 2].map(start);
        Some(Self { database, store, receiver, nodes })
    }

    /// Looks at what is left when clients have ended.
    fn check(&self, shared: &Shared) {
        assert_eq!(*shared.torn.lock().unwrap(), [] as [&str; 0]);
        for name in (0..NAMES).map(|number| format!("name-{number}")) {
            let at = |node: &Node| {
                let found = || shared.read(node.addresses(), &name);
                eventually("it answers", || found().is_some());
                found()
            };
            let found = [0, 1, 2].map(|number| at(&self.nodes[number]));
            assert!(found.iter().all(|version| *version == found[0]), "{name}: {found:?}");
        }
        assert_eq!(shared.history.faults(), [] as [&str; 0]);

        let rows = self.database.run(
            "SELECT encode(object, 'hex') FROM millrace_index.node WHERE object IS NOT NULL
            UNION SELECT encode(object, 'hex') FROM millrace_index.unnamed",
        );
        let mut objects = names(&self.store.storage(""), "/");
        objects.retain(|object| !rows.contains(&**object));
        assert_eq!(objects, [] as [&str; 0], "objects without a row");
        let left = "SELECT count(*) FROM millrace_index.unnamed
            WHERE coalesce(due, heard) < clock_timestamp() - interval '10 minutes'";
        // A node that is killed before its first minute is over has removed none.
        eventually("no object is left for ten minutes", || self.database.run(left) == "0");

        let events = || self.receiver.counts();
        let of = |name: &str| ("upload".to_owned(), "ann".to_owned(), format!("/b/{name}"));
        let count = |name: &str| events().get(&of(name)).copied().unwrap_or(0);
        for (name, (acknowledged, unanswered)) in shared.history.uploads() {
            eventually("each acknowledged upload has its event", || count(&name) >= acknowledged);
            let came = count(&name);
            let most = acknowledged + unanswered;
            assert!(came <= most, "{name}: {came} events of {acknowledged} to {most} uploads");
        }
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Has clients use the site while something is done to it.
fn while_used(site: &mut Site, act: impl FnOnce(&mut Site, &Shared)) -> Shared {
    let shared = Shared::new(&site.nodes);
    thread::scope(|scope| {
        for seed in 0..CLIENTS as u64 {
            let shared = &shared;
            scope.spawn(move || shared.run(seed));
        }
        let _end = EndOnDrop(&shared.has_ended);
        act(site, &shared);
    });
    shared
}

/// Ends the clients, also of a test that fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn killed_nodes_lose_nothing_that_was_acknowledged() {
    let Some(mut site) = Site::new("kills") else { return };
    let (uploads, kills) = (number("MILLRACE_SHARED_UPLOADS", 200), number("MILLRACE_SHARED_KILLS", 6));
    let seconds = number("MILLRACE_SHARED_SECONDS", 0);
    let (uploads, end) = match seconds {
        0 => (uploads as usize, Instant::now() + Duration::from_secs(24 * 3600)),
        seconds => (usize::MAX, Instant::now() + Duration::from_secs(seconds)),
    };
    let mut noise = Noise(7);
    let mut killed = 0;
    let shared = while_used(&mut site, |site, shared| {
        let mut at = 0;
        while at < uploads && Instant::now() < end {
            at = if seconds > 0 { at + 100 } else { at + (uploads / (kills as usize + 1)).max(1) };
            shared.wait(at.min(uploads), end);
            let number = noise.below(NODES);
            site.nodes[number].kill();
            site.nodes[number].run();
            shared.moved(number, &site.nodes[number]);
            killed += 1;
        }
    });
    site.check(&shared);
    let acknowledged = shared.acknowledged.load(Ordering::Relaxed);
    let reads = shared.history.reads();
    println!(
        "{acknowledged} uploads acknowledged, {reads} reads, {killed} kills: nothing lost, nothing stale"
    );
}

#[test]
fn a_database_and_a_store_that_are_away_lose_nothing() {
    let Some(mut site) = Site::new("outages") else { return };
    let outage = Duration::from_secs(number("MILLRACE_SHARED_OUTAGE", 3));
    let uploads = |shared: &Shared| shared.acknowledged.load(Ordering::Relaxed);
    let goes_on = |shared: &Shared| {
        let (before, began) = (uploads(shared), Instant::now());
        eventually("uploads go on", || uploads(shared) > before + 20);
        began.elapsed()
    };
    let mut after = [Duration::ZERO; 2];
    let shared = while_used(&mut site, |site, shared| {
        goes_on(shared);
        site.database.daemon.kill();
        thread::sleep(outage);
        site.database.start();
        after[0] = goes_on(shared);
        site.store.freeze(true);
        thread::sleep(outage);
        site.store.freeze(false);
        after[1] = goes_on(shared);
    });
    site.check(&shared);
    let (acknowledged, reads) = (uploads(&shared), shared.history.reads());
    println!(
        "{acknowledged} uploads acknowledged, {reads} reads; {outage:?} without the database and without the store: \
         nothing lost, nothing stale; 20 more uploads {after:?} behind them"
    );
}
