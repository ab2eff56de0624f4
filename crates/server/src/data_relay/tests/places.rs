//! What one client may have of the places for connections, and all of them together.

use super::*;

#[test]
fn no_more_connections_are_handed_on_than_may_be_and_no_more_ports_are_listened_at() {
    let addresses = Addresses::new();
    let (few, many) = (RelayLimits { ports: 3, connections: 1 }, RelayLimits::of(8192));
    let (a, b) = (addresses.node(0, few), addresses.node(1, many));
    a.knows(&[b.relay.route()]);
    // Of the five ports the fifth is the data address's.
    let mut leases: Vec<_> = (0..4).map(|_| b.lease(addresses.get(8))).collect();
    leases.sort_by_key(|(lease, _)| lease.address().port());
    let mut leases = leases.into_iter();
    let (first, second, _) = (leases.next().unwrap(), leases.next().unwrap(), leases.next().unwrap());
    let last = leases.next().unwrap();
    let client = addresses.connect(8, &a, &first.0);
    let session = arrived(first);
    assert!(a.has_told("descriptors for 3 ports"));
    let beyond = TcpStream::connect(SocketAddr::new(a.place, last.0.address().port()));
    assert_eq!(beyond.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_refused(addresses.connect(8, &a, &second.0));
    assert!(a.has_told("more than 1 data connections"));
    drop((client, session));
    let end = Instant::now() + PATIENCE;
    // The relay may hear a moment later that there is room again.
    loop {
        let _client = addresses.connect(8, &a, &second.0);
        if second.1.recv_timeout(Duration::from_millis(100)).is_ok() {
            break;
        }
        assert!(Instant::now() < end, "there is no room again");
    }
}

#[test]
fn a_client_whose_connections_wait_leaves_places_to_others() {
    let addresses = Addresses::new();
    let limits = RelayLimits { ports: 10, connections: 5 };
    let (a, b) = (addresses.node(0, limits), addresses.node(1, RelayLimits::of(8192)));
    // A node that says nothing.
    let stalled = std::net::TcpListener::bind((addresses.get(2), 0)).unwrap();
    let route = DataRoute::new("n2", stalled.local_addr().unwrap(), RANGES[2].clone()).unwrap();
    a.knows(&[b.relay.route(), &route]);
    let door = SocketAddr::new(a.place, *RANGES[2].start());
    let waiting: Vec<_> = (0..5).map(|_| addresses.connect_to(8, door)).collect();
    // It has three, and two are left.
    a.has_refused(2);
    assert!(a.has_told("as many data connections that wait"));
    let lease = b.lease(addresses.get(9));
    let _client = addresses.connect(9, &a, &lease.0);
    let _session = arrived(lease);
    // The same where the balancer says whose they are; and what a session has does not count.
    let header = |last| {
        let client = SocketAddr::new(addresses.get(last), 5);
        proxy::header(&Ends { client, server: door })
    };
    let mut balancer = addresses.connect_to(7, door);
    balancer.write_all(&header(8)).unwrap();
    assert_refused(balancer);
    let lease = b.lease(addresses.get(9));
    let mut balancer = addresses.connect(7, &a, &lease.0);
    balancer.write_all(&header(9)).unwrap();
    arrived(lease);
    drop((waiting, stalled));
}

/// The session takes the first, and closes the others; the client keeps its ends open.
#[test]
fn connections_that_a_session_is_done_with_count_as_those_that_wait() {
    let addresses = Addresses::new();
    let limits = RelayLimits { ports: 10, connections: 5 };
    let (a, b) = (addresses.node(0, limits), addresses.node(1, RelayLimits::of(8192)));
    a.knows(&[b.relay.route()]);
    let (mine, other) = (b.lease(addresses.get(8)), b.lease(addresses.get(9)));
    let _first = addresses.connect(8, &a, &mine.0);
    mine.1.recv_timeout(PATIENCE).unwrap();
    let further = |_| {
        let mut client = addresses.connect(8, &a, &mine.0);
        let _ = client.read(&mut [0]);
        client
    };
    let _further: Vec<_> = (0..4).map(further).collect();
    assert!(a.has_told("as many data connections that wait"));
    let _client = addresses.connect(9, &a, &other.0);
    arrived(other);
}
