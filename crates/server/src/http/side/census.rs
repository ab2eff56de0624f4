//! What a client of HTTP/2 says besides its requests: frames that cost us work, and it nothing.
//!
//! `PING` and `SETTINGS` want an answer each, `RST_STREAM` undoes a request that has begun (CVE-2023-44487), and
//! `PRIORITY`, `WINDOW_UPDATE` or an empty `DATA` want to be read. None of them is wrong by itself, so hyper takes
//! any number of most of them.
//!
//! The invariant: each such frame is paid for, by time or by bytes that the client has taken from us; who cannot pay is
//! not read from any more. Requests themselves are not counted here: they are bounded by how many run at a time.

use std::io;
use std::time::Instant;

/// What a connection begins with, before the first frame (RFC 9113 section 3.4).
const PREFACE: u32 = 24;

/// Bytes of a frame before its content.
const HEAD: usize = 9;

/// Frames that may come at once: more than a browser has streams to give up, ten times over.
const MOST: u64 = 1_000;

/// Frames a second for which nothing else is asked.
const EACH_SECOND: u64 = 100;

/// Bytes sent that pay for one frame. A client opens the window by at least a few kilobytes at a time.
const BYTES: u64 = 512;

/// Thousandths of a frame, so that a millisecond pays for something.
const FRAME: u64 = 1_000;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// Counts the frames of a connection, however they are cut into reads.
#[derive(Debug)]
pub(super) struct Census {
    /// Bytes of the preface or of a frame's content that are passed over.
    left: u32,
    head: [u8; HEAD],
    /// How much of it is there.
    known: usize,
    /// What may be spent, in thousandths of a frame.
    purse: u64,
    /// When time last paid into it.
    paid: Instant,
}

impl Census {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: PREFACE, head: [0; HEAD], known: 0, purse: MOST * FRAME, paid: now }
    }

    /// The client has taken so many bytes.
    pub(super) fn took(&mut self, bytes: usize) {
        self.earn(bytes as u64 * FRAME / BYTES);
    }

    /// Looks at what came. The error is the connection's end.
    pub(super) fn look(&mut self, mut bytes: &[u8], now: Instant) -> io::Result<()> {
        let elapsed = now.saturating_duration_since(self.paid);
        self.paid = now;
        self.earn(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).saturating_mul(EACH_SECOND));
        while !bytes.is_empty() {
            let passed = bytes.len().min(self.left as usize);
            self.left -= passed as u32;
            bytes = &bytes[passed..];
            let more = bytes.len().min(HEAD - self.known);
            self.head[self.known..self.known + more].copy_from_slice(&bytes[..more]);
            self.known += more;
            bytes = &bytes[more..];
            if self.known == HEAD {
                self.known = 0;
                self.count()?;
            }
        }
        Ok(())
    }

    fn earn(&mut self, earned: u64) {
        self.purse = self.purse.saturating_add(earned).min(MOST * FRAME);
    }

    /// Takes the price of the frame whose head is whole.
    fn count(&mut self) -> io::Result<()> {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.left = u32::from_be_bytes([0, high, middle, low]);
        let is_free = match kind {
            DATA => self.left > 0 || flags & END_STREAM != 0,
            // How many of them there may be is known to who puts them together.
            HEADERS | CONTINUATION => true,
            _ => false,
        };
        match self.purse.checked_sub(if is_free { 0 } else { FRAME }) {
            Some(rest) => {
                self.purse = rest;
                Ok(())
            }
            None => Err(io::Error::other("it sends frames that ask for nothing, faster than they are worth")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, length: u32) -> Vec<u8> {
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
        // Content that looks like other frames.
        frame.resize(HEAD + length as usize, PING);
        frame
    }

    fn begun(now: Instant) -> Census {
        let mut census = Census::new(now);
        census.look(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", now).unwrap();
        census
    }

    #[test]
    fn what_asks_for_nothing_is_bounded_however_it_is_cut() {
        let now = Instant::now();
        let flood = frame(PING, 0, 8).repeat(MOST as usize);
        for piece in [1, 7, 9, 17, 64_000] {
            let mut census = begun(now);
            for piece in flood.chunks(piece) {
                census.look(piece, now).unwrap();
            }
            assert!(census.look(&frame(PING, 0, 8), now).is_err(), "{piece}");
        }
    }

    #[test]
    fn time_and_bytes_that_were_taken_pay() {
        let now = Instant::now();
        let mut census = begun(now);
        census.look(&frame(3, 0, 4).repeat(MOST as usize), now).unwrap();
        let later = now + Duration::from_millis(1_000);
        census.look(&frame(3, 0, 4).repeat(EACH_SECOND as usize), later).unwrap();
        assert!(census.look(&frame(3, 0, 4), later).is_err());
        let mut census = begun(now);
        for _ in 0..100_000 {
            census.took(BYTES as usize);
            census.look(&frame(8, 0, 4), now).unwrap();
        }
    }

    #[test]
    fn requests_and_their_bodies_cost_nothing_here() {
        let now = Instant::now();
        let mut census = begun(now);
        for _ in 0..10 * MOST {
            census.look(&frame(HEADERS, 4, 30), now).unwrap();
            census.look(&frame(DATA, 0, 3), now).unwrap();
            census.look(&frame(DATA, END_STREAM, 0), now).unwrap();
        }
        census.look(&frame(DATA, 0, 0).repeat(MOST as usize), now).unwrap();
        assert!(census.look(&frame(DATA, 0, 0), now).is_err());
    }
}
