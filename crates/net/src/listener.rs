//! Listening sockets.
//!
//! A control listener is bound once per worker with `SO_REUSEPORT`, so that the kernel spreads clients
//! over the workers. Options that accepted sockets inherit (`TCP_NODELAY`, keepalive, urgent data in line)
//! are set here once rather than on every accepted socket.

use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, getpeername, getsockname, ipproto, listen,
    socket_with, sockopt,
};

use crate::stream;

/// How many connections may wait to be accepted on a control listener; the kernel caps it at somaxconn.
const CONTROL_BACKLOG: i32 = 4096;

/// How many on a data listener: the client of the lease and a few strangers to be turned away.
const DATA_BACKLOG: i32 = 64;

/// The same of a listener for administration.
const ADMIN_BACKLOG: i32 = 64;

/// Binds one control listener per worker to an address; port 0 chooses a free one, the same for all.
///
/// The first bind is made without `SO_REUSEPORT`, so that a second server on the same port is an error and not a silent
/// sharing of its clients. It is given the option afterwards, and kept: a port released for a moment could be taken by
/// another process.
///
/// `[::]` serves IPv4 as well, unless `only_its_own`: the port then has a listener for IPv4 too.
///
/// `keepalive` is the silence after which a peer is asked whether it is still there; zero for never.
pub fn bind_control(
    address: SocketAddr,
    workers: usize,
    keepalive: Duration,
    only_its_own: bool,
) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    let open = |address, reuse_port| open(address, reuse_port, only_its_own);
    let first = open(address, false)?;
    sockopt::set_socket_reuseport(&first, true)?;
    let address = local_address(&first)?;
    let others = (1..workers).map(|_| open(address, true));
    let listeners = std::iter::once(Ok(first)).chain(others).collect::<io::Result<Vec<_>>>()?;
    for listener in &listeners {
        prepare_control(listener, keepalive)?;
        listen(listener, CONTROL_BACKLOG)?;
    }
    Ok((address, listeners))
}

/// Has other listeners of an address, which another process has bound and may still accept at, serve this many workers:
/// none is closed, since who waits at one would be reset, and none is opened. Where there are more workers than
/// listeners some share one; where there are fewer, some workers have several.
pub fn share_control(
    sockets: Vec<OwnedFd>,
    workers: usize,
    keepalive: Duration,
) -> io::Result<Vec<Vec<OwnedFd>>> {
    let mut shared: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
    let count = sockets.len().max(1);
    for socket in &sockets {
        prepare_control(socket, keepalive)?;
    }
    for (index, socket) in sockets.iter().enumerate() {
        for worker in (index..workers).step_by(count).skip(1) {
            shared[worker].push(socket.try_clone()?);
        }
    }
    for (index, socket) in sockets.into_iter().enumerate() {
        shared[index % workers].push(socket);
    }
    Ok(shared)
}

