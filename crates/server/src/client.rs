//! A connection of either protocol, as its worker sees it.

use std::time::Instant;

use mio::event::Event;

use crate::auth::Account;
use crate::limits::{Limits, ScopeReport};
use crate::proxied::Arrival;
use crate::running::SessionReport;
use crate::worker::Core;
use crate::{ftp, http};

/// Why somebody is not waited for any more.
const ENDING: &str = "the server ends";

/// One client of a worker.
#[derive(Debug)]
pub(crate) enum Client {
    Ftp(Box<ftp::Connection>),
    Http(Box<http::Connection>),
    /// It becomes one of the others when a proxy has said whom it is of.
    Arriving(Box<Arrival>),
}

impl Client {
    /// Nobody is to take what was sent for the whole of anything: it is closed with a reset.
    pub(crate) fn reset(&self) {
        match self {
            Self::Ftp(connection) => connection.reset(),
            Self::Http(connection) => connection.reset(),
            Self::Arriving(_) => {}
        }
    }

    /// The reactor says something of the socket that the client connected to.
    pub(crate) fn event(&mut self, core: &mut Core, event: &Event) {
        match self {
            Self::Ftp(connection) => connection.control_event(core, event),
            Self::Http(connection) => connection.event(core, event),
            Self::Arriving(arrival) => arrival.read(),
        }
    }

    /// The reactor says something of a data connection, or of a program's pipe.
    pub(crate) fn side_event(&mut self, core: &mut Core, event: &Event) {
        match self {
            Self::Ftp(connection) => connection.data_event(core, event),
            Self::Http(connection) => connection.side_event(core, event.is_read_closed()),
            Self::Arriving(_) => {}
        }
    }

    /// The reactor says that there is something to go on with.
    pub(crate) fn go_on(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.continue_transfer(core),
            Self::Http(connection) => connection.go_on(core),
            Self::Arriving(_) => {}
        }
    }

    /// The wheel says that something may be due.
    pub(crate) fn look_at_clock(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.look_at_clock(core),
            Self::Http(connection) => connection.look_at_clock(core),
            Self::Arriving(arrival) => arrival.look_at_clock(core),
        }
    }

    /// A new turn has time for handshakes.
    pub(crate) fn shake_hands(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.shake_hands(core),
            Self::Http(connection) => connection.shake_hands(core),
            Self::Arriving(_) => {}
        }
    }

    /// Its transfer has another share of a turn.
    pub(crate) fn continue_transfer(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.next_turn(core),
            Self::Http(connection) => connection.go_on(core),
            Self::Arriving(_) => {}
        }
    }

    /// Does what follows from what happened; answers whether the connection goes on.
    pub(crate) fn settle(&mut self, core: &mut Core) -> bool {
        match self {
            Self::Ftp(connection) => connection.settle(core),
            Self::Http(connection) => connection.settle(core),
            Self::Arriving(arrival) => arrival.settle(core),
        }
    }

    /// Another server accepts, and would have those who can go there.
    pub(crate) fn retire(&mut self) {
        if let Self::Http(connection) = self {
            connection.retire();
        }
    }

    /// The server is closing.
    pub(crate) fn shut_down(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.shut_down(core),
            Self::Http(connection) => connection.shut_down(),
            Self::Arriving(arrival) => arrival.give_up(ENDING),
        }
    }

    /// The time of grace is over.
    pub(crate) fn end_now(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.end_now(core),
            Self::Http(connection) => connection.end_now(),
            Self::Arriving(arrival) => arrival.give_up(ENDING),
        }
    }

    /// Claims that there is anything to be said of it, or done about it: connections that are only kept alive are
    /// nobody's business.
    pub(crate) fn is_of_note(&self) -> bool {
        match self {
            Self::Ftp(_) => true,
            Self::Http(connection) => connection.is_of_note(),
            Self::Arriving(_) => false,
        }
    }

    /// As an administrator sees it.
    pub(crate) fn report(&self, now: Instant) -> Option<SessionReport> {
        match self {
            Self::Ftp(connection) => Some(connection.report(now)),
            Self::Http(connection) => Some(connection.report(now)),
            Self::Arriving(_) => None,
        }
    }

    /// An administrator wants it gone.
    pub(crate) fn kick(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.kick(core),
            Self::Http(connection) => connection.kick(core),
            Self::Arriving(_) => {}
        }
    }

    /// Sets the limits of the one with this number, or with `None` forgets what was set; answers whether it is this.
    pub(crate) fn set_limits(&mut self, core: &mut Core, number: u64, limits: Option<&Limits>) -> bool {
        match self {
            Self::Ftp(connection) => connection.set_limits(core, number, limits),
            Self::Http(connection) => connection.set_limits(core, number, limits),
            Self::Arriving(_) => false,
        }
    }

    /// The limits that were set for it.
    pub(crate) fn limits(&self) -> Option<ScopeReport> {
        match self {
            Self::Ftp(connection) => connection.limits(),
            Self::Http(connection) => connection.limits(),
            Self::Arriving(_) => None,
        }
    }

    /// A new minute has begun.
    pub(crate) fn tick(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.tick(core),
            Self::Http(connection) => connection.tick(core),
            Self::Arriving(_) => {}
        }
    }

    /// Has the user's account looked at again, where it is one of those.
    pub(crate) fn review(&mut self, core: &mut Core, concerned: impl Fn(&[u8], &Account) -> bool) {
        match self {
            Self::Ftp(connection) => connection.review(core, concerned),
            Self::Http(connection) => connection.review(core, concerned),
            Self::Arriving(_) => {}
        }
    }

    /// Ends it and everything that belongs to it.
    pub(crate) fn close(self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.close(core),
            Self::Http(connection) => connection.close(core),
            // Its socket and its place go with it.
            Self::Arriving(_) => {}
        }
    }
}
