//! Reads what a client sends: the bodies behind heads, in the buffers that all connections of a worker share.

use millrace_http::Refusal;
use millrace_http::h1::{ChunkError, Input};

use crate::connection::Connection;
use crate::worker::Core;

/// What a client sends, while the worker reads it.
pub(crate) struct Reader<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) core: &'a mut Core,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Reader<'_> {
    /// Reads once, where there is no TLS; `None` where nothing came.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let received = self.connection.link.receive(buffer);
        self.note_end_of_input();
        received
    }

    pub(crate) fn note_end_of_input(&mut self) {
        if self.connection.link.has_read_end() && !self.connection.http.has_peer_closed() {
            self.connection.http.handle(self.core.now.instant, Input::PeerClosed, &mut self.core.http.heads);
        }
    }

    /// Takes more of the request's body, until `body` has `most` bytes; it may be more of what came with the head, or
    /// in a record.
    pub(crate) fn take_body(&mut self, body: &mut Vec<u8>, most: usize) -> Result<(), Refusal> {
        while body.len() < most && !self.connection.http.has_whole_body() {
            if self.connection.http.has_input() {
                self.connection.http.take_body(&[], body)?;
            } else if self.connection.link.may_read() {
                self.read_body(body, most)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Reads a piece of a request's body, of about as much as is wanted.
    fn read_body(&mut self, body: &mut Vec<u8>, most: usize) -> Result<(), ChunkError> {
        let wanted = most - body.len();
        if self.connection.stream.is_some() {
            // What has come is with the protocol.
            self.connection.link.expect_silence();
            return Ok(());
        }
        if self.connection.link.channel().is_some() {
            let mut plain = std::mem::take(&mut self.core.plain);
            self.connection.link.receive_secure(&mut self.core.scratch, wanted, &mut plain);
            self.note_end_of_input();
            let taken = self.connection.http.take_body(&plain, body);
            plain.clear();
            self.core.plain = plain;
            return taken;
        }
        let mut scratch = std::mem::take(&mut self.core.scratch);
        let room = scratch.len().min(wanted);
        let count = self.receive(&mut scratch[..room]).unwrap_or(0);
        let taken = self.connection.http.take_body(&scratch[..count], body);
        self.core.scratch = scratch;
        taken
    }
}
