//! A session's hold on a passive port, from `PASV` to the connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use super::port::{Whose, named};
use super::{PassivePool, Place};
use crate::proxies::ProxyHeaderError;

/// How many connections of one lease may wait for their header: one is the client's.
const UNNAMED: usize = 8;

/// A leased port. Dropping it gives the port back.
pub struct Lease {
    pool: PassivePool,
    address: SocketAddr,
    /// Taken when the port is given back, at the latest when the lease is dropped.
    place: Option<Place>,
    /// Whether the connection is still to come.
    open: bool,
    /// The client's connection, if it came before the port was given back, and was not fetched yet.
    kept: Option<OwnedFd>,
    /// Connections from proxies whose header has not arrived, and whether the reactor watches them.
    unnamed: Vec<(OwnedFd, SocketAddr, bool)>,
    /// When the port is given back although no transfer has begun.
    pub due: Option<Instant>,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({})", self.address)
    }
}

impl Lease {
    pub(super) fn new(pool: &PassivePool, local: IpAddr, place: Place) -> Self {
        let address = SocketAddr::new(local, place.port.number);
        let (pool, unnamed) = (pool.clone(), Vec::new());
        Self { pool, address, place: Some(place), open: true, kept: None, unnamed, due: None }
    }

    /// Ends the wait for a transfer: the port is free for others. Returns true if the client's connection had come; it
    /// is then kept here.
    pub fn give_back(&mut self, door: &mut impl Doorkeeper) -> bool {
        self.due = None;
        self.kept = self.accept(door).ok();
        self.give_up_unnamed().into_iter().for_each(|late| door.turn_away(late));
        self.return_port();
        self.kept.is_some()
    }

    /// Ends the wait for headers; answers whose have not come.
    pub fn give_up_unnamed(&mut self) -> Vec<TurnedAway> {
        let late = |(_, proxy, _)| TurnedAway::Unnamed(proxy, ProxyHeaderError::Late);
        self.unnamed.drain(..).map(late).collect()
    }

    fn return_port(&mut self) {
        if let Some(place) = self.place.take() {
            self.pool.give_back(self.address.ip(), place, self.open);
        }
    }

    /// Where the client is to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener, to wait for, where the port has not been given back.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.place.as_ref().map(|place| place.port.listener.as_fd())
    }

    /// Returns true if its connection can only be known by the ticket that it shows.
    pub fn goes_by_ticket(&self) -> bool {
        let Some(Place { port, tenant }) = &self.place else { return false };
        port.tenants.lock().of(*tenant).is_some_and(|own| own.by_ticket)
    }

    /// Begins anew for the same session (a second `PASV`): what came until now is closed. Answers whether
    /// there is still a port to begin with.
    pub fn renew(&mut self) -> bool {
        self.kept = None;
        self.unnamed.clear();
        let Some(Place { port, tenant }) = &self.place else { return false };
        let mut tenants = port.tenants.lock();
        port.sort_arrivals(&mut tenants, &self.pool.shared.reception);
        if let Some(own) = tenants.of(*tenant) {
            own.arrived = None;
        }
        true
    }

    /// The client's connection, if it has arrived; [`io::ErrorKind::WouldBlock`] if not. `door` is told of every
    /// rejected connection, and watches for the headers of proxies.
    pub fn accept(&mut self, door: &mut impl Doorkeeper) -> io::Result<OwnedFd> {
        if let Some(socket) = self.kept.take() {
            return Ok(socket);
        }
        let Some(Place { port, tenant }) = &self.place else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let reception = &self.pool.shared.reception;
        let mut tenants = port.tenants.lock();
        let mut known = std::mem::take(&mut self.unnamed).into_iter();
        loop {
            if let Some(socket) = tenants.of(*tenant).and_then(|own| own.arrived.take()) {
                self.open = false;
                return Ok(socket);
            }
            let (socket, peer, is_watched) = match known.next() {
                Some(known) => known,
                None => match reception.sockets.accept(&port.listener) {
                    Ok((socket, peer)) => (socket, peer, false),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                    Err(error) => return Err(error),
                },
            };
            let mut from = peer.ip();
            if reception.proxies.include(from) {
                match named(&socket, peer) {
                    Ok(Some(client)) => from = client,
                    Ok(None) if self.unnamed.len() < UNNAMED && (is_watched || door.watch(&socket)) => {
                        self.unnamed.push((socket, peer, true));
                        continue;
                    }
                    named => {
                        let why = named.err().unwrap_or(ProxyHeaderError::Crowded);
                        door.turn_away(TurnedAway::Unnamed(peer, why));
                        continue;
                    }
                }
                if is_watched {
                    door.forget(&socket);
                }
            }
            match tenants.whose(from) {
                Whose::Of(own) if own.number == *tenant => {
                    self.open = false;
                    return Ok(socket);
                }
                Whose::Of(other) => other.take_in(socket),
                Whose::ByTicket => reception.demultiplexer.receive(socket, from, &port.tenants),
                Whose::Unclaimed => door.turn_away(TurnedAway::Stranger(SocketAddr::new(from, peer.port()))),
            }
        }
    }
}

/// What a lease needs of its holder while connections arrive.
pub trait Doorkeeper {
    /// A connection was closed.
    fn turn_away(&mut self, whom: TurnedAway);
    /// The holder is to be told when something comes on this one.
    fn watch(&mut self, socket: &OwnedFd) -> bool;
    /// It need not be told any more.
    fn forget(&mut self, socket: &OwnedFd);
}

/// A connection that was closed.
#[derive(Debug)]
pub enum TurnedAway {
    /// It comes from another host.
    Stranger(SocketAddr),
    /// It came from a proxy's address without a header that names its client.
    Unnamed(SocketAddr, ProxyHeaderError),
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.return_port();
    }
}
