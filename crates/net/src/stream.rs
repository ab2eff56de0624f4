//! Connected sockets, without blocking.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, bind, connect, getpeername,
    ipproto, recv, send, shutdown, socket_with, sockopt,
};

/// Reads what has come; 0 is the end.
pub fn read(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    retry(|| recv(&socket, &mut *buffer, RecvFlags::empty()).map(|(count, _)| count))
}

/// As [`read`], leaving it there.
pub fn peek(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    retry(|| recv(&socket, &mut *buffer, RecvFlags::PEEK).map(|(count, _)| count))
}

/// Writes as much as the kernel takes.
pub fn write(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    retry(|| send(&socket, bytes, SendFlags::NOSIGNAL))
}

/// As [`write()`], saying that more follows at once: the last bytes wait to share a packet with it.
pub fn write_more(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    retry(|| send(&socket, bytes, SendFlags::NOSIGNAL | SendFlags::MORE))
}

/// Begins to connect; the socket is writable when that has ended, and [`connected`] says how.
///
/// `from` is the address of the control connection: an active data connection must come from it, or
/// the client's firewall refuses it (RFC 959 section 3.2). Its port is left to the kernel.
pub fn begin_connect(from: SocketAddr, to: SocketAddr) -> io::Result<OwnedFd> {
    begin_connect_with(from, to, None)
}

/// As [`begin_connect`], with a receive buffer of at most this many bytes: a slow client.
pub fn begin_connect_with(
    from: SocketAddr,
    to: SocketAddr,
    receive_buffer: Option<usize>,
) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(size) = receive_buffer {
        limit_receive_buffer(&socket, size)?;
    }
    let source = SocketAddr::new(from.ip(), 0);
    if from.is_ipv4() == to.is_ipv4() && !from.ip().is_unspecified() {
        // The port is chosen at connect, for this destination: no search of a range full of TIME_WAIT.
        let _ = nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::IpBindAddressNoPort, &true);
        bind(&socket, &source)?;
    }
    match connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Lets the peer send only this many bytes ahead (the kernel counts its own overhead in, and has a least). For a
/// listener it holds for the connections that come after.
pub fn limit_receive_buffer(socket: impl AsFd, size: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, size)?)
}

/// How a connection attempt ended, asked once the socket is writable.
pub fn connected(socket: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(&socket)?.map_err(Into::into)
}

/// Returns true if a connection is established.
pub fn is_connected(socket: impl AsFd) -> bool {
    getpeername(socket).is_ok_and(|peer| peer.is_some())
}

/// Shuts the output down; the peer's bytes can still be read.
pub fn end_writing(socket: impl AsFd) -> io::Result<()> {
    Ok(shutdown(socket, Shutdown::Write)?)
}

/// Has the kernel ask a silent peer whether it is still there, so that one that has vanished is noticed.
pub fn keep_alive(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, silence)?;
    sockopt::set_tcp_keepintvl(&socket, (silence / 4).max(Duration::from_secs(1)))?;
    Ok(sockopt::set_tcp_keepcnt(&socket, 4)?)
}

/// Makes the close that follows a reset, so that the peer cannot take what it got for a whole file.
pub fn reset_on_close(socket: impl AsFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Has a close send what waits, and then the end, after all.
pub fn end_on_close(socket: impl AsFd) {
    let _ = sockopt::set_socket_linger(socket, None);
}

/// Has what fills no packet wait for more, for 200 ms at most; or no longer, which sends what waits. Closing does that too.
pub fn cork(socket: impl AsFd, waits: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_cork(socket, waits)?)
}

/// Paces the output at this many bytes a second (`SO_MAX_PACING_RATE`); `None` removes the limit.
pub fn pace(socket: impl AsFd, rate: Option<u64>) -> io::Result<()> {
    let rate = rate.map_or(UNPACED, |rate| u32::try_from(rate).unwrap_or(UNPACED));
    Ok(nix::sys::socket::setsockopt(&socket, pacing::MaxPacingRate, &(rate as usize))?)
}

/// The rate set by [`pace`].
pub fn paced(socket: impl AsFd) -> io::Result<Option<u64>> {
    let rate = nix::sys::socket::getsockopt(&socket, pacing::MaxPacingRate)? as u32;
    Ok((rate != UNPACED).then_some(rate.into()))
}

/// The kernel's value for no rate.
const UNPACED: u32 = u32::MAX;

/// `SO_MAX_PACING_RATE`, as nix lets others add options to its own. Its numbers are the kernel's 32 bits without a sign.
mod pacing {
    use nix::libc;
    use nix::sys::socket::sockopt::{GetUsize, SetUsize};

    #[derive(Debug, Clone, Copy)]
    pub(super) struct MaxPacingRate;

    nix::setsockopt_impl!(MaxPacingRate, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, usize, SetUsize);
    nix::getsockopt_impl!(MaxPacingRate, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, usize, GetUsize);
}

/// How many bytes of what was sent on a connection the other side has acknowledged.
pub fn acknowledged(socket: impl AsFd) -> io::Result<u64> {
    Ok(nix::sys::socket::getsockopt(&socket, progress::Info)?.bytes_acknowledged)
}

