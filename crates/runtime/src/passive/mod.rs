//! The passive port pool: hands out listening ports for data connections.
//!
//! ```text
//!            lease                     accept, or re-lease by the same session
//! unbound ----------> leased --------------------------------------------> free (bound, listening)
//!    ^                  | dropped, or overdue, before its connection came   |
//!    +--- closed, last in line -----------------------------<---------------+ lease drains it first
//! ```
//!
//! A listener is bound once and kept; a lease is one session's from `PASV` until its connection is accepted, so no two
//! sessions can be given each other's connection. Three rules keep strangers out. Only connections from the control
//! connection's address are accepted; others are closed and the wait goes on. A listener is drained when it is leased,
//! so that a connection for an earlier session never reaches a later one. A port whose client never connected is closed
//! and goes to the end of the queue, so that a late connection is refused. All ports are within the range. Ports are
//! drawn at random (RFC 2577 section 6): first each from the whole range, until some ([`kept`]) are bound, and from
//! then on from those that are bound and free, which costs no bind.
//!
//! When every port of the range is leased, a port is shared by clients of *different* addresses, told
//! apart by where a connection comes from; an address that left one of them without its connection gets no
//! other lease of that port while it stays open. Sessions of *one* address share a port where all of them are
//! known to resume their TLS sessions, and to keep them apart ([`ticket_isolation`]): the ticket in the ClientHello says whose a
//! connection is ([`ticket_demultiplexer`]), and what shows none is closed. Any other client whose address has a lease on every port waits in line until one is
//! given back.
//!
//! While a server relieves another both lease from one range: neither keeps a port that is not leased.
//!
//! A connection from a proxy belongs to the client that its header names, and to no session before that
//! ([`Lease::accept`]). One that another node of a cluster has accepted belongs to the session that waits here for the
//! client that the node names ([`PassivePool::hand_in`]).

mod handed_on;
mod lease;
mod port;
mod sockets;
#[cfg(test)]
mod tests;
mod ticket_demultiplexer;
pub mod ticket_isolation;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use crate::proxies::Proxies;
pub use lease::{Doorkeeper, Lease, TurnedAway};
use port::{Port, Reception, SharedTenants, Tenant};
pub use sockets::{DataSockets, KernelSockets};
use ticket_demultiplexer::TicketDemultiplexer;
use ticket_isolation::{Companions, Mark};

/// Listeners that are bound before one is given out a second time, where there are descriptors enough.
const KEPT: usize = 64;

/// How many times as many stay bound once their leases have ended: the rest of what a burst took is closed, since each is a
/// descriptor that a session lacks.
const SPARE: usize = 16;

/// Returns how many listeners are kept bound in a process that may have this many descriptors.
pub fn kept(descriptors: u64) -> usize {
    usize::try_from(descriptors / 64).unwrap_or(KEPT).clamp(4, KEPT)
}

/// Tells a session that its connection was accepted by another that shares its port.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Hands a lease to a session that waited in line for it. Where the session is gone by then, the lease is
/// dropped and the next in line gets it.
pub type Deliver = Box<dyn FnOnce(Lease) + Send>;

/// The pool. One serves all workers.
#[derive(Clone)]
pub struct PassivePool {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for PassivePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassivePool").finish_non_exhaustive()
    }
}

struct Shared {
    range: RangeInclusive<u16>,
    /// Listeners that are bound before one is given out a second time.
    kept: usize,
    reception: Reception,
    companions: Companions,
    /// The number of the next tenant.
    next: CachePadded<AtomicU64>,
    /// Another server has the same range: none is kept that is not leased.
    is_shared: AtomicBool,
    /// Locked for a lease, an accept or a return: a few map operations and at most one bind.
    hosts: CachePadded<Mutex<HashMap<IpAddr, Host>>>,
    /// Locked for a push or a pop.
    returned: CachePadded<Mutex<Returned>>,
}

/// Places of leases that have ended.
#[derive(Default)]
struct Returned {
    /// On which address, and whether the connection may still come.
    places: VecDeque<(IpAddr, Place, bool)>,
    /// A thread takes them back.
    is_served: bool,
}

/// The ports of one local address.
struct Host {
    reception: Reception,
    /// Bound and not leased.
    free: Vec<Arc<Port>>,
    kept: usize,
    /// Not bound: at first all of them in random order; ports whose client never came go to the end.
    unbound: VecDeque<u16>,
    /// Leased ports.
    leased: BTreeMap<u16, Arc<Port>>,
    /// The sessions that wait for a port, the longest-waiting first.
    waiting: VecDeque<(Tenant, Deliver)>,
    /// Why the last free port could not be bound, where that was not the port's fault.
    hindrance: Option<i32>,
}

