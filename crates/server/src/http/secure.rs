//! TLS on an HTTP connection: the same certificates as FTP's, and HTTP/1.1 within, or HTTP/2 on the side.
//!
//! The invariant: bytes go through the channel or not at all; where a socket has one, `output` is plain, and what is
//! encrypted waits in the channel. A connection that has nothing to send keeps no buffer.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use millrace_net::listener;
use millrace_net::tls::{ACME_TLS, Channel, Heard};

use super::connection::{Connection, Work};
use super::side::{self, Handed, Patience};
use super::who::names_of;
use crate::log::{self, Subject};
use crate::worker::Core;

/// The protocols that are spoken here, in the order in which we like them (RFC 7301).
const PROTOCOLS: [&[u8]; 3] = [HTTP_2, b"http/1.1", b"http/1.0"];

const HTTP_2: &[u8] = b"h2";

/// A handshake under way.
#[derive(Debug)]
pub(super) struct Securing {
    /// It waits for the time that handshakes have in the next turn.
    pub(super) in_line: bool,
    /// The address that its listener is bound to.
    bound: SocketAddr,
}

impl Connection {
    /// The connection begins with TLS.
    pub(crate) fn begin_tls(&mut self, core: &mut Core, bound: SocketAddr) {
        let Some(security) = &core.server.tls else { return };
        match security.acceptor.accept(&PROTOCOLS) {
            Ok(tls) => {
                self.socket.tls = Some(Box::new(Channel::new(tls)));
                self.work = Work::Securing(Box::new(Securing { in_line: false, bound }));
            }
            Err(fault) => self.tls_failed(core, &fault.to_string()),
        }
    }

    /// Claims that nobody on the way can read what is said here.
    pub(super) fn is_encrypted(&self) -> bool {
        self.socket.tls.is_some() || self.carries.is_some()
    }

    /// A new turn has time for handshakes.
    pub(crate) fn shake_hands(&mut self, _: &mut Core) {
        // The connection is settled behind this, and so carried on.
        if let Work::Securing(securing) = &mut self.work {
            securing.in_line = false;
        }
    }

    /// Moves the handshake on.
    pub(super) fn secure_on(&mut self, core: &mut Core) {
        let (Some(channel), Work::Securing(securing)) = (&mut self.socket.tls, &mut self.work) else {
            return;
        };
        if core.handshakes.is_used_up() {
            core.handshakes.wait(self.key);
            securing.in_line = true;
            return;
        }
        let began = Instant::now();
        let done = channel.handshake(&self.socket.fd, &mut core.scratch);
        core.handshakes.spend(began);
        match done {
            Ok(true) => {
                let (tls, bound) = (channel.tls_mut(), securing.bound);
                tls.forget_hello();
                let (version, cipher) = (tls.version().unwrap_or("?"), tls.cipher().unwrap_or("?"));
                let is_http_2 = tls.protocol() == Some(HTTP_2);
                if tls.protocol() == Some(ACME_TLS) {
                    // A CA has seen what it wanted to see (RFC 8737 section 3).
                    self.end_tls();
                    self.flags.broken = true;
                    return;
                }
                let names = names_of(channel);
                let client = names.first().map(String::as_str);
                let subject = Subject { session: self.number, peer: self.peer, user: None };
                core.log(&subject, log::Event::Secured { version, cipher, client });
                if let Err(error) = self.settle_tls() {
                    return self.tls_failed(core, &error.to_string());
                }
                // A request may have come with the end of the handshake.
                (self.work, self.flags.readable) = (Work::Idle, true);
                if is_http_2 {
                    self.hand_over(core, bound);
                }
            }
            Ok(false) if !channel.is_flushed() => self.watch_writable(core),
            Ok(false) => self.flags.readable = false,
            Err(error) => {
                let offered = channel.tls().hello().map(|hello| format!("; the client offered {hello}"));
                self.tls_failed(core, &format!("{error}{}", offered.unwrap_or_default()));
            }
        }
    }

