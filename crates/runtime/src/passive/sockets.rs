//! The sockets of data connections, and the randomness of their ports: the kernel's, or a simulation's.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_net::{listener, stream};

/// What data connections ask of the system.
pub trait DataSockets: Send + Sync {
    /// Binds a listener.
    fn bind(&self, address: SocketAddr) -> io::Result<OwnedFd>;

    /// Takes a waiting connection without blocking, with the address of its peer.
    fn accept(&self, listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)>;

    /// Begins a connection to a client, from an address of this machine.
    fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<OwnedFd>;

    /// Returns whether a connection that was begun is there. Why it will not be is the error of its socket.
    fn is_connected(&self, socket: &OwnedFd) -> bool;

    /// Returns a number that no client can foresee.
    fn random(&self) -> u64;
}

/// The kernel's sockets. The numbers are those of a counter, hashed with random keys.
#[derive(Debug, Default)]
pub struct KernelSockets {
    keys: RandomState,
    drawn: AtomicU64,
}

impl DataSockets for KernelSockets {
    fn bind(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        listener::bind_data(address)
    }

    fn accept(&self, listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
        listener::accept(listener)
    }

    fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<OwnedFd> {
        stream::begin_connect(from, to)
    }

    fn is_connected(&self, socket: &OwnedFd) -> bool {
        stream::is_connected(socket)
    }

    fn random(&self) -> u64 {
        self.keys.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}
