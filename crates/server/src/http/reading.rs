//! What clients send: heads one after another, and the bodies behind them.
//!
//! Bytes are parsed in the buffer that all connections of a worker share; only incomplete or pipelined data is stored
//! with the connection.

use millrace_http::h1::{Act, ChunkError, Input};
use millrace_http::{Refusal, Version};

use super::connection::{Connection, Work};
use super::record::Record;
use crate::http::answer::Answers;
use crate::http::receive::Reception;
use crate::worker::Core;

/// Answers that are collected before they are sent in any case.
const OUT: usize = 64 * 1024;

/// What a client sends, while the worker reads it.
pub(in crate::http) struct Reader<'a> {
    connection: &'a mut Connection,
    core: &'a mut Core,
}

impl<'a> Reader<'a> {
    pub(in crate::http) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Reader<'_> {
    /// Takes requests for as long as there are any and the client takes the answers.
    pub(super) fn read_on(&mut self) {
        while self.connection.takes_requests() {
            if self.connection.http.may_have_request() {
                self.converse(Input::Ready);
            } else if self.connection.link.may_read() {
                self.read();
            } else {
                return;
            }
        }
    }

    fn read(&mut self) {
        if self.connection.link.has_sent_in(self.core.turn) {
            self.core.turn += 1;
        }
        let (mut buffer, mut plain) =
            (std::mem::take(&mut self.core.control_buffer), std::mem::take(&mut self.core.plain));
        let received = match self.connection.link.channel() {
            None => self.receive(&mut buffer).map(|count| &buffer[..count]),
            Some(_) => {
                let came =
                    self.connection.link.receive_secure(&mut self.core.scratch, usize::MAX, &mut plain);
                self.note_end_of_input();
                came.then_some(&plain[..])
            }
        };
        if let Some(bytes) = received {
            self.converse(Input::Received(bytes));
        }
        plain.clear();
        (self.core.control_buffer, self.core.plain) = (buffer, plain);
    }

    /// Reads once, where there is no TLS; `None` where nothing came.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let received = self.connection.link.receive(buffer);
        self.note_end_of_input();
        received
    }

    fn note_end_of_input(&mut self) {
        if self.connection.link.has_read_end() && !self.connection.http.has_peer_closed() {
            self.connection.http.handle(self.core.now.instant, Input::PeerClosed, &mut self.core.http.heads);
        }
    }

    /// Gives the protocol what has happened, and answers requests for as long as that leads to some.
    pub(super) fn converse(&mut self, input: Input<'_>) {
        let mut step = self.connection.http.handle(self.core.now.instant, input, &mut self.core.http.heads);
        loop {
            match step.act {
                Some(Act::Answer(head)) => {
                    self.connection.redirects = 0;
                    self.connection.forget_request();
                    self.connection.exchange(self.core, &head).handle(None);
                }
                Some(Act::Refuse(refusal, bytes)) => self.refuse(&bytes, refusal),
                Some(Act::Close) => self.connection.link.break_off(),
                Some(Act::EndOutput) | None => break,
            }
            self.connection.note_answered(self.core);
            if self.core.out.len() > OUT {
                self.connection.flush(self.core, false);
            }
            if !self.connection.takes_requests() {
                break;
            }
            step =
                self.connection.http.handle(self.core.now.instant, Input::Ready, &mut self.core.http.heads);
        }
        // The body may have come with the head.
        if matches!(self.connection.work, Work::Collecting(_)) {
            Reception::new(self.connection, self.core).collect_more();
            self.connection.note_answered(self.core);
        }
    }

    /// Answers what could not be understood, and closes.
    pub(super) fn refuse(&mut self, bytes: &[u8], refusal: Refusal) {
        self.connection.beside = None;
        self.connection.forget_request();
        let version = if self.connection.stream.is_some() { Version::Http2 } else { Version::Http11 };
        let record = Record::of_malformed(bytes, version, self.core.now.instant);
        Answers::new(self.connection, self.core).answer_page(record, refusal.status, refusal.reason, &[]);
    }

    /// Takes more of the request's body, until `body` has `most` bytes; it may be more of what came with the head, or
    /// in a record.
    pub(super) fn take_body(&mut self, body: &mut Vec<u8>, most: usize) -> Result<(), Refusal> {
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
