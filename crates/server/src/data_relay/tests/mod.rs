//! Nodes on addresses of this machine that hand on to one another.

mod places;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use millrace_cluster::NONCE;
use millrace_net::proxy::{self, Ends};
use millrace_net::stream;

use super::*;
use crate::limits::Network;
use crate::passive::{Doorkeeper, Guest, Lease, Leasing, TurnedAway};

const PATIENCE: Duration = Duration::from_secs(30);

/// The passive ports of the nodes: each has addresses of its own, so that other tests may have the same.
const RANGES: [RangeInclusive<u16>; 3] = [20_300..=20_304, 20_305..=20_309, 20_310..=20_314];

struct Quiet;

impl Doorkeeper for Quiet {
    fn turn_away(&mut self, _: TurnedAway) {}

    fn watch(&mut self, _: &OwnedFd) -> bool {
        true
    }

    fn forget(&mut self, _: &OwnedFd) {}
}

struct Node {
    relay: DataRelay,
    pool: PassivePool,
    place: IpAddr,
    told: Arc<Mutex<Vec<String>>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.relay.end_by(Instant::now());
        self.relay.finish();
    }
}

/// Addresses that no other test uses.
struct Addresses(u8);

impl Addresses {
    fn new() -> Self {
        static NUMBER: AtomicU8 = AtomicU8::new(0);
        Self(NUMBER.fetch_add(1, Ordering::Relaxed))
    }

    fn get(&self, last: u8) -> IpAddr {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        Ipv4Addr::new(127, 160 + high % 64, low, self.0 * 16 + last).into()
    }

    /// The nodes' own are 0 to 2, the proxy is 7, clients are 8 and 9.
    fn node(&self, number: u8, limits: RelayLimits) -> Node {
        let proxies = Arc::new(Proxies::new(vec![Network::new(self.get(7), 32)]));
        let range = RANGES[usize::from(number)].clone();
        let pool = PassivePool::new(range, 4, Arc::clone(&proxies));
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&told);
        let parts = RelayParts {
            node: format!("n{number}"),
            address: self.get(number),
            places: vec![self.get(number)],
            doors: Vec::new(),
            pool: pool.clone(),
            proxies,
            warn: Box::new(move |text| kept.lock().unwrap().push(text.to_owned())),
            limits,
        };
        Node { relay: DataRelay::start(parts).unwrap(), pool, place: self.get(number), told }
    }

    /// Two nodes that know one another.
    fn pair(&self) -> [Node; 2] {
        let nodes = [0, 1].map(|number| self.node(number, RelayLimits::of(8192)));
        nodes[0].knows(&[nodes[1].relay.route()]);
        nodes[1].knows(&[nodes[0].relay.route()]);
        nodes
    }

    /// Connects to a port of `owner` at the address of another node.
    fn connect(&self, from: u8, node: &Node, lease: &Lease) -> TcpStream {
        let to = SocketAddr::new(node.place, lease.address().port());
        self.connect_to(from, to)
    }

    fn connect_to(&self, from: u8, to: SocketAddr) -> TcpStream {
        let end = Instant::now() + PATIENCE;
        loop {
            let socket = stream::begin_connect(SocketAddr::new(self.get(from), 0), to).unwrap();
            assert!(stream::wait_writable(&socket, PATIENCE));
            if stream::connected(&socket).is_ok() {
                let socket = TcpStream::from(socket);
                socket.set_nonblocking(false).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                return socket;
            }
            assert!(Instant::now() < end, "{to} is not listened at");
            std::thread::yield_now();
        }
    }
}

impl Node {
    fn knows(&self, routes: &[&DataRoute]) {
        self.relay.follow(routes.iter().map(|&route| route.clone()).collect());
    }

    /// A session's lease, and how it hears that its connection has come.
    fn lease(&self, client: IpAddr) -> (Lease, std::sync::mpsc::Receiver<()>) {
        let (sender, woken) = std::sync::mpsc::channel();
        let wake = Arc::new(move || {
            let _ = sender.send(());
        });
        let guest = Guest { client, badge: None, wake };
        let Leasing::Granted(lease) = self.pool.lease(self.place, guest, Box::new(|_| {})) else { panic!() };
        (lease, woken)
    }

    /// Waits until it has refused this many connections.
    #[track_caller]
    fn has_refused(&self, count: u64) {
        let end = Instant::now() + PATIENCE;
        while self.relay.counts().by_result()[1].1 < count {
            assert!(Instant::now() < end, "{:?}", self.relay.counts());
            std::thread::yield_now();
        }
    }

    fn has_told(&self, text: &str) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if self.told.lock().unwrap().iter().any(|told| told.contains(text)) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }
}

