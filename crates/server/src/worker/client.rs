//! A connection of either protocol, as its worker sees it.

use std::net::SocketAddr;
use std::time::Instant;

use millrace_accounts::Account;
use millrace_ftp_server as ftp;
use millrace_http_server as http;
use millrace_limits::{LimitHandle, Limits, ScopeReport};
use millrace_runtime::report::SessionReport;
use millrace_runtime::slab::Key;
use millrace_runtime::worker;
use mio::event::Event;

use super::{ClientMessage, Core, Door};

/// One client of a worker.
#[derive(Debug)]
pub(crate) enum Client {
    Ftp(Box<ftp::Connection>),
    Http(Box<http::Connection>),
    /// A connection of HTTP/2, whose streams are an `Http` each.
    Http2(Box<http::Http2Connection>),
}

impl worker::Client<Core> for Client {
    fn begin(&mut self, core: &mut Core, door: Door, bound: SocketAddr) {
        match self {
            Self::Ftp(connection) => connection.greet(core, door == Door::Ftps),
            Self::Http(connection) => {
                connection.greet(&mut core.http, (door == Door::Https).then_some(bound))
            }
            // It begins as a connection of HTTP, and becomes this by ALPN.
            Self::Http2(_) => {}
        }
    }

    fn event(&mut self, core: &mut Core, event: &Event) {
        match self {
            Self::Ftp(connection) => connection.control_event(core, event),
            Self::Http(connection) => connection.event(&mut core.http, event),
            Self::Http2(connection) => connection.event(event),
        }
    }

    fn side_event(&mut self, core: &mut Core, event: &Event) {
        match self {
            Self::Ftp(connection) => connection.data_event(core, event),
            Self::Http(connection) => connection.side_event(&mut core.http, event.is_read_closed()),
            Self::Http2(_) => {}
        }
    }

    fn go_on(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.continue_transfer(core),
            Self::Http(connection) => connection.go_on(&mut core.http),
            Self::Http2(_) => {}
        }
    }

    fn told(&mut self, core: &mut Core, message: ClientMessage) {
        match (self, message) {
            (Self::Ftp(connection), ClientMessage::Ftp(message)) => connection.told(core, message),
            (Self::Http(connection), ClientMessage::Http(message)) => {
                connection.told(&mut core.http, message)
            }
            (Self::Http2(connection), ClientMessage::Http(message)) => {
                connection.told(&mut core.http, message)
            }
            // A key names one connection for ever.
            (Self::Ftp(_), ClientMessage::Http(_))
            | (Self::Http(_) | Self::Http2(_), ClientMessage::Ftp(_)) => {}
        }
    }

    fn look_at_clock(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.look_at_clock(core),
            Self::Http(connection) => connection.look_at_clock(&mut core.http),
            Self::Http2(connection) => connection.look_at_clock(&mut core.http),
        }
    }

    fn shake_hands(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.shake_hands(core),
            Self::Http(connection) => connection.shake_hands(&mut core.http),
            Self::Http2(_) => {}
        }
    }

    fn continue_transfer(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.next_turn(core),
            Self::Http(connection) => connection.go_on(&mut core.http),
            Self::Http2(_) => {}
        }
    }

    fn settle(&mut self, core: &mut Core) -> bool {
        match self {
            Self::Ftp(connection) => connection.settle(core),
            Self::Http(connection) => {
                let goes_on = connection.settle(&mut core.http);
                match connection.take_http2(&mut core.http) {
                    Some(connection) => {
                        *self = Self::Http2(connection);
                        self.settle(core)
                    }
                    None => goes_on,
                }
            }
            Self::Http2(connection) => connection.settle(&mut core.http),
        }
    }

    fn retire(&mut self, _: &mut Core) {
        if let Self::Http(connection) = self {
            connection.retire();
        }
    }

    fn shut_down(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.shut_down(core),
            Self::Http(connection) => connection.shut_down(),
            Self::Http2(connection) => connection.shut_down(),
        }
    }

    fn end_now(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.end_now(core),
            Self::Http(connection) => connection.end_now(),
            Self::Http2(connection) => connection.end_now(),
        }
    }

    fn close(self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.close(core),
            Self::Http(connection) => connection.close(&mut core.http),
            Self::Http2(connection) => connection.close(&mut core.http),
        }
    }

    fn reset(&self) {
        match self {
            Self::Ftp(connection) => connection.reset(),
            Self::Http(connection) => connection.reset(),
            Self::Http2(connection) => connection.reset(),
        }
    }

    /// Of connections that are only kept alive there is nothing to report.
    fn is_of_note(&self) -> bool {
        match self {
            Self::Ftp(_) => true,
            Self::Http(connection) => connection.is_of_note(),
            Self::Http2(connection) => connection.is_of_note(),
        }
    }

    fn parent(&self) -> Option<Key> {
        match self {
            Self::Http(connection) => connection.parent(),
            Self::Ftp(_) | Self::Http2(_) => None,
        }
    }

    fn children(&self) -> Vec<Key> {
        match self {
            Self::Http2(connection) => connection.streams(),
            Self::Ftp(_) | Self::Http(_) => Vec::new(),
        }
    }

    fn report(&self, now: Instant) -> Option<SessionReport> {
        match self {
            Self::Ftp(connection) => Some(connection.report(now)),
            Self::Http(connection) => Some(connection.report(now)),
            Self::Http2(connection) => connection.report(now),
        }
    }
}

impl Client {
    /// Returns the sessions of this connection: their numbers in the log, and their parts in the tree of limits.
    fn members(&mut self) -> impl Iterator<Item = (u64, &mut LimitHandle)> {
        let (one, resting) = match self {
            Self::Ftp(connection) => (Some(connection.member()), None),
            Self::Http(connection) => (Some(connection.member()), None),
            Self::Http2(connection) => (None, Some(connection.resting_members())),
        };
        one.into_iter().chain(resting.into_iter().flatten())
    }

    /// An administrator wants it gone.
    pub(crate) fn kick(&mut self, core: &mut Core) {
        match self {
            Self::Ftp(connection) => connection.kick(core),
            Self::Http(connection) => connection.kick(&mut core.http),
            Self::Http2(connection) => connection.kick(&mut core.http),
        }
    }

    /// Sets the limits of the one with this number, or with `None` forgets what was set. Returns true if it is this.
    pub(crate) fn set_limits(&mut self, core: &mut Core, number: u64, limits: Option<&Limits>) -> bool {
        let Some((_, member)) = self.members().find(|(own, _)| *own == number) else { return false };
        let (tree, now) = (&core.services.limits, core.now.instant);
        match limits {
            Some(limits) => tree.limit_member(member, number, limits, now),
            None => tree.restore_member(member, now),
        }
        true
    }

    /// Returns the limits that were set for it.
    pub(crate) fn limits(&mut self) -> Option<ScopeReport> {
        self.members().find_map(|(number, member)| member.report(number))
    }

    /// A new minute has begun.
    pub(crate) fn tick(&mut self, core: &mut Core) {
        let (tree, now) = (&core.services.limits, core.now.instant);
        self.members().for_each(|(_, member)| tree.tick_member(member, now));
    }

    /// Has the user's account looked at again, where it is one of those.
    pub(crate) fn review(&mut self, core: &mut Core, concerned: impl Fn(&[u8], &Account) -> bool) {
        match self {
            Self::Ftp(connection) => connection.review(core, concerned),
            Self::Http(connection) => connection.review(&mut core.http, concerned),
            Self::Http2(connection) => connection.review(&mut core.http, concerned),
        }
    }
}
