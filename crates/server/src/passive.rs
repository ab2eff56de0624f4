//! The passive port pool: hands out listening ports for data connections.
//!
//! ```text
//!            lease                     accept, or re-lease by the same session
//! unbound ----------> leased --------------------------------------------> free (bound, listening)
//!    ^                  | dropped, or overdue, before its connection came   |
//!    +--- closed, last in line -----------------------------<---------------+ lease drains it first
//! ```
//!
//! A listener is bound once and kept; a lease is one session's from `PASV` until its connection is
//! accepted, so no two sessions can be given each other's connection. Three rules keep strangers out: only
//! the address of the control connection is accepted, everybody else is closed and the wait goes on; a
//! listener is drained when it is leased, so what came for an earlier session never reaches a later one;
//! and a port whose client never came is closed and goes to the end of the line, so a late connection
//! finds nobody there. Ports are drawn at random (RFC 2577 section 6), and nothing ever leaves the range.
//!
//! When every port of the range is leased, a port is shared by clients of *different* addresses, told
//! apart by where a connection comes from; an address that left one of them without its connection gets no
//! other lease of that port while it stays open. A client whose address has a lease on every port waits in
//! line until one is given back.
//!
//! What comes from where proxies connect is of whom its header names, and nobody's before that ([`Lease::accept`]).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millrace_net::{listener, proxy};

use crate::proxied::{LATE, Proxies};

/// So many connections of one lease may wait for their header: one is the client's.
const UNNAMED: usize = 8;

/// Tells a session that its connection was accepted by another that shares its port.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Hands a lease to a session that waited in line for it. Where the session is gone by then, the lease is
/// dropped and the next in line gets it.
pub(crate) type Deliver = Box<dyn FnOnce(Lease) + Send>;

/// The pool. One serves all workers.
#[derive(Clone)]
pub(crate) struct PassivePool {
    shared: Arc<Shared>,
}

struct Shared {
    range: RangeInclusive<u16>,
    proxies: Arc<Proxies>,
    /// Locked for a lease, an accept or a return: a few map operations and at most one bind.
    hosts: Mutex<HashMap<IpAddr, Host>>,
}

/// The ports of one local address.
struct Host {
    /// Bound and not leased; the last one returned is the first one used.
    free: Vec<Arc<Port>>,
    /// Not bound: at first all of them in random order; ports whose client never came go to the end.
    unbound: VecDeque<u16>,
    /// Leased ports.
    leased: HashMap<u16, Arc<Port>>,
    /// Who waits for a port, the longest-waiting first.
    waiting: VecDeque<(Tenant, Deliver)>,
}

/// A bound port.
struct Port {
    number: u16,
    listener: OwnedFd,
    /// Locked for a look or an insert.
    tenants: Mutex<Tenants>,
}

/// Who has to do with a port.
#[derive(Default)]
struct Tenants {
    /// Who holds a lease. One entry nearly always; more when the range is exhausted.
    list: Vec<Tenant>,
    /// Whose lease ended before its connection came: it may come yet, for as long as the port is open.
    expected: Vec<IpAddr>,
}

struct Tenant {
    /// Where its connection will come from.
    client: IpAddr,
    /// What another tenant accepted for it.
    arrived: Option<OwnedFd>,
    /// How to tell it so.
    wake: Wake,
}

/// What came of asking for a lease.
#[derive(Debug)]
pub(crate) enum Leasing {
    /// Here it is.
    Granted(Lease),
    /// Every port is leased, also to this client: it will be delivered.
    Queued,
    /// No port of the range can be bound.
    Unavailable(io::Error),
}

impl PassivePool {
    /// A pool over these ports; nothing is bound yet.
    pub(crate) fn new(range: RangeInclusive<u16>, proxies: Arc<Proxies>) -> Self {
        Self { shared: Arc::new(Shared { range, proxies, hosts: Mutex::default() }) }
    }

