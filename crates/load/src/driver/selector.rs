//! Waits for a worker's sockets: by poll, epoll or io_uring, as configured.
//!
//! Invariant: a [`Socket`] that is closed leaves its [`Set`] before any other is watched or waited for. epoll removes
//! it by itself. poll would report on the next socket with the same descriptor number, and io_uring would hold the
//! connection open, so those two are told.
//!
//! Some selectors are edge-triggered ([`tells_once`]): a caller that does not drain a socket must come back to it by
//! itself.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use millrace_uring::{HUNG_UP, READABLE, Ring, WRITABLE};
use popol::{Sources, Timeout};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFlags, Timespec, epoll};

use crate::selector::Selector;

/// Events taken at a time.
const EVENTS: usize = 256;
/// A ring with this many entries has room for twice as many completions; the kernel keeps the excess.
const ENTRIES: u32 = 4096;

/// A socket of a user.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    closed: Option<Closed>,
}

/// The numbers of sockets that were closed since the set was last used.
type Closed = Rc<RefCell<Vec<RawFd>>>;

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(closed) = &self.closed {
            closed.borrow_mut().push(self.descriptor.as_raw_fd());
        }
    }
}

/// The events awaited on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// Data to read.
    Read,
    /// Data of a stream to read, or its end.
    Stream,
    /// The same, for one event only: its user is idle in between.
    Once,
    /// Room to write.
    Write,
    /// The expiry of a timer.
    Timer,
}

/// A socket that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) token: u64,
    /// The peer's end of its stream has come.
    pub(super) hung_up: bool,
}

/// Sockets that are watched.
pub(super) struct Set {
    kind: Box<dyn Kind>,
    closed: Option<Closed>,
}

impl Set {
    /// An empty set. Fails where the system does not permit this kind.
    pub(super) fn new(selector: Selector) -> io::Result<Self> {
        let kind: Box<dyn Kind> = match selector {
            Selector::Epoll => Box::new(Epoll::new(epoll::EventFlags::empty())?),
            Selector::EpollEt => Box::new(Epoll::new(epoll::EventFlags::ET)?),
            Selector::Poll => Box::new(Poll { sources: Sources::new(), watches: Watches::default() }),
            Selector::IoUring => {
                Box::new(Uring { ring: Ring::new(ENTRIES)?, watches: Watches::default(), serial: 0 })
            }
        };
        let closed = matches!(selector, Selector::Poll | Selector::IoUring).then(Closed::default);
        Ok(Self { kind, closed })
    }

    /// A socket that may be watched here.
    pub(super) fn own(&self, descriptor: OwnedFd) -> Socket {
        Socket { descriptor, closed: self.closed.clone() }
    }

    /// Watches it.
    pub(super) fn watch(&mut self, what: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.forget_closed();
        self.kind.watch(what, token, interest)
    }

    /// Changes the awaited event, or repeats a one-time watch.
    pub(super) fn watch_again(
        &mut self,
        what: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        self.forget_closed();
        self.kind.watch_again(what, token, interest)
    }

    /// Adds the sockets that are ready; waits until one is, or until the timeout.
    pub(super) fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.forget_closed();
        self.kind.wait(timeout, ready)
    }

    fn forget_closed(&mut self) {
        if let Some(closed) = &self.closed {
            closed.borrow_mut().drain(..).for_each(|number| self.kind.forget(number));
        }
    }
}

/// Returns true if the selector is edge-triggered.
pub(super) fn tells_once(selector: Selector) -> bool {
    matches!(selector, Selector::EpollEt | Selector::IoUring)
}

/// A kernel interface.
trait Kind {
    fn watch(&mut self, what: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()>;

    fn watch_again(&mut self, what: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.watch(what, token, interest)
    }

    /// The socket with this number is closed.
    fn forget(&mut self, _: RawFd) {}

    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()>;
}

struct Epoll {
    set: OwnedFd,
    trigger: epoll::EventFlags,
    events: Vec<epoll::Event>,
}

impl Epoll {
    fn new(trigger: epoll::EventFlags) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { set, trigger, events: Vec::with_capacity(EVENTS) })
    }

    fn flags(&self, interest: Interest) -> epoll::EventFlags {
        use epoll::EventFlags as Flags;
        self.trigger
            | match interest {
                Interest::Read => Flags::IN,
                Interest::Stream => Flags::IN | Flags::RDHUP,
                Interest::Once => Flags::IN | Flags::RDHUP | Flags::ONESHOT,
                Interest::Write => Flags::OUT,
                Interest::Timer => Flags::IN | Flags::ET,
            }
    }
}