/// When what an earlier session left waiting on a port is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clearing {
    /// Before it is leased, while the lock of all ports is held.
    Now,
    /// By [`Port::clear`], after that.
    Later,
}

/// A request for a port.
pub struct Guest {
    /// Where its connection will come from.
    pub client: IpAddr,
    /// Identifies its connection, where its client is sure to resume its TLS session.
    pub badge: Option<Mark>,
    /// How to tell it that its connection has come.
    pub wake: Wake,
}

/// A place on a port.
struct Place {
    port: Arc<Port>,
    tenant: u64,
}

/// The result of a request for a lease.
#[derive(Debug)]
pub enum Leasing {
    /// Here it is.
    Granted(Lease),
    /// Every port is leased, also to this client: it will be delivered.
    Queued,
    /// No port of the range can be bound.
    Unavailable(io::Error),
}

impl PassivePool {
    /// A pool over these ports, of which this many are [`kept`] bound; nothing is bound yet.
    pub fn new(range: RangeInclusive<u16>, kept: usize, proxies: Arc<Proxies>) -> Self {
        Self::with_sockets(range, kept, proxies, Arc::<KernelSockets>::default())
    }

    /// The same where the system is another.
    pub fn with_sockets(
        range: RangeInclusive<u16>,
        kept: usize,
        proxies: Arc<Proxies>,
        sockets: Arc<dyn DataSockets>,
    ) -> Self {
        let (demultiplexer, next) = (TicketDemultiplexer::default(), CachePadded::default());
        let reception = Reception { sockets, proxies, demultiplexer };
        let companions = Companions::default();
        let is_shared = AtomicBool::new(false);
        let (hosts, returned) = (CachePadded::default(), CachePadded::default());
        let shared = Shared { range, kept, reception, companions, next, is_shared, hosts, returned };
        Self { shared: Arc::new(shared) }
    }

    /// Another process leases from the same range, or no longer does: while it does, ports without a lease here are
    /// left to it.
    pub fn share_with_others(&self, is_shared: bool) {
        self.shared.is_shared.store(is_shared, Ordering::Release);
        if is_shared {
            self.shared.lock().values_mut().for_each(Host::let_go);
        }
    }

    /// Leases a port on the address `local` to a client; if none is free, `deliver` is called with one later.
    pub fn lease(&self, local: IpAddr, guest: Guest, deliver: Deliver) -> Leasing {
        let Guest { client, badge, wake } = guest;
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let tenant = Tenant { number, client, badge, by_ticket: false, arrived: None, wake };
        let mut hosts = self.shared.lock();
        let mut placed = self.shared.host(&mut hosts, local).place(local, tenant, Clearing::Later);
        if let Ok(place) = placed {
            // Other sessions lease meanwhile: the port's own lock keeps those away that come to share it.
            drop(hosts);
            if place.port.clear(&mut place.port.tenants.lock(), self.sockets()) {
                return Leasing::Granted(Lease::new(self, local, place));
            }
            hosts = self.shared.lock();
            let host = self.shared.host(&mut hosts, local);
            let Some(tenant) = host.vacate(place, true) else {
                return Leasing::Unavailable(io::ErrorKind::AddrNotAvailable.into());
            };
            placed = host.place(local, tenant, Clearing::Now);
        }
        let host = self.shared.host(&mut hosts, local);
        match placed {
            Ok(place) => Leasing::Granted(Lease::new(self, local, place)),
            Err((tenant, error)) if host.leased.is_empty() => {
                drop(tenant);
                Leasing::Unavailable(error)
            }
            Err((tenant, _)) => {
                host.waiting.push_back((tenant, deliver));
                Leasing::Queued
            }
        }
    }

    /// The sockets of data connections, also of those that the server begins.
    pub fn sockets(&self) -> &dyn DataSockets {
        &*self.shared.reception.sockets
    }

    /// The sessions that may come to share a port by their tickets.
    pub fn companions(&self) -> &Companions {
        &self.shared.companions
    }

    /// Why waiting sessions get no port at this address, where the reason is not that all are in use.
    pub fn hindrance(&self, local: IpAddr) -> Option<io::Error> {
        let hosts = self.shared.lock();
        let host = hosts.get(&local).filter(|host| !host.unbound.is_empty())?;
        host.hindrance.map(io::Error::from_raw_os_error)
    }

