//! Killed in mid-upload: every name is absent or whole, nothing acknowledged is lost, and a sweep leaves nothing.
//!
//! The test starts itself again as a child that uploads in a loop, and kills it at a random moment, 50 times
//! (`MILLRACE_KILL_ROUNDS` says otherwise). A blob names its file and generation in its first line, and has one
//! length and one content for them, so a mixture or a part of one is seen.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{Scratch, path, upload};
use millrace_storage::{LocalOptions, LocalStorage};
use millrace_vfs::{Storage, Wait, WriteMode};

const CHILD: &str = "MILLRACE_KILL_CHILD";
const NAMES: u64 = 8;
const THREADS: u64 = 4;

#[test]
fn a_kill_at_any_moment_leaves_whole_files_and_loses_nothing_acknowledged() {
    let rounds = std::env::var("MILLRACE_KILL_ROUNDS").map_or(50, |rounds| rounds.parse().unwrap());
    let scratch = Scratch::new();
    let mut acknowledged = HashMap::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    let (mut uploads, mut swept) = (0, 0);
    for round in 0..rounds {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let moment =
            Moment { uploads: (seed >> 33) % 40, later: Duration::from_micros((seed >> 40) % 5_000) };
        let told = run_and_kill(scratch.path(), round, moment);
        uploads += told.len();
        for (name, generation) in told {
            let newest = acknowledged.entry(name).or_insert(0);
            *newest = generation.max(*newest);
        }
        check(scratch.path(), &acknowledged);
        // A file that is never written again needs no second check: a thousand rounds would take as many times longer.
        acknowledged.retain(|name, _| name.starts_with("old-"));
        remove_new_names(&scratch);
        let storage = LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap();
        let report = storage.sweep();
        assert_eq!((report.failed, report.living, report.walked), (0, 0, 0), "{report:?}");
        swept += report.removed;
        drop(storage);
        assert!(scratch.names().iter().all(|name| !name.starts_with('.')), "{:?}", scratch.names());
    }
    println!("{rounds} kills, {uploads} uploads acknowledged, {swept} leftovers swept");
    assert!(uploads as u64 > rounds, "the children worked: {uploads}");
}

fn remove_new_names(scratch: &Scratch) {
    for name in scratch.names().iter().filter(|name| name.starts_with("new-")) {
        std::fs::remove_file(scratch.path().join(name)).unwrap();
    }
}

/// When the child is killed: in the midst of what follows this many uploads, however long these take.
struct Moment {
    uploads: u64,
    later: Duration,
}

/// Answers every (name, generation) that the child said it had committed.
fn run_and_kill(root: &Path, round: u64, moment: Moment) -> Vec<(String, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1", "upload_until_killed"])
        .env(CHILD, root)
        .env("MILLRACE_KILL_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next().expect("the child begins").unwrap() != "ready" {}
    let (tell, told) = channel();
    let reader = std::thread::spawn(move || {
        let lines = lines.map_while(Result::ok);
        lines.filter_map(|line| parse_acknowledgement(&line)).inspect(|_| _ = tell.send(())).collect()
    });
    for _ in 0..moment.uploads {
        told.recv_timeout(Duration::from_secs(60)).expect("the child goes on");
    }
    std::thread::sleep(moment.later);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// A line that was cut off by the kill is no acknowledgement.
fn parse_acknowledgement(line: &str) -> Option<(String, u64)> {
    let (name, generation) = line.strip_prefix("done ")?.strip_suffix('.')?.split_once(' ')?;
    Some((name.to_owned(), generation.parse().ok()?))
}

/// The child: not a test of its own.
#[test]
fn upload_until_killed() {
    let Ok(root) = std::env::var(CHILD) else { return };
    let round: u64 = std::env::var("MILLRACE_KILL_ROUND").unwrap().parse().unwrap();
    let storage = LocalStorage::open(root.as_ref(), LocalOptions::default()).unwrap();
    println!("\nready");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let storage = &storage;
            scope.spawn(move || {
                for turn in 0.. {
                    let generation = (round + 1) * 1_000_000 + turn;
                    // Each thread has names of its own, so that generations of a name only grow. Every third
                    // is a name that was never there.
                    let name = match turn % 3 {
                        0 => format!("new-{round}-{thread}-{turn}"),
                        _ => format!("old-{}", thread + turn % (NAMES / THREADS) * THREADS),
                    };
                    commit(storage, &name, generation);
                }
            });
        }
    });
}

