//! What a small upload over an existing name costs, by the way it replaces the file.
//!
//! `cargo run --release -p millrace-storage --example upload_cost -- [DIRECTORY] [MILLISECONDS] [WAY]`
//!
//! Every thread replaces its own share of 128 names in one directory with 1 KiB, again and again. The table
//! says replacements a second for 1 to 32 threads, in one process. Ways are interleaved over three rounds and the
//! median is shown, because a disk's mood changes from second to second. The choice that came of it, with numbers,
//! is in `src/local/staged.rs`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags, RenameFlags};

const NAMES: usize = 128;
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const ROUNDS: usize = 3;
const CONTENT: [u8; 1024] = [b'x'; 1024];

/// A way to replace a file.
struct Way {
    name: &'static str,
    replace: fn(&Place, &str) -> rustix::io::Result<()>,
}

const WAYS: &[Way] = &[
    Way { name: "in place", replace: in_place },
    Way { name: "truncate and write", replace: truncate },
    Way { name: "unlink, create", replace: unlink_and_create },
    Way { name: "hidden name, rename", replace: hidden_and_rename },
    Way { name: "same, flush before rename", replace: hidden_flush_and_rename },
    Way { name: "staging directory, rename", replace: staging_directory },
    Way { name: "unnamed, link, rename", replace: unnamed_and_rename },
    Way { name: "unnamed, link in staging, rename", replace: unnamed_through_staging },
    Way { name: "hidden, exchange, unlink", replace: exchange_and_unlink },
    Way { name: "hidden, exchange, unlink later", replace: exchange_and_unlink_later },
    Way { name: "recycled, exchange", replace: recycle },
    Way { name: "recycled, flush, exchange", replace: recycle_and_flush },
    Way { name: "new name: hidden, rename", replace: new_hidden },
    Way { name: "new name: unnamed, link", replace: new_unnamed },
];

/// Where the files are.
struct Place {
    directory: OwnedFd,
    staging: OwnedFd,
    counter: AtomicU64,
    later: Sender<String>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let time =
        Duration::from_millis(arguments.next().map_or(500, |text| text.parse().expect("milliseconds")));
    let only = arguments.next().unwrap_or_default();
    print!("{:34}", "replacements a second, threads:");
    THREADS.iter().for_each(|threads| print!("{threads:>8}"));
    println!();
    let ways: Vec<&Way> = WAYS.iter().filter(|way| way.name.contains(&only)).collect();
    let mut rates = vec![vec![Vec::new(); THREADS.len()]; ways.len()];
    for _ in 0..ROUNDS {
        for (column, &threads) in THREADS.iter().enumerate() {
            for (way, rates) in ways.iter().zip(&mut rates) {
                rates[column].push(measure(&parent, way, threads, time));
            }
        }
    }
    for (way, rates) in ways.iter().zip(&mut rates) {
        print!("{:34}", way.name);
        for rates in rates {
            rates.sort_unstable();
            print!("{:>8}", rates[ROUNDS / 2]);
        }
        println!();
    }
}

fn measure(parent: &Path, way: &Way, threads: usize, time: Duration) -> u64 {
    let root = parent.join(format!("millrace-upload-cost-{}", std::process::id()));
    std::fs::create_dir_all(root.join("files")).expect("the directory can be made");
    std::fs::create_dir_all(root.join("staging")).expect("the directory can be made");
    let (later, unlinks) = channel();
    let place = Place {
        directory: open_directory(&root.join("files")),
        staging: open_directory(&root.join("staging")),
        counter: AtomicU64::new(0),
        later,
    };
    for name in 0..NAMES {
        create(&place.directory, &format!("f{name}")).expect("a file can be made");
        create(&place.staging, &format!("f{name}")).expect("a file can be made");
    }
    let unlinker = unlink_behind(open_directory(&root.join("files")), unlinks);
    // What the measurement before this one left to be written is not this one's cost.
    rustix::fs::syncfs(&place.directory).expect("the file system can be synchronised");
    let rate = run(&place, way, threads, time);
    drop(place);
    unlinker.join().expect("the unlinker ends with its channel");
    std::fs::remove_dir_all(&root).expect("the directory can be removed");
    rate
}

fn run(place: &Place, way: &Way, threads: usize, time: Duration) -> u64 {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, count) = (&stop, &count);
            scope.spawn(move || {
                for turn in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = thread + turn * threads % NAMES;
                    (way.replace)(place, &format!("f{}", name % NAMES)).expect("a file can be replaced");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    (count.into_inner() as f64 / begin.elapsed().as_secs_f64()) as u64
}

fn open_directory(path: &Path) -> OwnedFd {
    File::open(path).expect("the directory was just made").into()
}

fn unlink_behind(directory: OwnedFd, names: Receiver<String>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for name in names {
            let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
        }
    })
}

