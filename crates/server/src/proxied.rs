//! Connections that a trusted proxy passes on: whose they are, the proxy says in a header (PROXY protocol).
//!
//! ```text
//!   accepted from a trusted network --whole header--> a session of the client that it names
//!                                   --anything else, or nothing in time--> refused, with a line in the log
//! ```
//!
//! The invariants: from a trusted network nothing is served before its header, and from elsewhere a header is input like any
//! other, so nobody but a proxy chooses an address. Until its header has come a connection is one of the server's
//! sessions and of no address.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use millrace_net::proxy::{self, Ends, Header};
use millrace_runtime::proxies::LATE;

use crate::slab::Key;
use crate::state::Admission;
use crate::worker::{Core, Door};

/// By which way a client came that did not come by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) proxy: SocketAddr,
    /// What the client connected to, if that is known: an address of the proxy's.
    pub(crate) facing: Option<SocketAddr>,
}

/// A connection whose header has not come.
#[derive(Debug)]
pub(crate) struct Arrival {
    key: Key,
    socket: OwnedFd,
    proxy: SocketAddr,
    bound: SocketAddr,
    door: Door,
    /// When it is too late.
    due: Instant,
    is_watched: bool,
    verdict: Option<Result<Header, String>>,
    /// Its place among the sessions.
    _place: Admission,
}

/// What became of an arrival.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) socket: OwnedFd,
    pub(crate) proxy: SocketAddr,
    pub(crate) bound: SocketAddr,
    pub(crate) door: Door,
    /// Whom the proxy speaks for, itself perhaps; or why it is not believed.
    pub(crate) ends: Result<Option<Ends>, String>,
}

impl Arrival {
    pub(crate) fn new(
        key: Key,
        socket: OwnedFd,
        proxy: SocketAddr,
        (bound, door): (SocketAddr, Door),
        place: Admission,
        core: &Core,
    ) -> Self {
        let due = core.now.instant + core.server.config.connect_timeout;
        Self { key, socket, proxy, bound, door, due, is_watched: false, verdict: None, _place: place }
    }

    /// Looks at what has come. Its event is told once: more that comes is another.
    pub(crate) fn read(&mut self) {
        self.verdict = match proxy::take(&self.socket) {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(header))) => Some(Ok(header)),
            Ok(Err(fault)) => Some(Err(fault.to_string())),
            Err(error) => Some(Err(error.to_string())),
        };
    }

    /// The wheel says that it may be too late.
    pub(crate) fn look_at_clock(&mut self, core: &mut Core) {
        match core.now.instant >= self.due {
            true => self.give_up(LATE),
            false => _ = core.wheel.insert(self.due, self.key),
        }
    }

    /// It is not waited for any more.
    pub(crate) fn give_up(&mut self, why: &str) {
        self.verdict.get_or_insert_with(|| Err(why.to_owned()));
    }

    /// Answers whether more has to come.
    pub(crate) fn settle(&mut self, core: &mut Core) -> bool {
        if self.verdict.is_none() && !self.is_watched {
            self.is_watched = true;
            core.wheel.insert(self.due, self.key);
            if let Err(error) = core.watch_http(self.key, &self.socket) {
                self.give_up(&error.to_string());
            }
        }
        self.verdict.is_none()
    }

    /// What became of it; its socket is nobody's from now on.
    pub(crate) fn into_arrived(self, core: &Core) -> Arrived {
        if self.is_watched {
            core.forget(&self.socket);
        }
        let unheard = || Err("the server ends".to_owned());
        Arrived {
            socket: self.socket,
            proxy: self.proxy,
            bound: self.bound,
            door: self.door,
            ends: self.verdict.unwrap_or_else(unheard).map(|header| header.ends),
        }
    }
}
