//! Connections from a trusted proxy, which names the client in a header (PROXY protocol).
//!
//! ```text
//!   accepted from a trusted network --whole header--> a session of the client that it names
//!                                   --anything else, or nothing in time--> refused, with a line in the log
//! ```
//!
//! The invariants: from a trusted network nothing is served before its header, and from elsewhere a header is input like any
//! other, so only a proxy chooses an address. Until its header has come a connection is one of the server's
//! sessions and of no address.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use millrace_net::proxy::{self, Ends, Header};
use mio::Interest;

use super::Core;
use super::token::Role;
use crate::proxies::ProxyHeaderError;
use crate::sessions::Admission;
use crate::slab::Key;

/// The proxy that a client came by.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Its address.
    pub proxy: SocketAddr,
    /// What the client connected to, if that is known: an address of the proxy's.
    pub facing: Option<SocketAddr>,
}

/// A connection whose header has not come.
#[derive(Debug)]
pub(super) struct Arrival<D> {
    key: Key,
    socket: OwnedFd,
    proxy: SocketAddr,
    bound: SocketAddr,
    door: D,
    /// When it is too late.
    due: Instant,
    is_watched: bool,
    verdict: Option<Result<Header, ProxyHeaderError>>,
    /// Its place among the sessions.
    _place: Admission,
}

/// What became of an arrival.
#[derive(Debug)]
pub(super) struct Arrived<D> {
    pub(super) socket: OwnedFd,
    pub(super) proxy: SocketAddr,
    pub(super) bound: SocketAddr,
    pub(super) door: D,
    /// The client that the proxy names, perhaps itself; or why it is not believed.
    pub(super) ends: Result<Option<Ends>, ProxyHeaderError>,
}

impl<D> Arrival<D> {
    pub(super) fn new(
        key: Key,
        socket: OwnedFd,
        proxy: SocketAddr,
        (bound, door): (SocketAddr, D),
        place: Admission,
        core: &Core,
    ) -> Self {
        let due = core.now.instant + core.services.connect_timeout;
        Self { key, socket, proxy, bound, door, due, is_watched: false, verdict: None, _place: place }
    }

    /// Looks at what has come. Its event is told once: more that comes is another.
    pub(super) fn read(&mut self) {
        self.verdict = match proxy::take(&self.socket) {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(header))) => Some(Ok(header)),
            Ok(Err(fault)) => Some(Err(fault.into())),
            Err(error) => Some(Err(error.into())),
        };
    }

    /// The wheel says that it may be too late.
    pub(super) fn look_at_clock(&mut self, core: &mut Core) {
        match core.now.instant >= self.due {
            true => self.give_up(ProxyHeaderError::Late),
            false => _ = core.wheel.insert(self.due, self.key),
        }
    }

    /// It is not waited for any more.
    pub(super) fn give_up(&mut self, why: ProxyHeaderError) {
        self.verdict.get_or_insert(Err(why));
    }

    /// Returns true if more has to come.
    pub(super) fn settle(&mut self, core: &mut Core) -> bool {
        if self.verdict.is_none() && !self.is_watched {
            self.is_watched = true;
            core.wheel.insert(self.due, self.key);
            if let Err(error) = core.watch(self.key, Role::Client, &self.socket, Interest::READABLE) {
                self.give_up(error.into());
            }
        }
        self.verdict.is_none()
    }

    /// Returns what became of it, and its socket.
    pub(super) fn into_arrived(self, core: &Core) -> Arrived<D> {
        if self.is_watched {
            core.forget(&self.socket);
        }
        Arrived {
            socket: self.socket,
            proxy: self.proxy,
            bound: self.bound,
            door: self.door,
            ends: self.verdict.unwrap_or(Err(ProxyHeaderError::Ending)).map(|header| header.ends),
        }
    }
}
