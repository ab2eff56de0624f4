//! A place in a worker's slab: a connection, or one that is still to be named by a PROXY header.

use mio::event::Event;

use super::arrival::Arrival;
use super::{Client, Doors};

/// Why a connection is not waited for any more.
use crate::proxies::ProxyHeaderError;

/// What a worker has at a key.
pub(super) enum Place<D: Doors> {
    Client(D::Client),
    /// It gets another place when a proxy has named its client.
    Arriving(Box<Arrival<D::Door>>),
}

impl<D: Doors> Place<D> {
    /// Returns the connection, if a client is served here.
    pub(super) fn client(&mut self) -> Option<&mut D::Client> {
        match self {
            Self::Client(client) => Some(client),
            Self::Arriving(_) => None,
        }
    }

    pub(super) fn event(&mut self, doors: &mut D, event: &Event) {
        match self {
            Self::Client(client) => client.event(doors, event),
            Self::Arriving(arrival) => arrival.read(),
        }
    }

    pub(super) fn look_at_clock(&mut self, doors: &mut D) {
        match self {
            Self::Client(client) => client.look_at_clock(doors),
            Self::Arriving(arrival) => arrival.look_at_clock(doors),
        }
    }

    pub(super) fn settle(&mut self, doors: &mut D) -> bool {
        match self {
            Self::Client(client) => client.settle(doors),
            Self::Arriving(arrival) => arrival.settle(doors),
        }
    }

    pub(super) fn shut_down(&mut self, doors: &mut D) {
        match self {
            Self::Client(client) => client.shut_down(doors),
            Self::Arriving(arrival) => arrival.give_up(ProxyHeaderError::Ending),
        }
    }

    pub(super) fn end_now(&mut self, doors: &mut D) {
        match self {
            Self::Client(client) => client.end_now(doors),
            Self::Arriving(arrival) => arrival.give_up(ProxyHeaderError::Ending),
        }
    }
}
