//! The control connection's socket: what has come of it, and replies on their way out, with TLS or without.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use millrace_net::stream;
use millrace_runtime::passive::ticket_isolation::Companion;
use millrace_runtime::slab::Key;
use millrace_runtime::worker::{Core, Role};
use mio::Interest;
use mio::event::Event;

use super::scene::Identity;
use super::secure::{Advance, Secure, Stage};

/// What the reactor tells of a control connection. Urgent data is told of by itself, because a read stops short of it.
const CONTROL: Interest = Interest::READABLE.add(Interest::PRIORITY);

/// How long the last replies may take to be read by a client that is being closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Reads of a client that goes on sending to a session that has ended, until it is cut.
const DRAIN: usize = 64;

/// A control connection's socket.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) key: Key,
    pub(super) socket: OwnedFd,
    /// Replies that the client has not taken.
    pub(super) output: Vec<u8>,
    pub(super) state: State,
    /// What there is of TLS, once it has begun.
    pub(super) secure: Option<Box<Secure>>,
}

/// The state of the control socket.
#[derive(Debug, Default)]
pub(super) struct State {
    /// There may be more to read.
    pub(super) readable: bool,
    /// There is urgent data, at which a read stops short: only an empty socket says that all was read.
    pub(super) urgent: bool,
    /// The reactor tells when the socket takes bytes.
    watches_writable: bool,
    /// The client will send no more.
    pub(super) ended: bool,
    /// As `ended`, heard of while there may still be lines to read.
    pub(super) hung_up: bool,
    /// The connection is gone, or cannot be used.
    pub(super) broken: bool,
    /// It is closed when the replies are sent, or at this time.
    pub(super) closing: Option<Instant>,
    /// All has been said and done; what the client still sends is read, and means nothing. Closing a socket
    /// with something unread resets it, and a reset can overtake the last reply.
    pub(super) is_left: bool,
}

/// What a read of an encrypted control connection came to.
pub(super) enum Received {
    /// Nothing yet.
    Nothing,
    /// Bytes, decrypted: none, where they are a part of a record or of the handshake.
    Bytes,
    /// The connection cannot go on.
    Failed(String),
}

impl Wire {
    pub(super) fn new(key: Key, socket: OwnedFd, core: &Core) -> Self {
        let broken = core.watch(key, Role::Client, &socket, CONTROL).is_err();
        let state = State { broken, ..State::default() };
        Self { key, socket, output: Vec::new(), state, secure: None }
    }

    /// Has the socket closed with a reset.
    pub(super) fn reset(&self) {
        stream::reset_on_close(&self.socket);
    }

    /// Takes what the reactor tells of the socket. Returns true if it takes bytes.
    pub(super) fn take_event(&mut self, event: &Event) -> bool {
        if event.is_error() || (event.is_write_closed() && event.is_read_closed()) {
            self.state.broken = true;
            return false;
        }
        self.state.readable |= event.is_readable();
        self.state.urgent |= event.is_priority();
        self.state.hung_up |= event.is_read_closed();
        event.is_writable()
    }

    /// Returns true if lines may be taken, and their replies be sent.
    pub(super) fn takes_lines(&self) -> bool {
        self.state.closing.is_none() && !self.state.broken && self.output.is_empty()
    }

    /// Notes that the client will send no more.
    pub(super) fn note_end(&mut self) {
        (self.state.ended, self.state.hung_up) = (true, true);
    }

    /// Notes what a read has come to: `count` bytes of as many as were asked for.
    pub(super) fn note_read(&mut self, filled: bool) {
        // A short read means that there is no more, and the next arrival is a new event; but for an end
        // that came with these bytes, of which nothing more will be told.
        self.state.readable = filled || self.state.urgent || self.state.hung_up;
    }

