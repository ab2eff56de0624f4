//! What clients send: heads one after another, and the bodies behind them.
//!
//! Bytes are given to the protocol where they were read, in the buffer that all connections of a worker share; only what
//! is not whole, or what was sent ahead of its turn, is kept with the connection.

use millrace_http::Refusal;
use millrace_http::h1::{Act, ChunkError, Input};

use super::connection::{Connection, Work};
use super::record::Record;
use crate::worker::Core;

/// Answers that are collected before they are sent in any case.
const OUT: usize = 64 * 1024;

impl Connection {
    /// Takes requests for as long as there are any and the client takes the answers.
    pub(super) fn read_on(&mut self, core: &mut Core) {
        while self.takes_requests() {
            if self.http.may_have_request() {
                self.converse(core, Input::Ready);
            } else if self.link.may_read() {
                self.read(core);
            } else {
                return;
            }
        }
    }

    fn read(&mut self, core: &mut Core) {
        if self.link.has_sent_in(core.turn) {
            core.turn += 1;
        }
        let (mut buffer, mut plain) =
            (std::mem::take(&mut core.control_buffer), std::mem::take(&mut core.plain));
        let received = match self.link.socket.tls {
            None => self.receive(core, &mut buffer).map(|count| &buffer[..count]),
            Some(_) => {
                let came = self.link.receive_secure(&mut core.scratch, usize::MAX, &mut plain);
                self.note_end_of_input(core);
                came.then_some(&plain[..])
            }
        };
        if let Some(bytes) = received {
            self.converse(core, Input::Received(bytes));
        }
        plain.clear();
        (core.control_buffer, core.plain) = (buffer, plain);
    }

    /// Reads once, where there is no TLS; `None` where nothing came.
    pub(super) fn receive(&mut self, core: &mut Core, buffer: &mut [u8]) -> Option<usize> {
        let received = self.link.receive(buffer);
        self.note_end_of_input(core);
        received
    }

    fn note_end_of_input(&mut self, core: &mut Core) {
        if self.link.has_read_end() && !self.http.has_peer_closed() {
            self.http.handle(core.now.instant, Input::PeerClosed, &mut core.http.heads);
        }
    }

    /// Gives the protocol what has happened, and answers requests for as long as that leads to some.
    pub(super) fn converse(&mut self, core: &mut Core, input: Input<'_>) {
        let mut step = self.http.handle(core.now.instant, input, &mut core.http.heads);
        loop {
            match step.act {
                Some(Act::Answer(head)) => {
                    self.redirects = 0;
                    self.forget_request();
                    self.exchange(core, &head).handle(None);
                }
                Some(Act::Refuse(refusal, bytes)) => self.refuse(core, &bytes, refusal),
                Some(Act::Close) => self.link.break_off(),
                Some(Act::EndOutput) | None => break,
            }
            self.note_answered(core);
            if core.out.len() > OUT {
                self.flush(core, false);
            }
            if !self.takes_requests() {
                break;
            }
            step = self.http.handle(core.now.instant, Input::Ready, &mut core.http.heads);
        }
        // The body may have come with the head.
        if matches!(self.work, Work::Collecting(_)) {
            self.collect_more(core);
            self.note_answered(core);
        }
    }

    /// Answers what could not be understood, and closes.
    fn refuse(&mut self, core: &mut Core, bytes: &[u8], refusal: Refusal) {
        self.beside = None;
        self.forget_request();
        let record = Record::of_malformed(bytes, core.now.instant);
        self.answer_page(core, record, refusal.status, refusal.reason, &[]);
    }

    /// Takes more of the request's body, until `body` has `most` bytes; it may be more of what came with the head, or
    /// in a record.
    pub(super) fn take_body(
        &mut self,
        core: &mut Core,
        body: &mut Vec<u8>,
        most: usize,
    ) -> Result<(), Refusal> {
        while body.len() < most && !self.http.has_whole_body() {
            if self.http.has_input() {
                self.http.take_body(&[], body)?;
            } else if self.link.may_read() {
                self.read_body(core, body, most)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Reads a piece of a request's body, of about as much as is wanted.
    fn read_body(&mut self, core: &mut Core, body: &mut Vec<u8>, most: usize) -> Result<(), ChunkError> {
        let wanted = most - body.len();
        if self.link.socket.tls.is_some() {
            let mut plain = std::mem::take(&mut core.plain);
            self.link.receive_secure(&mut core.scratch, wanted, &mut plain);
            self.note_end_of_input(core);
            let taken = self.http.take_body(&plain, body);
            plain.clear();
            core.plain = plain;
            return taken;
        }
        let mut scratch = std::mem::take(&mut core.scratch);
        let room = scratch.len().min(wanted);
        let count = self.receive(core, &mut scratch[..room]).unwrap_or(0);
        let taken = self.http.take_body(&scratch[..count], body);
        core.scratch = scratch;
        taken
    }
}
