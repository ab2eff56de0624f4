//! Readiness from io_uring: the kernel is told once which descriptors to watch, and posts a completion whenever one of
//! them becomes ready (`IORING_OP_POLL_ADD` with `IORING_POLL_ADD_MULTI`, Linux 5.13).
//!
//! This is one of the three places of the workspace with `unsafe` code (the others: `crates/process`, `crates/privsep`): the one function
//! [`Ring::push`], because no safe
//! crate offers this operation alone: `io-uring` and `rustix` leave it to their callers that buffers outlive an
//! operation, and those that take it upon themselves (`compio-driver`, `tokio-uring`, `a10`) bring a runtime, or an
//! allocation an operation, which would be measured with it. The invariant that makes it sound: **no operation
//! that points to memory can be made here.** Polling names a descriptor by its number and nothing else.

#![cfg(target_os = "linux")]

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::squeue::{Entry, PushError};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

/// Something to read: `POLLIN`, which is the same number on every Linux.
pub const READABLE: u32 = 0x1;
/// Room to write: `POLLOUT`.
pub const WRITABLE: u32 = 0x4;
/// The peer's end of its stream has come: `POLLRDHUP`, as x86 and ARM have it.
pub const HUNG_UP: u32 = 0x2000;

/// The `user_data` of operations whose completion is ignored.
const IGNORED: u64 = u64::MAX;

/// What the kernel has to tell of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Whose.
    pub token: u64,
    /// What it is ready for: [`READABLE`], [`WRITABLE`], [`HUNG_UP`]; nothing where the watch has failed or was ended.
    pub ready: u32,
    /// The kernel has stopped watching: watch it anew.
    pub was_last: bool,
}

/// A ring that watches descriptors.
pub struct Ring {
    ring: IoUring,
}

impl Ring {
    /// A ring with room for this many submissions at a time, and twice as many completions.
    ///
    /// Fails where the kernel is too old or does not permit it (`kernel.io_uring_disabled`, seccomp in containers).
    pub fn new(entries: u32) -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(entries)? })
    }

    /// Watches a descriptor: a completion with this token whenever it becomes ready for one of these, or only the
    /// next time.
    ///
    /// The kernel holds what it watches open, also when the descriptor is closed, until it is [forgotten](Self::forget).
    pub fn watch(&mut self, descriptor: &impl AsRawFd, what: u32, once: bool, token: u64) -> io::Result<()> {
        let number = Fd(descriptor.as_raw_fd());
        self.add(&opcode::PollAdd::new(number, what).multi(!once).build().user_data(token))
    }

    /// Ends the watch with this token, from the next [`wait`](Self::wait) on.
    pub fn forget(&mut self, token: u64) -> io::Result<()> {
        self.add(&opcode::PollRemove::new(token).build().user_data(IGNORED))
    }

    /// Waits for a completion, or no longer than this; tells all that have come.
    pub fn wait(&mut self, timeout: Duration, mut tell: impl FnMut(Completion)) -> io::Result<()> {
        let timeout = Timespec::from(timeout);
        let arguments = SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if error.raw_os_error() != Some(TIME_IS_UP) => return Err(error),
            _ => {}
        }
        for completion in self.ring.completion() {
            if completion.user_data() != IGNORED {
                let was_last = !cqueue::more(completion.flags());
                let ready = u32::try_from(completion.result()).unwrap_or(0);
                tell(Completion { token: completion.user_data(), ready, was_last });
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: &Entry) -> io::Result<()> {
        if self.push(entry).is_err() {
            self.ring.submit()?;
            self.push(entry).map_err(io::Error::other)?;
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    fn push(&mut self, entry: &Entry) -> Result<(), PushError> {
        // SAFETY: what an entry points to must stay valid until its operation has ended. Entries are made in `watch`
        // and `forget` alone, of operations that point to nothing: a descriptor that is closed early is answered with
        // EBADF, an unknown token with ENOENT.
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
        ring.wait(timeout, |completion| tokens.push(completion.token)).unwrap();
        tokens
    }

    #[test]
    fn each_time_that_bytes_come_it_tells() {
        let Some(mut ring) = ring() else { return };
        // More than the ring has entries.
        let mut pairs: Vec<_> = (0..9).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, pair) in (0..).zip(&pairs) {
            ring.watch(&pair.0, READABLE, false, token).unwrap();
        }
        for _ in 0..3 {
            pairs[7].1.write_all(b"x").unwrap();
            assert_eq!(heard(&mut ring, Duration::from_secs(10)), [7]);
            pairs[7].0.read_exact(&mut [0]).unwrap();
        }
        assert!(heard(&mut ring, Duration::from_millis(1)).is_empty());
    }

    /// A number that no descriptor has: that of one that was closed may be another test's by the time it is watched.
    struct ClosedDescriptor;

    impl AsRawFd for ClosedDescriptor {
        fn as_raw_fd(&self) -> std::os::fd::RawFd {
            i32::MAX
        }
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_no_danger() {
        let Some(mut ring) = ring() else { return };
        ring.watch(&ClosedDescriptor, READABLE, false, 1).unwrap();
        let mut told = Vec::new();
        ring.wait(Duration::from_secs(10), |completion| told.push(completion)).unwrap();
        assert_eq!(told, [Completion { token: 1, ready: 0, was_last: true }]);
    }

    #[test]
    fn a_one_time_watch_reports_once() {
        let Some(mut ring) = ring() else { return };
        let pair = UnixStream::pair().unwrap();
        ring.watch(&pair.0, READABLE | WRITABLE, true, 5).unwrap();
        let mut told = Vec::new();
        ring.wait(Duration::from_secs(10), |completion| told.push(completion)).unwrap();
        assert_eq!(told, [Completion { token: 5, ready: WRITABLE, was_last: true }]);
        (&pair.1).write_all(b"x").unwrap();
        assert!(heard(&mut ring, Duration::from_millis(1)).is_empty());
    }

    #[test]
    fn a_forgotten_socket_is_closed() {
        let Some(mut ring) = ring() else { return };
        let (watched, mut peer) = UnixStream::pair().unwrap();
        ring.watch(&watched, READABLE, false, 5).unwrap();
        assert!(heard(&mut ring, Duration::from_millis(1)).is_empty());
        drop(watched);
        ring.forget(5).unwrap();
        let mut told = Vec::new();
        ring.wait(Duration::from_secs(10), |completion| told.push(completion)).unwrap();
        assert!(told.iter().all(|completion| completion.ready == 0 && completion.was_last), "{told:?}");
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}
