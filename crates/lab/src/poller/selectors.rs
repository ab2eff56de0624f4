//! Each selector over the same sockets: readable or not, nothing else.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use millrace_uring::{READABLE, Ring};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::{PATIENCE, Poller};

/// Events taken at a time.
const EVENTS: usize = 256;
/// A ring with this many entries has room for twice as many completions.
const ENTRIES: u32 = 4096;

const TIMEOUT: Timespec = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };

pub(super) struct Poll<'a> {
    set: Vec<PollFd<'a>>,
}

impl<'a> Poll<'a> {
    pub(super) fn new(sockets: &[&'a UnixStream]) -> Self {
        Self { set: sockets.iter().map(|socket| PollFd::new(*socket, PollFlags::IN)).collect() }
    }
}

impl Poller for Poll<'_> {
    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()> {
        let count = poll(&mut self.set, Some(&TIMEOUT))?;
        let is_ready = |(_, entry): &(usize, &PollFd<'_>)| !entry.revents().is_empty();
        ready.extend(self.set.iter().enumerate().filter(is_ready).take(count).map(|(at, _)| at));
        Ok(())
    }
}

pub(super) struct Epoll {
    set: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Epoll {
    pub(super) fn new(sockets: &[&UnixStream], is_edge: bool) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edge = if is_edge { epoll::EventFlags::ET } else { epoll::EventFlags::empty() };
        for (socket, token) in sockets.iter().zip(0..) {
            epoll::add(&set, socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN | edge)?;
        }
        Ok(Self { set, events: Vec::with_capacity(EVENTS) })
    }
}

impl Poller for Epoll {
    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()> {
        self.events.clear();
        epoll::wait(&self.set, spare_capacity(&mut self.events), Some(&TIMEOUT))?;
        ready.extend(self.events.iter().map(|event| event.data.u64() as usize));
        Ok(())
    }
}

pub(super) struct Uring<'a> {
    ring: Ring,
    sockets: Vec<&'a UnixStream>,
    /// The kernel has stopped watching these, for want of room.
    lost: Vec<usize>,
}

impl<'a> Uring<'a> {
    pub(super) fn new(sockets: &[&'a UnixStream]) -> io::Result<Self> {
        let mut ring = Ring::new(ENTRIES)?;
        for (socket, token) in sockets.iter().zip(0..) {
            ring.watch(*socket, READABLE, false, token)?;
        }
        Ok(Self { ring, sockets: sockets.to_vec(), lost: Vec::new() })
    }
}

impl Poller for Uring<'_> {
    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()> {
        let Self { ring, sockets, lost } = self;
        ring.wait(PATIENCE, |completion| {
            ready.push(completion.token as usize);
            if completion.was_last {
                lost.push(completion.token as usize);
            }
        })?;
        lost.drain(..).try_for_each(|at| ring.watch(sockets[at], READABLE, false, at as u64))
    }
}
