//! A session's passive port: leased at `PASV`, held until the client's data connection has come, given back where none
//! does. What leases are, and which sessions share a port, is `runtime/src/passive/`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use millrace_ftp::session::{Answer, Protection, TransferError};
use millrace_limits::{LimitKey, Reached};
use millrace_log as log;
use millrace_runtime::passive::{Doorkeeper, Guest, Lease, Leasing, TurnedAway};
use millrace_runtime::slab::Key;
use millrace_runtime::transfer::{End, Link, Socket};
use millrace_runtime::worker::{Core, Role};
use mio::Interest;

use super::early::Early;
use super::message::Message;
use super::scene::Scene;
use super::secure::{protect, shake_data_hands};

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

/// The leased passive port, or the wait for one.
#[derive(Debug, Default)]
pub(super) struct PassivePort {
    pub(super) lease: Option<Box<Lease>>,
    /// Until when the session waits for a port.
    pub(super) deadline: Option<Instant>,
}

impl PassivePort {
    /// Leases a port, or gets in line for one.
    pub(super) fn listen(&mut self, scene: &mut Scene<'_>) -> Option<Answer> {
        if let Some(mut lease) = self.lease.take()
            && lease.renew()
        {
            return Some(self.hold(scene, lease));
        }
        let (me, core) = (scene.me, &*scene.core);
        let (key, post) = (me.key, me.door.post.clone());
        let wake = Arc::new(move || post.send(key, Message::Wake));
        let post = me.door.post.clone();
        let deliver = Box::new(move |lease| post.send(key, Message::Port(lease)));
        let badge = scene.wire.secure.as_ref().and_then(|secure| secure.badge(core, me));
        let guest = Guest { client: me.session.peer().ip(), badge, wake };
        match me.door.ftp.passive.lease(me.local().ip(), guest, deliver) {
            Leasing::Granted(lease) => Some(self.hold(scene, Box::new(lease))),
            Leasing::Queued => {
                self.deadline = Some(core.now.instant + me.door.ftp.config.connect_timeout);
                None
            }
            Leasing::Unavailable(error) => Some(without_port(scene, Some(&error))),
        }
    }

    /// Takes the port that the session waited for.
    pub(super) fn granted(&mut self, scene: &mut Scene<'_>, lease: Lease) -> Option<Answer> {
        // If the session does not wait any more, dropping the lease passes it to the next in line.
        self.deadline.take()?;
        Some(self.hold(scene, Box::new(lease)))
    }

    /// Keeps a lease for the transfer that is to come, but not for long: others may wait for the port.
    fn hold(&mut self, scene: &mut Scene<'_>, mut lease: Box<Lease>) -> Answer {
        if let Some(secure) = &mut scene.wire.secure {
            secure.expect_use();
        }
        // The port is the same where a proxy passes it on.
        let address = SocketAddr::new(scene.me.session.local().ip(), lease.address().port());
        lease.due = Some(scene.core.now.instant + scene.me.door.ftp.config.connect_timeout);
        self.lease = Some(lease);
        self.await_early(scene);
        Answer::Listening(address)
    }

    /// No transfer has begun in time. A connection that has come all the same is kept for it.
    pub(super) fn overdue(&mut self, scene: &mut Scene<'_>) {
        let Some(lease) = &mut self.lease else { return };
        let mut watch = LeaseWatch { core: scene.core, key: scene.me.key, turned_away: Vec::new() };
        let has_come = lease.give_back(&mut watch);
        let turned_away = watch.turned_away;
        tell_turned_away(scene, turned_away);
        if !has_come {
            self.drop_lease(scene);
        }
        self.advance_early(scene);
    }

    /// No port has become free in time.
    pub(super) fn wait_overdue(&mut self, scene: &mut Scene<'_>) -> Answer {
        self.deadline = None;
        let hindrance = scene.me.door.ftp.passive.hindrance(scene.me.local().ip());
        without_port(scene, hindrance.as_ref())
    }

    /// Accepts the client's data connection, and logs what else has come.
    pub(super) fn accept(&mut self, scene: &mut Scene<'_>) -> io::Result<OwnedFd> {
        let Some(lease) = &mut self.lease else { return Err(io::Error::other(PORT_IS_GONE)) };
        let mut watch = LeaseWatch { core: scene.core, key: scene.me.key, turned_away: Vec::new() };
        let accepted = lease.accept(&mut watch);
        let turned_away = watch.turned_away;
        tell_turned_away(scene, turned_away);
        accepted
    }

    /// Has the reactor tell when something connects. The descriptor is one of the session's own: sessions that share the
    /// port each wait by one.
    pub(super) fn watch(&self, scene: &Scene<'_>) -> io::Result<Option<OwnedFd>> {
        let Some(listener) = self.lease.as_ref().and_then(|lease| lease.listener()) else { return Ok(None) };
        let listener = listener.try_clone_to_owned()?;
        scene.core.watch(scene.me.key, Role::Side, &listener, Interest::READABLE)?;
        Ok(Some(listener))
    }

    /// A port is held: under `PROT P`, what connects is accepted at once.
    fn await_early(&mut self, scene: &mut Scene<'_>) {
        forget_early(scene);
        if scene.wire.secure.is_none() || scene.me.session.protection() != Protection::AsServer {
            return;
        }
        // Where there is no descriptor to be had, the connection waits for its transfer.
        if let Ok(Some(listener)) = self.watch(scene) {
            set_early(scene, Early::Awaited(listener));
        }
    }

