//! Crashes of the real binary under mixed load, and what is left of acknowledged changes.
//!
//! Writers change files by FTP and HTTP, each in a folder of its own, and know what was acknowledged. After each
//! crash the folders are compared with that. Contents follow from a seed, as do the operations of each writer; the
//! moments of crashes and what a disk forgets follow from it too, as far as the clock lets them.
//!
//! Each test has a short form, and a variable that sets the number of crashes of a long one:
//! `MILLRACE_KILLS=1000 cargo test -p millrace --test crashes kill -- --nocapture`.

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