/// Prepares a listener that another process has opened, as this module's own are.
pub fn prepare_inherited(socket: &OwnedFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(socket, true)?;
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Prepares a connection that another process has accepted, as [`accept`] does; returns the address of its client.
pub fn prepare_accepted(socket: &OwnedFd, keepalive: Duration) -> io::Result<SocketAddr> {
    prepare_inherited(socket)?;
    prepare_control(socket, keepalive)?;
    let peer = getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    peer.try_into().map_err(|_| io::Error::from(io::ErrorKind::AddrNotAvailable)).map(plain)
}

/// Binds a listener for administration. With `beside`, another process may have the address as well, if it was bound here:
/// the predecessor of this one, which still listens.
pub fn bind_admin(address: SocketAddr, beside: bool) -> io::Result<OwnedFd> {
    let socket = open(address, beside, false)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    listen(&socket, ADMIN_BACKLOG)?;
    Ok(socket)
}

/// Binds a data listener to exactly this address and port.
pub fn bind_data(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = open(address, false, false)?;
    listen(&socket, DATA_BACKLOG)?;
    Ok(socket)
}

/// As [`bind_data`], for a port at which another node has its sessions. A second process of this one may have it at the same
/// time: the predecessor of this one.
pub fn bind_for_another(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = open(address, true, false)?;
    listen(&socket, DATA_BACKLOG)?;
    Ok(socket)
}

fn open(address: SocketAddr, reuse_port: bool, only_its_own: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // Without it a port with connections in TIME_WAIT could not be bound after a restart.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, only_its_own || !address.ip().is_unspecified())?;
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// What control connections inherit: keepalive, so that a peer that vanished is noticed, and urgent data in line, so
/// that an `ABOR` sent out of band is read.
fn prepare_control(socket: &OwnedFd, keepalive: Duration) -> io::Result<()> {
    sockopt::set_socket_oobinline(socket, true)?;
    if !keepalive.is_zero() {
        stream::keep_alive(socket, keepalive)?;
    }
    Ok(())
}

/// Delays the acknowledgement of a connection's first data until its answer, which saves a segment where the answer is
/// immediate. A connection that cannot answer yet calls [`acknowledge`].
pub fn acknowledge_with_answers(listener: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(listener, false)?)
}

/// Keeps connections in the kernel until their first data arrives (`TCP_DEFER_ACCEPT`), for protocols whose client
/// speaks first: the worker is woken once for the connection and its request. New connections cost a quarter less
/// processor time so (`bench-runs/2026-11-22-2core-kvm-http`). A client that is silent for a second is accepted all the
/// same.
pub fn defer_until_spoken_to(listener: impl AsFd) -> io::Result<()> {
    Ok(nix::sys::socket::setsockopt(&listener, deferred::DeferAccept, &1)?)
}

/// `TCP_DEFER_ACCEPT`, in seconds, as nix lets others add options to its own.
mod deferred {
    use nix::libc;
    use nix::sys::socket::sockopt::SetUsize;

    #[derive(Debug, Clone, Copy)]
    pub(super) struct DeferAccept;

    nix::setsockopt_impl!(DeferAccept, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, usize, SetUsize);
}

/// Acknowledges what came now: a client that sends its request in pieces may wait for that before it sends the next
/// (RFC 896), up to 40 ms by Linux's clock.
pub fn acknowledge(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(socket, true)?)
}

/// The address that a socket is bound to.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    getsockname(socket)?.try_into().map_err(|_| io::Error::from(io::ErrorKind::AddrNotAvailable)).map(plain)
}

/// Takes a waiting connection without blocking: the socket, itself non-blocking, and its peer.
/// [`io::ErrorKind::WouldBlock`] when none waits.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let (socket, peer) = acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    // A peer that has gone before it is accepted may have no address.
    let peer = peer.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    Ok((socket, plain(peer)))
}

/// Returns true if a connection may be waiting to be accepted. An [`accept`] that finds none makes a socket and a file
/// first: 4.1 us against 0.3 us for this.
pub fn may_accept(listener: impl AsFd) -> bool {
    let mut sockets = [PollFd::new(&listener, PollFlags::IN)];
    !matches!(poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

/// Which of these sockets have something to be read, or have ended; all of them where that cannot be told.
pub fn have_spoken<'a>(sockets: impl Iterator<Item = &'a OwnedFd>) -> Vec<bool> {
    let mut sockets: Vec<_> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    match poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => sockets.iter().map(|socket| !socket.revents().is_empty()).collect(),
        Err(_) => vec![true; sockets.len()],
    }
}

