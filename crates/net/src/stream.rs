//! Connected sockets, without blocking.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

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

/// As [`begin_connect`], with a receive buffer of at most so many bytes: a slow client.
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

/// Lets the peer send only so many bytes ahead (the kernel counts its own overhead in, and has a least). For a
/// listener it holds for the connections that come after.
pub fn limit_receive_buffer(socket: impl AsFd, size: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, size)?)
}

/// How a connection attempt ended, asked once the socket is writable.
pub fn connected(socket: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(&socket)?.map_err(Into::into)
}

/// Claims that a connection is established.
pub fn is_connected(socket: impl AsFd) -> bool {
    getpeername(socket).is_ok_and(|peer| peer.is_some())
}

/// Says that nothing more will be sent, while the peer's bytes are still read.
pub fn end_writing(socket: impl AsFd) -> io::Result<()> {
    Ok(shutdown(socket, Shutdown::Write)?)
}

/// Makes the close that follows a reset, so that the peer cannot take what it got for a whole file.
pub fn reset_on_close(socket: impl AsFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
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

/// What has come on a socket and was not read, if anything has: bytes or an end. Does not wait.
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
