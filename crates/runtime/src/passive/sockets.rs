//! The sockets of data connections, and the randomness of their ports: the kernel's, or a simulation's.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_net::listener;

/// What the pool asks of the system.
pub trait DataSockets: Send + Sync {
    /// Binds a listener.
    fn bind(&self, address: SocketAddr) -> io::Result<OwnedFd>;

    /// Takes a waiting connection without blocking, with the address of its peer.
    fn accept(&self, listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)>;

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

    fn random(&self) -> u64 {
        self.keys.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}
