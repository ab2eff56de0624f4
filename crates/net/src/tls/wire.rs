//! Bytes on their way to a socket: filled at the end, taken from the front, zeroed once.

use std::io;

/// A buffer between the code that makes records and the socket.
#[derive(Debug, Default)]
pub struct Wire {
    /// Initialised to its length, so that making room again costs nothing.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Wire {
    /// The pending bytes.
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns true if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes the first `count` bytes.
    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Gives the memory back, if nothing waits in it.
    pub fn release(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Room for `count` more bytes; [`Wire::fill`] says how many of them were used.
    pub(super) fn room(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < count && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < count {
            self.bytes.resize(self.end + count, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Adds the first `count` bytes of the free space.
    pub(super) fn fill(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }
}

/// Why [`Channel::write_from`](super::Channel::write_from) has written nothing.
#[derive(Debug)]
pub enum Unwritten {
    /// The source of the data could not be read.
    Source(io::Error),
    /// The socket takes nothing: for now, where it is [`io::ErrorKind::WouldBlock`]. Or nothing can be encrypted any more.
    Socket(io::Error),
}

impl Unwritten {
    /// The keys are used up, or worse.
    pub(super) fn sealing(error: rustls::Error) -> Self {
        Self::Socket(io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_in_order_and_space_is_reused() {
        let mut wire = Wire::default();
        for round in 0..10u8 {
            wire.room(4)[..4].copy_from_slice(&[round, 1, 2, 3]);
            wire.fill(4);
            assert_eq!(wire.pending(), [round, 1, 2, 3]);
            wire.consume(1);
            assert_eq!(wire.pending(), [1, 2, 3]);
            wire.consume(3);
            assert!(wire.is_empty());
        }
        assert_eq!(wire.bytes.len(), 4);
        wire.release();
        assert_eq!(wire.bytes.capacity(), 0);
    }
}