    /// Leases a port on the address `local` to a client; where there is none now, `deliver` is called
    /// with one later.
    pub(crate) fn lease(&self, local: IpAddr, client: IpAddr, wake: Wake, deliver: Deliver) -> Leasing {
        let tenant = Tenant { client, arrived: None, wake };
        let mut hosts = self.shared.lock();
        let host = hosts.entry(local).or_insert_with(|| Host::new(&self.shared.range));
        match host.place(local, tenant, &self.shared.proxies) {
            Ok(port) => Leasing::Granted(self.granted(local, client, port)),
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

    /// The ports that may be used, for messages.
    pub(crate) fn range(&self) -> &RangeInclusive<u16> {
        &self.shared.range
    }

    fn granted(&self, local: IpAddr, client: IpAddr, port: Arc<Port>) -> Lease {
        let address = SocketAddr::new(local, port.number);
        Lease {
            pool: self.clone(),
            address,
            client,
            port: Some(port),
            open: true,
            kept: None,
            unnamed: Vec::new(),
            due: None,
        }
    }

    /// Takes a port back; what it makes possible for somebody in line is done at once.
    fn give_back(&self, local: IpAddr, client: IpAddr, port: Arc<Port>, open: bool) {
        let mut hosts = self.shared.lock();
        let Some(host) = hosts.get_mut(&local) else { return };
        host.vacate(client, port, open);
        let served = host.serve_waiting(local, &self.shared.proxies);
        drop(hosts);
        for (client, port, deliver) in served {
            deliver(self.granted(local, client, port));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    fn new(range: &RangeInclusive<u16>) -> Self {
        let mut ports: Vec<u16> = range.clone().collect();
        shuffle(&mut ports);
        Self { free: Vec::new(), unbound: ports.into(), leased: HashMap::new(), waiting: VecDeque::new() }
    }

    /// Finds a port for a tenant: one that nobody holds, else one held by other addresses only.
    fn place(
        &mut self,
        local: IpAddr,
        tenant: Tenant,
        proxies: &Proxies,
    ) -> Result<Arc<Port>, (Tenant, io::Error)> {
        match self.take(local) {
            Ok(port) => {
                port.lock().list.push(tenant);
                self.leased.insert(port.number, Arc::clone(&port));
                Ok(port)
            }
            Err(error) => self.share(tenant, proxies).map_err(|tenant| (tenant, error)),
        }
    }

    /// A port that nobody holds: one that is bound, drained, or else one that is bound now.
    fn take(&mut self, local: IpAddr) -> io::Result<Arc<Port>> {
        while let Some(port) = self.free.pop() {
            if drain(&port.listener) {
                return Ok(port);
            }
            // Closed, which resets whoever waits on it.
            self.unbound.push_back(port.number);
        }
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in 0..self.unbound.len() {
            let Some(number) = self.unbound.pop_front() else { break };
            match listener::bind_data(SocketAddr::new(local, number)) {
                Ok(listener) => return Ok(Arc::new(Port { number, listener, tenants: Mutex::default() })),
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
        Err(last)
    }

    /// A leased port on which this client has no lease.
    fn share(&mut self, tenant: Tenant, proxies: &Proxies) -> Result<Arc<Port>, Tenant> {
        for port in self.leased.values() {
            let mut tenants = port.lock();
            if tenants.admits(tenant.client) {
                // What the newcomer's address sent here before is nobody's.
                tenants.sort_arrivals(&port.listener, proxies);
                tenants.list.push(tenant);
                return Ok(Arc::clone(port));
            }
        }
        Err(tenant)
    }

    /// Ends a client's lease of a port, whose connection came or is still `open` to come.
    fn vacate(&mut self, client: IpAddr, port: Arc<Port>, open: bool) {
        let mut tenants = port.lock();
        tenants.list.retain(|tenant| tenant.client != client);
        if open {
            tenants.expected.push(client);
        }
        if !tenants.list.is_empty() {
            return;
        }
        let is_quiet = tenants.expected.is_empty();
        drop(tenants);
        self.leased.remove(&port.number);
        match is_quiet {
            true => self.free.push(port),
            // A client may yet connect: nobody must be there to hear it. This was the last reference, so the
            // listener closes here and resets what waits on it.
            false => self.unbound.push_back(port.number),
        }
    }

    /// Places whoever waits and can be placed now.
    fn serve_waiting(&mut self, local: IpAddr, proxies: &Proxies) -> Vec<(IpAddr, Arc<Port>, Deliver)> {
        let mut served = Vec::new();
        // Where one has to wait on, so have the others of its address; somebody else may still fit in.
        let mut full: Vec<IpAddr> = Vec::new();
        let mut at = 0;
        while let Some((tenant, _)) = self.waiting.get(at) {
            let client = tenant.client;
            if full.contains(&client) {
                at += 1;
                continue;
            }
            let Some((tenant, deliver)) = self.waiting.remove(at) else { break };
            match self.place(local, tenant, proxies) {
                Ok(port) => served.push((client, port, deliver)),
                Err((tenant, _)) => {
                    self.waiting.insert(at, (tenant, deliver));
                    full.push(client);
                    at += 1;
                }
            }
        }
        served
    }
}

impl Port {
    fn lock(&self) -> MutexGuard<'_, Tenants> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenants {
    fn of(&mut self, client: IpAddr) -> Option<&mut Tenant> {
        self.list.iter_mut().find(|tenant| tenant.client == client)
    }

    /// Claims that a connection from this address could be meant for nobody but a new tenant.
    fn admits(&self, client: IpAddr) -> bool {
        self.list.iter().all(|tenant| tenant.client != client) && !self.expected.contains(&client)
    }

    /// Accepts whatever waits, gives it to whom it is for and closes the rest.
    fn sort_arrivals(&mut self, listener: &OwnedFd, proxies: &Proxies) {
        while let Ok((socket, peer)) = listener::accept(listener) {
            let from = match proxies.include(peer.ip()) {
                false => Some(peer.ip()),
                // A header that is not there by now is not waited for: proxies send it as they connect.
                true => named(&socket, peer).ok().flatten(),
            };
            if let Some(tenant) = from.and_then(|from| self.of(from)) {
                tenant.take_in(socket);
            }
        }
    }
}

/// Whom a connection from a proxy is of, once its header has come.
fn named(socket: &OwnedFd, proxy: SocketAddr) -> Result<Option<IpAddr>, String> {
    match proxy::take(socket) {
        Ok(Ok(header)) => Ok(header.map(|header| header.ends.map_or(proxy, |ends| ends.client).ip())),
        Ok(Err(fault)) => Err(fault.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

impl Tenant {
    /// Keeps a connection that another accepted. The first stays: a second cannot push it out.
    fn take_in(&mut self, socket: OwnedFd) {
        if self.arrived.is_none() {
            self.arrived = Some(socket);
            (self.wake)();
        }
    }
}

/// A leased port. Dropping it gives the port back.
pub(crate) struct Lease {
    pool: PassivePool,
    address: SocketAddr,
    client: IpAddr,
    /// Taken when the port is given back, at the latest when the lease is dropped.
    port: Option<Arc<Port>>,
    /// Whether the connection is still to come.
    open: bool,
    /// A connection that came before anybody asked for it, from when the port was given back.
    kept: Option<OwnedFd>,
    /// Connections from proxies that have not said whom they are of, and whether the reactor tells of them.
    unnamed: Vec<(OwnedFd, SocketAddr, bool)>,
    /// When the port is given back although no transfer has begun.
    pub(crate) due: Option<Instant>,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({} for {})", self.address, self.client)
    }
}

impl Lease {
    /// Ends the wait for a transfer: the port is somebody else's from now on. Answers whether the client's
    /// connection had come; then it is kept here.
    pub(crate) fn give_back(&mut self, door: &mut impl Doorkeeper) -> bool {
        self.due = None;
        self.kept = self.accept(door).ok();
        self.give_up_unnamed().into_iter().for_each(|late| door.turn_away(late));
        self.return_port();
        self.kept.is_some()
    }

    /// Ends the wait for headers; answers whose have not come.
    pub(crate) fn give_up_unnamed(&mut self) -> Vec<TurnedAway> {
        let late = |(_, proxy, _)| TurnedAway::Unnamed(proxy, LATE.to_owned());
        self.unnamed.drain(..).map(late).collect()
    }

    fn return_port(&mut self) {
        if let Some(port) = self.port.take() {
            self.pool.give_back(self.address.ip(), self.client, port, self.open);
        }
    }

    /// Where the client is to connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener, to wait for, where the port has not been given back.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.port.as_ref().map(|port| port.listener.as_fd())
    }

    /// Begins anew for the same session (a second `PASV`): what came until now is closed. Answers whether
    /// there is still a port to begin with.
    pub(crate) fn renew(&mut self) -> bool {
        self.kept = None;
        self.unnamed.clear();
        let Some(port) = &self.port else { return false };
        let mut tenants = port.lock();
        tenants.sort_arrivals(&port.listener, &self.pool.shared.proxies);
        if let Some(own) = tenants.of(self.client) {
            own.arrived = None;
        }
        true
    }

    /// The client's connection, if it has come; [`io::ErrorKind::WouldBlock`] if not. The door hears of everybody
    /// who is turned away, and watches for the headers of proxies.
    pub(crate) fn accept(&mut self, door: &mut impl Doorkeeper) -> io::Result<OwnedFd> {
        if let Some(socket) = self.kept.take() {
            return Ok(socket);
        }
        let Some(port) = &self.port else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut tenants = port.lock();
        let mut known = std::mem::take(&mut self.unnamed).into_iter();
        loop {
            if let Some(socket) = tenants.of(self.client).and_then(|own| own.arrived.take()) {
                self.open = false;
                return Ok(socket);
            }
            let (socket, peer, is_watched) = match known.next() {
                Some(known) => known,
                None => match listener::accept(&port.listener) {
                    Ok((socket, peer)) => (socket, peer, false),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                    Err(error) => return Err(error),
                },
            };
            let mut from = peer.ip();
            if self.pool.shared.proxies.include(from) {
                match named(&socket, peer) {
                    Ok(Some(client)) => from = client,
                    Ok(None) if self.unnamed.len() < UNNAMED && (is_watched || door.watch(&socket)) => {
                        self.unnamed.push((socket, peer, true));
                        continue;
                    }
                    named => {
                        let why = named.err().unwrap_or_else(|| "too many wait for their header".to_owned());
                        door.turn_away(TurnedAway::Unnamed(peer, why));
                        continue;
                    }
                }
                if is_watched {
                    door.forget(&socket);
                }
            }
            match tenants.of(from) {
                Some(tenant) if tenant.client == self.client => {
                    self.open = false;
                    return Ok(socket);
                }
                Some(tenant) => tenant.take_in(socket),
                None => door.turn_away(TurnedAway::Stranger(SocketAddr::new(from, peer.port()))),
            }
        }
    }
}

/// What a lease needs of whoever holds it, where connections come.
pub(crate) trait Doorkeeper {
    /// A connection was closed.
    fn turn_away(&mut self, whom: TurnedAway);
    /// The holder is to be told when something comes on this one.
    fn watch(&mut self, socket: &OwnedFd) -> bool;
    /// It need not be told any more.
    fn forget(&mut self, socket: &OwnedFd);
}

/// A connection that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// It is somebody else's.
    Stranger(SocketAddr),
    /// It came from where proxies connect, and did not say whose it is.
    Unnamed(SocketAddr, String),
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.return_port();
    }
}

/// Closes whatever waits to be accepted. Answers whether nothing does any more: without a descriptor to spare
/// nothing can be accepted, and what waits would be the next session's.
fn drain(listener: &OwnedFd) -> bool {
    while listener::may_accept(listener) {
        match listener::accept(listener) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}

/// A Fisher-Yates shuffle with the standard library's per-process random keys.
fn shuffle(ports: &mut [u16]) {
    let keys = RandomState::new();
    for end in (1..ports.len()).rev() {
        let mut hasher = keys.build_hasher();
        hasher.write_usize(end);
        ports.swap(end, (hasher.finish() % (end as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use millrace_net::stream;

    use super::*;

    /// Whoever is turned away is not told of.
    struct Nobody;

    impl Doorkeeper for Nobody {
        fn turn_away(&mut self, _: TurnedAway) {}

        fn watch(&mut self, _: &OwnedFd) -> bool {
            true
        }

        fn forget(&mut self, _: &OwnedFd) {}
    }

    /// Remembers them.
    #[derive(Debug, Default)]
    struct Book(Vec<TurnedAway>);

    impl Doorkeeper for Book {
        fn turn_away(&mut self, whom: TurnedAway) {
            self.0.push(whom);
        }

        fn watch(&mut self, _: &OwnedFd) -> bool {
            true
        }

        fn forget(&mut self, _: &OwnedFd) {}
    }

    fn pool(range: RangeInclusive<u16>) -> PassivePool {
        PassivePool::new(range, Arc::default())
    }

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn client(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    /// A range of `count` ports that are free now, and no other test's: below those that the system gives to
    /// outgoing connections.
    fn range(count: u16) -> RangeInclusive<u16> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        loop {
            let offset = NEXT.fetch_add(count, Ordering::Relaxed);
            let start = 10_000 + (std::process::id() as u16).wrapping_mul(257).wrapping_add(offset) % 20_000;
            let ports = start..=start + count - 1;
            if ports.clone().all(|port| std::net::TcpListener::bind((LOCAL, port)).is_ok()) {
                return ports;
            }
        }
    }

    fn lease(pool: &PassivePool, from: IpAddr) -> Lease {
        match pool.lease(LOCAL, from, Arc::new(|| {}), Box::new(|_| {})) {
            Leasing::Granted(lease) => lease,
            other => panic!("{other:?}"),
        }
    }

    fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
        let socket = stream::begin_connect(SocketAddr::new(from, 0), to).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_nonblocking(false).unwrap();
        socket
    }

    fn accept(lease: &mut Lease) -> Option<OwnedFd> {
        for _ in 0..200 {
            match lease.accept(&mut Nobody) {
                Ok(socket) => return Some(socket),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        None
    }

    #[test]
    fn two_sessions_never_hold_one_port() {
        let pool = pool(range(20));
        let leases: Vec<Lease> = (0..20).map(|_| lease(&pool, client(1))).collect();
        let mut ports: Vec<u16> = leases.iter().map(|lease| lease.address().port()).collect();
        assert!(ports.iter().all(|port| pool.range().contains(port)));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }

    #[test]
    fn a_stranger_is_turned_away_and_the_wait_goes_on() {
        let pool = pool(range(1));
        let mut lease = lease(&pool, client(1));
        let _stranger = connect(client(77), lease.address());
        let mut book = Book::default();
        while book.0.is_empty() {
            let error = lease.accept(&mut book).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        assert!(matches!(book.0[..], [TurnedAway::Stranger(peer)] if peer.ip() == client(77)));
        let _client = connect(client(1), lease.address());
        assert!(accept(&mut lease).is_some());
    }

    #[test]
    fn a_late_connection_never_reaches_the_next_session() {
        let pool = pool(range(1));
        let first = lease(&pool, client(1));
        let _late = connect(client(1), first.address());
        drop(first);
        let mut second = lease(&pool, client(1));
        assert!(second.accept(&mut Nobody).is_err());

        // The same when the first got its connection and a second one was left behind.
        let _own = connect(client(1), second.address());
        assert!(accept(&mut second).is_some());
        let _left = connect(client(1), second.address());
        std::thread::sleep(Duration::from_millis(20));
        drop(second);
        let mut third = lease(&pool, client(1));
        assert!(third.accept(&mut Nobody).is_err());
    }

    #[test]
    fn an_exhausted_range_is_shared_by_addresses_and_each_gets_its_own() {
        let pool = pool(range(1));
        let mut one = lease(&pool, client(1));
        let (woken, wake) = mpsc::channel();
        let Leasing::Granted(mut two) =
            pool.lease(LOCAL, client(2), Arc::new(move || woken.send(()).unwrap()), Box::new(|_| {}))
        else {
            panic!("not shared")
        };
        assert_eq!(one.address(), two.address());
        let second = connect(client(2), two.address());
        std::thread::sleep(Duration::from_millis(20));
        assert!(one.accept(&mut Nobody).is_err(), "given another's connection");
        wake.recv_timeout(Duration::from_secs(5)).unwrap();
        let socket = two.accept(&mut Nobody).unwrap();
        assert_eq!(TcpStream::from(socket).peer_addr().unwrap(), second.local_addr().unwrap());
        let _first = connect(client(1), one.address());
        assert!(accept(&mut one).is_some());
    }

    #[test]
    fn a_client_with_a_lease_everywhere_waits_in_line() {
        let pool = pool(range(1));
        let first = lease(&pool, client(1));
        let (deliver, delivered) = mpsc::channel();
        for number in [2, 3] {
            let deliver = deliver.clone();
            let queued = pool.lease(
                LOCAL,
                client(1),
                Arc::new(|| {}),
                Box::new(move |lease| drop(deliver.send((number, lease)))),
            );
            assert!(matches!(queued, Leasing::Queued));
        }
        assert!(delivered.try_recv().is_err());
        drop(first);
        let (number, second) = delivered.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(number, 2);
        drop(second);
        assert_eq!(delivered.recv_timeout(Duration::from_secs(5)).unwrap().0, 3);
    }

    #[test]
    fn one_return_serves_everybody_in_line_who_fits_in() {
        let pool = pool(range(1));
        let (one, two) = (lease(&pool, client(1)), lease(&pool, client(2)));
        let (deliver, delivered) = mpsc::channel();
        for (number, from) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
            let deliver = deliver.clone();
            let queued = pool.lease(
                LOCAL,
                client(from),
                Arc::new(|| {}),
                Box::new(move |lease| drop(deliver.send((number, lease)))),
            );
            assert!(matches!(queued, Leasing::Queued));
        }
        // Nobody is left on the port, which is bound anew: now one of each address fits in.
        let two_and_one = (two, one);
        let mut hosts = pool.shared.lock();
        let host = hosts.get_mut(&LOCAL).unwrap();
        let waiting = std::mem::take(&mut host.waiting);
        drop(hosts);
        drop(two_and_one);
        pool.shared.lock().get_mut(&LOCAL).unwrap().waiting = waiting;
        drop(lease(&pool, client(3)));
        let mut served: Vec<_> = delivered.try_iter().collect();
        served.sort_by_key(|(number, _)| *number);
        assert_eq!(served.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_port_that_is_given_back_keeps_the_connection_that_had_come() {
        let pool = pool(range(1));
        let mut early = lease(&pool, client(1));
        let data = connect(client(1), early.address());
        // A local connection is in the listener's line once the client has it.
        let begin = Instant::now();
        while data.peer_addr().is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10));
        }
        assert!(early.give_back(&mut Nobody));
        let mut next = lease(&pool, client(1));
        assert!(next.accept(&mut Nobody).is_err());
        let socket = early.accept(&mut Nobody).unwrap();
        assert_eq!(TcpStream::from(socket).peer_addr().unwrap(), data.local_addr().unwrap());
        assert!(!early.renew(), "it has no port any more");
        assert!(!next.give_back(&mut Nobody));
        assert!(next.accept(&mut Nobody).is_err());
    }

    #[test]
    fn what_a_proxy_passes_on_is_of_whom_its_header_names() {
        let proxies = Arc::new(Proxies::new(vec!["127.0.0.50".parse().unwrap()]));
        let pool = PassivePool::new(range(1), proxies);
        let mut one = lease(&pool, client(1));
        let mut two = lease(&pool, client(2));
        assert_eq!(one.address(), two.address());
        let address = one.address();
        let by_proxy = |header: &str| {
            let mut socket = connect(client(50), address);
            std::io::Write::write_all(&mut socket, header.as_bytes()).unwrap();
            socket
        };
        let header = |last| format!("PROXY TCP4 127.0.0.{last} 127.0.0.50 1 2\r\n");
        let (_late, _stranger, _nobody) = (by_proxy("PROX"), by_proxy(&header(3)), by_proxy("NLST\r\n"));
        let mut book = Book::default();
        let deadline = Instant::now() + Duration::from_secs(30);
        while book.0.len() < 2 {
            assert_eq!(one.accept(&mut book).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert!(Instant::now() < deadline, "{book:?}");
        }
        let is_stranger =
            |away: &TurnedAway| matches!(away, TurnedAway::Stranger(peer) if peer.ip() == client(3));
        let is_nobody =
            |away: &TurnedAway| matches!(away, TurnedAway::Unnamed(_, why) if why.contains("does not begin"));
        assert!(book.0.iter().any(is_stranger) && book.0.iter().any(is_nobody), "{book:?}");
        assert_eq!(one.give_up_unnamed().len(), 1, "the one that is late");
        // Each gets its own, whoever accepts it.
        let (of_two, of_one) = (by_proxy(&header(2)), by_proxy(&header(1)));
        let first = loop {
            match one.accept(&mut book) {
                Ok(socket) => break TcpStream::from(socket),
                Err(_) => assert!(Instant::now() < deadline, "{book:?}"),
            }
        };
        assert_eq!(first.peer_addr().unwrap(), of_one.local_addr().unwrap());
        let second = loop {
            match two.accept(&mut book) {
                Ok(socket) => break TcpStream::from(socket),
                Err(_) => assert!(Instant::now() < deadline, "{book:?}"),
            }
        };
        assert_eq!(second.peer_addr().unwrap(), of_two.local_addr().unwrap());
    }

    #[test]
    fn a_port_that_another_program_has_is_passed_over() {
        let range = range(2);
        let _other = std::net::TcpListener::bind((LOCAL, *range.start())).unwrap();
        let pool = pool(range.clone());
        assert_eq!(lease(&pool, client(1)).address().port(), *range.end());
    }
}
