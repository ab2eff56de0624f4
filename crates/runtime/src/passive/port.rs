//! A bound port and its tenants.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_net::tls::Hello;
use millrace_net::{listener, proxy};

use super::Wake;
use super::sockets::DataSockets;
use super::ticket_demultiplexer::TicketDemultiplexer;
use super::ticket_isolation::Mark;
use crate::proxies::{Proxies, ProxyHeaderError};

/// A bound port.
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) listener: OwnedFd,
    pub(super) tenants: SharedTenants,
}

/// The tenants of a port; they outlive it while a connection waits for its ticket.
#[derive(Clone, Default)]
pub(super) struct SharedTenants(Arc<Mutex<Tenants>>);

/// The tenants of a port.
#[derive(Default)]
pub(super) struct Tenants {
    /// The holders of a lease: nearly always one; more when the range is exhausted.
    pub(super) list: Vec<Tenant>,
    /// Former tenants whose connection has not come: it may still come while the port is open.
    pub(super) expected: Vec<IpAddr>,
    /// The port was leased before: connections that wait on it are an earlier session's.
    pub(super) is_stale: bool,
}

pub(super) struct Tenant {
    /// Unlike that of any other lease.
    pub(super) number: u64,
    /// Where its connection will come from.
    pub(super) client: IpAddr,
    /// Identifies its connection, where its client is sure to resume its TLS session.
    pub(super) badge: Option<Mark>,
    /// Another tenant of the same address has, or had, this port: the address alone does not identify the connection.
    pub(super) by_ticket: bool,
    /// Its connection, accepted by another tenant.
    pub(super) arrived: Option<OwnedFd>,
    /// How to tell it so.
    pub(super) wake: Wake,
}

/// Which tenant a connection is for, as far as its address tells.
pub(super) enum Whose<'a> {
    Unclaimed,
    Of(&'a mut Tenant),
    /// That of one of several, whose ticket tells.
    ByTicket,
}

/// What identifies a connection's tenant where its address does not.
#[derive(Clone)]
pub(super) struct Reception {
    /// What listens and accepts.
    pub(super) sockets: Arc<dyn DataSockets>,
    /// The proxies that name their clients in a header.
    pub(super) proxies: Arc<Proxies>,
    /// The reader of tickets.
    pub(super) demultiplexer: TicketDemultiplexer,
}

impl SharedTenants {
    /// Locked for a look or an insert.
    pub(super) fn lock(&self) -> MutexGuard<'_, Tenants> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    /// Closes what an earlier session left waiting. Answers whether nothing waits any more: without a descriptor to spare
    /// nothing can be accepted, and what waits would be the next session's.
    pub(super) fn clear(&self, tenants: &mut Tenants, sockets: &dyn DataSockets) -> bool {
        while tenants.is_stale && listener::may_accept(&self.listener) {
            match sockets.accept(&self.listener) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        tenants.is_stale = false;
        true
    }

    /// Accepts waiting connections, gives each to its tenant and closes the rest.
    pub(super) fn sort_arrivals(&self, tenants: &mut Tenants, reception: &Reception) {
        while let Ok((socket, peer)) = reception.sockets.accept(&self.listener) {
            let from = match reception.proxies.include(peer.ip()) {
                false => Some(peer.ip()),
                // A header that is not there by now is not waited for: proxies send it as they connect.
                true => named(&socket, peer).ok().flatten(),
            };
            let Some(from) = from else { continue };
            match tenants.whose(from) {
                Whose::Unclaimed => {}
                Whose::Of(tenant) => tenant.take_in(socket),
                Whose::ByTicket => reception.demultiplexer.receive(socket, from, &self.tenants),
            }
        }
    }
}

/// The client that a proxy's connection is for, once its header has arrived.
pub(super) fn named(socket: &OwnedFd, proxy: SocketAddr) -> Result<Option<IpAddr>, ProxyHeaderError> {
    let header = proxy::take(socket)??;
    Ok(header.map(|header| header.ends.map_or(proxy, |ends| ends.client).ip()))
}

impl Tenants {
    pub(super) fn of(&mut self, number: u64) -> Option<&mut Tenant> {
        self.list.iter_mut().find(|tenant| tenant.number == number)
    }

    pub(super) fn whose(&mut self, client: IpAddr) -> Whose<'_> {
        match self.list.iter_mut().find(|tenant| tenant.client == client) {
            None => Whose::Unclaimed,
            Some(tenant) if tenant.by_ticket => Whose::ByTicket,
            Some(tenant) => Whose::Of(tenant),
        }
    }

    /// Returns whether a tenant waits for a connection from this address.
    pub(super) fn expects(&self, client: IpAddr) -> bool {
        self.list.iter().any(|tenant| tenant.client == client)
    }

    /// Returns true if a connection from this address could only be for a new tenant.
    pub(super) fn admits(&self, client: IpAddr) -> bool {
        self.list.iter().all(|tenant| tenant.client != client) && !self.expected.contains(&client)
    }

    /// Returns true if tickets tell all tenants of this address from the owner of this mark.
    pub(super) fn are_apart_from(&self, client: IpAddr, mark: &Mark) -> bool {
        let is_apart = |badge: &Mark| badge.is_apart_from(mark);
        let mut of_client = self.list.iter().filter(|tenant| tenant.client == client);
        of_client.all(|tenant| tenant.badge.as_ref().is_some_and(is_apart))
    }

    /// From now on tickets identify the connections of this address.
    pub(super) fn identify_by_ticket(&mut self, client: IpAddr) {
        for tenant in self.list.iter_mut().filter(|tenant| tenant.client == client) {
            tenant.by_ticket = true;
        }
    }

    /// Gives a connection to the tenant of its ticket; closes it if there is none.
    pub(super) fn show_in(&mut self, socket: OwnedFd, client: IpAddr, hello: &Hello) {
        let is_meant = |tenant: &&mut Tenant| {
            tenant.client == client && tenant.badge.as_ref().is_some_and(|badge| badge.is_shown_by(hello))
        };
        if let Some(tenant) = self.list.iter_mut().find(is_meant) {
            tenant.take_in(socket);
        }
    }
}

impl Tenant {
    /// Keeps a connection that another accepted. The first stays: a second cannot push it out.
    pub(super) fn take_in(&mut self, socket: OwnedFd) {
        if self.arrived.is_none() {
            self.arrived = Some(socket);
            (self.wake)();
        }
    }
}