/// An IPv4 address seen through an IPv6 socket, as what it is.
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        // The zone of a link-local address is kept: without it the address cannot be answered.
        SocketAddr::V6(v6) => match v6.ip().to_canonical() {
            std::net::IpAddr::V4(v4) => SocketAddr::from((v4, v6.port())),
            std::net::IpAddr::V6(ip) => SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into(),
        },
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// Waits for a condition that a kernel under load meets a moment later.
    fn eventually(mut claim: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !claim() {
            assert!(begin.elapsed() < Duration::from_secs(30));
            thread::yield_now();
        }
    }

    #[test]
    fn a_second_server_on_the_port_is_refused() {
        let (address, _listeners) =
            bind_control("127.0.0.1:0".parse().unwrap(), 2, Duration::ZERO, false).unwrap();
        let error = bind_control(address, 2, Duration::ZERO, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn listeners_of_another_process_serve_more_workers_and_fewer() {
        for (had, workers) in [(3, 1), (3, 2), (2, 2), (2, 5), (1, 3)] {
            let (address, listeners) =
                bind_control("127.0.0.1:0".parse().unwrap(), had, Duration::ZERO, false).unwrap();
            let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
            let shared = share_control(listeners, workers, Duration::ZERO).unwrap();
            assert_eq!(shared.len(), workers);
            assert!(shared.iter().all(|of_worker| !of_worker.is_empty()), "{had} for {workers}");
            let mut accepted = 0;
            for listener in shared.iter().flatten() {
                while accept(listener).is_ok() {
                    accepted += 1;
                }
            }
            assert_eq!(accepted, clients.len(), "{had} for {workers}");
        }
    }

    #[test]
    fn a_waiting_connection_is_seen_without_accepting_it() {
        let listener = bind_data("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(!may_accept(&listener));
        let client = TcpStream::connect(local_address(&listener).unwrap()).unwrap();
        eventually(|| may_accept(&listener));
        assert_eq!(accept(&listener).unwrap().1, client.local_addr().unwrap());
        assert!(!may_accept(&listener));
    }

    #[test]
    fn connections_with_data_are_known_in_one_call() {
        let listener = bind_data("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = local_address(&listener).unwrap();
        let mut clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut sockets = Vec::new();
        eventually(|| {
            sockets.extend(accept(&listener).map(|(socket, _)| socket));
            sockets.len() == 3
        });
        assert_eq!(have_spoken(sockets.iter()), [false; 3]);
        clients[1].write_all(b"x").unwrap();
        drop(clients.remove(2));
        // An end is to be heard of too.
        eventually(|| have_spoken(sockets.iter()) == [false, true, true]);
        assert_eq!(have_spoken([].into_iter()), []);
    }

    #[test]
    fn silent_connections_are_accepted_later_and_others_at_once() {
        let listener = bind_data("127.0.0.1:0".parse().unwrap()).unwrap();
        defer_until_spoken_to(&listener).unwrap();
        let address = local_address(&listener).unwrap();
        let silent = TcpStream::connect(address).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"x").unwrap();
        eventually(|| may_accept(&listener));
        let (first, peer) = accept(&listener).unwrap();
        assert_eq!(peer, client.local_addr().unwrap(), "who came later and has spoken");
        assert_eq!(have_spoken([&first].into_iter()), [true]);
        // The other is not forgotten.
        eventually(|| may_accept(&listener));
        assert_eq!(accept(&listener).unwrap().1, silent.local_addr().unwrap());
    }

    #[test]
    fn connections_acknowledge_with_their_answers_until_told_otherwise() {
        let listener = bind_data("127.0.0.1:0".parse().unwrap()).unwrap();
        acknowledge_with_answers(&listener).unwrap();
        let _client = TcpStream::connect(local_address(&listener).unwrap()).unwrap();
        eventually(|| may_accept(&listener));
        let (socket, _) = accept(&listener).unwrap();
        assert!(!sockopt::tcp_quickack(&socket).unwrap(), "it is as its listener was");
        acknowledge(&socket).unwrap();
        assert!(sockopt::tcp_quickack(&socket).unwrap());
    }

    #[test]
    fn workers_share_one_port_and_accepted_sockets_do_not_delay() {
        let (address, listeners) =
            bind_control("127.0.0.1:0".parse().unwrap(), 3, Duration::from_secs(60), false).unwrap();
        let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut accepted = 0;
        for listener in &listeners {
            while let Ok((socket, peer)) = accept(listener) {
                assert_eq!(peer.ip(), address.ip());
                assert!(sockopt::tcp_nodelay(&socket).unwrap());
                assert!(sockopt::socket_keepalive(&socket).unwrap());
                assert!(sockopt::socket_oobinline(&socket).unwrap());
                accepted += 1;
            }
        }
        assert_eq!(accepted, clients.len());
    }
}
