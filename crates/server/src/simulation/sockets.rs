//! Sockets without a network: Unix sockets of abstract names stand for TCP ports, and the names of their clients for
//! addresses. Both ends belong to one thread, so what the kernel does with them depends on nothing else.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

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
    draw: Draw,
}

impl SimulatedPorts {
    pub(super) fn new(draw: Draw) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("millrace-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { prefix, next: AtomicU64::new(0), draw }
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
