//! Data connections that come to another node of the cluster than their control connection: the node that gets one hands it on
//! to the node that has the session.
//!
//! ```text
//!  client ──► foreign_ports.rs: a passive port of node b, at which node a listens
//!                 │ accepted
//!             handing_on.rs ◄── nonce ──────── taking_in.rs (node b, at its data address)
//!                 │         ── header, seal ──►     │ sealed by a node, and a session leases the port for this client
//!             net/src/relay.rs ◄── one byte ──── runtime/src/passive/handed_on.rs
//! ```
//!
//! One thread does all of it (`reactor.rs`). The header is one of the PROXY protocol, with the client and the port. Its seal is an
//! HMAC by the key of the node that it goes to, which the database tells the other nodes (`cluster/src/data_route.rs`). The nonce
//! is in the seal, so that each is good for one connection. The byte says that the session has the connection; only then are bytes of the client passed on.
//!
//! The invariants: a node connects to data addresses from the database alone, whatever a client sends. No connection reaches a
//! session here but by a sealed header, and none but one of the client that the session waits for.

mod foreign_ports;
mod handing_on;
mod reactor;
mod taking_in;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_cluster::DataRoute;
use millrace_net::inbox::Sender;
use millrace_net::{listener, stream};
use millrace_runtime::proxies::Proxies;

use self::reactor::{Order, Reactor};
use crate::passive::PassivePool;

/// The byte that says that a session has the connection.
const TAKEN: u8 = b'+';

/// How long it takes at most until all nodes hand on to one that has joined: they ask the database once a second.
pub(crate) const FOLLOWED: Duration = Duration::from_secs(2);

/// How many ports of others, and how many connections, there may be at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelayLimits {
    ports: usize,
    connections: usize,
}

impl RelayLimits {
    /// The limits of a process that may have this many descriptors: it leaves an eighth to ports, and an eighth to connections,
    /// which need two, and two more where a receiver is slow.
    pub(crate) fn of(descriptors: u64) -> Self {
        let part = |divisor: u64, most| usize::try_from(descriptors / divisor).unwrap_or(most).clamp(1, most);
        Self { ports: part(8, 8192), connections: part(32, 2048) }
    }

    /// Descriptors that sessions leave to it.
    pub(crate) fn descriptors(self) -> u64 {
        (self.ports + 4 * self.connections) as u64
    }
}

/// What has become of connections that came for other nodes.
#[derive(Debug, Default)]
pub(crate) struct RelayCounts {
    taken: AtomicU64,
    refused: AtomicU64,
}

impl RelayCounts {
    /// Returns each count with the value of its label in the metrics.
    pub(crate) fn by_result(&self) -> [(&'static str, u64); 2] {
        let Self { taken, refused } = self;
        [("taken", taken.load(Ordering::Relaxed)), ("refused", refused.load(Ordering::Relaxed))]
    }
}

/// Tells the operator something.
pub(crate) type Warn = Box<dyn Fn(&str) + Send>;

/// What the relay needs of the server.
pub(crate) struct RelayParts {
    /// The node's name.
    pub(crate) node: String,
    /// Where it takes connections of its own sessions.
    pub(crate) address: IpAddr,
    /// Where clients of FTP connect to.
    pub(crate) places: Vec<IpAddr>,
    /// Ports at which the node listens itself, besides its passive ones.
    pub(crate) doors: Vec<u16>,
    pub(crate) pool: PassivePool,
    pub(crate) proxies: Arc<Proxies>,
    /// Tells the operator.
    pub(crate) warn: Warn,
    pub(crate) limits: RelayLimits,
}

/// The relay of a node, which runs until it is [finished](DataRelay::finish).
#[derive(Debug)]
pub(crate) struct DataRelay {
    route: DataRoute,
    counts: Arc<RelayCounts>,
    sender: Sender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl DataRelay {
    /// Begins to take in connections. It hands none on before it is told of [other nodes](DataRelay::follow).
    pub(crate) fn start(parts: RelayParts) -> io::Result<Self> {
        let (address, entrance) = open(parts.address, &parts.pool)?;
        let route = DataRoute::new(&parts.node, address, parts.pool.range().clone())
            .ok_or_else(|| io::Error::other("no random numbers can be had"))?;
        let (sender, reactor) = Reactor::new(entrance, route.clone(), parts)?;
        let counts = reactor.counts();
        let thread = std::thread::Builder::new().name("millrace-data".to_owned());
        let thread = Mutex::new(Some(thread.spawn(move || reactor.run())?));
        Ok(Self { route, counts, sender, thread })
    }

    /// Where the node takes data connections of its sessions.
    pub(crate) fn route(&self) -> &DataRoute {
        &self.route
    }

    /// Returns how many connections for other nodes these have taken, and how many they have not.
    pub(crate) fn counts(&self) -> &RelayCounts {
        &self.counts
    }

    /// The other nodes take theirs there.
    pub(crate) fn follow(&self, routes: Vec<DataRoute>) {
        self.sender.send(Order::Follow(routes));
    }

    /// Another process listens for this node: it takes in what belongs to its sessions, and hands on nothing new.
    pub(crate) fn retire(&self) {
        self.sender.send(Order::Retire);
    }

    /// What is handed on ends at that time at the latest.
    pub(crate) fn end_by(&self, end: Instant) {
        self.sender.send(Order::EndBy(end));
    }

    /// Hands on nothing new, and waits until what is handed on has ended.
    pub(crate) fn finish(&self) {
        self.sender.send(Order::Finish);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Reads this many bytes, once they are there; `None` before that.
fn read_whole<const LENGTH: usize>(socket: impl AsFd) -> io::Result<Option<[u8; LENGTH]>> {
    let mut bytes = [0; LENGTH];
    match stream::peek(&socket, &mut bytes) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) if count < LENGTH => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    let count = stream::read(&socket, &mut bytes)?;
    Ok((count == LENGTH).then_some(bytes))
}

/// Listens at a port of the passive range, which firewalls let other nodes reach, and at which none of them listens for others.
fn open(address: IpAddr, pool: &PassivePool) -> io::Result<(SocketAddr, std::os::fd::OwnedFd)> {
    if address.is_unspecified() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "other nodes need a single address"));
    }
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in pool.range().clone().rev() {
        match listener::bind_data(SocketAddr::new(address, port)) {
            Ok(entrance) => return Ok((SocketAddr::new(address, port), entrance)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