fn commit(storage: &LocalStorage, name: &str, generation: u64) {
    let blob = blob(name, generation);
    let mut upload =
        storage.open_write(&path(&format!("/{name}")), WriteMode::Replace, Wait::Allowed).unwrap();
    for part in blob.chunks(3000) {
        upload.write_all(part).unwrap();
    }
    upload.commit().unwrap();
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("done {name} {generation}.\n").as_bytes()).unwrap();
    stdout.flush().unwrap();
}

fn blob(name: &str, generation: u64) -> Vec<u8> {
    let mut blob = format!("{name} {generation}\n").into_bytes();
    let length = 500 + (generation * 7919) % 9000;
    blob.extend((0..length).map(|n| (n.wrapping_mul(generation | 1) >> 5) as u8));
    blob
}

fn check(root: &Path, acknowledged: &HashMap<String, u64>) {
    for entry in std::fs::read_dir(root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with('.') {
            continue;
        }
        let content = std::fs::read(root.join(&name)).unwrap();
        let first = String::from_utf8(content.split(|&byte| byte == b'\n').next().unwrap().to_vec()).unwrap();
        let generation: u64 =
            first.strip_prefix(&format!("{name} ")).expect("the file is its own").parse().unwrap();
        assert!(content == blob(&name, generation), "{name} of generation {generation} is not whole");
        assert!(
            acknowledged.get(&name).is_none_or(|&least| generation >= least),
            "{name} is older than promised"
        );
    }
    for name in acknowledged.keys() {
        assert!(root.join(name).exists(), "{name} was acknowledged and is gone");
    }
}

/// As when a second server starts on the same tree.
#[test]
fn a_sweep_beside_uploads_disturbs_none() {
    let scratch = Scratch::new();
    let uploading = LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap();
    let sweeping = LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let met = std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            let mut met = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let report = sweeping.sweep();
                assert_eq!((report.removed, report.failed), (0, 0), "nothing here is a leftover");
                assert_eq!(report.walked, 0, "no upload was driven out of the staging directory");
                met += report.living;
            }
            met
        });
        let results: Vec<_> =
            (0..500).map(|turn| upload(&uploading, "/f", format!("{turn}").as_bytes())).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        results.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
        sweeper.join().unwrap()
    });
    println!("the sweep met {met} living hidden files");
    drop((uploading, sweeping));
    assert_eq!(scratch.names(), ["f"]);
}

#[test]
fn a_sweep_takes_the_leftovers_of_the_dead_and_leaves_those_of_the_living() {
    let scratch = Scratch::new();
    let staging = scratch.path().join(".millrace-staging");
    std::fs::create_dir(&staging).unwrap();
    std::fs::create_dir_all(scratch.path().join("a/b")).unwrap();
    std::fs::write(staging.join(".millrace-1-2-3.part"), "dead").unwrap();
    std::fs::write(staging.join("another's"), "other").unwrap();
    std::fs::write(scratch.path().join("a/b/.millrace-1-2-5.part"), "dead, elsewhere").unwrap();
    std::fs::write(scratch.path().join("a/b/.millrace-not-ours"), "other").unwrap();
    let living = std::fs::File::create(staging.join(".millrace-1-2-4.part")).unwrap();
    living.lock().unwrap();
    let storage = LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap();
    let report = storage.sweep();
    assert_eq!((report.removed, report.living, report.failed, report.walked), (1, 1, 0, 0));
    // The mark of a process that was killed.
    std::fs::write(staging.join("elsewhere"), "").unwrap();
    let report = storage.sweep();
    assert_eq!(
        (report.removed, report.living, report.failed),
        (1, 2, 0),
        "the walk sees the staging directory again"
    );
    assert!(!staging.join("elsewhere").exists() && staging.join("another's").exists());
    assert!(!scratch.path().join("a/b/.millrace-1-2-5.part").exists());
    assert!(scratch.path().join("a/b/.millrace-not-ours").exists());
    drop(living);
    assert_eq!(storage.sweep().removed, 1);
    assert_eq!(storage.sweep(), millrace_storage::SweepReport::default());
}