/// The connection that has come to a session.
fn arrived((mut lease, woken): (Lease, std::sync::mpsc::Receiver<()>)) -> TcpStream {
    woken.recv_timeout(PATIENCE).expect("nothing has come");
    let socket = TcpStream::from(lease.accept(&mut Quiet).unwrap());
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[track_caller]
fn assert_refused(mut socket: TcpStream) {
    match socket.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
}

fn content() -> Vec<u8> {
    (0..5 << 20_u32).map(|number| (number % 251) as u8).collect()
}

#[test]
fn a_connection_to_a_port_of_another_node_reaches_the_session_there_with_all_bytes_both_ways() {
    let addresses = Addresses::new();
    let [a, b] = addresses.pair();
    let lease = b.lease(addresses.get(8));
    let mut client = addresses.connect(8, &a, &lease.0);
    let mut session = arrived(lease);
    let sent = content();
    let upload = std::thread::spawn(move || {
        client.write_all(&content()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        back
    });
    let mut received = Vec::new();
    session.read_to_end(&mut received).unwrap();
    assert!(received == sent);
    session.write_all(&sent).unwrap();
    drop(session);
    assert!(upload.join().unwrap() == sent);
    assert_eq!(
        [a.relay.counts().by_result()[0], b.relay.counts().by_result()[0]],
        [("taken", 1), ("taken", 0)]
    );
}

#[test]
fn a_reset_of_either_side_is_a_reset_at_the_other() {
    let addresses = Addresses::new();
    let [a, b] = addresses.pair();
    for session_resets in [false, true] {
        let lease = b.lease(addresses.get(8));
        let client = addresses.connect(8, &a, &lease.0);
        let session = arrived(lease);
        let [resets, mut hears] = if session_resets { [session, client] } else { [client, session] };
        stream::reset_on_close(&resets);
        drop(resets);
        assert_eq!(hears.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn another_client_gets_no_session_and_a_port_without_a_session_nothing() {
    let addresses = Addresses::new();
    let [a, b] = addresses.pair();
    let lease = b.lease(addresses.get(8));
    assert_refused(addresses.connect(9, &a, &lease.0));
    let idle = RANGES[1].clone().find(|port| *port != lease.0.address().port()).unwrap();
    assert_refused(addresses.connect_to(8, SocketAddr::new(a.place, idle)));
    drop(addresses.connect(8, &a, &lease.0));
    arrived(lease);
}

/// Whatever an outsider says at a passive port is a client's bytes; and what it says at a data address is not believed.
#[test]
fn an_outsider_that_names_another_client_is_not_believed() {
    let addresses = Addresses::new();
    let [a, b] = addresses.pair();
    let lease = b.lease(addresses.get(8));
    let ends = Ends { client: SocketAddr::new(addresses.get(8), 1), server: lease.0.address() };
    let header = proxy::header(&ends);
    let forger = DataRoute::new("x", b.relay.route().address, RANGES[1].clone()).unwrap();
    for to in [SocketAddr::new(a.place, lease.0.address().port()), b.relay.route().address] {
        let mut outsider = addresses.connect_to(9, to);
        let is_data_address = to == b.relay.route().address;
        let nonce = if is_data_address { nonce_of(&mut outsider) } else { [0; NONCE] };
        let seal = forger.seal(&nonce, &taking_in::sealed_text(&ends));
        let _ = outsider.write_all(&[&header[..], &seal].concat());
        assert_refused(outsider);
    }
    assert!(b.has_told("no node of the cluster has made it"));
    // The same, sealed by a node, is good: nothing else was wrong with it.
    let mut node = addresses.connect_to(9, b.relay.route().address);
    let seal = b.relay.route().seal(&nonce_of(&mut node), &taking_in::sealed_text(&ends));
    node.write_all(&[&header[..], &seal].concat()).unwrap();
    let mut answer = [0];
    node.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [TAKEN]);
    arrived(lease);
}

fn nonce_of(stream: &mut TcpStream) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    stream.read_exact(&mut nonce).unwrap();
    nonce
}

#[test]
fn what_was_overheard_between_nodes_is_good_for_no_other_connection() {
    let addresses = Addresses::new();
    let [_, b] = addresses.pair();
    let lease = b.lease(addresses.get(8));
    let ends = Ends { client: SocketAddr::new(addresses.get(8), 1), server: lease.0.address() };
    let mut node = addresses.connect_to(0, b.relay.route().address);
    let seal = b.relay.route().seal(&nonce_of(&mut node), &taking_in::sealed_text(&ends));
    let overheard = [&proxy::header(&ends)[..], &seal].concat();
    // Who listens is quicker, and has taken nothing.
    for _ in 0..2 {
        let mut listens = addresses.connect_to(9, b.relay.route().address);
        nonce_of(&mut listens);
        listens.write_all(&overheard).unwrap();
        assert_refused(listens);
    }
    node.write_all(&overheard).unwrap();
    node.read_exact(&mut [0]).unwrap();
    arrived(lease);
}

#[test]
fn the_header_of_the_balancer_says_whose_connection_it_is() {
    let addresses = Addresses::new();
    let [a, b] = addresses.pair();
    let lease = b.lease(addresses.get(8));
    let mut balancer = addresses.connect(7, &a, &lease.0);
    let public = "192.0.2.1:50000".parse().unwrap();
    let header = proxy::header(&Ends { client: SocketAddr::new(addresses.get(8), 5), server: public });
    // In two parts, and with the first bytes of the client behind it.
    balancer.write_all(&header[..9]).unwrap();
    balancer.write_all(&[&header[9..], b"first"].concat()).unwrap();
    let mut session = arrived(lease);
    let mut bytes = [0; 5];
    session.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"first");
    let lease = b.lease(addresses.get(8));
    let mut balancer = addresses.connect(7, &a, &lease.0);
    balancer.write_all(b"220 no header\r\n").unwrap();
    assert_refused(balancer);
}

#[test]
fn nodes_with_the_same_ports_are_told_what_to_do() {
    let addresses = Addresses::new();
    let [a, b] = addresses.pair();
    let same = DataRoute::new("same", b.relay.route().address, RANGES[0].clone()).unwrap();
    a.knows(&[&same]);
    assert!(a.has_told("node same has passive-ports 20300-20304"));
    assert!(a.has_told("give each node passive-ports of its own"));
}

#[test]
fn of_two_processes_of_a_node_the_one_that_has_the_session_gets_the_connection() {
    let addresses = Addresses::new();
    let [a, old] = addresses.pair();
    let new = addresses.node(1, RelayLimits::of(8192));
    assert_ne!(new.relay.route().address, old.relay.route().address);
    a.knows(&[new.relay.route(), old.relay.route()]);
    for owner in [&old, &new] {
        let lease = owner.lease(addresses.get(8));
        let mut client = addresses.connect(8, &a, &lease.0);
        client.write_all(b"x").unwrap();
        arrived(lease).read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn a_node_that_is_dead_costs_its_clients_a_reset_and_the_others_nothing() {
    let addresses = Addresses::new();
    let [a, b] = addresses.pair();
    let c = addresses.node(2, RelayLimits::of(8192));
    a.knows(&[c.relay.route(), b.relay.route()]);
    let (lost, lease) = (c.lease(addresses.get(8)), b.lease(addresses.get(8)));
    let early = addresses.connect(8, &a, &lost.0);
    drop(early);
    arrived(lost);
    let lost = c.lease(addresses.get(8));
    c.relay.finish();
    assert_refused(addresses.connect(8, &a, &lost.0));
    assert!(a.has_told("cannot be handed on to node n2"));
    let _client = addresses.connect(8, &a, &lease.0);
    arrived(lease);
}

#[test]
fn a_process_that_has_a_successor_hands_on_what_it_has_and_nothing_new() {
    let addresses = Addresses::new();
    let [a, b] = addresses.pair();
    let lease = b.lease(addresses.get(8));
    let mut client = addresses.connect(8, &a, &lease.0);
    let mut session = arrived(lease);
    // Both listen for a moment.
    let successor = addresses.node(0, RelayLimits::of(8192));
    successor.knows(&[b.relay.route()]);
    a.relay.retire();
    let own = a.lease(addresses.get(8));
    b.knows(&[a.relay.route(), successor.relay.route()]);
    let _client = addresses.connect(8, &b, &own.0);
    arrived(own);
    client.write_all(b"x").unwrap();
    session.read_exact(&mut [0]).unwrap();
    for _ in 0..4 {
        let lease = b.lease(addresses.get(8));
        let _client = addresses.connect(8, &successor, &lease.0);
        arrived(lease);
    }
    // It ends when what it hands on has ended, and takes in what is its own until then.
    a.relay.end_by(Instant::now() + PATIENCE);
    a.relay.sender.send(Order::Finish);
    for _ in 0..2 {
        let own = a.lease(addresses.get(8));
        let _client = addresses.connect(8, &b, &own.0);
        arrived(own);
    }
    client.write_all(b"y").unwrap();
    session.read_exact(&mut [0]).unwrap();
    drop((client, session));
    a.relay.finish();
}

#[test]
fn a_node_that_has_restarted_is_not_asked_as_the_process_that_it_was() {
    let addresses = Addresses::new();
    let [one, other] = addresses.pair();
    let new = other.relay.route();
    one.knows(&[&DataRoute { key: [7; 32], ..new.clone() }]);
    one.knows(&[new]);
    // No session waits at the port.
    assert_refused(addresses.connect_to(8, SocketAddr::new(one.place, *RANGES[1].start())));
    let told = other.told.lock().unwrap();
    assert!(told.is_empty(), "a stranger at the data address: {told:?}");
}