impl Kind for Epoll {
    fn watch(&mut self, what: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.set, what, epoll::EventData::new_u64(token), self.flags(interest))?)
    }

    fn watch_again(&mut self, what: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.set, what, epoll::EventData::new_u64(token), self.flags(interest))?)
    }

    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        self.events.clear();
        epoll::wait(&self.set, spare_capacity(&mut self.events), Some(&timeout))?;
        ready.extend(self.events.iter().map(|&epoll::Event { flags, data }| Ready {
            token: data.u64(),
            hung_up: flags.contains(epoll::EventFlags::RDHUP),
        }));
        Ok(())
    }
}

/// The watched sockets, by descriptor number.
#[derive(Default)]
struct Watches(Vec<Option<Watch>>);

#[derive(Clone, Copy)]
struct Watch {
    token: u64,
    interest: Interest,
    /// Distinguishes the watch from earlier ones of the same descriptor, whose late events are then ignored.
    serial: u32,
}

impl Watches {
    fn put(&mut self, number: RawFd, watch: Watch) -> Option<Watch> {
        let at = number as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at].replace(watch)
    }

    fn take(&mut self, number: RawFd) -> Option<Watch> {
        self.0.get_mut(number as usize)?.take()
    }

    fn of(&self, number: RawFd) -> Option<Watch> {
        *self.0.get(number as usize)?
    }
}

struct Poll {
    sources: Sources<RawFd>,
    watches: Watches,
}

impl Kind for Poll {
    fn watch(&mut self, what: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::Read | Interest::Timer => PollFlags::IN,
            Interest::Stream | Interest::Once => PollFlags::IN | PollFlags::RDHUP,
            Interest::Write => PollFlags::OUT,
        };
        let number = what.as_raw_fd();
        self.forget(number);
        self.watches.put(number, Watch { token, interest, serial: 0 });
        self.sources.register(number, &what, flags.bits() as popol::Events);
        Ok(())
    }

    fn forget(&mut self, number: RawFd) {
        if self.watches.take(number).is_some() {
            self.sources.unregister(&number);
        }
    }

    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut events = Vec::new();
        // A timeout is an error in popol, but not here.
        let _ = self.sources.poll(&mut events, Timeout::from(timeout));
        for event in events {
            let Some(watch) = self.watches.of(event.key) else { continue };
            let hung_up = event.raw_events() & PollFlags::RDHUP.bits() as popol::Events != 0;
            ready.push(Ready { token: watch.token, hung_up });
            if watch.interest == Interest::Once {
                self.forget(event.key);
            }
        }
        Ok(())
    }
}

struct Uring {
    ring: Ring,
    watches: Watches,
    serial: u32,
}

impl Uring {
    /// The ring's name for a watch.
    fn name(number: RawFd, watch: &Watch) -> u64 {
        u64::from(watch.serial) << 32 | number as u64
    }

    fn flags(interest: Interest) -> u32 {
        match interest {
            Interest::Read | Interest::Timer => READABLE,
            Interest::Stream | Interest::Once => READABLE | HUNG_UP,
            Interest::Write => WRITABLE,
        }
    }
}

impl Kind for Uring {
    fn watch(&mut self, what: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let number = what.as_raw_fd();
        self.forget(number);
        // Half of the numbers, so that none equals the ring's reserved value.
        self.serial = (self.serial + 1) & (u32::MAX >> 1);
        let watch = Watch { token, interest, serial: self.serial };
        self.watches.put(number, watch);
        let once = interest == Interest::Once;
        self.ring.watch(&what, Self::flags(interest), once, Self::name(number, &watch))
    }

