//! Admission of clients: accepted together, counted, and given a connection; or told why not, and closed.
//!
//! The invariant: a client that is counted in is counted out, by the [`Admission`] that goes with the connection.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use millrace_limits::{LimitKey, Reached, TooManyConnections};
use millrace_log::{self as log, Subject};
use millrace_net::{listener, stream};

use super::arrival::{Arrival, Arrived, Way};
use super::place::Place;
use super::{AS_LONG_AS_IT_TAKES, Client, Doors, Newcomer, Worker};
use crate::sessions::Admission;

/// Connections accepted in one go before others have their turn.
const ACCEPTS: usize = 64;

/// A client that was accepted and not admitted yet.
#[derive(Debug)]
struct Accepted {
    socket: OwnedFd,
    peer: SocketAddr,
    /// Nothing has come yet. `false` where that is not known.
    has_sent_nothing: bool,
}

impl<D: Doors> Worker<D> {
    /// Accepts at the listeners where clients wait.
    pub(super) fn accept(&mut self) {
        for index in std::mem::take(&mut self.accepting) {
            if self.accept_from(index) {
                self.accepting.push(index);
            }
        }
    }

    /// Accepts at a listener. Returns true if it has to be asked again.
    fn accept_from(&mut self, index: usize) -> bool {
        let Some(listener) = self.listeners.get(index) else { return false };
        let (door, bound) = (listener.door, listener.address);
        let mut clients = Vec::new();
        let is_to_be_asked = self.take_clients(index, &mut clients);
        // What they have said by now they have said before any answer that follows: one turn is enough for them all.
        self.doors.turn += 1;
        if D::client_speaks_first(door) && clients.len() > 1 {
            let have_spoken = listener::have_spoken(clients.iter().map(|client| &client.socket));
            for (client, has_spoken) in clients.iter_mut().zip(have_spoken) {
                client.has_sent_nothing = !has_spoken;
            }
        }
        for client in clients {
            self.welcome(client, bound, door);
        }
        is_to_be_asked
    }

    fn take_clients(&mut self, index: usize, clients: &mut Vec<Accepted>) -> bool {
        for accepted in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(index) else { return false };
            if accepted > 0 && !listener::may_accept(&listener.socket) {
                return false;
            }
            match listener::accept(&listener.socket) {
                Ok((socket, peer)) => clients.push(Accepted { socket, peer, has_sent_nothing: false }),
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
            self.doors.log(&Subject { session: 0, peer, user: None }, log::Event::Warning { text });
        }
    }

    fn welcome(&mut self, client: Accepted, bound: SocketAddr, door: D::Door) {
        let services = &self.doors.services;
        if !services.proxies.include(client.peer.ip()) {
            return self.admit(client, (bound, door), None);
        }
        let Accepted { socket, peer, .. } = client;
        if let Err(too_many) = services.sessions.admit_unnamed() {
            return self.refuse_too_many(&socket, peer, door, too_many);
        }
        let (core, place) = (&self.doors, Admission::unnamed(&services.sessions));
        let key = self.connections.insert_with(|key| {
            Place::Arriving(Box::new(Arrival::new(key, socket, peer, (bound, door), place, core)))
        });
        // More often than not the header has come already.
        self.serve_place(key, |place, _| {
            if let Place::Arriving(arrival) = place {
                arrival.read();
            }
        });
    }

    /// Serves a client that was accepted elsewhere, and ends with its connection.
    pub fn serve_alone(&mut self, socket: OwnedFd, peer: SocketAddr, bound: SocketAddr, door: D::Door) {
        self.stopping = Some(self.doors.now.instant + AS_LONG_AS_IT_TAKES);
        self.serve_accepted(socket, peer, bound, door);
    }

    /// Serves a client that was accepted elsewhere, besides others.
    pub fn serve_accepted(&mut self, socket: OwnedFd, peer: SocketAddr, bound: SocketAddr, door: D::Door) {
        self.welcome(Accepted { socket, peer, has_sent_nothing: false }, bound, door);
    }