/// Returns true if the peer's kernel has acknowledged all that was sent.
pub fn has_arrived(socket: impl AsFd) -> bool {
    nix::sys::socket::getsockopt(&socket, progress::Info)
        .is_ok_and(|facts| facts.counts[progress::UNACKNOWLEDGED] == 0 && facts.not_sent == 0)
}

/// For how long bytes were on their way on a connection, and for how much of that the window of the peer was full: it had no
/// room for more.
pub fn busy(socket: impl AsFd) -> io::Result<(Duration, Duration)> {
    let facts = nix::sys::socket::getsockopt(&socket, progress::Info)?;
    Ok((Duration::from_micros(facts.busy), Duration::from_micros(facts.window_full)))
}

/// The part of `TCP_INFO` that is used here, as a custom option of nix. Linux has had it since 4.10.
mod progress {
    use nix::libc;
    use nix::sys::socket::sockopt::GetStruct;

    #[derive(Debug, Clone, Copy)]
    pub(super) struct Info;

    /// Where among the counts `tcpi_unacked` is.
    pub(super) const UNACKNOWLEDGED: usize = 4;

    /// `struct tcp_info` up to `tcpi_rwnd_limited`.
    #[repr(C)]
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Facts {
        states: [u8; 8],
        pub(super) counts: [u32; 24],
        rates: [u64; 2],
        pub(super) bytes_acknowledged: u64,
        bytes_received: u64,
        segments: [u32; 2],
        pub(super) not_sent: u32,
        shortest_way: u32,
        data_segments: [u32; 2],
        delivery_rate: u64,
        pub(super) busy: u64,
        pub(super) window_full: u64,
    }

    nix::getsockopt_impl!(Info, libc::IPPROTO_TCP, libc::TCP_INFO, Facts, GetStruct<Facts>);
}

/// Waits until there is something to read, or the time is over; answers whether there is. For threads
/// that may wait.
pub fn wait_readable(socket: impl AsFd, most: Duration) -> bool {
    let mut sockets = [PollFd::new(&socket, PollFlags::IN | PollFlags::RDHUP)];
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    matches!(poll(&mut sockets, Some(&most)), Ok(1..))
}

/// Waits until one of these has something to read, or the time is over; answers for each whether it has. For threads
/// that may wait.
pub fn wait_any<'a>(
    sockets: impl IntoIterator<Item = BorrowedFd<'a>>,
    most: Duration,
) -> io::Result<Vec<bool>> {
    let mut sockets: Vec<_> =
        sockets.into_iter().map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    retry(|| poll(&mut sockets, Some(&most)))?;
    Ok(sockets.iter().map(|socket| !socket.revents().is_empty()).collect())
}

/// The unread input of a socket, if any: bytes or the end. Does not wait.
pub fn unread(socket: impl AsFd) -> Option<Unread> {
    let mut sockets = [PollFd::new(&socket, PollFlags::IN | PollFlags::RDHUP)];
    match poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(0) => None,
        _ => Some(Unread {
            has_ended: sockets[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR),
        }),
    }
}

/// Something that was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unread {
    /// The peer's end is in it.
    pub has_ended: bool,
}

/// Waits until the peer has closed, or the time is over; returns true if it has. Input before the end stays unread. For
/// threads that may block.
pub fn wait_for_end(socket: impl AsFd, most: Duration) -> bool {
    let end = Instant::now() + most;
    loop {
        let mut sockets = [PollFd::new(&socket, PollFlags::RDHUP)];
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut sockets, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            result => return matches!(result, Ok(1..)),
        }
    }
}

/// Waits until there is room to write, or a connection attempt has ended; answers whether that came in time. For
/// threads that may wait.
pub fn wait_writable(socket: impl AsFd, most: Duration) -> bool {
    let mut sockets = [PollFd::new(&socket, PollFlags::OUT)];
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    matches!(poll(&mut sockets, Some(&most)), Ok(1..))
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_end_is_heard_behind_what_is_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        assert!(!wait_for_end(&socket, Duration::from_millis(1)));
        client.write_all(b"NOOP\r\n").unwrap();
        assert!(!wait_for_end(&socket, Duration::from_millis(1)));
        drop(client);
        assert!(wait_for_end(&socket, Duration::from_secs(30)));
    }

    #[test]
    fn data_without_room_at_the_peer_is_unacknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let eventually = |expected: bool| {
            let end = Instant::now() + Duration::from_secs(60);
            while has_arrived(&socket) != expected {
                assert!(Instant::now() < end);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        (&socket).write_all(b"220 Welcome.\r\n").unwrap();
        eventually(true);
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65_536]).is_ok() {}
        assert!(!has_arrived(&socket));
        drop(client);
    }

    #[test]
    fn a_pace_is_kept_until_another_is_said_or_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(paced(&socket).unwrap(), None);
        for rate in [Some(100_000), Some(3_000_000_000), None, Some(20_000), None] {
            pace(&socket, rate).unwrap();
            assert_eq!(paced(&socket).unwrap(), rate);
        }
    }
}
