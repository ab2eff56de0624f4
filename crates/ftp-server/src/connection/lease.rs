//! A session's passive port: leased at `PASV`, held until the client's data connection has come, given back where none
//! does. What leases are, and who shares a port with whom, is `passive/`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use millrace_ftp::session::{Answer, Input};
use millrace_limits::{LimitKey, Reached};
use millrace_log as log;
use millrace_runtime::passive::{Doorkeeper, Guest, Lease, Leasing, TurnedAway};
use millrace_runtime::slab::Key;
use millrace_runtime::transfer::{Link, Socket};
use millrace_runtime::worker::{Core, Role};
use mio::Interest;

use super::Connection;
use super::message::Message;

/// Why there is no connection for a transfer that came too long after its `PASV`.
const PORT_IS_GONE: &str = "the passive port was given back as nothing used it in time; ask for another";

/// What the passive port's lease needs of a session and its reactor.
struct LeaseWatch<'a> {
    core: &'a Core,
    key: Key,
    turned_away: Vec<TurnedAway>,
}

impl Doorkeeper for LeaseWatch<'_> {
    fn turn_away(&mut self, whom: TurnedAway) {
        self.turned_away.push(whom);
    }

    fn watch(&mut self, socket: &OwnedFd) -> bool {
        self.core.watch(self.key, Role::Wake, socket, Interest::READABLE).is_ok()
    }

    fn forget(&mut self, socket: &OwnedFd) {
        self.core.forget(socket);
    }
}

impl Connection {
    /// Leases a passive port, or gets in line for one.
    pub(super) fn listen(&mut self, core: &mut Core) -> Option<Answer> {
        if let Some(mut lease) = self.lease.take()
            && lease.renew()
        {
            return Some(self.hold(core, lease));
        }
        let (key, post) = (self.key, self.door.post.clone());
        let wake = Arc::new(move || post.send(key, Message::Wake));
        let post = self.door.post.clone();
        let deliver = Box::new(move |lease| post.send(key, Message::Port(lease)));
        let guest = Guest { client: self.session.peer().ip(), badge: self.badge(core), wake };
        match self.door.ftp.passive.lease(self.local().ip(), guest, deliver) {
            Leasing::Granted(lease) => Some(self.hold(core, Box::new(lease))),
            Leasing::Queued => {
                self.port_deadline = Some(core.now.instant + self.door.ftp.config.connect_timeout);
                None
            }
            Leasing::Unavailable(error) => Some(self.without_port(core, Some(&error))),
        }
    }

    /// The port that this session waited for.
    pub(super) fn port_granted(&mut self, core: &mut Core, lease: Lease) {
        // If nobody waits any more, dropping the lease passes it to the next in line.
        if self.port_deadline.take().is_some() {
            let listening = self.hold(core, Box::new(lease));
            self.feed(core, Input::Answer(listening));
        }
    }

    /// Keeps a lease for the transfer that is to come, but not for long: others may wait for the port.
    fn hold(&mut self, core: &mut Core, mut lease: Box<Lease>) -> Answer {
        self.expect_use();
        // The port is the same where a proxy passes it on.
        let address = SocketAddr::new(self.session.local().ip(), lease.address().port());
        lease.due = Some(core.now.instant + self.door.ftp.config.connect_timeout);
        self.lease = Some(lease);
        self.await_early(core);
        Answer::Listening(address)
    }

    /// When the port is given back, as no transfer has begun.
    pub(super) fn lease_due(&self) -> Option<Instant> {
        self.lease.as_ref().filter(|_| self.running.is_none())?.due
    }

    /// None has. A connection that has come all the same is kept for it.
    pub(super) fn lease_overdue(&mut self, core: &mut Core) {
        let Some(lease) = &mut self.lease else { return };
        let mut door = LeaseWatch { core, key: self.key, turned_away: Vec::new() };
        let has_come = lease.give_back(&mut door);
        let turned_away = door.turned_away;
        self.tell_turned_away(core, turned_away);
        if !has_come {
            self.drop_lease(core);
        }
        self.advance_early(core);
    }

    /// It did not come in time.
    pub(super) fn no_port(&mut self, core: &mut Core) {
        self.port_deadline = None;
        let hindrance = self.door.ftp.passive.hindrance(self.local().ip());
        let answer = self.without_port(core, hindrance.as_ref());
        self.feed(core, Input::Answer(answer));
    }

    fn without_port(&self, core: &mut Core, error: Option<&io::Error>) -> Answer {
        let range = self.door.ftp.passive.range();
        let ports = Reached::new(LimitKey::PassivePorts, format!("{}-{}", range.start(), range.end()));
        let (reached, reason) = match error {
            None => (ports, "all of them are in use".to_owned()),
            Some(error) => match Reached::by_lack(error) {
                Some(reached) => (reached, "the server has no descriptor left for one".to_owned()),
                None => (ports, format!("none of them can be bound ({})", error.kind())),
            },
        };
        self.log(core, log::Event::Limited { reached: &reached, reason: Some(&reason) });
        Answer::NoPort(reason)
    }

    /// Accepts the client's data connection, if it has come.
    pub(super) fn accept(&mut self, core: &mut Core) -> io::Result<Option<Socket>> {
        let accepted = self.accept_own(core);
        let (Some(lease), running) = (&mut self.lease, self.running.as_deref_mut()) else {
            return Err(io::Error::other(PORT_IS_GONE));
        };
        match (accepted, running) {
            (Ok(socket), Some(running)) => {
                if let Link::Accepting(Some(watched)) = std::mem::replace(&mut running.link, Link::OnPool) {
                    core.forget(&watched);
                }
                self.lease = None;
                Ok(Some(Socket::new(socket)))
            }
            (Err(error), Some(running)) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Link::Accepting(watched @ None) = &mut running.link {
                    // A descriptor of its own: sessions that share the port each wait by one.
                    let Some(listener) = lease.listener() else { return Ok(None) };
                    let listener = listener.try_clone_to_owned()?;
                    core.watch(self.key, Role::Side, &listener, Interest::READABLE)?;
                    *watched = Some(listener);
                }
                Ok(None)
            }
            (Err(error), _) => Err(error),
            (Ok(_), None) => Ok(None),
        }
    }

    /// Accepts the client's data connection from the passive port, and tells of everybody else who came.
    pub(super) fn accept_own(&mut self, core: &mut Core) -> io::Result<OwnedFd> {
        let Some(lease) = &mut self.lease else { return Err(io::Error::other(PORT_IS_GONE)) };
        let mut door = LeaseWatch { core, key: self.key, turned_away: Vec::new() };
        let accepted = lease.accept(&mut door);
        let turned_away = door.turned_away;
        self.tell_turned_away(core, turned_away);
        accepted
    }

    pub(super) fn tell_turned_away(&self, core: &mut Core, turned_away: Vec<TurnedAway>) {
        for whom in turned_away {
            match whom {
                TurnedAway::Stranger(peer) => self.log(core, log::Event::Stranger { peer }),
                TurnedAway::Unnamed(from, reason) => {
                    self.log(core, log::Event::ProxyRefused { from, reason: &reason });
                }
            }
        }
    }
}
