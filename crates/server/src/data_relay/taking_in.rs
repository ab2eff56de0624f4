//! A connection at the data address: another node has accepted it for a session of this one.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use millrace_cluster::{DataRoute, NONCE, SEAL, nonce};
use millrace_net::proxy::{self, Ends};
use millrace_net::stream;

use super::read_whole;

/// How long its header may take: a node sends it at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that has not shown yet where it comes from.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) socket: OwnedFd,
    pub(super) until: Instant,
    /// What was sent to it: its seal has to be made with that.
    nonce: [u8; NONCE],
    ends: Option<Ends>,
}

/// What has come of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Its header has not come yet.
    Waits,
    /// A node has sealed that it is from this client, and to this port.
    Sealed(Ends),
    /// No node has.
    Stranger,
}

impl Incoming {
    /// Sends the nonce. `None` where that is impossible.
    pub(super) fn greet(socket: OwnedFd, now: Instant) -> Option<Self> {
        let nonce = nonce()?;
        // A new connection has room for it.
        let is_sent = stream::write(&socket, &nonce).is_ok_and(|count| count == NONCE);
        is_sent.then_some(Self { socket, until: now + PATIENCE, nonce, ends: None })
    }

    /// Reads what has come. `own` is the route of this node.
    pub(super) fn advance(&mut self, own: &DataRoute) -> Arrival {
        self.try_advance(own).unwrap_or(Arrival::Stranger)
    }

    fn try_advance(&mut self, own: &DataRoute) -> io::Result<Arrival> {
        let ends = match self.ends {
            Some(ends) => ends,
            None => match proxy::take(&self.socket)? {
                Ok(Some(header)) => *self.ends.insert(header.ends.ok_or(io::ErrorKind::InvalidData)?),
                Ok(None) => return Ok(Arrival::Waits),
                Err(_) => return Ok(Arrival::Stranger),
            },
        };
        let Some(seal) = read_whole::<SEAL>(&self.socket)? else { return Ok(Arrival::Waits) };
        let is_sealed = own.has_sealed(&self.nonce, &sealed_text(&ends), &seal);
        Ok(if is_sealed { Arrival::Sealed(ends) } else { Arrival::Stranger })
    }
}

/// What the seal of a connection is of.
pub(super) fn sealed_text(ends: &Ends) -> String {
    let (client, server) = (ends.client, ends.server);
    format!("{} {} {} {}", client.ip(), client.port(), server.ip(), server.port())
}
