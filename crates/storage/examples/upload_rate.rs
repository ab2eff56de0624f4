//! Uploads of 1 KiB a second through [`LocalStorage`] itself, from 1, 4, 16 and 100 threads, at each durability.
//!
//! `cargo run --release -p millrace-storage --example upload_rate -- [DIRECTORY] [MILLISECONDS]`
//!
//! To be read beside `upload_cost`, which measures the bare system calls.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_storage::{Durability, LocalOptions, LocalStorage, Uploads};
use millrace_vfs::{Storage, VirtualPath, Wait, WriteMode};

const NAMES: u64 = 128;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let time =
        Duration::from_millis(arguments.next().map_or(500, |text| text.parse().expect("milliseconds")));
    for threads in [1, 4, 16, 100] {
        // More threads than names would be told that others are at them.
        let ways = if threads < 100 { &[Uploads::Staged, Uploads::InPlace][..] } else { &[Uploads::Staged] };
        for &uploads in ways {
            for is_new in [false, true] {
                for durability in [Durability::None, Durability::Whole, Durability::Full] {
                    let options = LocalOptions { uploads, durability, ..LocalOptions::default() };
                    let rate = measure(&parent, options, is_new, threads, time);
                    let names = if is_new { "new names" } else { "old names" };
                    println!("{threads:>3} threads, {uploads:?}, {names}, {durability:?}: {rate:>8.0}/s");
                }
            }
        }
    }
}

fn measure(parent: &Path, options: LocalOptions, is_new: bool, threads: u64, time: Duration) -> f64 {
    let root = parent.join(format!("millrace-upload-rate-{}", std::process::id()));
    std::fs::create_dir(&root).expect("the directory can be made");
    let storage = LocalStorage::open(&root, options).expect("the directory can be served");
    (0..NAMES).for_each(|name| upload(&storage, name));
    let count = AtomicU64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (storage, count) = (&storage, &count);
            scope.spawn(move || {
                for turn in 0.. {
                    if begin.elapsed() > time {
                        break;
                    }
                    let name = thread + turn * threads;
                    upload(storage, if is_new { NAMES + name } else { name % NAMES });
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let rate = count.into_inner() as f64 / begin.elapsed().as_secs_f64();
    std::fs::remove_dir_all(&root).expect("the directory can be removed");
    rate
}

fn upload(storage: &LocalStorage, name: u64) {
    let path = VirtualPath::parse(format!("f{name}").as_bytes()).expect("the name is well-formed");
    let mut upload = match storage.open_write(&path, WriteMode::Replace, Wait::Never) {
        Ok(upload) => upload,
        Err(_) => {
            storage.open_write(&path, WriteMode::Replace, Wait::Allowed).expect("the name can be written")
        }
    };
    upload.write_all(&[b'x'; 1024]).expect("there is room");
    upload.commit().expect("the name can be replaced");
}