    /// Notes that a read has failed.
    pub(super) fn note_failure(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock => (self.state.readable, self.state.urgent) = (false, false),
            _ => self.state.broken = true,
        }
    }

    /// Returns when the last replies are not waited for any longer; never while hooks `hold` them.
    pub(super) fn closing_due(&self, holds: bool) -> Option<Instant> {
        self.state.closing.filter(|_| !holds)
    }

    /// Names the session among those of its client's address, before the client is told to begin TLS, or as soon as it
    /// may.
    pub(super) fn join_companions(&self, me: Identity<'_>) -> Companion {
        let is_there = stream::peek(&self.socket, &mut [0]).is_ok();
        me.door.ftp.passive.companions().join(me.session.peer().ip(), is_there)
    }

    /// Gives the last replies time to be read.
    pub(super) fn give_time_to_leave(&mut self, core: &Core) {
        self.state.closing = Some(core.now.instant + FAREWELL);
    }

    /// Ends our side, and waits for the client's end.
    pub(super) fn leave(&mut self, core: &mut Core, holds: bool) {
        self.state.is_left = true;
        self.answer_close_notify(core, holds);
        self.give_time_to_leave(core);
        if !self.state.broken {
            self.state.broken = stream::end_writing(&self.socket).is_err();
        }
        if self.state.readable {
            self.drain(core);
        }
    }

    /// Reads what means nothing any more: all that has come, as there is one event for it, but no flood.
    pub(super) fn drain(&mut self, core: &mut Core) {
        if self.state.broken {
            return;
        }
        for _ in 0..DRAIN {
            match stream::read(&self.socket, &mut core.control_buffer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.state.broken = true;
    }

    /// Sends what there is to say, as far as the client takes it; nothing where hooks `hold` the replies.
    pub(super) fn send(&mut self, core: &mut Core, holds: bool) {
        if self.state.broken {
            core.out.clear();
            return;
        }
        if self.has_tls() {
            self.seal(core);
        }
        self.write_out(core, holds);
    }

    /// Writes pending output to the socket, and then `core.out`.
    fn write_out(&mut self, core: &mut Core, holds: bool) {
        if holds {
            return self.output.append(&mut core.out);
        }
        if !self.output.is_empty() {
            self.output.append(&mut core.out);
            std::mem::swap(&mut self.output, &mut core.out);
        }
        while !core.out.is_empty() {
            match stream::write(&self.socket, &core.out) {
                Ok(count) if count == core.out.len() => core.out.clear(),
                Ok(count) => drop(core.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.output = core.out.clone();
                    core.out.clear();
                    self.watch_writable(core);
                }
                Err(_) => {
                    self.state.broken = true;
                    core.out.clear();
                }
            }
        }
    }

    fn watch_writable(&mut self, core: &Core) {
        if !self.state.watches_writable {
            self.state.watches_writable = true;
            let interest = CONTROL.add(Interest::WRITABLE);
            self.state.broken |= core.watch_again(self.key, Role::Client, &self.socket, interest).is_err();
        }
    }

    /// Returns true if the control connection is encrypted, or about to be.
    pub(super) fn has_tls(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.tls.is_some())
    }

    /// Returns true if the session waits for TLS to begin or to end.
    pub(super) fn is_changing(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.tls.is_some() && secure.stage != Stage::Open)
    }

    /// Returns true if it waits for its share of the next turn.
    pub(super) fn is_queued(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.queued)
    }

    /// The share of the next turn has come. The connection is settled behind this, and so read on.
    pub(super) fn shake_hands(&mut self) {
        if let Some(secure) = &mut self.secure {
            secure.queued = false;
        }
    }

    /// Returns what protects the control connection now.
    pub(super) fn tls_version(&self) -> Option<&'static str> {
        self.secure.as_ref()?.tls.as_ref()?.version()
    }

    /// `CCC`: the replies so far are the last that are encrypted.
    pub(super) fn end_tls(&mut self, core: &mut Core, holds: bool) {
        self.send(core, holds);
        if let Some(secure) = &mut self.secure {
            secure.say_goodbye(core);
        }
        self.send_wire(core, holds);
    }

    /// Reads once from an encrypted control connection, plain bytes into `plain`.
    pub(super) fn receive(&mut self, core: &mut Core, holds: bool, plain: &mut Vec<u8>) -> Received {
        let Some(secure) = &mut self.secure else { return Received::Nothing };
        let is_handshake = secure.stage == Stage::Handshake;
        if is_handshake && core.handshakes.is_used_up() {
            if !std::mem::replace(&mut secure.queued, true) {
                core.handshakes.wait(self.key);
            }
            return Received::Nothing;
        }
        let began = Instant::now();
        let Some(heard) = secure.hear(&self.socket, core, plain) else { return Received::Nothing };
        if is_handshake {
            core.handshakes.spend(began);
        }
        match heard {
            Ok(heard) if heard.count == 0 => {
                self.note_end();
                self.state.readable = false;
                match is_handshake {
                    true => self.fail("the client hung up in the handshake"),
                    false => Received::Nothing,
                }
            }
            Ok(heard) => {
                self.note_read(heard.filled);
                self.send_wire(core, holds);
                match heard.fault {
                    None => Received::Bytes,
                    Some(fault) => self.fail(&fault.to_string()),
                }
            }
            Err(error) => {
                self.note_failure(&error);
                Received::Nothing
            }
        }
    }

    fn fail(&mut self, why: &str) -> Received {
        self.state.broken = true;
        let hello = self.secure.as_ref().and_then(|secure| secure.tls.as_ref()?.hello());
        Received::Failed(match hello {
            Some(hello) => format!("{why}; the client offered {hello}"),
            None => why.to_owned(),
        })
    }

    /// Notes what was decrypted: TLS may have begun by it, or ended.
    pub(super) fn advance_tls(&mut self) -> Advance {
        self.secure.as_mut().map_or(Advance::Handshaking, |secure| secure.advance())
    }

    /// What the client says shows what it has read, unless it does not wait for replies.
    pub(super) fn note_hearing(&mut self, plain: &[u8]) {
        if let Some(secure) = &mut self.secure {
            secure.note_hearing(&self.socket, plain);
        }
    }

    /// Returns true if the client has said by TLS that it will send no more.
    pub(super) fn has_tls_ended(&self) -> bool {
        self.secure.as_ref().and_then(|secure| secure.tls.as_ref()).is_some_and(|tls| tls.has_ended())
    }

    /// Tells the client by TLS that nothing more comes, where that was not done with the last reply.
    fn answer_close_notify(&mut self, core: &mut Core, holds: bool) {
        let broken = self.state.broken;
        if let Some(secure) = &mut self.secure
            && !broken
            && secure.close(core)
        {
            self.send_wire(core, holds);
        }
    }

    /// Encrypts the collected replies; behind the last of a connection that is being closed, its end.
    fn seal(&mut self, core: &mut Core) {
        let closes = self.state.closing.is_some();
        if let Some(secure) = &mut self.secure {
            self.state.broken |= secure.seal(core, closes).is_err();
        }
    }

    /// Sends what TLS itself has to say.
    pub(super) fn send_wire(&mut self, core: &mut Core, holds: bool) {
        if core.wire.is_empty() {
            return;
        }
        self.output.extend_from_slice(core.wire.pending());
        let count = core.wire.pending().len();
        core.wire.consume(count);
        self.write_out(core, holds);
    }
}
