//! The side of the new server, towards its predecessor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use millrace_limits::wall_seconds;

use super::{AdminListener, Word};
use crate::limits::BanReport;
use crate::running::Running;
use crate::state::ServerState;
use crate::worker::{Door, Listener};

/// How long the old one may take to hand over its state, or to stop accepting.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a predecessor does not let go.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// It is not heard.
    #[error("it does not let go: {0}")]
    Io(#[from] io::Error),
    /// It speaks another language.
    #[error("it sent an unknown message")]
    UnknownMessage,
}

/// A server that this process is to relieve, and that has started it for that.
#[derive(Debug)]
pub struct Predecessor {
    socket: OwnedFd,
    pid: u32,
    listeners: Vec<(SocketAddr, Listener)>,
    /// The sockets at which administrators are served.
    admin: Vec<AdminListener>,
    /// The socket at which its privileged helper serves this process.
    helper: Option<OwnedFd>,
}

impl Predecessor {
    /// Receives the predecessor's state over this socket. Until it hears that this process is ready, it serves as
    /// usual.
    pub fn meet(socket: OwnedFd) -> io::Result<Self> {
        let (mut listeners, mut admin, mut helper) = (Vec::new(), Vec::new(), None);
        loop {
            match Word::receive(&socket, Some(PATIENCE))? {
                Some((Word::Listener { door, asked, bound }, Some(handed))) => {
                    listeners.push((asked, Listener { door, address: bound, socket: handed }));
                }
                Some((Word::AdminListener { asked, bound }, Some(socket))) => {
                    admin.push(AdminListener { asked, bound, socket });
                }
                Some((Word::Helper {}, Some(handed))) => helper = Some(handed),
                Some((Word::ThatIsAll { pid }, None)) => {
                    return Ok(Self { socket, pid, listeners, admin, helper });
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Returns where it listens, once for each address.
    pub fn addresses(&self) -> Vec<(Door, SocketAddr)> {
        let mut addresses = Vec::new();
        for (_, listener) in &self.listeners {
            if !addresses.contains(&(listener.door, listener.address)) {
                addresses.push((listener.door, listener.address));
            }
        }
        addresses
    }

    /// The socket at which its privileged helper serves this process, if it has one.
    pub fn take_helper(&mut self) -> Option<OwnedFd> {
        self.helper.take()
    }

    /// Takes its socket for administrators at an address that is asked for.
    pub fn take_admin(&mut self, asked: SocketAddr) -> Option<AdminListener> {
        let is_meant = |listener: &AdminListener| listener.asked == asked || listener.bound == asked;
        let found = self.admin.iter().position(is_meant)?;
        Some(self.admin.remove(found))
    }

    /// Its sockets of an address that is asked for, and where they are; not those of an address that was `taken` already,
    /// as where two of port 0 are asked for.
    pub(crate) fn door(
        &self,
        door: Door,
        asked: SocketAddr,
        taken: &[Vec<SocketAddr>; 4],
    ) -> Option<(SocketAddr, io::Result<Vec<OwnedFd>>)> {
        let is_free = |bound: &SocketAddr| !taken.iter().flatten().any(|taken| taken == bound);
        let is_meant = |(other, listener): &&(SocketAddr, Listener)| {
            listener.door == door
                && is_free(&listener.address)
                && (*other == asked || listener.address == asked)
        };
        let bound = self.listeners.iter().find(is_meant)?.1.address;
        let sockets = self.listeners.iter().filter(|(_, listener)| listener.address == bound);
        Some((bound, sockets.map(|(_, listener)| listener.socket.try_clone()).collect()))
    }

    /// Makes it stop accepting, and takes over its state; returns its process ID. A predecessor that has ended need not
    /// be asked.
    pub(crate) fn take_over(&mut self, server: &ServerState) -> Result<u32, TakeOverError> {
        // Copies of those that are used are with the workers; the others end with the old one.
        self.listeners.clear();
        self.admin.clear();
        let asked = Word::Ready {}.send(&self.socket, None);
        if asked.is_ok() {
            while let Some((word, _)) = Word::receive(&self.socket, Some(PATIENCE))? {
                match word {
                    Word::Ban { network, user, milliseconds } => {
                        let left = milliseconds.map(Duration::from_millis);
                        if let Ok(network) = network.parse() {
                            server.bans.take_over(&BanReport { network, user, left }, Instant::now());
                        }
                    }
                    Word::Go { next_session } => {
                        server.next_session.store(next_session, Ordering::Relaxed);
                        break;
                    }
                    _ => return Err(TakeOverError::UnknownMessage),
                }
            }
        }
        server.shared.http.dav.read_again();
        server.shared.ftp.passive.share_with_others(true);
        Ok(self.pid)
    }

    /// Tells it that clients are let in here, and hears it out in the background until it has ended.
    pub fn serving(self, running: &Arc<Running>) {
        // One that has ended need not know.
        let _ = Word::Serving {}.send(&self.socket, None);
        let (socket, server) = (self.socket, Arc::downgrade(&running.state));
        let hear = move || hear_out(&socket, &server);
        // Without a thread its last words are not heard: what it has changed is counted at the next start.
        let _ = thread::Builder::new().name("millrace-relief".to_owned()).spawn(hear);
    }

    /// Tells it that nothing comes of this process.
    pub fn fail(socket: &OwnedFd, why: &str) {
        let _ = Word::Failed { why: why.to_owned() }.send(socket, None);
    }
}

/// Hears what a server has done that was relieved.
fn hear_out(socket: &OwnedFd, server: &Weak<ServerState>) {
    let mut is_complete = false;
    while let Ok(Some((word, _))) = Word::receive(socket, None) {
        let Some(server) = server.upgrade() else { return };
        let Some(quotas) = &server.config.quotas else { continue };
        match word {
            Word::Changed { tree } => recount(&server, Some(&tree)),
            Word::Moved { user, since } => quotas.add_elsewhere(&user, since, wall_seconds()),
            Word::Farewell {} => is_complete = true,
            _ => {}
        }
    }
    if let Some(server) = server.upgrade() {
        server.shared.ftp.passive.share_with_others(false);
        if !is_complete {
            recount(&server, None);
        }
    }
}

/// Counts what another process has changed.
fn recount(server: &ServerState, tree: Option<&str>) {
    if let Some(Err(error)) = server.config.quotas.as_ref().map(|quotas| quotas.ledger().recount(tree)) {
        server.log.warn(&error.to_string());
    }
}
