//! What a server holds after all that it went through: descriptors, ports, memory. These tests count what
//! the whole process has, so they run one at a time.

#[path = "../kit/mod.rs"]
mod kit;

mod endings;
mod faults;
mod fuzz;
mod hoards;
mod http;
mod leaks;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// To be held for the length of a test. What the process keeps for starting programs counts as there before.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    millrace_process::keep_descriptors().unwrap();
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asserts that the process comes to hold no more descriptors than this.
#[track_caller]
fn expect_descriptors(most: usize) {
    let mut now = 0;
    for _ in 0..1_000 {
        now = kit::descriptors();
        if now <= most {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let list: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .collect();
    panic!("{now} descriptors, {most} before: {list:?}");
}