    fn forget(&mut self, number: RawFd) {
        if let Some(watch) = self.watches.take(number) {
            // The error is ignored: the set can no longer be used anyway.
            let _ = self.ring.forget(Self::name(number, &watch));
        }
    }

    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        let Self { ring, watches, .. } = self;
        let mut ended = Vec::new();
        ring.wait(timeout, |completion| {
            let number = completion.token as u32 as RawFd;
            let current = watches.of(number).filter(|watch| Self::name(number, watch) == completion.token);
            let Some(watch) = current.filter(|_| completion.ready != 0) else { return };
            ready.push(Ready { token: watch.token, hung_up: completion.ready & HUNG_UP != 0 });
            if watch.interest == Interest::Once {
                watches.take(number);
            } else if completion.was_last {
                ended.push((number, watch));
            }
        })?;
        for (number, watch) in ended {
            ring.watch(&number, Self::flags(watch.interest), false, Self::name(number, &watch))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::selector::SELECTORS;

    const LONG: Duration = Duration::from_secs(10);

    /// The tokens of all events until a socket is ready, or until the timeout.
    fn heard(set: &mut Set, timeout: Duration) -> Vec<u64> {
        let (mut ready, until) = (Vec::new(), std::time::Instant::now() + timeout);
        // A ring also wakes for watches that have ended.
        while ready.is_empty() && std::time::Instant::now() < until {
            set.wait(timeout, &mut ready).unwrap();
        }
        ready.iter().map(|ready| ready.token).collect()
    }

    /// A set of each kind that this machine permits.
    fn sets() -> impl Iterator<Item = (Selector, Set)> {
        SELECTORS.into_iter().filter_map(|(name, selector)| match Set::new(selector) {
            Ok(set) => Some((selector, set)),
            Err(error) => {
                assert_eq!(selector, Selector::IoUring, "{name}: {error}");
                None
            }
        })
    }

    fn pair(set: &Set) -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (set.own(ours.into()), theirs)
    }

    #[test]
    fn each_tells_of_what_comes_and_of_what_is_watched_anew() {
        for (selector, mut set) in sets() {
            let (socket, mut peer) = pair(&set);
            set.watch(socket.as_fd(), 7, Interest::Once).unwrap();
            peer.write_all(b"x").unwrap();
            assert_eq!(heard(&mut set, LONG), [7], "{selector:?}");
            let rest = Duration::from_millis(1);
            assert_eq!(heard(&mut set, rest), [0; 0], "{selector:?} told twice of what was watched once");
            set.watch_again(socket.as_fd(), 7, Interest::Stream).unwrap();
            assert_eq!(heard(&mut set, LONG), [7], "{selector:?}");
        }
    }

    #[test]
    fn the_end_of_a_stream_is_told_as_such() {
        for (selector, mut set) in sets() {
            let (socket, peer) = pair(&set);
            set.watch(socket.as_fd(), 1, Interest::Stream).unwrap();
            drop(peer);
            let mut ready = Vec::new();
            set.wait(LONG, &mut ready).unwrap();
            assert_eq!(ready, [Ready { token: 1, hung_up: true }], "{selector:?}");
        }
    }

    #[test]
    fn a_closed_socket_is_closed_and_its_number_is_free() {
        for (selector, mut set) in sets() {
            let (socket, mut peer) = pair(&set);
            set.watch(socket.as_fd(), 1, Interest::Read).unwrap();
            assert_eq!(heard(&mut set, Duration::from_millis(1)), [0; 0], "{selector:?}");
            drop(socket);
            set.wait(Duration::from_millis(1), &mut Vec::new()).unwrap();
            peer.set_read_timeout(Some(LONG)).unwrap();
            assert_eq!(peer.read(&mut [0]).unwrap(), 0, "{selector:?} holds it open");
            // Parallel tests open files too, so the number may or may not be the same.
            let (socket, mut peer) = pair(&set);
            set.watch(socket.as_fd(), 2, Interest::Read).unwrap();
            peer.write_all(b"x").unwrap();
            assert_eq!(heard(&mut set, LONG), [2], "{selector:?}");
        }
    }
}