    /// Gives up the port, and what has come to it.
    pub(super) fn drop_lease(&mut self, scene: &mut Scene<'_>) {
        forget_early(scene);
        self.lease = None;
    }

    /// The reactor tells of what has come to the port before its transfer.
    pub(super) fn early_event(&mut self, scene: &mut Scene<'_>, end: End) {
        if let Some(secure) = &mut scene.wire.secure
            && let Early::Shaking(socket) | Early::Shaken(socket) = &mut secure.early
        {
            socket.end = socket.end.max(end);
        }
        self.advance_early(scene);
    }

    /// Moves it on.
    pub(super) fn advance_early(&mut self, scene: &mut Scene<'_>) {
        let mut early = take_early(scene);
        if let Early::Awaited(listener) = early {
            early = self.accept_early(scene, listener);
        }
        if let Early::Shaking(socket) = early {
            early = shake_early(scene, socket);
        }
        set_early(scene, early);
    }

    fn accept_early(&mut self, scene: &mut Scene<'_>, listener: OwnedFd) -> Early {
        if self.lease.is_none() {
            scene.core.forget(&listener);
            return Early::Nothing;
        }
        // What goes wrong here goes wrong for the transfer as well, which says so.
        let Ok(socket) = self.accept(scene) else { return Early::Awaited(listener) };
        scene.core.forget(&listener);
        drop(listener);
        self.lease = None;
        let mut socket = Socket::new(socket);
        let (secure, me) = (scene.wire.secure.as_deref(), scene.me);
        let begun = protect(secure, scene.core, me, &mut socket, Protection::AsServer);
        let both = Interest::READABLE | Interest::WRITABLE;
        let watched = scene.core.watch(me.key, Role::Side, &socket.fd, both);
        socket.registered = true;
        match begun.and(watched) {
            Ok(()) => Early::Shaking(socket),
            Err(error) => Early::Failed(TransferError::NotSecured(error.to_string())),
        }
    }

    /// Returns what a transfer that uses the port begins with.
    pub(super) fn link(
        &mut self,
        scene: &mut Scene<'_>,
        protection: Protection,
    ) -> Result<Link, TransferError> {
        match (take_early(scene), protection) {
            (Early::Nothing, _) => Ok(Link::Accepting(None)),
            (Early::Awaited(listener), _) => Ok(Link::Accepting(Some(listener))),
            (Early::Shaking(socket), Protection::AsServer) => Ok(Link::Securing(socket)),
            (Early::Shaken(socket), Protection::AsServer) => Ok(Link::Open(socket)),
            (Early::Failed(error), Protection::AsServer) => Err(error),
            (_, Protection::Clear | Protection::AsClient) => {
                let why = "it was connected before PROT said otherwise; ask for another port";
                Err(TransferError::NoConnection(why.to_owned()))
            }
        }
    }

    /// The transfer has waited long enough for its connection: gives up those that have no name yet. Returns whether
    /// connections to the port are told apart by their TLS tickets.
    pub(super) fn give_up_unnamed(&mut self, scene: &mut Scene<'_>) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        let late = lease.give_up_unnamed();
        let by_ticket = lease.goes_by_ticket();
        tell_turned_away(scene, late);
        by_ticket
    }
}

fn shake_early(scene: &mut Scene<'_>, mut socket: Socket) -> Early {
    let me = scene.me;
    match shake_data_hands(scene.wire.secure.as_deref_mut(), scene.core, me, &mut socket) {
        Some(Ok(true)) => Early::Shaken(socket),
        Some(Ok(false)) => Early::Shaking(socket),
        Some(Err(error)) => Early::Failed(error),
        None => {
            scene.core.yielded.push_back(me.key);
            Early::Shaking(socket)
        }
    }
}

fn take_early(scene: &mut Scene<'_>) -> Early {
    scene.wire.secure.as_mut().map_or(Early::Nothing, |secure| std::mem::take(&mut secure.early))
}

fn set_early(scene: &mut Scene<'_>, early: Early) {
    if let Some(secure) = &mut scene.wire.secure {
        secure.early = early;
    }
}

/// Gives up what has come to the port.
fn forget_early(scene: &mut Scene<'_>) {
    if let Early::Awaited(listener) = take_early(scene) {
        // Closing this descriptor would leave the listener known to the reactor.
        scene.core.forget(&listener);
    }
}

fn without_port(scene: &mut Scene<'_>, error: Option<&io::Error>) -> Answer {
    let range = scene.me.door.ftp.passive.range();
    let ports = Reached::new(LimitKey::PassivePorts, format!("{}-{}", range.start(), range.end()));
    let (reached, reason) = match error {
        None => (ports, "all of them are in use".to_owned()),
        Some(error) => match Reached::by_lack(error) {
            Some(reached) => (reached, "the server has no descriptor left for one".to_owned()),
            None => (ports, format!("none of them can be bound ({})", error.kind())),
        },
    };
    scene.log(log::Event::Limited { reached: &reached, reason: Some(&reason) });
    Answer::NoPort(reason)
}

fn tell_turned_away(scene: &mut Scene<'_>, turned_away: Vec<TurnedAway>) {
    for whom in turned_away {
        match whom {
            TurnedAway::Stranger(peer) => scene.log(log::Event::Stranger { peer }),
            TurnedAway::Unnamed(from, reason) => {
                scene.log(log::Event::ProxyRefused { from, reason: &reason.to_string() });
            }
        }
    }
}
