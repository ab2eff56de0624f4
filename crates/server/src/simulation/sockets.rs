//! Sockets without a network: Unix sockets of abstract names stand for TCP ports, and the names of their clients for
//! addresses. Both ends belong to one thread, so what the kernel does with them depends on nothing else.
//!
//! A connection that the server begins (active mode) is a pair of sockets. As long as the client has not accepted it, the
//! server's end is full, so that nothing is told of it; the end becomes writable when the client accepts, and has an error
//! when the client closes its end.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrace_net::stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, connect, listen,
    socket_with, socketpair, sockopt,
};

use super::draw::Draw;
use crate::passive::DataSockets;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// What a sender may be ahead of its receiver, so that a slow one is noticed.
const SEND_BUFFER: usize = 16 * 1024;

/// The ports of one simulation.
pub(super) struct SimulatedPorts {
    /// Unlike that of any other simulation.
    prefix: String,
    /// Numbers sockets of clients.
    next: AtomicU64,
    /// Ports at which clients wait for the server.
    active: Mutex<BTreeMap<SocketAddr, Weak<ActivePort>>>,
    /// The server has connected to an address that no client may name.
    has_bounced: AtomicBool,
    draw: Draw,
}

/// An address that is no client's.
pub(super) const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 200));

/// A client's own port, at which it waits for the server. It refuses connections once it is dropped.
#[derive(Debug)]
pub(super) struct ActivePort {
    pub(super) address: SocketAddr,
    incoming: Mutex<Option<Incoming>>,
}

/// The client's end of a connection that the server has begun.
#[derive(Debug)]
struct Incoming {
    socket: OwnedFd,
    /// The connection is there before the client takes it, as one in the backlog of a listener.
    is_established: bool,
}

impl ActivePort {
    fn incoming(&self) -> MutexGuard<'_, Option<Incoming>> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection of the server, if it has begun one.
    pub(super) fn accept(&self) -> Option<OwnedFd> {
        let Incoming { socket, is_established } = self.incoming().take()?;
        while !is_established && matches!(stream::read(&socket, &mut [0; 4096]), Ok(1..)) {}
        Some(socket)
    }

    /// Returns whether the server's connection is there, though not taken.
    pub(super) fn is_established(&self) -> bool {
        self.incoming().as_ref().is_some_and(|incoming| incoming.is_established)
    }

    /// Returns how many bytes the server has sent to a connection that was not taken.
    pub(super) fn unread(&self) -> u64 {
        let incoming = self.incoming();
        let socket = incoming.as_ref().filter(|incoming| incoming.is_established);
        socket.map_or(0, |incoming| ioctl_fionread(incoming.socket.as_fd()).unwrap_or(0))
    }
}

impl SimulatedPorts {
    pub(super) fn new(draw: Draw) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("millrace-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (next, active, has_bounced) = Default::default();
        Self { prefix, next, active, has_bounced, draw }
    }

    /// Opens a port of a client's, which was never open before.
    pub(super) fn listen(&self, client: IpAddr) -> Arc<ActivePort> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::new(client, 1024 + (number % 40_000) as u16);
        let port = Arc::new(ActivePort { address, incoming: Mutex::default() });
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.insert(address, Arc::downgrade(&port));
        port
    }

    /// Returns whether the server has connected to an address that no client may name.
    pub(super) fn has_bounced(&self) -> bool {
        self.has_bounced.load(Ordering::Relaxed)
    }

    fn name(&self, of: impl std::fmt::Display) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new_abstract_name(format!("{}/{of}", self.prefix).as_bytes())?)
    }

    /// Connects a client to a port. It is refused where nothing listens.
    pub(super) fn connect(&self, from: SocketAddr, port: u16) -> io::Result<OwnedFd> {
        let socket = stream()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        bind(&socket, &self.name(format_args!("{from}/{number}"))?)?;
        connect(&socket, &self.name(port)?)?;
        Ok(socket)
    }
}

impl DataSockets for SimulatedPorts {
    fn bind(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        if self.draw.fault(3) {
            return Err(rustix::io::Errno::ADDRINUSE.into());
        }
        if self.draw.fault(1) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let socket = stream()?;
        bind(&socket, &self.name(address.port())?)?;
        listen(&socket, 64)?;
        Ok(socket)
    }

    fn accept(&self, listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
        let (socket, peer) = acceptfrom_with(listener, FLAGS)?;
        sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
        let peer = peer.and_then(|peer| SocketAddrUnix::try_from(peer).ok());
        let address = peer.as_ref().and_then(|peer| address(peer.abstract_name()?));
        Ok((socket, address.expect("every client is bound to its address")))
    }

    fn connect(&self, _: SocketAddr, to: SocketAddr) -> io::Result<OwnedFd> {
        if to.ip() == STRANGER || to.port() < 1024 {
            self.has_bounced.store(true, Ordering::Relaxed);
        }
        if self.draw.fault(2) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let port =
            self.active.lock().unwrap_or_else(PoisonError::into_inner).get(&to).and_then(Weak::upgrade);
        if port.is_none() && self.draw.chance(50) {
            return Err(rustix::io::Errno::CONNREFUSED.into());
        }
        let (client, server) = control_connection()?;
        let is_established = port.is_some() && self.draw.chance(30);
        while !is_established && stream::write(&server, &[0; 4096]).is_ok() {}
        if let Some(port) = port {
            *port.incoming() = Some(Incoming { socket: client, is_established });
        }
        Ok(server)
    }

    fn is_connected(&self, socket: &OwnedFd) -> bool {
        let mut polled = [PollFd::new(socket, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = poll(&mut polled, Some(&at_once)).is_ok();
        let told = polled[0].revents();
        found && told.contains(PollFlags::OUT) && !told.contains(PollFlags::ERR)
    }

    fn random(&self) -> u64 {
        self.draw.number()
    }
}

fn address(name: &[u8]) -> Option<SocketAddr> {
    std::str::from_utf8(name).ok()?.split('/').nth(1)?.parse().ok()
}

fn stream() -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
    Ok(socket)
}

/// Makes both ends of a control connection: the client's, and the server's.
pub(super) fn control_connection() -> io::Result<(OwnedFd, OwnedFd)> {
    let (client, server) = socketpair(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    for socket in [&client, &server] {
        sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER)?;
    }
    Ok((client, server))
}
