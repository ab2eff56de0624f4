//! Data connections that another node of the cluster has accepted, and has handed on to this one.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::PassivePool;
use super::port::{Port, Whose};

impl PassivePool {
    /// Gives a connection from a client to the session that leases this port and waits for that client. `greet` sees it
    /// before that, and says whether its other end is there. Returns false, and closes it, where there is no such session.
    ///
    /// Which local address the client meant is not known for sure: the nodes of a cluster have different ones. `to` tells
    /// only where sessions on several of them wait for this client at this port.
    pub fn hand_in(
        &self,
        socket: OwnedFd,
        to: SocketAddr,
        client: IpAddr,
        greet: impl FnOnce(&OwnedFd) -> bool,
    ) -> bool {
        let mut ports = self.leased(to.port());
        ports.retain(|(_, port)| port.tenants.lock().expects(client));
        if ports.len() > 1 {
            ports.retain(|(local, _)| *local == to.ip());
        }
        let [(_, port)] = &ports[..] else { return false };
        let mut tenants = port.tenants.lock();
        match tenants.whose(client) {
            Whose::Unclaimed => return false,
            Whose::Of(tenant) => {
                if !greet(&socket) {
                    return false;
                }
                tenant.take_in(socket);
            }
            Whose::ByTicket => {
                if !greet(&socket) {
                    return false;
                }
                self.shared.reception.demultiplexer.receive(socket, client, &port.tenants);
            }
        }
        true
    }

    /// The leased ports of this number, with their local addresses.
    fn leased(&self, number: u16) -> Vec<(IpAddr, Arc<Port>)> {
        let hosts = self.shared.lock();
        let leased = hosts.iter().filter_map(|(local, host)| Some((*local, host.leased.get(&number)?)));
        leased.map(|(local, port)| (local, Arc::clone(port))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicU16, Ordering};

    use millrace_net::stream;

    use super::super::tests::{LOCAL, PATIENCE, Silent, client, guest, lease, pool, range};
    use super::super::{Guest, Leasing, Wake};
    use super::*;

    /// A connection that another node has accepted, and its client's end.
    fn handed_on() -> (OwnedFd, TcpStream) {
        let listener = std::net::TcpListener::bind((LOCAL, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        (listener.accept().unwrap().0.into(), client)
    }

    #[test]
    fn a_connection_that_another_node_hands_on_is_of_the_session_that_waits_for_its_client() {
        let pool = pool(range(2));
        let woken = Arc::new(AtomicU16::new(0));
        let counter = Arc::clone(&woken);
        let wake: Wake = Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let guest = Guest { client: client(1), badge: None, wake };
        let Leasing::Granted(mut mine) = pool.lease(LOCAL, guest, Box::new(|_| {})) else { panic!() };
        let _other = lease(&pool, client(2));
        // The node that accepted it has another address.
        let to = SocketAddr::new(client(9), mine.address().port());
        for wrong in [client(2), client(3)] {
            let (socket, mut far) = handed_on();
            assert!(!pool.hand_in(socket, to, wrong, |_| panic!("no session waits for it")));
            assert_eq!(far.read(&mut [0]).unwrap(), 0, "it is closed");
        }
        let (socket, mut far) = handed_on();
        assert!(pool.hand_in(socket, to, client(1), |socket| { stream::write(socket, b"+").unwrap() == 1 }));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        let socket = mine.accept(&mut Silent).unwrap();
        stream::write(&socket, b"x").unwrap();
        let mut bytes = [0; 2];
        far.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"+x");
        far.write_all(b"y").unwrap();
        drop(mine);
        let (socket, _far) = handed_on();
        assert!(!pool.hand_in(socket, to, client(1), |_| panic!("the lease is over")));
    }

    #[test]
    fn of_sessions_on_two_local_addresses_the_one_that_was_meant_gets_what_is_handed_on_or_neither() {
        let pool = pool(range(1));
        let other: IpAddr = client(77);
        let mut one = lease(&pool, client(1));
        let Leasing::Granted(mut two) = pool.lease(other, guest(client(1)), Box::new(|_| {})) else {
            panic!()
        };
        let port = one.address().port();
        assert!(!pool.hand_in(handed_on().0, SocketAddr::new(client(9), port), client(1), |_| true));
        assert!(pool.hand_in(handed_on().0, SocketAddr::new(other, port), client(1), |_| true));
        assert_eq!(one.accept(&mut Silent).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        two.accept(&mut Silent).unwrap();
    }
}
