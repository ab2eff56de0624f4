//! Limits that are tried rather than read, as `dklimits` did in 1999: what the kernel says and what it does may differ,
//! in a container most of all.
//!
//! Each trial stops at [`ENOUGH`] or after [`PATIENCE`], and gives back what it took.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use millrace_uring::Ring;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::Limit;

/// No trial takes more: beyond that the answer is "at least".
const ENOUGH: usize = 100_000;

/// A slow attempt counts as a failure: the fewer ports are free, the longer the kernel searches, minutes in the end.
const PATIENCE: Duration = Duration::from_millis(200);

/// A trial: its name, what it means, and how it is done.
type Trial = (&'static str, &'static str, fn() -> String);

const TRIALS: [Trial; 10] = [
    ("descriptors (dup)", "of one process, besides those it has", || count(duplicate)),
    ("files (open)", "open at once in one process", || count(|| File::open("/dev/null"))),
    ("socket pairs (AF_UNIX)", "two descriptors each", || count(UnixStream::pair)),
    ("socket pairs (TCP)", "the same over loopback; a port each, too", tcp_pairs),
    ("TCP ports (bind to 0)", "listening sockets on one address", || count(listener)),
    ("TCP ports (bind to each)", "from 1024 on, one after the other, as dklimits did", || {
        explicit_ports(&PORTS)
    }),
    ("nonblocking connects", "connections that one process begins at once", connects),
    ("poll", "sockets in one call", poll_set),
    ("epoll", "is it there", || works(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from))),
    ("io_uring", "is it permitted", || works(Ring::new(2))),
];

/// All of them: a second or two.
pub(super) fn measured() -> impl Iterator<Item = Limit> {
    TRIALS.iter().map(|(name, meaning, trial)| Limit {
        name: (*name).into(),
        value: trial(),
        meaning: (*meaning).to_owned(),
    })
}

/// How many can be had.
fn count<T>(mut one: impl FnMut() -> io::Result<T>) -> String {
    let (mut taken, until) = (Vec::new(), Instant::now() + PATIENCE);
    while taken.len() < ENOUGH && Instant::now() < until {
        match one() {
            Ok(thing) => taken.push(thing),
            Err(error) => return format!("{} ({})", taken.len(), reason(&error)),
        }
    }
    format!("at least {}", taken.len())
}

fn duplicate() -> io::Result<OwnedFd> {
    Ok(rustix::io::dup(rustix::stdio::stdout())?)
}

fn listener() -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
}

/// Connections of this process to itself.
fn tcp_pairs() -> String {
    let Ok((listener, address)) = listener().and_then(|one| one.local_addr().map(|address| (one, address)))
    else {
        return "unknown".to_owned();
    };
    count(|| {
        let client = TcpStream::connect(address)?;
        // Closed by a reset: none of them is left in TIME_WAIT.
        set_socket_linger(&client, Some(Duration::ZERO))?;
        Ok((client, listener.accept()?))
    })
}

/// The ports that need no privilege.
const PORTS: RangeInclusive<u16> = 1024..=u16::MAX;

/// How many of these ports can be bound by their number. Some are others' at the moment.
fn explicit_ports(ports: &RangeInclusive<u16>) -> String {
    let is_free = |port: &u16| TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port)).is_ok();
    let until = Instant::now() + 10 * PATIENCE;
    let in_time = ports.clone().take_while(|_| Instant::now() < until);
    let (mut tried, mut free) = (0, 0);
    for port in in_time {
        tried += 1;
        free += usize::from(is_free(&port));
    }
    if tried == ports.len() { format!("{free} of {tried}") } else { format!("at least {free}") }
}

/// Connections that are begun and not waited for. The listener accepts none: what its queue has no room for stays begun.
fn connects() -> String {
    let Ok((_listener, address)) = listener().and_then(|one| one.local_addr().map(|address| (one, address)))
    else {
        return "unknown".to_owned();
    };
    count(|| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        set_socket_linger(&socket, Some(Duration::ZERO))?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error.into()),
        }
    })
}

/// `poll` refuses more than RLIMIT_NOFILE entries, whatever they are.
fn poll_set() -> String {
    let Ok(socket) = UnixStream::pair() else { return "unknown".to_owned() };
    let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
    let works = |size: usize| {
        let mut set = vec![PollFd::new(&socket.0, PollFlags::IN); size];
        poll(&mut set, Some(&no_time)).is_ok()
    };
    if works(ENOUGH) {
        return format!("at least {ENOUGH}");
    }
    let (mut good, mut bad) = (0, ENOUGH);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if works(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good.to_string()
}

fn works<T>(result: io::Result<T>) -> String {
    result.map_or_else(|error| format!("no: {}", reason(&error)), |_| "yes".to_owned())
}

/// The error without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_counts_until_it_is_refused() {
        let mut left = 5;
        let count = count(|| {
            left -= 1;
            if left > 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(24)) }
        });
        assert_eq!(count, "4 (too many open files)");
        assert!(
            connects().starts_with("at least ") || connects().contains("too many open files"),
            "{}",
            connects()
        );
        let taken = listener().unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(explicit_ports(&(port..=port)), "0 of 1");
        assert_eq!(works(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)), "yes");
    }
}
