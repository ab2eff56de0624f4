//! What leaves the reactors: connections of HTTP/2, and requests that are forwarded to other servers (`forward.rs`).
//!
//! ```text
//!   client ==TLS, HTTP/2==> hyper, on this runtime ==HTTP/1.1, a socket pair==> the worker that accepted it
//! ```
//!
//! HTTP/2 is translated at the door: each of its streams is a request on a connection of HTTP/1.1 within the process,
//! which a worker adopts as if the client had connected so. Files, accounts, programs, limits and the log are so the
//! same by construction, and the fast path knows nothing of any of this. The runtime is started by the first that needs
//! it.

mod census;
pub(super) mod forward;
mod gateway;
mod places;
mod runtime;
mod secured;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use millrace_http::Version;
use millrace_net::listener;
use tokio::sync::Notify;

pub(crate) use forward::Kept;
pub(super) use gateway::{Handed, Patience, serve};
use millrace_runtime::slab::Key;
use places::{Place, Places};
pub(crate) use runtime::Side;
use wire::Wire;

use super::Connection;
use crate::client::Client;
use crate::limits::{AccountLimits, Refused};
use crate::state::Server;
use crate::worker::Core;

/// A connection within the process, for a worker to adopt.
#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) socket: OwnedFd,
    /// The client.
    pub(crate) peer: SocketAddr,
    /// The address that its listener is bound to.
    pub(crate) bound: SocketAddr,
    pub(crate) carried: Carried,
}

impl Adopted {
    /// The connection. That which carries it has its place among the connections.
    fn into_client(self, key: Key, core: &mut Core) -> Client {
        let Self { socket, peer, bound, carried } = self;
        let member = core.server.limits.accompany(bound, core.now.instant);
        let connection = Connection::new(key, socket, peer, member, None, core);
        Client::Http(Box::new(connection.carrying(carried)))
    }
}

/// What a connection within the process carries.
#[derive(Debug, Clone)]
pub(crate) struct Carried {
    /// Where the client came to.
    local: SocketAddr,
    /// The names in its certificate.
    names: Arc<[String]>,
    /// Ends the connection that it came by, which the requests of all its streams share.
    dismissal: Arc<Notify>,
    /// Bytes of the body of the last answer that were given on to the client.
    relayed: Arc<AtomicU64>,
    /// What the client takes all of it by.
    wire: Weak<Wire>,
    places: Arc<Places>,
    /// The place of the user in whose name is asked.
    place: Option<Place>,
}

impl Carried {
    /// Has the client's connection end: it is told so (GOAWAY), and what still runs on it may go on.
    pub(super) fn dismiss(&self) {
        self.dismissal.notify_one();
    }

    /// How much of the body of the last answer was given on to the client.
    pub(super) fn relayed(&self) -> u64 {
        self.relayed.load(Ordering::Relaxed)
    }

    /// How much the client has taken of all that it is sent, in whatever unit.
    pub(super) fn taken(&self) -> io::Result<u64> {
        self.wire.upgrade().ok_or(io::ErrorKind::NotConnected)?.taken()
    }

    /// A user asks: on all of the connection it is once that there has to be a place.
    pub(super) fn enter(
        &mut self,
        server: &Server,
        user: &[u8],
        limits: &AccountLimits,
        now: Instant,
    ) -> Result<(), Refused> {
        self.place = Some(self.places.of(&server.limits, user, limits, now)?);
        Ok(())
    }

    /// Claims that nobody has asked as this user before, on all of the connection.
    pub(super) fn is_new(&self, user: &[u8]) -> bool {
        self.places.is_new(user)
    }

    /// The names in the client's certificate.
    pub(super) fn names(&self) -> Arc<[String]> {
        Arc::clone(&self.names)
    }
}

impl Connection {
    /// The same, for another connection's requests.
    pub(crate) fn carrying(mut self, carried: Carried) -> Self {
        self.carries = Some(Box::new(carried));
        self
    }

    /// Where the client came to. The kernel is asked only where the listener is bound to several addresses.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        match (&self.carries, self.member.listener()) {
            (Some(carried), _) => Ok(carried.local),
            (None, Some(bound)) if !bound.ip().is_unspecified() => Ok(bound),
            (None, _) => listener::local_address(&self.link.socket.fd),
        }
    }

    /// What the client speaks.
    pub(super) fn protocol(&self, version: Version) -> &'static str {
        match (&self.carries, version) {
            (Some(_), _) => "HTTP/2.0",
            (None, Version::Http10) => "HTTP/1.0",
            (None, Version::Http11) => "HTTP/1.1",
        }
    }
}
