//! Who is let in: accepted together, counted, and given a connection; or told why not, and closed.
//!
//! The invariant: whoever is counted in is counted out, by the [`Admission`] that goes with the connection, or here where
//! none is made.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use millrace_ftp::reply::{Reply, code};
use millrace_net::{listener, stream};

use super::{Door, Worker};
use crate::client::Client;
use crate::ftp::Connection;
use crate::http;
use crate::limits::{LimitKey, Reached, TooManyConnections};
use crate::log::{self, Subject};
use crate::proxied::{Arrival, Arrived, Way};
use crate::state::{Admission, Server};

/// Connections accepted in one go before others have their turn.
const ACCEPTS: usize = 64;

/// Who was accepted, and waits to be let in.
#[derive(Debug)]
struct Newcomer {
    socket: OwnedFd,
    peer: SocketAddr,
    /// Nothing has come yet. `false` where nobody has looked.
    is_silent: bool,
}

impl Worker {
    /// Accepts at the listeners where somebody waits.
    pub(super) fn accept(&mut self) {
        for index in std::mem::take(&mut self.accepting) {
            if self.accept_from(index) {
                self.accepting.push(index);
            }
        }
    }

    /// Accepts who waits at a listener; answers whether it has to be asked again.
    fn accept_from(&mut self, index: usize) -> bool {
        let Some(listener) = self.listeners.get(index) else { return false };
        let (door, bound) = (listener.door, listener.address);
        let mut newcomers = Vec::new();
        let is_to_be_asked = self.take_newcomers(index, &mut newcomers);
        // Who has said something by now has said it before any answer that follows: one turn is enough for them all.
        self.core.turn += 1;
        if door == Door::Http && newcomers.len() > 1 {
            let have_spoken = listener::have_spoken(newcomers.iter().map(|newcomer| &newcomer.socket));
            for (newcomer, has_spoken) in newcomers.iter_mut().zip(have_spoken) {
                newcomer.is_silent = !has_spoken;
            }
        }
        for newcomer in newcomers {
            self.welcome(newcomer, bound, door);
        }
        is_to_be_asked
    }

