//! The receive buffer of connections whose bytes the kernel drops.
//!
//! On loopback the side that opens the window also sends what the other has waiting, on its own processor time. A window of
//! the usual 64 KiB therefore has the client do most of the server's sending, and wake the server for each 64 KiB. A buffer
//! that holds the download leaves the sending to the server. Below 512 KiB that saves nothing, and beyond 16 MiB, or on a kept
//! connection, the kernel's own buffer, which grows, does as well.
//! Measured: bench-runs/client-bulk.

use std::fs;
use std::net::SocketAddr;

use crate::plan::{Cell, HttpVersion, Op, Prot, ReceiveBuffer};
use crate::target::{Target, is_own_machine};

/// The chosen size; the kernel doubles it for its own overhead.
const CHOSEN: usize = 2 << 20;
/// Downloads of many first windows that do not last long enough for the kernel's own buffer to grow.
const SIZES: std::ops::RangeInclusive<u64> = 512 << 10..=16 << 20;

/// Which buffer the data connections of a cell get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffers {
    /// The kernel's own, which grows.
    System,
    /// This one for all.
    Fixed(usize),
    /// The chosen one for downloads of a fitting size.
    Fitting,
}

impl Buffers {
    /// Returns the buffers of a cell, as far as this machine permits them.
    pub(super) fn of(target: &Target, server: SocketAddr, cell: &Cell) -> Self {
        let largest = fs::read_to_string("/proc/sys/net/core/rmem_max");
        let is_permitted =
            largest.is_ok_and(|text| text.trim().parse().is_ok_and(|most: usize| most >= CHOSEN));
        match cell.settings.rcvbuf {
            ReceiveBuffer::Bytes(size) => Self::Fixed(size as usize),
            ReceiveBuffer::Auto if is_permitted && is_own_machine(server.ip()) && drops(target, cell) => {
                Self::Fitting
            }
            ReceiveBuffer::Auto | ReceiveBuffer::System => Self::System,
        }
    }

    /// Returns the buffer of a connection that brings this many bytes.
    pub(super) fn for_download(self, bytes: Option<u64>) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(size),
            Self::Fitting => bytes.filter(|bytes| SIZES.contains(bytes)).map(|_| CHOSEN),
            Self::System => None,
        }
    }
}

/// Returns whether the bytes of a cell's downloads are dropped as they come, at full speed.
fn drops(target: &Target, cell: &Cell) -> bool {
    let settings = &cell.settings;
    let is_clear = match target.scheme.is_http() {
        true => !target.scheme.is_secure() && settings.http != HttpVersion::Http2,
        false => !target.scheme.is_secure() || settings.prot == Prot::Clear,
    };
    let is_download = match cell.op {
        Op::Retr | Op::Replay => true,
        Op::Get => !settings.keep_alive,
        _ => false,
    };
    is_download && is_clear && !settings.verify && settings.read_rate.is_none() && settings.chunk.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn drops_of(url: &str, flags: &[(&str, &str)]) -> bool {
        let plan = Plan::new(url, None, flags).unwrap();
        drops(&plan.target, &plan.cells()[0])
    }

    #[test]
    fn bytes_that_something_looks_at_are_not_dropped() {
        for (url, flags) in [
            ("ftp://127.0.0.1/", &[("ops", "retr")][..]),
            ("ftpes://127.0.0.1/", &[("ops", "retr"), ("prot", "clear")]),
            ("http://127.0.0.1/", &[("ops", "get"), ("keep-alive", "off")]),
        ] {
            assert!(drops_of(url, flags), "{url} {flags:?}");
        }
        for (url, flags) in [
            ("ftp://127.0.0.1/", &[("ops", "stor")][..]),
            ("ftp://127.0.0.1/", &[("ops", "retr"), ("verify", "")]),
            ("ftp://127.0.0.1/", &[("ops", "retr"), ("read-rate", "1k")]),
            ("ftp://127.0.0.1/", &[("ops", "retr"), ("chunk", "1k")]),
            ("ftpes://127.0.0.1/", &[("ops", "retr")]),
            ("https://127.0.0.1/", &[("ops", "get"), ("keep-alive", "off")]),
            ("http://127.0.0.1/", &[("ops", "get"), ("keep-alive", "off"), ("http2", "")]),
            ("http://127.0.0.1/", &[("ops", "get")]),
        ] {
            assert!(!drops_of(url, flags), "{url} {flags:?}");
        }
    }

    #[test]
    fn the_chosen_buffer_is_for_downloads_that_it_holds_or_nearly() {
        let chosen = |bytes| Buffers::Fitting.for_download(bytes);
        assert_eq!([None, Some(1024), Some(100 << 10), Some(64 << 20)].map(chosen), [None; 4]);
        assert_eq!([Some(512 << 10), Some(1 << 20), Some(16 << 20)].map(chosen), [Some(CHOSEN); 3]);
        assert_eq!(Buffers::Fixed(7).for_download(None), Some(7));
        assert_eq!(Buffers::System.for_download(Some(1 << 20)), None);
    }

    #[test]
    fn only_this_machine_and_no_word_against_it_have_a_buffer_chosen() {
        let of = |server: &str, rcvbuf| {
            let plan = Plan::new("ftp://127.0.0.1/", None, &[("ops", "retr"), ("rcvbuf", rcvbuf)]).unwrap();
            Buffers::of(&plan.target, server.parse().unwrap(), &plan.cells()[0])
        };
        assert_eq!(of("127.0.0.1:21", "8k"), Buffers::Fixed(8192));
        assert_eq!(of("127.0.0.1:21", "off"), Buffers::System);
        assert_eq!(of("192.0.2.1:21", "auto"), Buffers::System);
    }
}
