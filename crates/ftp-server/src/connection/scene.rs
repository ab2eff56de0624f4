//! What the parts of a connection need of one another while one of them works.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_accounts::Account;
use millrace_ftp::Session;
use millrace_limits::LimitHandle;
use millrace_log::{self as log, Subject};
use millrace_runtime::passive::DataSockets;
use millrace_runtime::slab::Key;
use millrace_runtime::worker::{Core, Way};

use super::door::Door;
use super::session_hooks::SessionHooks;
use super::wire::Wire;

/// Which connection it is, and what its session knows.
#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) key: Key,
    pub(super) number: u64,
    pub(super) door: &'a Arc<Door>,
    pub(super) session: &'a Session,
    pub(super) account: Option<&'a Account>,
    pub(super) way: Option<&'a (Way, SocketAddr)>,
}

impl Identity<'_> {
    /// Returns the address of this machine that its connections are on.
    pub(super) fn local(&self) -> SocketAddr {
        self.way.map_or(self.session.local(), |way| way.1)
    }

    pub(super) fn log(&self, core: &mut Core, event: log::Event<'_>) {
        let subject = Subject { session: self.number, peer: self.session.peer(), user: self.session.user() };
        core.log(&subject, event);
    }
}

/// The parts of a connection besides the one that works.
pub(super) struct Scene<'a> {
    pub(super) core: &'a mut Core,
    pub(super) me: Identity<'a>,
    /// Its part in the tree of limits.
    pub(super) member: &'a LimitHandle,
    pub(super) wire: &'a mut Wire,
    pub(super) hooks: &'a mut SessionHooks,
}

impl Scene<'_> {
    /// Sends what there is to say, as far as the client takes it.
    pub(super) fn send(&mut self) {
        self.wire.send(self.core, self.hooks.holds_replies());
    }

    /// The sockets of data connections.
    pub(super) fn data_sockets(&self) -> &dyn DataSockets {
        self.me.door.ftp.passive.sockets()
    }

    pub(super) fn log(&mut self, event: log::Event<'_>) {
        self.me.log(self.core, event);
    }

    /// Adds whole lines to what is sent next.
    pub(super) fn say(&mut self, lines: &[u8]) {
        self.core.out.extend_from_slice(lines);
        self.me.trace_sent(self.core, lines);
    }
}
