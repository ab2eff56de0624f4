//! What the tests on real sockets share: a server on a free port, a client that sends exactly what it is
//! told to and waits for nothing without a deadline, and a look at what this process holds.

// Every test binary uses its own part of this.
#![allow(dead_code, unused_imports)]

mod client;
mod gate;
mod http;
pub(crate) mod http2;
mod ports;
mod scratch;
mod server;
mod tls;

use std::time::{Duration, Instant};

pub(crate) use client::{
    Client, Reply, Sink, data_from, parse_passive, port_line, reset, reset_and_arrive, wait_until_arrived,
};
pub(crate) use gate::{AtLogin, Gate};
pub(crate) use http::{
    HttpClient, Response, ServedHttp, http_config, https_config, serve_http, serve_http_with,
};
pub(crate) use scratch::Scratch;
pub(crate) use tls::{Secured, TlsClient, connector, pair, policy, replace};

pub(crate) use ports::free_ports;
pub(crate) use server::{Served, config, serve, serve_with};

/// When a test gives up: nothing here takes a tenth of it on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `claim` holds.
pub(crate) fn eventually(what: &str, mut claim: impl FnMut() -> bool) {
    within(PATIENCE, what, &mut claim);
}

/// Waits until `claim` holds, and for no longer than this.
pub(crate) fn within(most: Duration, what: &str, mut claim: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !claim() {
        assert!(begin.elapsed() < most, "not within {most:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How many descriptors this process has open.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// What this process keeps in memory, in bytes.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: usize =
        status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("statm has a second field");
    pages * 4096
}

/// What of memory is this process's, in bytes: its own pages, and its share of others (PSS).
pub(crate) fn proportional() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("/proc is mounted");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("it has this line");
    let kilobytes: usize = line.trim().trim_end_matches("kB").trim().parse().expect("it is a number");
    kilobytes * 1024
}

/// Bytes that tell where they belong, so that a shift or a mix-up shows.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ (at >> 8) as u8).collect()
}

/// A generator of numbers that are the same in every run with the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }
}
