//! Bytes on their way to a socket: filled at the end, taken from the front, zeroed once.
//!
//! A busy connection needs this memory for a moment, and another one needs it next. So each thread keeps a few buffers
//! that were given back: they need not be zeroed again.

use std::cell::RefCell;

/// Buffers that a thread keeps, and how large they are at most.
const SPARES: usize = 4;
const LARGEST: usize = 128 * 1024;

/// The least that is kept, and that is asked of what is kept: less is zeroed in no time.
const LEAST: usize = 8 * 1024;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer between the code that makes bytes and the socket.
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
            give_back(std::mem::take(&mut self.bytes));
            (self.start, self.end) = (0, 0);
        }
    }

    /// Adds these bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.fill(bytes.len());
    }

    /// How much memory it has.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Room for `count` more bytes; [`Wire::fill`] says how many of them were used.
    pub fn room(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.is_empty() && count >= LEAST {
            self.bytes = spare();
        }
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
    pub fn fill(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.bytes));
    }
}

/// Keeps memory for the next that needs some, unless there is enough of it.
fn give_back(bytes: Vec<u8>) {
    if !(LEAST..=LARGEST).contains(&bytes.len()) {
        return;
    }
    // A thread that ends keeps nothing.
    let _ = SPARE.try_with(|spare| {
        if let Ok(mut spare) = spare.try_borrow_mut()
            && spare.len() < SPARES
        {
            spare.push(bytes);
        }
    });
}

/// Memory that was given back, or none.
fn spare() -> Vec<u8> {
    SPARE.try_with(|spare| spare.try_borrow_mut().ok()?.pop()).ok().flatten().unwrap_or_default()
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

    #[test]
    fn memory_that_was_given_back_is_the_next_ones_and_a_small_buffer_takes_none() {
        let mut first = Wire::default();
        first.append(&[1; 64 * 1024]);
        let place = first.bytes.as_ptr();
        drop(first);
        let mut small = Wire::default();
        small.append(&[2; 100]);
        assert_eq!(small.capacity(), 100);
        let mut second = Wire::default();
        second.append(&[3; 32 * 1024]);
        assert_eq!((second.bytes.as_ptr(), second.capacity()), (place, 64 * 1024));
        assert_eq!(second.pending(), [3; 32 * 1024]);
    }

    #[test]
    fn a_thread_keeps_a_few_buffers_and_no_huge_one() {
        let mut wires: Vec<Wire> = (0..10).map(|_| Wire::default()).collect();
        wires.iter_mut().for_each(|wire| wire.append(&[0; LEAST]));
        let mut huge = Wire::default();
        huge.append(&vec![0; LARGEST + 1]);
        drop(huge);
        drop(wires);
        assert_eq!(
            SPARE.with(|spare| spare.borrow().iter().map(Vec::len).collect::<Vec<_>>()),
            [LEAST; SPARES]
        );
    }
}
