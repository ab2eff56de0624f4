//! How quickly a directory is listed, and with how much memory.
//!
//! `cargo run --release -p millrace-storage --example list_rate -- [DIRECTORY] [ENTRIES]`
//!
//! Makes a directory of empty files (a million, unless told otherwise), then reads it by names and with metadata,
//! three times each, in batches of 1,000, and removes it.

use std::path::PathBuf;
use std::time::Instant;

use millrace_storage::{LocalOptions, LocalStorage};
use millrace_vfs::{Storage, VirtualPath};

const BATCH: usize = 1000;
const ROUNDS: usize = 3;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let entries = arguments.next().map_or(1_000_000, |text| text.parse().expect("a number of entries"));
    let root = parent.join(format!("millrace-list-rate-{}", std::process::id()));
    std::fs::create_dir(&root).expect("the directory can be made");
    for entry in 0..entries {
        std::fs::File::create(root.join(format!("file-{entry:07}"))).expect("a file can be made");
    }
    let storage = LocalStorage::open(&root, LocalOptions::default()).expect("the directory can be served");
    let before = resident_kib();
    for _ in 0..ROUNDS {
        report("names", || count_names(&storage));
        report("entries", || count_entries(&storage));
    }
    println!("memory: {} KiB more than before", resident_kib().saturating_sub(before));
    std::fs::remove_dir_all(&root).expect("the directory can be removed");
}

fn report(what: &str, count: impl Fn() -> usize) {
    let begin = Instant::now();
    let count = count();
    let seconds = begin.elapsed().as_secs_f64();
    println!("{what:8} {count:>9} in {seconds:.3} s: {:>9.0}/s", count as f64 / seconds);
}

fn count_names(storage: &LocalStorage) -> usize {
    let mut directory = storage.open_directory(&VirtualPath::root()).expect("the root can be listed");
    let mut count = 0;
    loop {
        match directory.next_names(&mut |_| count += 1, BATCH).expect("the root can be read") {
            0 => return count,
            _ => continue,
        }
    }
}

fn count_entries(storage: &LocalStorage) -> usize {
    let mut directory = storage.open_directory(&VirtualPath::root()).expect("the root can be listed");
    let (mut count, mut batch) = (0, Vec::new());
    loop {
        batch.clear();
        directory.next_batch(&mut batch, BATCH).expect("the root can be read");
        if batch.is_empty() {
            return count;
        }
        count += batch.len();
    }
}

/// What the process holds in memory, and the most that it ever held is no more than this once it was read.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    peak.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