    /// Why no port can be bound at this address now, if so. It binds one only to try.
    pub fn trouble(&self, local: IpAddr) -> Option<io::Error> {
        let mut last = None;
        for port in self.shared.range.clone() {
            match self.shared.reception.sockets.bind(SocketAddr::new(local, port)) {
                Ok(_) => return None,
                Err(error) => last = Some(error),
            }
        }
        last
    }

    /// Returns how many ports wait for the connection of a client, and how many sessions wait for a port.
    pub fn occupancy(&self) -> (usize, usize) {
        let hosts = self.shared.lock();
        hosts.values().fold((0, 0), |(leased, waiting), host| {
            (leased + host.leased.len(), waiting + host.waiting.len())
        })
    }

    /// The ports that may be used, for messages.
    pub fn range(&self) -> &RangeInclusive<u16> {
        &self.shared.range
    }

    /// Takes a place back. Where another is being taken back, that call serves both: a lease that is delivered to a session
    /// whose worker has ended comes back at once, and thousands of such may be in line.
    fn give_back(&self, local: IpAddr, place: Place, open: bool) {
        let mut returned = self.shared.returned();
        returned.places.push_back((local, place, open));
        if std::mem::replace(&mut returned.is_served, true) {
            return;
        }
        while let Some((local, place, open)) = returned.places.pop_front() {
            drop(returned);
            self.take_back(local, place, open);
            returned = self.shared.returned();
        }
        returned.is_served = false;
    }

    /// Ends a lease, and serves the waiting sessions that it makes room for.
    fn take_back(&self, local: IpAddr, place: Place, open: bool) {
        let mut hosts = self.shared.lock();
        let Some(host) = hosts.get_mut(&local) else { return };
        host.vacate(place, open);
        let served = host.serve_waiting(local);
        if self.shared.is_shared.load(Ordering::Acquire) {
            host.let_go();
        }
        drop(hosts);
        for (place, deliver) in served {
            deliver(Lease::new(self, local, place));
        }
    }
}

