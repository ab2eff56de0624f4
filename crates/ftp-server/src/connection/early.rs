//! Data connections that begin TLS before the command that they are for.
//!
//! ```text
//!   Nothing --PASV--> Awaited --it connects--> Shaking --> Shaken
//!                                                 +------> Failed        any --a transfer begins--> Nothing
//! ```
//!
//! Most clients wait for the 150 before they speak on a data connection. Some shake hands as soon as they have
//! connected, and send `STOR` behind that (aioftp; Go's jlaffaye/ftp up to 0.2): a server that waits for the command
//! would wait for ever. So under `PROT P` whoever connects to the passive port is accepted, and answered, at once.

use std::os::fd::OwnedFd;

use millrace_ftp::session::{Protection, TransferError};
use millrace_runtime::transfer::{Link, Socket};
use millrace_runtime::worker::{Core, Role};
use mio::Interest;
use mio::event::Event;

use super::Connection;
use super::data::end;

/// The data connection of a transfer that has not begun.
#[derive(Debug, Default)]
pub(super) enum Early {
    /// There is no passive port, or what connects to it is not to be encrypted.
    #[default]
    Nothing,
    /// The client is to connect. The descriptor is a second one of the listener's, known to the reactor.
    Awaited(OwnedFd),
    /// TLS begins.
    Shaking(Socket),
    /// It has begun.
    Shaken(Socket),
    /// The transfer is to be told so.
    Failed(TransferError),
}

impl Connection {
    /// A passive port is held: under `PROT P`, whoever comes is let in at once.
    pub(super) fn await_early(&mut self, core: &mut Core) {
        self.forget_early(core);
        let (Some(lease), Some(secure)) = (&self.lease, &mut self.secure) else { return };
        if self.session.protection() != Protection::AsServer {
            return;
        }
        // A descriptor of its own: sessions that share the port each wait by one. Where there is none to be had,
        // the connection waits for its transfer.
        if let Some(listener) = lease.listener()
            && let Ok(listener) = listener.try_clone_to_owned()
            && core.watch(self.key, Role::Side, &listener, Interest::READABLE).is_ok()
        {
            secure.early = Early::Awaited(listener);
        }
    }

    /// Gives up the passive port, and what has come to it.
    pub(super) fn drop_lease(&mut self, core: &Core) {
        self.forget_early(core);
        self.lease = None;
    }

    /// Gives up what has come to the passive port.
    pub(super) fn forget_early(&mut self, core: &Core) {
        if let Early::Awaited(listener) = self.take_early() {
            // Closing this descriptor would leave the listener known to the reactor.
            core.forget(&listener);
        }
    }

    fn take_early(&mut self) -> Early {
        self.secure.as_mut().map_or(Early::Nothing, |secure| std::mem::take(&mut secure.early))
    }

    fn set_early(&mut self, early: Early) {
        if let Some(secure) = &mut self.secure {
            secure.early = early;
        }
    }

    /// The reactor says something of it.
    pub(super) fn early_event(&mut self, core: &mut Core, event: &Event) {
        if let Some(secure) = &mut self.secure
            && let Early::Shaking(socket) | Early::Shaken(socket) = &mut secure.early
        {
            socket.end = socket.end.max(end(event));
        }
        self.advance_early(core);
    }

    /// Moves it on.
    pub(super) fn advance_early(&mut self, core: &mut Core) {
        let mut early = self.take_early();
        if let Early::Awaited(listener) = early {
            early = self.accept_early(core, listener);
        }
        if let Early::Shaking(socket) = early {
            early = self.shake_early(core, socket);
        }
        self.set_early(early);
    }

    fn accept_early(&mut self, core: &mut Core, listener: OwnedFd) -> Early {
        if self.lease.is_none() {
            core.forget(&listener);
            return Early::Nothing;
        }
        // What goes wrong here goes wrong for the transfer as well, which says so.
        let Ok(socket) = self.accept_own(core) else { return Early::Awaited(listener) };
        core.forget(&listener);
        drop(listener);
        self.lease = None;
        let mut socket = Socket::new(socket);
        let begun = self.protect(core, &mut socket, Protection::AsServer);
        let watched = core.watch(self.key, Role::Side, &socket.fd, Interest::READABLE | Interest::WRITABLE);
        socket.registered = true;
        match begun.and(watched) {
            Ok(()) => Early::Shaking(socket),
            Err(error) => Early::Failed(TransferError::NotSecured(error.to_string())),
        }
    }

    fn shake_early(&mut self, core: &mut Core, mut socket: Socket) -> Early {
        match self.shake_data_hands(core, &mut socket) {
            Some(Ok(true)) => Early::Shaken(socket),
            Some(Ok(false)) => Early::Shaking(socket),
            Some(Err(error)) => Early::Failed(error),
            None => {
                core.yielded.push_back(self.key);
                Early::Shaking(socket)
            }
        }
    }

    /// What a transfer that uses the passive port begins with.
    pub(super) fn passive_link(&mut self, protection: Protection) -> Result<Link, TransferError> {
        match (self.take_early(), protection) {
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
}
