//! Ports for programs that cannot be asked for port 0.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};

/// That many consecutive unused ports: below those that the system gives to outgoing connections.
pub(crate) fn free_ports(count: u16) -> RangeInclusive<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = NEXT.fetch_add(count, Ordering::Relaxed);
        let start = 10_000 + (std::process::id() as u16).wrapping_mul(257).wrapping_add(offset) % 20_000;
        let range = start..=start + count - 1;
        if range.clone().all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return range;
        }
    }
}

/// One of them.
pub(crate) fn free_port() -> u16 {
    *free_ports(1).start()
}
