//! What clients send: heads one after another, and the bodies behind them.
//!
//! Heads are parsed where they were read, in the buffer that all connections of a worker share; only what is
//! not whole, or what was sent ahead of its turn, is kept with the connection.

use std::io;
use std::sync::Arc;

use millrace_http::Refusal;
use millrace_http::h1::BodyDecoder;
use millrace_http::request;
use millrace_net::stream;

use super::connection::{Connection, Work};
use super::record::Record;
use crate::worker::Core;

/// Answers that are collected before they are sent in any case.
const OUT: usize = 64 * 1024;

impl Connection {
    /// Takes requests for as long as there are any and the client takes the answers.
    pub(super) fn read_on(&mut self, core: &mut Core) {
        while self.takes_requests() {
            if !self.input.is_empty() && self.flags.fresh {
                let input = std::mem::take(&mut self.input);
                self.take_bytes(core, &input);
            } else if self.flags.readable {
                self.read(core);
            } else {
                return;
            }
        }
    }

    fn read(&mut self, core: &mut Core) {
        if self.sent_in == core.turn {
            core.turn += 1;
        }
        let (mut buffer, mut plain) =
            (std::mem::take(&mut core.control_buffer), std::mem::take(&mut core.plain));
        let received = match self.socket.tls {
            None => self.receive(&mut buffer).map(|count| &buffer[..count]),
            Some(_) => self.receive_secure(&mut core.scratch, usize::MAX, &mut plain).then_some(&plain[..]),
        };
        if let Some(bytes) = received {
            let count = bytes.len();
            match self.input.is_empty() {
                true => self.take_bytes(core, bytes),
                false => {
                    // A line that is not whole cannot end a head: no use in parsing it again for every byte.
                    self.flags.fresh =
                        bytes.contains(&b'\n') || self.input.len() + count > request::MAX_REQUEST_LINE;
                    self.input.extend_from_slice(bytes);
                }
            }
        }
        plain.clear();
        (core.control_buffer, core.plain) = (buffer, plain);
    }

    /// Reads once, where there is no TLS; `None` where nothing came.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match stream::read(&self.socket.fd, buffer) {
            Ok(0) => {
                (self.flags.ended, self.flags.hung_up, self.flags.readable) = (true, true, false);
                None
            }
            Ok(count) => {
                // A short read means that there is no more, and the next arrival is a new event; but for an end
                // that came with these bytes, of which nothing more will be told.
                self.flags.readable = count == buffer.len() || self.flags.hung_up;
                self.flags.spoke = true;
                Some(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.flags.readable = false;
                None
            }
            Err(_) => {
                self.flags.broken = true;
                None
            }
        }
    }

    fn take_bytes(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut rest = bytes;
        // A head has its time from its first byte on, however many pieces it comes in.
        let began = self.flags.starved;
        self.flags.starved = false;
        while self.takes_requests() {
            // Empty lines before a request are ignored (RFC 9112 section 2.2).
            while let [b'\r', b'\n', more @ ..] = rest {
                rest = more;
            }
            if rest.is_empty() {
                break;
            }
            let mut head = core.http.heads.take();
            let read = Arc::get_mut(&mut head).map_or(Ok(None), |head| head.read(rest));
            match read {
                Ok(None) => {
                    core.http.heads.put_back(head);
                    self.flags.starved = true;
                    break;
                }
                Ok(Some(length)) => {
                    rest = &rest[length..];
                    self.redirects = 0;
                    self.forget_request();
                    self.handle(core, &head, None);
                    core.http.heads.put_back(head);
                }
                Err(refusal) => {
                    self.refuse(core, rest, refusal);
                    rest = &[];
                }
            }
            if core.out.len() > OUT {
                self.flush(core, false);
            }
        }
        if !rest.is_empty() && self.closing.is_none() {
            if self.flags.starved && !began {
                self.since = core.now.instant;
            }
            self.input.extend_from_slice(rest);
            self.flags.fresh = !self.flags.starved;
        }
        // Its body may have come with its head.
        if matches!(self.work, Work::Collecting(_)) {
            self.collect_more(core);
        }
    }

    /// Answers what could not be understood, and closes.
    pub(super) fn refuse(&mut self, core: &mut Core, bytes: &[u8], refusal: Refusal) {
        self.beside = None;
        self.forget_request();
        self.linger();
        let record = Record::of_malformed(bytes, core.now.instant);
        self.answer_page(core, record, refusal.status, refusal.reason, &[]);
    }

    /// Takes more of a request's body, until `body` has `most` bytes; it may be more of what came with the head, or
    /// in a record.
    pub(super) fn take_body(
        &mut self,
        core: &mut Core,
        intake: &mut BodyDecoder,
        body: &mut Vec<u8>,
        most: usize,
    ) -> Result<(), Refusal> {
        while body.len() < most && !intake.has_ended() {
            let input = match self.input.is_empty() {
                false => std::mem::take(&mut self.input),
                true if self.flags.readable => self.read_body(core, most - body.len()),
                true => return Ok(()),
            };
            let mut wire = &input[..];
            let taken = intake.take(&mut wire, body);
            // Behind the body is the next request.
            self.input.extend_from_slice(wire);
            self.flags.fresh = true;
            taken?;
        }
        Ok(())
    }

    /// Reads a piece of a request's body, of about as much as is wanted; nothing where nothing came.
    fn read_body(&mut self, core: &mut Core, wanted: usize) -> Vec<u8> {
        if self.socket.tls.is_some() {
            let mut plain = Vec::new();
            self.receive_secure(&mut core.scratch, wanted, &mut plain);
            return plain;
        }
        let mut scratch = std::mem::take(&mut core.scratch);
        let room = scratch.len().min(wanted);
        let count = self.receive(&mut scratch[..room]).unwrap_or(0);
        let piece = scratch[..count].to_vec();
        core.scratch = scratch;
        piece
    }
}