    /// From here on there are bytes to be moved, and nothing more to be asked of the handshake.
    fn settle_tls(&mut self) -> io::Result<()> {
        let Some(channel) = self.socket.tls.take() else { return Ok(()) };
        self.socket.tls = Some(Box::new(channel.settle()?));
        Ok(())
    }

    /// The client speaks HTTP/2: the connection leaves this reactor.
    fn hand_over(&mut self, core: &mut Core, bound: SocketAddr) {
        self.flags.broken = true;
        if self.socket.registered {
            core.forget(&self.socket.fd);
        }
        let (Some(channel), Some(admission)) = (self.socket.tls.take(), self.admission.take()) else {
            return;
        };
        let parting = self.parting(core);
        if let (Ok(socket), Ok(local)) =
            (self.socket.fd.try_clone(), listener::local_address(&self.socket.fd))
        {
            let (peer, inbox) = (self.peer, core.sender.clone());
            // What is left here ends with this turn, and keeps no place.
            let other = core.server.limits.accompany(bound, core.now.instant);
            let member = std::mem::replace(&mut self.member, other);
            let handed = Handed { socket, channel, peer, local, bound, inbox, admission, member, parting };
            let config = &core.server.config;
            let patience = Patience {
                idle: config.http_idle_timeout,
                stall: config.stall_timeout,
                ping: config.http2_ping,
            };
            core.server.side.spawn(side::serve(handed, patience));
        }
    }

    /// Claims that the client has gone on elsewhere.
    pub(super) fn is_handed_over(&self) -> bool {
        self.admission.is_none() && self.carries.is_none()
    }

    fn tls_failed(&mut self, core: &mut Core, reason: &str) {
        let subject = Subject { session: self.number, peer: self.peer, user: None };
        core.log(&subject, log::Event::TlsFailed { on: "http", reason });
        self.flags.broken = true;
    }

    /// Reads once, about as much as is `wanted`; claims that something for us came of it.
    pub(super) fn receive_secure(&mut self, wire: &mut [u8], wanted: usize, plain: &mut Vec<u8>) -> bool {
        let Some(channel) = &mut self.socket.tls else { return false };
        let read = channel.read_some(&self.socket.fd, wire, wanted, &mut |bytes| {
            plain.extend_from_slice(bytes);
        });
        match read {
            // See `receive` for an end that came with these bytes.
            Ok(Heard::Bytes { more }) => self.flags.readable = more || self.flags.hung_up,
            // Lengths and chunks say themselves whether something is whole: an end need not be told.
            Ok(Heard::End | Heard::Cut { .. }) => {
                (self.flags.ended, self.flags.hung_up, self.flags.readable) = (true, true, false);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.flags.readable = false,
            Err(_) => self.flags.broken = true,
        }
        self.flags.spoke |= !plain.is_empty();
        !plain.is_empty()
    }

    /// Sends what is encrypted and waits, as far as the client takes it; where more `follows`, what is held goes with that.
    pub(super) fn flush_secure(&mut self, core: &Core, follows: bool) {
        let Some(channel) = &mut self.socket.tls else { return };
        if follows && channel.is_holding() {
            return;
        }
        match channel.flush(&self.socket.fd) {
            Ok(()) if follows => {}
            Ok(()) => channel.release(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.watch_writable(core),
            Err(_) => self.flags.broken = true,
        }
    }

    /// Sends what is held, as nothing follows for now.
    pub(super) fn flush_held(&mut self, core: &Core) {
        if self.socket.tls.as_ref().is_some_and(|channel| channel.is_holding()) {
            self.flush_secure(core, false);
        }
    }

    /// Says that this was all.
    pub(super) fn end_tls(&mut self) {
        if let Some(channel) = &mut self.socket.tls {
            let _ = channel.close(&self.socket.fd);
        }
    }
}
