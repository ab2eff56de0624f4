//! The server's side of a connection.

use std::time::Instant;

use super::connection::{Connection, ConnectionError, ReceivedFrames, Side};
use super::fields::Fields;
use super::frame::{self, ErrorCode, kind};
use super::hpack::FieldEncoder;
use super::request;
use super::settings::ConnectionLimits;
use crate::request::{Head, Refusal};

/// The server's side of a connection, as a value.
///
/// Each request is a [`StreamEvent::Head`](super::StreamEvent::Head), with its fields in [`Server::fields`] and its head by
/// [`Server::read_head`]; its stream is
/// answered by [`Server::head`] and, where that does not end it, frames of [`Server::data_head`] as
/// [`Server::next_body`] has room for them.
#[derive(Debug)]
pub struct Server(Connection);

impl Server {
    /// A connection that has just been accepted; appends what a server says first.
    pub fn new(limits: ConnectionLimits, out: &mut Vec<u8>) -> Self {
        let (connection, increment) = Connection::new(Side::Server, limits);
        limits.write_as_server(out);
        if increment > 0 {
            frame::write_window_update(0, increment, out);
        }
        Self(connection)
    }

    /// Takes bytes from the client, up to the next event. The caller repeats it with the rest until there is no event.
    /// Output is appended to `out`, also when the connection ends.
    pub fn receive(
        &mut self,
        input: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<ReceivedFrames, ConnectionError> {
        self.0.budget.advance(now);
        self.0.receive(input, out)
    }

    /// The fields of the last head or trailers.
    pub fn fields(&self) -> &Fields {
        &self.0.fields
    }

    /// Reads the head of the request that was told last, in place of what was in `head`. The refusal is the answer to what
    /// HTTP/1.1 would refuse, too; the stream stays open for it.
    pub fn read_head(&self, ends: bool, head: &mut Head) -> Result<(), Refusal> {
        request::read(&self.0.fields, ends, head)
    }

    /// How many streams are open.
    pub fn open_streams(&self) -> usize {
        self.0.streams.count()
    }

    /// Returns whether a stream is open: neither ended by both sides nor reset.
    pub fn is_open(&mut self, stream: u32) -> bool {
        self.0.streams.get(stream).is_some()
    }

    /// Appends the head of a response; `ends`: no body follows. Returns whether the stream was open for it.
    pub fn head(
        &mut self,
        stream: u32,
        ends: bool,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut FieldEncoder<'_>),
    ) -> bool {
        self.0.send_head(stream, ends, out, write)
    }

    /// How many bytes of a body may be sent on a stream now, in one frame.
    pub fn room(&mut self, stream: u32) -> usize {
        self.0.room(stream)
    }

    /// The next stream in turn whose body may be sent, and how many bytes of it in one frame.
    pub fn next_body(&mut self) -> Option<(u32, usize)> {
        self.0.next_body()
    }

    /// Says whether the body of a stream has bytes to send; one that has none for the moment loses its turn.
    pub fn set_body_ready(&mut self, stream: u32, is_ready: bool) {
        if let Some(stream) = self.0.streams.get(stream) {
            stream.has_body = is_ready;
        }
    }

    /// Appends the head of a frame of a body; the caller puts `length` bytes behind it, at most what there is room for.
    pub fn data_head(&mut self, stream: u32, length: usize, ends: bool, out: &mut Vec<u8>) {
        self.0.send_data_head(stream, length, ends, out);
    }

    /// Bytes of a request's body were used; the client may send as many more.
    pub fn release(&mut self, stream: u32, count: usize, out: &mut Vec<u8>) {
        self.0.release(stream, u32::try_from(count).unwrap_or(u32::MAX), out);
    }

    /// Gives a stream up.
    pub fn reset(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        self.0.reset(stream, code, out);
    }

    /// The client has taken this many bytes, which pays for frames of its own.
    pub fn note_taken(&mut self, bytes: usize) {
        self.0.budget.earn(bytes);
    }

    /// Appends a `PING`; its answer is a [`StreamEvent::Pong`](super::StreamEvent::Pong).
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        frame::write(kind::PING, 0, 0, b"millrace", out);
    }

    /// Serves the streams that are open, and no more.
    pub fn shut_down(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if self.0.last_served.replace(self.0.highest).is_none() {
            frame::write_goaway(self.0.highest, code, out);
        }
    }
}