    /// A proxy has named its client; or what it said is not believed.
    pub(super) fn arrived(&mut self, Arrived { socket, proxy, bound, door, ends }: Arrived<D::Door>) {
        // What it says may have come after an answer of this turn.
        self.doors.turn += 1;
        let accepted = |socket, peer| Accepted { socket, peer, has_sent_nothing: false };
        match ends {
            Ok(Some(ends)) => {
                let way = Way { proxy, facing: Some(ends.server) };
                self.admit(accepted(socket, ends.client), (bound, door), Some(way));
            }
            Ok(None) => {
                self.admit(accepted(socket, proxy), (bound, door), Some(Way { proxy, facing: None }));
            }
            Err(reason) => {
                let subject = Subject { session: 0, peer: proxy, user: None };
                self.doors
                    .log(&subject, log::Event::ProxyRefused { from: proxy, reason: &reason.to_string() });
                let reason = "Connections from this address have to begin with a PROXY header.";
                self.refuse(&socket, proxy, door, reason, None);
            }
        }
    }

    /// Serves a client, unless a list, a ban or a limit speaks against it.
    fn admit(&mut self, client: Accepted, (bound, door): (SocketAddr, D::Door), way: Option<Way>) {
        let Accepted { socket, peer, has_sent_nothing } = client;
        let (services, now) = (&self.doors.services, self.doors.now.instant);
        if let Err(turned) = services.bans.admit(peer.ip(), now) {
            let reached = turned.reached();
            return self.refuse(&socket, peer, door, turned.for_the_client(), Some(&reached));
        }
        if let Err(too_many) = services.sessions.admit(peer.ip()) {
            return self.refuse_too_many(&socket, peer, door, too_many);
        }
        let admission = Admission::new(&services.sessions, peer.ip());
        let member = match services.limits.connect(bound, now) {
            Ok(member) => member,
            Err(refused) => {
                drop(admission);
                return self.refuse(&socket, peer, door, refused.for_the_client(), Some(&refused.reached()));
            }
        };
        let newcomer = Newcomer { socket, peer, door, bound, way, member, admission, has_sent_nothing };
        let doors = &mut self.doors;
        let key = self.connections.insert_with(|key| Place::Client(doors.open(key, newcomer)));
        self.serve(key, |client, doors| client.begin(doors, door, bound));
    }

    /// The same where there are too many.
    fn refuse_too_many(
        &mut self,
        socket: &OwnedFd,
        peer: SocketAddr,
        door: D::Door,
        too_many: TooManyConnections,
    ) {
        self.refuse(socket, peer, door, too_many.for_the_client(), Some(&too_many.reached()));
    }

    /// Tells the client why it is refused, as far as the protocol can; the socket closes behind it.
    fn refuse(
        &mut self,
        socket: &OwnedFd,
        peer: SocketAddr,
        door: D::Door,
        reason: &'static str,
        reached: Option<&Reached>,
    ) {
        let mut text = Vec::new();
        let is_full = reached.is_some_and(Reached::is_about_sessions);
        self.doors.refusal(door, peer, reason, is_full, &mut text);
        let _ = stream::write(socket, &text);
        self.doors.log(&Subject { session: 0, peer, user: None }, log::Event::Refused { reason, reached });
    }

    /// The descriptors have run out: gives up the spare one to take a client and tell it so. Returns whether
    /// there may be another; without descriptors `accept` fails also where no client waits.
    fn refuse_without_descriptors(&mut self, index: usize) -> bool {
        if self.spare.take().is_none() {
            self.spare = File::open("/dev/null").ok();
            return self.spare.is_some();
        }
        let Some(listener) = self.listeners.get(index) else { return false };
        let (door, bound) = (listener.door, listener.address);
        let accepted = listener::accept(&listener.socket);
        if let Ok((socket, peer)) = &accepted {
            let reached = Reached::new(LimitKey::OpenFiles, self.doors.services.sessions.descriptors().most);
            let reason = "The server is out of descriptors; try again later.";
            self.refuse(socket, *peer, door, reason, Some(&reached));
        }
        let took_one = accepted.is_ok();
        drop(accepted);
        self.restore_spare(bound);
        took_one && self.spare.is_some()
    }
}
