//! What clients send: heads one after another, and the bodies behind them.
//!
//! Bytes are parsed in the buffer that all connections of a worker share; only incomplete or pipelined data is stored
//! with the connection.

use millrace_http::h1::{Act, Input};
use millrace_http::{Refusal, Version};

use crate::answer::Answers;
use crate::body_reader::Reader;
use crate::connection::Work;
use crate::record::Record;
use crate::upload::Reception;

/// Answers that are collected before they are sent in any case.
const OUT: usize = 64 * 1024;

impl Reader<'_> {
    /// Takes requests for as long as there are any and the client takes the answers.
    pub(crate) fn read_on(&mut self) {
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

    /// Gives the protocol what has happened, and answers requests for as long as that leads to some.
    pub(crate) fn converse(&mut self, input: Input<'_>) {
        let mut step = self.connection.http.handle(self.core.now.instant, input, &mut self.core.http.heads);
        loop {
            match step.act {
                Some(Act::Answer(head)) => {
                    self.connection.redirects = 0;
                    self.connection.forget_request();
                    self.connection.note_arrival(self.core, Some(&head));
                    self.connection.serve_request(self.core, &head, None);
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
    pub(crate) fn refuse(&mut self, bytes: &[u8], refusal: Refusal) {
        self.connection.extra_headers = None;
        self.connection.forget_request();
        self.connection.note_arrival(self.core, None);
        let version = if self.connection.stream.is_some() { Version::Http2 } else { Version::Http11 };
        let record = Record::of_malformed(bytes, version, self.core.now.instant);
        Answers::new(self.connection, self.core).answer_page(record, refusal.status, refusal.reason, &[]);
    }
}