fn open(directory: &OwnedFd, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(directory, name, flags | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
}

fn create(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let file = open(directory, name, OFlags::CREATE)?;
    rustix::io::pwrite(&file, &CONTENT, 0)?;
    Ok(file)
}

fn hidden(place: &Place) -> String {
    format!(".hidden-{}", place.counter.fetch_add(1, Ordering::Relaxed))
}

fn rename(
    from: &OwnedFd,
    name: &str,
    to: &OwnedFd,
    target: &str,
    flags: RenameFlags,
) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(from, name, to, target, flags)
}

fn in_place(place: &Place, name: &str) -> rustix::io::Result<()> {
    let file = open(&place.directory, name, OFlags::empty())?;
    rustix::io::pwrite(&file, &CONTENT, 0).map(drop)
}

fn truncate(place: &Place, name: &str) -> rustix::io::Result<()> {
    let file = open(&place.directory, name, OFlags::TRUNC)?;
    rustix::io::pwrite(&file, &CONTENT, 0).map(drop)
}

fn unlink_and_create(place: &Place, name: &str) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(&place.directory, name, AtFlags::empty())?;
    create(&place.directory, name).map(drop)
}

fn hidden_and_rename(place: &Place, name: &str) -> rustix::io::Result<()> {
    let hidden = hidden(place);
    let _file = create(&place.directory, &hidden)?;
    rename(&place.directory, &hidden, &place.directory, name, RenameFlags::empty())
}

/// `POSIX_FADV_DONTNEED` begins the write-back that the rename would begin under the directory's lock.
fn hidden_flush_and_rename(place: &Place, name: &str) -> rustix::io::Result<()> {
    let hidden = hidden(place);
    let file = create(&place.directory, &hidden)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    rename(&place.directory, &hidden, &place.directory, name, RenameFlags::empty())
}

fn staging_directory(place: &Place, name: &str) -> rustix::io::Result<()> {
    let hidden = hidden(place);
    let _file = create(&place.staging, &hidden)?;
    rename(&place.staging, &hidden, &place.directory, name, RenameFlags::empty())
}

fn unnamed(place: &Place, directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let file = open(&place.directory, ".", OFlags::TMPFILE)?;
    rustix::io::pwrite(&file, &CONTENT, 0)?;
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, link, directory, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(file)
}

fn unnamed_and_rename(place: &Place, name: &str) -> rustix::io::Result<()> {
    let hidden = hidden(place);
    let _file = unnamed(place, &place.directory, &hidden)?;
    rename(&place.directory, &hidden, &place.directory, name, RenameFlags::empty())
}

fn unnamed_through_staging(place: &Place, name: &str) -> rustix::io::Result<()> {
    let hidden = hidden(place);
    let _file = unnamed(place, &place.staging, &hidden)?;
    rename(&place.staging, &hidden, &place.directory, name, RenameFlags::empty())
}

fn exchange_and_unlink(place: &Place, name: &str) -> rustix::io::Result<()> {
    let hidden = hidden(place);
    let _file = create(&place.directory, &hidden)?;
    rename(&place.directory, &hidden, &place.directory, name, RenameFlags::EXCHANGE)?;
    rustix::fs::unlinkat(&place.directory, hidden, AtFlags::empty())
}

fn exchange_and_unlink_later(place: &Place, name: &str) -> rustix::io::Result<()> {
    let hidden = hidden(place);
    let _file = create(&place.directory, &hidden)?;
    rename(&place.directory, &hidden, &place.directory, name, RenameFlags::EXCHANGE)?;
    place.later.send(hidden).expect("the unlinker runs as long as the place");
    Ok(())
}

fn recycle(place: &Place, name: &str) -> rustix::io::Result<()> {
    let file = open(&place.staging, name, OFlags::empty())?;
    rustix::io::pwrite(&file, &CONTENT, 0)?;
    rename(&place.staging, name, &place.directory, name, RenameFlags::EXCHANGE)
}

fn recycle_and_flush(place: &Place, name: &str) -> rustix::io::Result<()> {
    let file = open(&place.staging, name, OFlags::empty())?;
    rustix::io::pwrite(&file, &CONTENT, 0)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    rename(&place.staging, name, &place.directory, name, RenameFlags::EXCHANGE)
}

fn new_name(place: &Place) -> String {
    format!("new-{}", place.counter.fetch_add(1, Ordering::Relaxed))
}

fn new_hidden(place: &Place, _: &str) -> rustix::io::Result<()> {
    let hidden = hidden(place);
    let _file = create(&place.directory, &hidden)?;
    rename(&place.directory, &hidden, &place.directory, &new_name(place), RenameFlags::empty())
}

fn new_unnamed(place: &Place, _: &str) -> rustix::io::Result<()> {
    unnamed(place, &place.directory, &new_name(place)).map(drop)
}
