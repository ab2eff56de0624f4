//! A connection's socket, with TLS or without: what was not sent yet, and what is known of its state. A stream of HTTP/2
//! has no socket: the connection that it belongs to takes its output from here.
//!
//! The invariant: with TLS, all bytes go through the channel; `output` is plaintext, and encrypted data waits in the
//! channel. A link without pending output keeps no buffer.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_limits::Flow;
use millrace_net::tls::{Channel, Heard, client_names};
use millrace_net::{listener, stream};
use millrace_runtime::slab::Key;
use millrace_runtime::transfer::Socket;
use millrace_runtime::worker::Role;
use mio::Interest;
use mio::event::Event;

use crate::body::Sink;
use crate::worker::Core;

/// Bytes of an answer that a stream of HTTP/2 makes ahead of what its client takes.
const AHEAD: usize = 64 * 1024;

/// Bytes of output for which the memory is kept.
const SPARE: usize = 32 * 1024;

/// A connection's socket and what waits to be sent by it.
#[derive(Debug)]
pub(crate) struct ClientLink {
    carrier: Carrier,
    /// What the client has not taken.
    output: Vec<u8>,
    arrivals: Arrivals,
    end: ReadEnd,
    writable: WriteWatch,
    health: Health,
    first_answer: FirstAnswer,
    /// The turn of the reactor in which something was last sent.
    sent_in: u64,
}

/// What carries the bytes of a link.
#[derive(Debug)]
enum Carrier {
    Socket(Socket),
    /// A stream of HTTP/2, whose connection has taken so many bytes of the output.
    Stream(usize),
}

/// Whether the socket may have more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrivals {
    None,
    Possible,
}

/// What the reactor has told of the end of the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadEnd {
    /// Nothing: the next bytes, or the end, are an event.
    Untold,
    /// It is there, behind bytes that may not have been read: nothing more will be told.
    Told,
    /// It was read.
    Read,
}

/// Whether the reactor tells when the socket takes bytes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteWatch {
    Off,
    On,
}

/// Whether the socket can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Sound,
    /// The connection is gone, or is to be dropped.
    Broken,
}

/// What a client has seen of the first thing that it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstAnswer {
    /// Nothing yet, unless an answer has told.
    Awaited,
    /// It was acknowledged before it was answered.
    Acknowledged,
}

