//! The pool, over ports of this machine.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use millrace_net::stream;

use super::*;

/// A doorkeeper that ignores rejected connections.
pub(super) struct Silent;

impl Doorkeeper for Silent {
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

pub(super) fn pool(range: RangeInclusive<u16>) -> PassivePool {
    PassivePool::new(range, KEPT, Arc::default())
}

pub(super) const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

pub(super) fn client(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

/// A range of `count` ports that are free now, and no other test's: below those that the system gives to
/// outgoing connections.
pub(super) fn range(count: u16) -> RangeInclusive<u16> {
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

/// A client whose connection is known by its address alone.
pub(super) fn guest(client: IpAddr) -> Guest {
    Guest { client, badge: None, wake: Arc::new(|| {}) }
}

pub(super) fn lease(pool: &PassivePool, from: IpAddr) -> Lease {
    match pool.lease(LOCAL, guest(from), Box::new(|_| {})) {
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

/// When a test gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for the listener's next connection.
fn wait_for_arrival(lease: &Lease) {
    assert!(stream::wait_readable(lease.listener().unwrap(), PATIENCE), "no connection arrives");
}

/// Waits for the connection of a lease.
fn accept(lease: &mut Lease) -> Option<OwnedFd> {
    wait_for_arrival(lease);
    lease.accept(&mut Silent).ok()
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

/// The port of the next session cannot be predicted from earlier ones.
#[test]
fn sessions_one_after_another_are_given_ports_drawn_at_random() {
    let pool = pool(range(200));
    let port = || {
        let mut lease = lease(&pool, client(1));
        let _client = connect(client(1), lease.address());
        assert!(accept(&mut lease).is_some());
        lease.address().port()
    };
    let mut first: Vec<u16> = (0..KEPT).map(|_| port()).collect();
    let in_order = first.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((10..54).contains(&in_order), "{first:?}");
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), KEPT, "each of the first has another one");
    let mut times = std::collections::HashMap::new();
    (0..640).for_each(|_| *times.entry(port()).or_insert(0) += 1);
    assert_eq!(
        times.keys().filter(|port| first.binary_search(port).is_err()).count(),
        0,
        "none is bound anew"
    );
    assert!(times.len() > 60 && times.values().all(|&times| times < 40), "{times:?}");
}

#[test]
fn of_the_ports_of_a_burst_only_some_stay_bound() {
    let pool = PassivePool::new(range(20), 1, Arc::default());
    let mut leases: Vec<Lease> = (0..20).map(|_| lease(&pool, client(1))).collect();
    let clients: Vec<TcpStream> = leases.iter().map(|lease| connect(client(1), lease.address())).collect();
    assert!(leases.iter_mut().all(|lease| accept(lease).is_some()));
    drop((leases, clients));
    let hosts = pool.shared.lock();
    assert_eq!((hosts[&LOCAL].free.len(), hosts[&LOCAL].unbound.len()), (SPARE, 20 - SPARE));
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
    wait_for_arrival(&first);
    drop(first);
    let mut second = lease(&pool, client(1));
    assert!(second.accept(&mut Silent).is_err());

    // The same when the first got its connection and a second one was left behind.
    let _own = connect(client(1), second.address());
    assert!(accept(&mut second).is_some());
    let _left = connect(client(1), second.address());
    wait_for_arrival(&second);
    drop(second);
    let mut third = lease(&pool, client(1));
    assert!(third.accept(&mut Silent).is_err());
}

#[test]
fn an_exhausted_range_is_shared_by_addresses_and_each_gets_its_own() {
    let pool = pool(range(1));
    let mut one = lease(&pool, client(1));
    let (woken, wake) = mpsc::channel();
    let Leasing::Granted(mut two) = pool.lease(
        LOCAL,
        Guest { wake: Arc::new(move || woken.send(()).unwrap()), ..guest(client(2)) },
        Box::new(|_| {}),
    ) else {
        panic!("not shared")
    };
    assert_eq!(one.address(), two.address());
    let second = connect(client(2), two.address());
    wait_for_arrival(&one);
    assert!(one.accept(&mut Silent).is_err(), "given another's connection");
    wake.recv_timeout(PATIENCE).unwrap();
    let socket = two.accept(&mut Silent).unwrap();
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
        let queued =
            pool.lease(LOCAL, guest(client(1)), Box::new(move |lease| drop(deliver.send((number, lease)))));
        assert!(matches!(queued, Leasing::Queued));
    }
    assert!(delivered.try_recv().is_err());
    drop(first);
    let (number, second) = delivered.recv_timeout(PATIENCE).unwrap();
    assert_eq!(number, 2);
    drop(second);
    assert_eq!(delivered.recv_timeout(PATIENCE).unwrap().0, 3);
}

#[test]
fn leases_of_sessions_that_have_ended_come_back_however_many_were_in_line() {
    let pool = pool(range(1));
    let first = lease(&pool, client(1));
    for _ in 0..4000 {
        let queued = pool.lease(LOCAL, guest(client(1)), Box::new(drop));
        assert!(matches!(queued, Leasing::Queued));
    }
    drop(first);
    assert_eq!(pool.occupancy(), (0, 0));
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
            guest(client(from)),
            Box::new(move |lease| drop(deliver.send((number, lease)))),
        );
        assert!(matches!(queued, Leasing::Queued));
    }
    // The port has no tenant left, which is bound anew: now one of each address fits in.
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
    wait_for_arrival(&early);
    assert!(early.give_back(&mut Silent));
    let mut next = lease(&pool, client(1));
    assert!(next.accept(&mut Silent).is_err());
    let socket = early.accept(&mut Silent).unwrap();
    assert_eq!(TcpStream::from(socket).peer_addr().unwrap(), data.local_addr().unwrap());
    assert!(!early.renew(), "it has no port any more");
    assert!(!next.give_back(&mut Silent));
    assert!(next.accept(&mut Silent).is_err());
}

#[test]
fn a_proxied_connection_belongs_to_the_client_in_its_header() {
    let proxies = Arc::new(Proxies::new(vec!["127.0.0.50".parse().unwrap()]));
    let pool = PassivePool::new(range(1), KEPT, proxies);
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
    let (_late, _stranger, _unnamed) = (by_proxy("PROX"), by_proxy(&header(3)), by_proxy("NLST\r\n"));
    let mut book = Book::default();
    let deadline = Instant::now() + Duration::from_secs(30);
    while book.0.len() < 2 {
        assert_eq!(one.accept(&mut book).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(Instant::now() < deadline, "{book:?}");
    }
    let is_stranger =
        |away: &TurnedAway| matches!(away, TurnedAway::Stranger(peer) if peer.ip() == client(3));
    let is_unnamed = |away: &TurnedAway| matches!(away, TurnedAway::Unnamed(_, why) if why.to_string().contains("does not begin"));
    assert!(book.0.iter().any(is_stranger) && book.0.iter().any(is_unnamed), "{book:?}");
    assert_eq!(one.give_up_unnamed().len(), 1, "the one that is late");
    // Each gets its own, whichever lease accepts it.
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

/// An address of no interface: the error is not that a port is in use.
#[test]
fn errors_other_than_ports_in_use_are_reported() {
    let (pool, nowhere) = (pool(range(2)), IpAddr::from([203, 0, 113, 1]));
    assert!(pool.hindrance(nowhere).is_none());
    assert!(matches!(pool.lease(nowhere, guest(client(2)), Box::new(|_| {})), Leasing::Unavailable(_)));
    let kind = io::ErrorKind::AddrNotAvailable;
    assert_eq!(pool.hindrance(nowhere).unwrap().kind(), kind);
    assert_eq!(pool.trouble(nowhere).unwrap().kind(), kind);
    let _held = [lease(&pool, client(2)), lease(&pool, client(2))];
    assert!(pool.hindrance(LOCAL).is_none() && pool.trouble(LOCAL).is_some());
}