    fn take_newcomers(&mut self, index: usize, newcomers: &mut Vec<Newcomer>) -> bool {
        for accepted in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(index) else { return false };
            if accepted > 0 && !listener::may_accept(&listener.socket) {
                return false;
            }
            match listener::accept(&listener.socket) {
                Ok((socket, peer)) => newcomers.push(Newcomer { socket, peer, is_silent: false }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) if self.refuse_without_descriptors(index) => {}
                Err(_) => return self.spare.is_none(),
            }
        }
        true
    }

    /// Opens the spare descriptor again, or says that there is none.
    fn restore_spare(&mut self, peer: SocketAddr) {
        self.spare = File::open("/dev/null").ok();
        if self.spare.is_none() {
            let text = "no descriptor is left, not even to refuse a client with";
            self.core.log(&Subject { session: 0, peer, user: None }, log::Event::Warning { text });
        }
    }

    fn welcome(&mut self, newcomer: Newcomer, bound: SocketAddr, door: Door) {
        if !self.core.server.proxies.include(newcomer.peer.ip()) {
            return self.admit(newcomer, (bound, door), None);
        }
        let Newcomer { socket, peer, .. } = newcomer;
        if let Err(too_many) = self.core.server.admit_somebody() {
            return self.refuse_too_many(&socket, peer, door, too_many);
        }
        let (core, place) = (&self.core, Admission::of_somebody(&self.core.server));
        let key = self.connections.insert_with(|key| {
            Client::Arriving(Box::new(Arrival::new(key, socket, peer, (bound, door), place, core)))
        });
        // More often than not the header has come already.
        self.serve_any(key, |client, _| {
            if let Client::Arriving(arrival) = client {
                arrival.read();
            }
        });
    }

    /// A proxy has said for whom it connects; or what it said is not believed.
    pub(super) fn arrived(&mut self, Arrived { socket, proxy, bound, door, ends }: Arrived) {
        // What it says may have come after an answer of this turn.
        self.core.turn += 1;
        let newcomer = |socket, peer| Newcomer { socket, peer, is_silent: false };
        match ends {
            Ok(Some(ends)) => {
                let way = Way { proxy, facing: Some(ends.server) };
                self.admit(newcomer(socket, ends.client), (bound, door), Some(way));
            }
            Ok(None) => {
                self.admit(newcomer(socket, proxy), (bound, door), Some(Way { proxy, facing: None }));
            }
            Err(reason) => {
                let subject = Subject { session: 0, peer: proxy, user: None };
                self.core.log(&subject, log::Event::ProxyRefused { from: proxy, reason: &reason });
                self.refuse(
                    &socket,
                    proxy,
                    door,
                    "Connections from this address have to begin with a PROXY header.",
                    None,
                );
            }
        }
    }

    /// Serves a client, unless a list, a ban or a limit speaks against it.
    fn admit(&mut self, newcomer: Newcomer, (bound, door): (SocketAddr, Door), way: Option<Way>) {
        let Newcomer { socket, peer, is_silent } = newcomer;
        if let Err(turned) = self.core.server.bans.admit(peer.ip(), self.core.now.instant) {
            let reached = turned.reached();
            return self.refuse(&socket, peer, door, turned.for_the_client(), Some(&reached));
        }
        if let Err(too_many) = self.core.server.admit(peer.ip()) {
            return self.refuse_too_many(&socket, peer, door, too_many);
        }
        let member = match self.core.server.limits.connect(bound, self.core.now.instant) {
            Ok(member) => member,
            Err(refused) => {
                self.core.server.release(peer.ip());
                return self.refuse(&socket, peer, door, refused.for_the_client(), Some(&refused.reached()));
            }
        };
        if matches!(door, Door::Http | Door::Https) {
            let core = &self.core;
            let admission = Some(Admission::new(&core.server, peer.ip()));
            let key = self.connections.insert_with(|key| {
                let connection = http::Connection::new(key, socket, peer, member, admission, core);
                Client::Http(Box::new(if is_silent { connection.silent() } else { connection }))
            });
            let secure = (door == Door::Https).then_some(bound);
            return self.serve_any(key, |client, core| {
                if let Client::Http(connection) = client {
                    connection.greet(core, secure);
                }
            });
        }
        let local = match bound.ip().is_unspecified() {
            false => bound,
            true => listener::local_address(&socket).unwrap_or(bound),
        };
        let way = way.map(|way| Box::new((way, local)));
        let core = &mut self.core;
        let key = self.connections.insert_with(|key| {
            Client::Ftp(Box::new(Connection::new(key, socket, peer, local, way, member, core)))
        });
        self.serve(key, |connection, core| connection.greet(core, door == Door::Ftps));
    }

    /// Takes what another connection carries: its client was welcomed there.
    pub(super) fn adopt(&mut self, adopted: http::Adopted) {
        let http::Adopted { socket, peer, bound, carried } = adopted;
        if self.core.ending {
            return;
        }
        // That other one has its place.
        let member = self.core.server.limits.accompany(bound, self.core.now.instant);
        self.core.turn += 1;
        let core = &self.core;
        let key = self.connections.insert_with(|key| {
            let connection = http::Connection::new(key, socket, peer, member, None, core);
            Client::Http(Box::new(connection.carrying(carried)))
        });
        self.serve_any(key, |_, _| {});
    }

    /// The same where there are too many.
    fn refuse_too_many(
        &mut self,
        socket: &OwnedFd,
        peer: SocketAddr,
        door: Door,
        too_many: TooManyConnections,
    ) {
        self.refuse(socket, peer, door, too_many.for_the_client(), Some(&too_many.reached()));
    }

    /// Says 421, or by HTTP 503, and why; the socket closes behind it.
    fn refuse(
        &mut self,
        socket: &OwnedFd,
        peer: SocketAddr,
        door: Door,
        reason: &'static str,
        reached: Option<&Reached>,
    ) {
        let mut text = Vec::new();
        match door {
            Door::Ftp | Door::Ftps => Reply::owned(code::SERVICE_CLOSING, reason).write(&mut text),
            Door::Http => http::refusal(reason, &mut text),
            // Nothing that is not encrypted would be understood.
            Door::Https => {}
        }
        let _ = stream::write(socket, &text);
        self.core.log(&Subject { session: 0, peer, user: None }, log::Event::Refused { reason, reached });
    }

    /// The descriptors have run out: gives up the spare one to take a client and tell it so. Answers whether
    /// there may be another; without descriptors `accept` fails also where nobody waits.
    fn refuse_without_descriptors(&mut self, index: usize) -> bool {
        if self.spare.take().is_none() {
            self.spare = File::open("/dev/null").ok();
            return self.spare.is_some();
        }
        let Some(listener) = self.listeners.get(index) else { return false };
        let (door, bound) = (listener.door, listener.address);
        let accepted = listener::accept(&listener.socket);
        if let Ok((socket, peer)) = &accepted {
            let reached = Reached::new(LimitKey::OpenFiles, self.core.server.descriptors);
            let reason = "The server is out of descriptors; try again later.";
            self.refuse(socket, *peer, door, reason, Some(&reached));
        }
        let took_one = accepted.is_ok();
        drop(accepted);
        self.restore_spare(bound);
        took_one && self.spare.is_some()
    }
}

impl Server {
    /// Counts a new session in of somebody whose address is still to be told, or says why not.
    fn admit_somebody(&self) -> Result<(), TooManyConnections> {
        let (before, most) = (self.sessions.fetch_add(1, Ordering::Relaxed), self.session_limit.value());
        let too_many = if most > 0 && before as u64 >= most {
            TooManyConnections::Server(most)
        } else if before >= self.session_room {
            TooManyConnections::Descriptors(self.descriptors)
        } else {
            return Ok(());
        };
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        Err(too_many)
    }

    /// Counts a new session in, or says why not.
    fn admit(&self, from: IpAddr) -> Result<(), TooManyConnections> {
        self.admit_somebody()?;
        if let Err((_, most)) = self.addresses.enter(from) {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
            return Err(TooManyConnections::Address(most));
        }
        self.networks.enter(from).map_err(|(network, most)| {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
            self.addresses.leave(from);
            TooManyConnections::Network(network, most)
        })
    }

    /// Counts a session out.
    pub(crate) fn release(&self, from: IpAddr) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        self.addresses.leave(from);
        self.networks.leave(from);
    }
}
