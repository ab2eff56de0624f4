//! A connection's socket, with TLS or without: what was not sent yet, and what is known of its state.
//!
//! The invariant: bytes go through the TLS channel or not at all; where a socket has one, `output` is plain, and what is
//! encrypted waits in the channel. A link that has nothing to send keeps no buffer.

use std::io;
use std::os::fd::OwnedFd;

use millrace_net::tls::Heard;
use millrace_net::{listener, stream};
use millrace_runtime::worker::Role;
use mio::Interest;
use mio::event::Event;

use crate::slab::Key;
use crate::transfer::Socket;
use crate::worker::Core;

/// A connection's socket and what waits to be sent by it.
#[derive(Debug)]
pub(super) struct ClientLink {
    pub(super) socket: Socket,
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
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket: Socket::new(socket),
            output: Vec::new(),
            arrivals: Arrivals::Possible,
            end: ReadEnd::Untold,
            writable: WriteWatch::Off,
            health: Health::Sound,
            first_answer: FirstAnswer::Awaited,
            sent_in: 0,
        }
    }

    /// Notes that there is nothing to read until the reactor tells.
    pub(super) fn expect_silence(&mut self) {
        self.arrivals = Arrivals::None;
    }

    /// Notes that there may be something to read.
    pub(super) fn expect_bytes(&mut self) {
        self.arrivals = Arrivals::Possible;
    }

    /// Takes what the reactor tells. Returns whether the end of the client's bytes is news.
    pub(super) fn take_event(&mut self, event: &Event, output_ended: bool) -> bool {
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
    pub(super) fn may_read(&self) -> bool {
        self.arrivals == Arrivals::Possible
    }

    /// Returns whether the client will send no more, though not all of it may have been read.
    pub(super) fn has_hung_up(&self) -> bool {
        self.end != ReadEnd::Untold
    }

    /// Returns whether all that the client sent was read, and its end.
    pub(super) fn has_read_end(&self) -> bool {
        self.end == ReadEnd::Read
    }

    /// Returns whether the connection is gone, or cannot be used.
    pub(super) fn is_broken(&self) -> bool {
        self.health == Health::Broken
    }

    /// Has the connection be dropped.
    pub(super) fn break_off(&mut self) {
        self.health = Health::Broken;
    }

    /// Has the close that follows be a reset.
    pub(super) fn reset_on_close(&self) {
        stream::reset_on_close(&self.socket.fd);
    }

    /// Ends the connection so that the client cannot take the part of an answer for the whole.
    pub(super) fn cut(&mut self) {
        self.reset_on_close();
        self.break_off();
    }

    /// Reads once, where there is no TLS; `None` where nothing came.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match stream::read(&self.socket.fd, buffer) {
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
    pub(super) fn receive_secure(&mut self, wire: &mut [u8], wanted: usize, plain: &mut Vec<u8>) -> bool {
        let before = plain.len();
        let Some(channel) = &mut self.socket.tls else { return false };
        let read = channel.read_some(&self.socket.fd, wire, wanted, &mut |bytes| {
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

    /// Sends what waits and what is in `core.out`, as far as the client takes it; more `follows` at once. Returns whether
    /// anything was sent.
    pub(super) fn flush(&mut self, core: &mut Core, key: Key, follows: bool) -> bool {
        if self.is_broken() {
            core.out.clear();
            return false;
        }
        if !self.output.is_empty() {
            self.output.append(&mut core.out);
            std::mem::swap(&mut self.output, &mut core.out);
        }
        let mut sent = 0;
        while sent < core.out.len() {
            match self.socket.write_or_wait(&core.out[sent..], follows) {
                Ok(count) => sent += count,
                Err(error) => {
                    // What is never sent is kept, too: it is known by this how much was.
                    self.output = core.out[sent..].to_vec();
                    match error.kind() {
                        io::ErrorKind::WouldBlock => self.watch_writable(core, key),
                        _ => self.break_off(),
                    }
                    break;
                }
            }
        }
        if sent > 0 {
            self.sent_in = core.turn;
        }
        core.out.clear();
        self.flush_secure(core, key, follows);
        sent > 0
    }

    /// Sends what is encrypted and waits, as far as the client takes it; where more `follows`, what is held goes with
    /// that.
    fn flush_secure(&mut self, core: &Core, key: Key, follows: bool) {
        let Some(channel) = &mut self.socket.tls else { return };
        if follows && channel.is_holding() {
            return;
        }
        match channel.flush(&self.socket.fd) {
            Ok(()) if follows => {}
            Ok(()) => channel.release(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.watch_writable(core, key),
            Err(_) => self.break_off(),
        }
    }

    /// Sends what is held, as nothing follows for now.
    pub(super) fn flush_held(&mut self, core: &Core, key: Key) {
        if self.socket.tls.as_ref().is_some_and(|channel| channel.is_holding()) {
            self.flush_secure(core, key, false);
        }
    }

    /// Has the reactor tell when the socket takes bytes again.
    pub(super) fn watch_writable(&mut self, core: &Core, key: Key) {
        if self.writable == WriteWatch::Off {
            self.writable = WriteWatch::On;
            let (file, interest) = (&self.socket.fd, Interest::READABLE | Interest::WRITABLE);
            let watched = match self.socket.registered {
                true => core.watch_again(key, Role::Client, file, interest),
                false => core.watch(key, Role::Client, file, interest),
            };
            if watched.is_err() {
                self.break_off();
            }
            self.socket.registered = true;
        }
    }

    /// Has the reactor tell what happens to the socket. Returns whether it will.
    pub(super) fn register(&mut self, core: &Core, key: Key) -> bool {
        if self.socket.registered {
            return true;
        }
        self.socket.registered = true;
        core.watch(key, Role::Client, &self.socket.fd, Interest::READABLE).is_ok()
    }

    /// Returns whether all was sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.output.is_empty() && self.socket.tls.as_ref().is_none_or(|channel| channel.is_flushed())
    }

    /// Bytes that were never sent.
    pub(super) fn unsent(&self) -> u64 {
        self.output.len() as u64
    }

    /// Returns whether anything was sent in this turn of the reactor.
    pub(super) fn has_sent_in(&self, turn: u64) -> bool {
        self.sent_in == turn
    }

    /// Acknowledges what came, unless that was done or something was sent: a client that has more to send may wait to
    /// hear that its beginning has come.
    pub(super) fn acknowledge(&mut self) {
        if self.sent_in == 0 && self.first_answer == FirstAnswer::Awaited {
            self.first_answer = FirstAnswer::Acknowledged;
            // A client that cannot be told sooner is told with the answer.
            let _ = listener::acknowledge(&self.socket.fd);
        }
    }

    /// Ends our side of the stream.
    pub(super) fn end_writing(&mut self) {
        if stream::end_writing(&self.socket.fd).is_err() {
            self.break_off();
        }
    }

    /// Tells the client by TLS that this was all.
    pub(super) fn end_tls(&mut self) {
        if let Some(channel) = &mut self.socket.tls {
            let _ = channel.close(&self.socket.fd);
        }
    }

    /// Goes on from the handshake to records, of which nothing more is to be asked.
    pub(super) fn settle_tls(&mut self) -> io::Result<()> {
        let Some(channel) = self.socket.tls.take() else { return Ok(()) };
        self.socket.tls = Some(Box::new(channel.settle()?));
        Ok(())
    }
}
