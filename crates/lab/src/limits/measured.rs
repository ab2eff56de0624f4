//! Limits that are tried rather than read, as `dklimits` did in 1999: what the kernel says and what it does may differ,
//! in a container most of all.
//!
//! Each trial stops at [`ENOUGH`] or after [`PATIENCE`], and gives back what it took.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use millrace_uring::Ring;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::net::sockopt::set_socket_linger;

use super::Limit;

/// No trial takes more: beyond that the answer is "at least".
const ENOUGH: usize = 100_000;

/// A slow attempt counts as a failure: the fewer ports are free, the longer the kernel searches, minutes in the end.
const PATIENCE: Duration = Duration::from_millis(200);

/// A trial: its name, what it means, and how it is done.
type Trial = (&'static str, &'static str, fn() -> String);

const TRIALS: [Trial; 8] = [
    ("descriptors (dup)", "of one process, besides those it has", || count(duplicate)),
    ("files (open)", "open at once in one process", || count(|| File::open("/dev/null"))),
    ("socket pairs (AF_UNIX)", "two descriptors each", || count(UnixStream::pair)),
    ("socket pairs (TCP)", "the same over loopback; a port each, too", tcp_pairs),
    ("TCP ports (bind to 0)", "listening sockets on one address", || count(listener)),
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
        assert_eq!(works(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)), "yes");
    }
}
