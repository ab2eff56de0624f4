//! The client's side of a connection.

use super::connection::{Connection, ConnectionError, ReceivedFrames, Side, StreamEvent};
use super::fields::Fields;
use super::frame::{self, ErrorCode, PREFACE};
use super::hpack::FieldEncoder;
use super::settings::ConnectionLimits;
use super::stream::StreamState;

/// The client's side of a connection, as a value.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    /// The server opens no more streams, or all numbers are used.
    is_leaving: bool,
}

impl Client {
    /// A connection by prior knowledge, or that ALPN agreed on; appends what a client says first.
    pub fn new(limits: ConnectionLimits, out: &mut Vec<u8>) -> Self {
        let (connection, increment) = Connection::new(Side::Client, limits);
        out.extend_from_slice(PREFACE);
        limits.write_as_client(out);
        if increment > 0 {
            frame::write_window_update(0, increment, out);
        }
        Self { connection, is_leaving: false }
    }

    /// Takes bytes from the server, up to the next event. The caller repeats it with the rest until there is no event.
    /// Output is appended to `out`.
    pub fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<ReceivedFrames, ConnectionError> {
        let received = self.connection.receive(input, out)?;
        self.is_leaving |= matches!(received.event, Some(StreamEvent::GoAway { .. }));
        Ok(received)
    }

    /// The fields of the last head or trailers.
    pub fn fields(&self) -> &Fields {
        &self.connection.fields
    }

    /// Returns whether another request may be sent on this connection, now or when others have ended.
    pub fn is_usable(&self) -> bool {
        !self.is_leaving && self.connection.highest < u32::MAX / 2 - 2
    }

    /// How many streams are open.
    pub fn open_streams(&self) -> usize {
        self.connection.streams.count()
    }

    /// Opens a stream by a request, whose fields `write` gives, pseudo-header fields first; `ends`: no body follows. The stream's
    /// number, or `None` where the server allows no more at the moment or at all.
    pub fn request(
        &mut self,
        ends: bool,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut FieldEncoder<'_>),
    ) -> Option<u32> {
        let connection = &mut self.connection;
        let is_full = connection.streams.count() >= connection.peer.streams as usize;
        if is_full || self.is_leaving || connection.highest >= u32::MAX / 2 - 2 {
            return None;
        }
        let id = if connection.highest == 0 { 1 } else { connection.highest + 2 };
        connection.highest = id;
        let (send, receive) = (connection.peer.window, connection.stream_window);
        connection.streams.open(id, StreamState::Open, send, receive);
        connection.send_head(id, ends, out, write).then_some(id)
    }

    /// How many bytes of a body may be sent on a stream now, in one frame.
    pub fn room(&mut self, stream: u32) -> usize {
        self.connection.room(stream)
    }

    /// Appends the head of a frame of a body; the caller puts `length` bytes behind it, at most what there is room for.
    pub fn data_head(&mut self, stream: u32, length: usize, ends: bool, out: &mut Vec<u8>) {
        self.connection.send_data_head(stream, length, ends, out);
    }

    /// Bytes of a response's body were used; the server may send as many more.
    pub fn release(&mut self, stream: u32, count: usize, out: &mut Vec<u8>) {
        self.connection.release(stream, u32::try_from(count).unwrap_or(u32::MAX), out);
    }

    /// Gives a stream up.
    pub fn reset(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        self.connection.reset(stream, code, out);
    }
}
