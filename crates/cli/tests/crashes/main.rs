//! Crashes of the real binary under mixed load, and what is left of acknowledged changes.
//!
//! Writers change files by FTP and HTTP, each in a folder of its own, and know what was acknowledged. After each
//! crash the folders are compared with that. Contents follow from a seed, as do the operations of each writer; the
//! moments of crashes and what a disk forgets follow from it too, as far as the clock lets them.
//!
//! Each test has a short form, and a variable that sets the number of crashes of a long one:
//!
//! | crash | variable |
//! |---|---|
//! | `kill -9` of the server (`kills.rs`) | `MILLRACE_KILLS=1000`, `MILLRACE_LEFTOVERS=1000000` |
//! | a disk that forgets (`forgetting.rs`) | `MILLRACE_FORGETS=1000` |
//! | a power cut of a guest (`power_cuts.rs`) | `MILLRACE_POWER_CUTS=500`; `MILLRACE_FILE_SYSTEMS`, `MILLRACE_LOAD_SECONDS`, `MILLRACE_QEMU_ACCEL` |
//!
//! `bench-runs/crashes/README.md` has results, and the packages that a guest needs.

mod block_log;
mod clients;
mod disk;
mod forgetting;
mod generations;
mod guest;
mod kills;
mod mount;
mod noise;
mod power_cuts;
mod receiver;
mod site;
mod tree;
mod writer;

/// The number of crashes: of a long run as the variable says, else of a short one.
fn rounds(variable: &str, short: usize) -> usize {
    std::env::var(variable).map_or(short, |number| number.parse().expect("a number of crashes"))
}
