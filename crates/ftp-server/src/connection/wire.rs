//! The control connection's socket: what has come of it, and replies on their way out, with TLS or without.

use std::os::fd::OwnedFd;
use std::time::Instant;

use millrace_net::stream;
use millrace_runtime::handshakes::describe_failure;
use millrace_runtime::passive::ticket_isolation::Companion;
use millrace_runtime::slab::Key;
use millrace_runtime::socket_state::{FAREWELL, SocketState};
use millrace_runtime::worker::{Core, Role};
use mio::Interest;

use super::scene::Identity;
use super::secure::{Advance, Secure, Stage};

/// What the reactor tells of a control connection. Urgent data is told of by itself, because a read stops short of it.
const CONTROL: Interest = Interest::READABLE.add(Interest::PRIORITY);

/// Bytes of a client that goes on sending to a session that has ended, until it is cut.
const DRAIN: usize = 1 << 20;

/// A control connection's socket.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) key: Key,
    pub(super) socket: OwnedFd,
    /// Replies that the client has not taken.
    pub(super) output: Vec<u8>,
    pub(super) state: SocketState,
    /// It is closed when the replies are sent, or at this time.
    pub(super) closing: Option<Instant>,
    /// All has been said and done; what the client still sends is read, and means nothing. Closing a socket
    /// with something unread resets it, and a reset can overtake the last reply.
    pub(super) is_left: bool,
    /// What there is of TLS, once it has begun.
    pub(super) secure: Option<Box<Secure>>,
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
        let mut state = SocketState::default();
        if core.watch(key, Role::Client, &socket, CONTROL).is_err() {
            state.break_off();
        }
        Self { key, socket, output: Vec::new(), state, closing: None, is_left: false, secure: None }
    }

    /// Has the socket closed with a reset.
    pub(super) fn reset(&self) {
        stream::reset_on_close(&self.socket);
    }

    /// Returns true if lines may be taken, and their replies be sent.
    pub(super) fn takes_lines(&self) -> bool {
        self.closing.is_none() && !self.state.is_broken() && self.output.is_empty()
    }

    /// Returns when the last replies are not waited for any longer; never while hooks `hold` them.
    pub(super) fn closing_due(&self, holds: bool) -> Option<Instant> {
        self.closing.filter(|_| !holds)
    }

    /// Names the session among those of its client's address, before the client is told to begin TLS, or as soon as it
    /// may.
    pub(super) fn join_companions(&self, me: Identity<'_>) -> Companion {
        let is_there = stream::peek(&self.socket, &mut [0]).is_ok();
        me.door.ftp.passive.companions().join(me.session.peer().ip(), is_there)
    }

    /// Gives the last replies time to be read.
    pub(super) fn give_time_to_leave(&mut self, core: &Core) {
        self.closing = Some(core.now.instant + FAREWELL);
    }

    /// Ends our side, and waits for the client's end.
    pub(super) fn leave(&mut self, core: &mut Core, holds: bool) {
        self.is_left = true;
        self.answer_close_notify(core, holds);
        self.give_time_to_leave(core);
        if !self.state.is_broken() && stream::end_writing(&self.socket).is_err() {
            self.state.break_off();
        }
        self.drain(core);
    }

    /// Reads what means nothing any more: all that has come, as there is one event for it, but no flood.
    pub(super) fn drain(&mut self, core: &mut Core) {
        self.state.discard(&self.socket, &mut core.control_buffer, DRAIN);
    }

    /// Sends what there is to say, as far as the client takes it; nothing where hooks `hold` the replies.
    pub(super) fn send(&mut self, core: &mut Core, holds: bool) {
        if self.state.is_broken() {
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
        let write = |bytes: &[u8]| stream::write(&self.socket, bytes);
        if let (_, true) = self.state.send(&mut self.output, &mut core.out, write) {
            let interest = CONTROL.add(Interest::WRITABLE);
            self.state.watch_writable(|| core.watch_again(self.key, Role::Client, &self.socket, interest));
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
                self.state.read_ended();
                match is_handshake {
                    true => self.fail("the client hung up in the handshake"),
                    false => Received::Nothing,
                }
            }
            Ok(heard) => {
                self.state.note_read(heard.filled);
                self.send_wire(core, holds);
                match heard.fault {
                    None => Received::Bytes,
                    Some(fault) => self.fail(&fault.to_string()),
                }
            }
            Err(error) => {
                self.state.note_failure(&error);
                Received::Nothing
            }
        }
    }

    fn fail(&mut self, why: &str) -> Received {
        self.state.break_off();
        let tls = self.secure.as_ref().and_then(|secure| secure.tls.as_ref());
        Received::Failed(describe_failure(why, tls))
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
        let broken = self.state.is_broken();
        if let Some(secure) = &mut self.secure
            && !broken
            && secure.close(core)
        {
            self.send_wire(core, holds);
        }
    }

    /// Encrypts the collected replies; behind the last of a connection that is being closed, its end.
    fn seal(&mut self, core: &mut Core) {
        let closes = self.closing.is_some();
        if let Some(secure) = &mut self.secure
            && secure.seal(core, closes).is_err()
        {
            self.state.break_off();
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
