//! A connection's socket, with TLS or without: what was not sent yet, and its [state](SocketState). A stream of HTTP/2
//! has no socket: the connection that it belongs to takes its output from here.
//!
//! The invariant: with TLS, all bytes go through the channel; `output` is plaintext, and encrypted data waits in the
//! channel. A link without pending output keeps no buffer.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_limits::Flow;
use millrace_net::tls::{Channel, Heard, client_names};
use millrace_net::{Wire, listener, stream};
use millrace_runtime::slab::Key;
use millrace_runtime::socket_state::SocketState;
use millrace_runtime::transfer::Socket;
use millrace_runtime::worker::Role;
use mio::Interest;

use crate::body::Sink;
use crate::worker::Core;

/// Bytes of an answer that a stream of HTTP/2 makes ahead of what its client takes.
const AHEAD: usize = 64 * 1024;

/// Bytes of a stream's output for which the memory is kept.
const SPARE: usize = 32 * 1024;

/// A connection's socket and what waits to be sent by it.
#[derive(Debug)]
pub(crate) struct ClientLink {
    carrier: Carrier,
    state: SocketState,
    first_answer: FirstAnswer,
    /// The turn of the reactor in which something was last sent.
    sent_in: u64,
}

/// What carries the bytes of a link.
#[derive(Debug)]
enum Carrier {
    /// A socket, and what its client has not taken.
    Socket(Socket, Vec<u8>),
    /// A stream of HTTP/2: its connection takes its output from here.
    Stream(Box<Wire>),
}

/// What a client has seen of the first thing that it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstAnswer {
    /// Nothing yet, unless an answer has told.
    Awaited,
    /// It was acknowledged before it was answered.
    Acknowledged,
}

impl Deref for ClientLink {
    type Target = SocketState;

    fn deref(&self) -> &SocketState {
        &self.state
    }
}

impl DerefMut for ClientLink {
    fn deref_mut(&mut self) -> &mut SocketState {
        &mut self.state
    }
}