impl ClientLink {
    /// A client sends its request at once: more often than not it has come already.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self::by(Carrier::Socket(Socket::new(socket)), Vec::new())
    }

    /// The same of a stream of HTTP/2.
    pub(crate) fn of_stream() -> Self {
        Self::by(Carrier::Stream(0), Vec::new())
    }

    /// The same of another stream, in the memory of this one.
    pub(crate) fn reuse(&mut self) {
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        *self = Self::by(Carrier::Stream(0), output);
    }

    fn by(carrier: Carrier, output: Vec<u8>) -> Self {
        Self {
            carrier,
            output,
            arrivals: Arrivals::Possible,
            end: ReadEnd::Untold,
            writable: WriteWatch::Off,
            health: Health::Sound,
            first_answer: FirstAnswer::Awaited,
            sent_in: 0,
        }
    }

    /// The socket, where there is one.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.carrier {
            Carrier::Socket(socket) => Some(socket),
            Carrier::Stream(_) => None,
        }
    }

    fn socket_mut(&mut self) -> Option<&mut Socket> {
        match &mut self.carrier {
            Carrier::Socket(socket) => Some(socket),
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
        self.compact();
        match &mut self.carrier {
            Carrier::Socket(socket) => Sink::Socket(socket),
            Carrier::Stream(_) => {
                let room = AHEAD.saturating_sub(self.output.len());
                Sink::Memory(&mut self.output, room)
            }
        }
    }

    /// Gives up the part of a stream's output that was taken.
    fn compact(&mut self) {
        if let Carrier::Stream(taken) = &mut self.carrier
            && *taken > 0
        {
            self.output.drain(..std::mem::take(taken));
        }
    }

    /// What waits to be taken of a stream's output.
    pub(crate) fn waiting(&self) -> &[u8] {
        match self.carrier {
            Carrier::Stream(taken) => &self.output[taken..],
            Carrier::Socket(_) => &self.output,
        }
    }

    /// So much of a stream's output was taken.
    pub(crate) fn take(&mut self, count: usize) {
        if let Carrier::Stream(taken) = &mut self.carrier {
            *taken += count;
            if *taken == self.output.len() {
                (*taken, self.output) = (0, spare(std::mem::take(&mut self.output)));
            }
        }
    }

    /// Gives back the memory of the output, where none waits.
    pub(crate) fn shrink(&mut self) {
        if self.output.is_empty() {
            self.output = Vec::new();
        }
    }

    /// Returns whether more may be made to be sent.
    pub(crate) fn has_room(&self) -> bool {
        match self.carrier {
            Carrier::Socket(_) => self.is_flushed(),
            Carrier::Stream(_) => self.waiting().len() < AHEAD,
        }
    }

    /// Notes that there is nothing to read until the reactor tells.
    pub(crate) fn expect_silence(&mut self) {
        self.arrivals = Arrivals::None;
    }

    /// Notes that there may be something to read.
    pub(crate) fn expect_bytes(&mut self) {
        self.arrivals = Arrivals::Possible;
    }

    /// Takes what the reactor tells. Returns whether the end of the client's bytes is news.
    pub(crate) fn take_event(&mut self, event: &Event, output_ended: bool) -> bool {
        if event.is_error() || (event.is_write_closed() && event.is_read_closed() && !output_ended) {
            self.break_off();
            return false;
        }
        if event.is_readable() {
            self.expect_bytes();
        }
        let is_news = event.is_read_closed() && self.end == ReadEnd::Untold;
        if is_news {
            self.end = ReadEnd::Told;
        }
        is_news
    }

    /// Returns whether there may be something to read.
    pub(crate) fn may_read(&self) -> bool {
        self.arrivals == Arrivals::Possible
    }

    /// Returns whether the client will send no more, though not all of it may have been read.
    pub(crate) fn has_hung_up(&self) -> bool {
        self.end != ReadEnd::Untold
    }

    /// Returns whether all that the client sent was read, and its end.
    pub(crate) fn has_read_end(&self) -> bool {
        self.end == ReadEnd::Read
    }

    /// Returns whether the connection is gone, or cannot be used.
    pub(crate) fn is_broken(&self) -> bool {
        self.health == Health::Broken
    }

    /// Has the connection be dropped.
    pub(crate) fn break_off(&mut self) {
        self.health = Health::Broken;
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
        match stream::read(&self.socket()?.fd, buffer) {
            Ok(0) => self.read_ended(),
            Ok(count) => {
                // A short read means that there is no more, and the next arrival is a new event; but for an end
                // that came with these bytes, of which nothing more will be told.
                self.expect_more(count == buffer.len());
                return Some(count);
            }
            Err(error) => self.read_failed(&error),
        }
        None
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
            Ok(Heard::Bytes { more }) => self.expect_more(more),
            // Lengths and chunks say themselves whether something is whole: an end need not be told.
            Ok(Heard::End | Heard::Cut { .. }) => self.read_ended(),
            Err(error) => self.read_failed(&error),
        }
        plain.len() > before
    }

    fn expect_more(&mut self, there_is: bool) {
        let is_possible = there_is || self.has_hung_up();
        self.arrivals = if is_possible { Arrivals::Possible } else { Arrivals::None };
    }

    fn read_ended(&mut self) {
        (self.end, self.arrivals) = (ReadEnd::Read, Arrivals::None);
    }

    fn read_failed(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.arrivals = Arrivals::None,
            _ => self.break_off(),
        }
    }

    /// Sends what waits and what is in `core.out`, as far as the client takes it; more `follows` at once. Returns how many
    /// bytes were sent.
    pub(crate) fn flush(&mut self, core: &mut Core, key: Key, follows: bool) -> usize {
        if self.is_broken() {
            core.out.clear();
            return 0;
        }
        if !core.out.is_empty() {
            self.compact();
        }
        let Carrier::Socket(socket) = &mut self.carrier else {
            self.output.append(&mut core.out);
            return 0;
        };
        if !self.output.is_empty() {
            self.output.append(&mut core.out);
            std::mem::swap(&mut self.output, &mut core.out);
        }
        let (mut sent, mut failure) = (0, None);
        while sent < core.out.len() {
            match socket.write_or_wait(&core.out[sent..], follows) {
                Ok(count) => sent += count,
                Err(error) => {
                    // Unsent data is kept, too, because it shows how much was sent.
                    self.output = core.out[sent..].to_vec();
                    failure = Some(error.kind());
                    break;
                }
            }
        }
        match failure {
            None => {}
            Some(io::ErrorKind::WouldBlock) => self.watch_writable(core, key),
            Some(_) => self.break_off(),
        }
        if sent > 0 {
            self.sent_in = core.turn;
        }
        core.out.clear();
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
        let Carrier::Socket(socket) = &mut self.carrier else { return };
        if self.writable == WriteWatch::Off {
            self.writable = WriteWatch::On;
            let interest = Interest::READABLE | Interest::WRITABLE;
            let watched = match socket.registered {
                true => core.watch_again(key, Role::Client, &socket.fd, interest),
                false => core.watch(key, Role::Client, &socket.fd, interest),
            };
            socket.registered = true;
            if watched.is_err() {
                self.break_off();
            }
        }
    }

    /// Has the reactor tell what happens to the socket. Returns whether it will.
    pub(crate) fn register(&mut self, core: &Core, key: Key) -> bool {
        let Some(socket) = self.socket_mut().filter(|socket| !socket.registered) else { return true };
        socket.registered = true;
        core.watch(key, Role::Client, &socket.fd, Interest::READABLE).is_ok()
    }

    /// Returns whether all was sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.output.is_empty() && self.channel().is_none_or(Channel::is_flushed)
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
        let Carrier::Socket(socket) = &self.carrier else { return };
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

/// The memory of output that was taken, where it is worth keeping.
fn spare(mut output: Vec<u8>) -> Vec<u8> {
    if output.capacity() > SPARE {
        return Vec::new();
    }
    output.clear();
    output
}

/// The names in the certificate that a client has shown.
pub(crate) fn names_of(channel: &Channel) -> Arc<[String]> {
    channel.tls().peer_certificate().map(|certificate| client_names(certificate)).unwrap_or_default().into()
}
