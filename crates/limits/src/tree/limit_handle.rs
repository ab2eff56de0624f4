//! One session's part in the tree: in whose buckets its bytes are counted, and where it holds a place.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_vfs::OverQuota;

use super::node::{Guest, Headcount, Node, Seat};
use super::{Direction, Scope, ScopeReport, Tree};
use crate::{Moved, Refused};

/// One session's part in the tree; it is counted out when this is dropped.
#[derive(Debug)]
pub struct LimitHandle {
    pub(super) stay: Stay,
    pub(super) login: Option<Box<Login>>,
    /// The session's own buckets, where it has limits of its own.
    pub(super) session: Option<Arc<Node>>,
}

#[derive(Debug)]
pub(super) struct Login {
    pub(super) groups: Vec<Part>,
    pub(super) user: Part,
    pub(super) moved: Option<Moved>,
}

/// A part of what an idle session costs, of which a thousand are to be a megabyte at most.
const _: () = assert!(size_of::<Login>() <= 56);

impl LimitHandle {
    /// The user is gone, the client is still there.
    pub fn log_out(&mut self) {
        self.login = None;
        self.session = None;
    }

    /// Removes the places that it has as this user, or as a visitor in this user's name, if the user changes.
    pub(super) fn parts_as(&mut self, user: &[u8], as_guest: bool) -> Vec<Part> {
        let Some(login) = self.login.take() else { return Vec::new() };
        let is_same = matches!(login.user.node().scope(), Scope::User(name) if **name == *user)
            && matches!(&login.user, Part::Guest(_)) == as_guest;
        let Login { mut groups, user, .. } = *login;
        groups.push(user);
        if is_same { groups } else { Vec::new() }
    }

    /// The address that the listener is bound to which it came to.
    pub fn listener(&self) -> Option<SocketAddr> {
        match *self.stay.nodes()[1].scope() {
            Scope::Listener(address) => Some(address),
            _ => None,
        }
    }

    /// Returns the count of the sessions of a group that it is in.
    pub fn headcount(&self, group: &str) -> Option<Headcount> {
        let groups = &self.login.as_ref()?.groups;
        let is_meant = |node: &&Arc<Node>| matches!(node.scope(), Scope::Group(name) if **name == *group);
        groups.iter().map(Part::node).find(is_meant).map(|node| Headcount(Arc::clone(node)))
    }

    /// The user's transfer quota, if any.
    pub fn moved(&self) -> Option<&Moved> {
        self.login.as_ref()?.moved.as_ref()
    }

    /// Checks whether a transfer in this direction may begin; the error names the quota that forbids it.
    pub fn may_move(&self, tree: &Tree, direction: Direction) -> Result<(), OverQuota> {
        self.moved().map_or(Ok(()), |moved| moved.check(direction, tree.wall()))
    }

    /// From the server's buckets to the session's.
    pub(crate) fn way(&self) -> impl Iterator<Item = &Arc<Node>> {
        let login = self.login.iter().flat_map(|login| login.groups.iter().chain([&login.user]));
        self.stay.nodes().into_iter().chain(login.map(Part::node)).chain(&self.session)
    }

    /// The limits set for the session of this number.
    pub fn report(&self, number: u64) -> Option<ScopeReport> {
        let node = self.session.as_ref().filter(|node| node.is_set())?;
        Some(ScopeReport { scope: Scope::Session(number), sessions: 1, ..node.report() })
    }
}

/// A member's part in the server's node and its listener's.
#[derive(Debug)]
pub(super) enum Stay {
    Session(Seat, Seat),
    Guest(Guest, Guest),
}

impl Stay {
    fn nodes(&self) -> [&Arc<Node>; 2] {
        match self {
            Self::Session(server, listener) => [server.node(), listener.node()],
            Self::Guest(server, listener) => [server.node(), listener.node()],
        }
    }
}

/// A member's part in the node of a group or a user.
#[derive(Debug)]
pub(super) enum Part {
    Session(Seat),
    Guest(Guest),
}

impl Part {
    pub(super) fn node(&self) -> &Arc<Node> {
        match self {
            Self::Session(seat) => seat.node(),
            Self::Guest(guest) => guest.node(),
        }
    }

    /// The same, unless there may be fewer now.
    pub(super) fn stay(self) -> Result<Self, Refused> {
        match self {
            Self::Session(seat) => seat.stay().map(Self::Session),
            Self::Guest(_) => Ok(self),
        }
    }
}