impl ClientLink {
    /// A client sends its request at once: more often than not it has come already.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self::by(Carrier::Socket(Socket::new(socket), Vec::new()))
    }

    /// The same of a stream of HTTP/2.
    pub(crate) fn of_stream() -> Self {
        Self::by(Carrier::Stream(Box::default()))
    }

    /// The same of another stream, in the memory of this one.
    pub(crate) fn reuse(&mut self) {
        let Carrier::Stream(wire) = &mut self.carrier else { return };
        wire.consume(wire.pending().len());
        (self.state, self.first_answer, self.sent_in) = (waiting_for_bytes(), FirstAnswer::Awaited, 0);
    }

    fn by(carrier: Carrier) -> Self {
        Self { carrier, state: waiting_for_bytes(), first_answer: FirstAnswer::Awaited, sent_in: 0 }
    }

    /// The socket, where there is one.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.carrier {
            Carrier::Socket(socket, _) => Some(socket),
            Carrier::Stream(_) => None,
        }
    }

    fn socket_mut(&mut self) -> Option<&mut Socket> {
        match &mut self.carrier {
            Carrier::Socket(socket, _) => Some(socket),
            Carrier::Stream(_) => None,
        }
    }

    /// The TLS channel, where there is one.
    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.socket()?.tls.as_deref()
    }

    /// The same, and the socket below it.
    pub(crate) fn channel_mut(&mut self) -> Option<(&mut Channel, &OwnedFd)> {
        let Socket { tls, fd, .. } = self.socket_mut()?;
        Some((tls.as_deref_mut()?, fd))
    }

    /// Has what is sent from now on go through TLS.
    pub(crate) fn secure(&mut self, channel: Channel) {
        if let Some(socket) = self.socket_mut() {
            socket.tls = Some(Box::new(channel));
        }
    }

    /// Has the kernel send no faster than this.
    pub(crate) fn keep_to(&mut self, flow: Flow) {
        if let Some(socket) = self.socket_mut() {
            socket.keep_to(flow);
        }
    }

    /// How much the client has taken of all that it was sent, in whatever unit; a stream does not know.
    pub(crate) fn acknowledged(&self) -> io::Result<u64> {
        let socket = self.socket().ok_or(io::ErrorKind::NotConnected)?;
        stream::acknowledged(&socket.fd)
    }

    /// Where the bytes of a body go.
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        match &mut self.carrier {
            Carrier::Socket(socket, _) => Sink::Socket(socket),
            Carrier::Stream(wire) => {
                let room = AHEAD.saturating_sub(wire.pending().len());
                Sink::Memory(wire, room)
            }
        }
    }

    /// What waits to be taken of a stream's output.
    pub(crate) fn waiting(&self) -> &[u8] {
        match &self.carrier {
            Carrier::Stream(wire) => wire.pending(),
            Carrier::Socket(_, output) => output,
        }
    }

    /// So much of a stream's output was taken.
    pub(crate) fn take(&mut self, count: usize) {
        if let Carrier::Stream(wire) = &mut self.carrier {
            wire.consume(count);
            if wire.capacity() > SPARE {
                wire.release();
            }
        }
    }

    /// Gives back the memory of the output, where none waits.
    pub(crate) fn shrink(&mut self) {
        match &mut self.carrier {
            Carrier::Stream(wire) => wire.release(),
            Carrier::Socket(_, output) if output.is_empty() => *output = Vec::new(),
            Carrier::Socket(..) => {}
        }
    }

    /// Returns whether more may be made to be sent.
    pub(crate) fn has_room(&self) -> bool {
        match self.carrier {
            Carrier::Socket(..) => self.is_flushed(),
            Carrier::Stream(_) => self.waiting().len() < AHEAD,
        }
    }

    /// Has the close that follows be a reset.
    pub(crate) fn reset_on_close(&self) {
        if let Some(socket) = self.socket() {
            stream::reset_on_close(&socket.fd);
        }
    }

    /// Ends the connection so that the client cannot take the part of an answer for the whole.
    pub(crate) fn cut(&mut self) {
        self.reset_on_close();
        self.break_off();
    }

    /// Reads once, where there is no TLS; `None` where nothing came.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match &self.carrier {
            Carrier::Socket(socket, _) => self.state.receive(&socket.fd, buffer),
            Carrier::Stream(_) => None,
        }
    }

    /// Reads and discards what still comes, in TLS or not: see [`SocketState::discard`].
    pub(crate) fn discard(&mut self, buffer: &mut [u8], most: usize) -> usize {
        match &self.carrier {
            Carrier::Socket(socket, _) => self.state.discard(&socket.fd, buffer, most),
            Carrier::Stream(_) => most,
        }
    }

    /// Reads once, about as much as is `wanted`, through the TLS channel, appending to `plain`. Returns whether anything
    /// came.
    pub(crate) fn receive_secure(&mut self, wire: &mut [u8], wanted: usize, plain: &mut Vec<u8>) -> bool {
        let before = plain.len();
        let Some((channel, fd)) = self.channel_mut() else { return false };
        let read = channel.read_some(fd, wire, wanted, &mut |bytes| {
            plain.extend_from_slice(bytes);
        });
        match read {
            Ok(Heard::Bytes { more }) => self.note_read(more),
            // Lengths and chunks say themselves whether something is whole: an end need not be told.
            Ok(Heard::End | Heard::Cut { .. }) => self.read_ended(),
            Err(error) => self.note_failure(&error),
        }
        plain.len() > before
    }

    /// Sends what waits and what is in `core.out`, as far as the client takes it; more `follows` at once. Returns how many
    /// bytes were sent.
    pub(crate) fn flush(&mut self, core: &mut Core, key: Key, follows: bool) -> usize {
        if self.is_broken() {
            core.out.clear();
            return 0;
        }
        let (socket, output) = match &mut self.carrier {
            Carrier::Socket(socket, output) => (socket, output),
            Carrier::Stream(wire) => {
                wire.append(&core.out);
                core.out.clear();
                return 0;
            }
        };
        let write = |bytes: &[u8]| socket.write_or_wait(bytes, follows);
        let (sent, is_full) = self.state.send(output, &mut core.out, write);
        if is_full {
            self.watch_writable(core, key);
        }
        if sent > 0 {
            self.sent_in = core.turn;
        }
        self.flush_secure(core, key, follows);
        sent
    }

    /// Sends pending encrypted data, as far as the client takes it; if more `follows`, held data goes with that.
    fn flush_secure(&mut self, core: &Core, key: Key, follows: bool) {
        let Some((channel, fd)) = self.channel_mut() else { return };
        if follows && channel.is_holding() {
            return;
        }
        match channel.flush(fd) {
            Ok(()) if follows => {}
            Ok(()) => channel.release(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.watch_writable(core, key),
            Err(_) => self.break_off(),
        }
    }

    /// Sends held data, because nothing follows for now.
    pub(crate) fn flush_held(&mut self, core: &Core, key: Key) {
        if self.channel().is_some_and(Channel::is_holding) {
            self.flush_secure(core, key, false);
        }
    }

    /// Has the reactor tell when the socket takes bytes again.
    pub(crate) fn watch_writable(&mut self, core: &Core, key: Key) {
        let Carrier::Socket(socket, _) = &mut self.carrier else { return };
        self.state.watch_writable(|| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            match std::mem::replace(&mut socket.registered, true) {
                true => core.watch_again(key, Role::Client, &socket.fd, interest),
                false => core.watch(key, Role::Client, &socket.fd, interest),
            }
        });
    }

    /// Has the reactor tell what happens to the socket. Returns whether it will.
    pub(crate) fn register(&mut self, core: &Core, key: Key) -> bool {
        let Some(socket) = self.socket_mut().filter(|socket| !socket.registered) else { return true };
        socket.registered = true;
        core.watch(key, Role::Client, &socket.fd, Interest::READABLE).is_ok()
    }

    /// Returns whether all was sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.waiting().is_empty() && self.channel().is_none_or(Channel::is_flushed)
    }

    /// Bytes that were never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.waiting().len() as u64
    }

    /// Returns whether anything was sent in this turn of the reactor.
    pub(crate) fn has_sent_in(&self, turn: u64) -> bool {
        self.sent_in == turn
    }

    /// Acknowledges what came, unless that was done or something was sent: a client that has more to send may wait to
    /// hear that its beginning has come.
    pub(crate) fn acknowledge(&mut self) {
        let Carrier::Socket(socket, _) = &self.carrier else { return };
        if self.sent_in == 0 && self.first_answer == FirstAnswer::Awaited {
            // A client that cannot be told sooner is told with the answer.
            let _ = listener::acknowledge(&socket.fd);
            self.first_answer = FirstAnswer::Acknowledged;
        }
    }

    /// Ends our side of the stream.
    pub(crate) fn end_writing(&mut self) {
        if self.socket().is_some_and(|socket| stream::end_writing(&socket.fd).is_err()) {
            self.break_off();
        }
    }

    /// Tells the client by TLS that this was all.
    pub(crate) fn end_tls(&mut self) {
        if let Some((channel, fd)) = self.channel_mut() {
            let _ = channel.close(fd);
        }
    }

    /// Goes on from the handshake to records, of which nothing more is to be asked.
    pub(crate) fn settle_tls(&mut self) -> io::Result<()> {
        let Some(socket) = self.socket_mut() else { return Ok(()) };
        let Some(channel) = socket.tls.take() else { return Ok(()) };
        socket.tls = Some(Box::new(channel.settle()?));
        Ok(())
    }
}

fn waiting_for_bytes() -> SocketState {
    let mut state = SocketState::default();
    state.expect_bytes();
    state
}

/// The names in the certificate that a client has shown.
pub(crate) fn names_of(channel: &Channel) -> Arc<[String]> {
    channel.tls().peer_certificate().map(|certificate| client_names(certificate)).unwrap_or_default().into()
}