impl Shared {
    /// The ports of a local address.
    fn host<'a>(&self, hosts: &'a mut HashMap<IpAddr, Host>, local: IpAddr) -> &'a mut Host {
        hosts.entry(local).or_insert_with(|| Host::new(self))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn returned(&self) -> MutexGuard<'_, Returned> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    fn new(shared: &Shared) -> Self {
        let mut ports: Vec<u16> = shared.range.clone().collect();
        let reception = shared.reception.clone();
        shuffle(&mut ports, &*reception.sockets);
        Self {
            reception,
            free: Vec::new(),
            kept: shared.kept,
            unbound: ports.into(),
            leased: BTreeMap::new(),
            waiting: VecDeque::new(),
            hindrance: None,
        }
    }

    /// Closes listeners without a lease.
    fn let_go(&mut self) {
        self.unbound.extend(self.free.drain(..).map(|port| port.number));
    }

    /// Finds a port for a tenant: a free one, else one leased to other addresses only, else one where tickets tell
    /// apart all tenants of its address.
    fn place(
        &mut self,
        local: IpAddr,
        tenant: Tenant,
        clearing: Clearing,
    ) -> Result<Place, (Tenant, io::Error)> {
        match self.take(local, clearing) {
            Ok(port) => {
                let place = Place { port: Arc::clone(&port), tenant: tenant.number };
                port.tenants.lock().list.push(tenant);
                self.leased.insert(port.number, port);
                Ok(place)
            }
            Err(error) => self.share(tenant).map_err(|tenant| (tenant, error)),
        }
    }

    /// A free port: an unused one while few are bound, else a bound one, else one that is bound now.
    fn take(&mut self, local: IpAddr, clearing: Clearing) -> io::Result<Arc<Port>> {
        if self.free.len() + self.leased.len() < self.kept
            && let Ok(port) = self.bind(local, 1)
        {
            return Ok(port);
        }
        while !self.free.is_empty() {
            let port = self.free.swap_remove(below(self.free.len(), &*self.reception.sockets));
            let mut tenants = port.tenants.lock();
            tenants.is_stale = true;
            let is_usable = clearing == Clearing::Later || port.clear(&mut tenants, &*self.reception.sockets);
            drop(tenants);
            if is_usable {
                return Ok(port);
            }
            // Closed, which resets waiting connections.
            self.unbound.push_back(port.number);
        }
        self.bind(local, self.unbound.len())
    }

    /// Binds a port, and tries this many at most.
    fn bind(&mut self, local: IpAddr, most: usize) -> io::Result<Arc<Port>> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in 0..most {
            let Some(number) = self.unbound.pop_front() else { break };
            match self.reception.sockets.bind(SocketAddr::new(local, number)) {
                Ok(listener) => {
                    return Ok(Arc::new(Port { number, listener, tenants: SharedTenants::default() }));
                }
                Err(error) => {
                    // Another program has it now; it may be free another time.
                    self.unbound.push_back(number);
                    let port_is_to_blame = error.kind() == io::ErrorKind::AddrInUse;
                    last = error;
                    if !port_is_to_blame {
                        break;
                    }
                }
            }
        }
        let port_is_to_blame = last.kind() == io::ErrorKind::AddrInUse;
        self.hindrance = last.raw_os_error().filter(|_| !port_is_to_blame);
        Err(last)
    }

    /// Shares a leased port on which tickets distinguish this tenant's connection.
    fn share(&mut self, mut tenant: Tenant) -> Result<Place, Tenant> {
        let client = tenant.client;
        // Which of several it is cannot be foreseen either.
        let first = self.leased.keys().nth(below(self.leased.len(), &*self.reception.sockets)).copied();
        let first = first.unwrap_or_default();
        let mut ports = self.leased.range(first..).chain(self.leased.range(..first)).map(|(_, port)| port);
        let by_address = ports.clone().find(|port| port.tenants.lock().admits(client));
        let by_ticket = || {
            let mark = tenant.badge.as_ref()?;
            ports.find(|port| port.tenants.lock().are_apart_from(client, mark))
        };
        let Some(port) = by_address.or_else(by_ticket) else { return Err(tenant) };
        let place = Place { port: Arc::clone(port), tenant: tenant.number };
        let mut tenants = port.tenants.lock();
        if !port.clear(&mut tenants, &*self.reception.sockets) {
            return Err(tenant);
        }
        // Connections that have arrived belong to no tenant, or to the one that was alone until now.
        port.sort_arrivals(&mut tenants, &self.reception);
        tenant.by_ticket = by_address.is_none();
        tenants.list.push(tenant);
        if by_address.is_none() {
            tenants.identify_by_ticket(client);
        }
        Ok(place)
    }

    /// Ends a lease of a port, whose connection came or is still `open` to come. Returns whose it was.
    fn vacate(&mut self, place: Place, open: bool) -> Option<Tenant> {
        let Place { port, tenant } = place;
        let mut tenants = port.tenants.lock();
        let at = tenants.list.iter().position(|other| other.number == tenant);
        let left = at.map(|at| tenants.list.remove(at));
        if let Some(left) = left.as_ref().filter(|_| open) {
            tenants.expected.push(left.client);
        }
        if !tenants.list.is_empty() {
            return left;
        }
        let stays = tenants.expected.is_empty() && self.free.len() < self.kept * SPARE;
        drop(tenants);
        self.leased.remove(&port.number);
        match stays {
            true => self.free.push(port),
            // It is one too many, or its client may still connect and must be refused. This was the last reference, so
            // the listener closes here and resets waiting connections.
            false => self.unbound.push_back(port.number),
        }
        left
    }

    /// Places waiting sessions that can be placed now.
    fn serve_waiting(&mut self, local: IpAddr) -> Vec<(Place, Deliver)> {
        let mut served = Vec::new();
        // If one must wait, so must others of its address and kind; a different one may still fit.
        let mut full: Vec<(IpAddr, bool)> = Vec::new();
        let mut at = 0;
        while let Some((tenant, _)) = self.waiting.get(at) {
            let kind = (tenant.client, tenant.badge.is_some());
            if full.contains(&kind) {
                at += 1;
                continue;
            }
            let Some((tenant, deliver)) = self.waiting.remove(at) else { break };
            match self.place(local, tenant, Clearing::Now) {
                Ok(place) => served.push((place, deliver)),
                Err((tenant, _)) => {
                    self.waiting.insert(at, (tenant, deliver));
                    full.push(kind);
                    at += 1;
                }
            }
        }
        served
    }
}

/// A random number from 0 up to, but not including, `end`.
fn below(end: usize, sockets: &dyn DataSockets) -> usize {
    (sockets.random() % end.max(1) as u64) as usize
}

/// A Fisher-Yates shuffle.
fn shuffle(ports: &mut [u16], sockets: &dyn DataSockets) {
    for end in (1..ports.len()).rev() {
        ports.swap(end, below(end + 1, sockets));
    }
}
