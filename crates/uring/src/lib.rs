//! Readiness from io_uring: the kernel is told once which descriptors to watch, and posts a completion whenever one of
//! them becomes readable (`IORING_OP_POLL_ADD` with `IORING_POLL_ADD_MULTI`, Linux 5.13).
//!
//! This is the one crate of the workspace with `unsafe` code, in the one function [`Ring::push`], because no safe
//! crate offers this operation alone: `io-uring` and `rustix` leave it to their callers that buffers outlive an
//! operation, and those that take it upon themselves (`compio-driver`, `tokio-uring`, `a10`) bring a runtime, or an
//! allocation an operation, which would be measured with it. The invariant that makes it sound: **no operation
//! that points to memory can be made here.** Polling names a descriptor by its number and nothing else.

#![cfg(target_os = "linux")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use io_uring::squeue::{Entry, PushError};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

/// `POLLIN`, which is the same number on every Linux.
const READABLE: u32 = 1;

/// A ring that watches descriptors.
pub struct Ring {
    ring: IoUring,
}

impl Ring {
    /// A ring with room for so many submissions at a time, and twice as many completions.
    ///
    /// Fails where the kernel is too old or does not permit it (`kernel.io_uring_disabled`, seccomp in containers).
    pub fn new(entries: u32) -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(entries)? })
    }

    /// Watches a descriptor until it is closed: a completion with this token whenever it becomes readable.
    pub fn watch(&mut self, descriptor: impl AsFd, token: u64) -> io::Result<()> {
        let number = Fd(descriptor.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(number, READABLE).multi(true).build().user_data(token);
        if self.push(&entry).is_err() {
            self.ring.submit()?;
            self.push(&entry).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Waits for a completion, or no longer than this; tells the tokens of all that have come.
    ///
    /// `was_last` says that the kernel has stopped watching that descriptor: watch it anew.
    pub fn wait(&mut self, timeout: Duration, mut tell: impl FnMut(u64, bool)) -> io::Result<()> {
        let timeout = Timespec::from(timeout);
        let arguments = SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if error.raw_os_error() != Some(TIME_IS_UP) => return Err(error),
            _ => {}
        }
        for completion in self.ring.completion() {
            tell(completion.user_data(), !cqueue::more(completion.flags()));
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    fn push(&mut self, entry: &Entry) -> Result<(), PushError> {
        // SAFETY: what an entry points to must stay valid until its operation has ended. Entries are made in `watch`
        // alone, of an operation that points to nothing: a descriptor that is closed early is answered with EBADF.
        unsafe { self.ring.submission().push(entry) }
    }
}

/// `ETIME`.
const TIME_IS_UP: i32 = 62;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// `None` where the kernel does not permit it: that is an answer, and not this crate's fault.
    fn ring() -> Option<Ring> {
        Ring::new(2).ok()
    }

    fn heard(ring: &mut Ring, timeout: Duration) -> Vec<u64> {
        let mut tokens = Vec::new();
        ring.wait(timeout, |token, _| tokens.push(token)).unwrap();
        tokens
    }

    #[test]
    fn each_time_that_bytes_come_it_tells() {
        let Some(mut ring) = ring() else { return };
        // More than the ring has entries.
        let mut pairs: Vec<_> = (0..9).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, pair) in (0..).zip(&pairs) {
            ring.watch(&pair.0, token).unwrap();
        }
        for _ in 0..3 {
            pairs[7].1.write_all(b"x").unwrap();
            assert_eq!(heard(&mut ring, Duration::from_secs(10)), [7]);
            pairs[7].0.read_exact(&mut [0]).unwrap();
        }
        assert!(heard(&mut ring, Duration::from_millis(1)).is_empty());
    }

    #[test]
    fn a_descriptor_that_is_closed_is_no_danger() {
        let Some(mut ring) = ring() else { return };
        let pair = UnixStream::pair().unwrap();
        ring.watch(&pair.0, 1).unwrap();
        drop(pair);
        let mut last = false;
        ring.wait(Duration::from_secs(10), |_, was_last| last = was_last).unwrap();
        assert!(last);
    }
}
