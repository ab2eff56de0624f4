//! A stream of HTTP/2, as the `Connection` that answers its request sees it.

use std::sync::Arc;
use std::time::Instant;

use millrace_http::h1::{Input, ServerConnection};
use millrace_http::{Head, Refusal};
use millrace_runtime::slab::Key;
use millrace_runtime::wheel_entry::WheelEntry;

use crate::body_reader::Reader;
use crate::connection::{Connection, ProgramPath, Work};
use crate::driver::deadlines::Clock;
use crate::stream_context::AnswerProgress;
use crate::upload::Reception;
use crate::worker::Core;

/// What has come for a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StreamNews {
    /// More of the body of its request.
    pub(crate) body: Vec<u8>,
    /// The body is whole by that.
    pub(crate) is_whole: bool,
    /// The client has reset it.
    pub(crate) is_reset: bool,
}

/// The request of a stream; or why it is refused, and the line that it would begin with.
pub(crate) type StreamRequest = Result<Arc<Head>, (Refusal, Vec<u8>)>;

/// A `Connection` that is a stream, while its connection or the worker is at it.
pub struct StreamDriver<'a> {
    connection: &'a mut Connection,
}

impl<'a> StreamDriver<'a> {
    /// Drives this stream.
    pub fn of(connection: &'a mut Connection) -> Self {
        Self { connection }
    }
}

impl StreamDriver<'_> {
    /// Takes a stream's request.
    pub(crate) fn open_stream(&mut self, key: Key, id: u32) {
        self.connection.key = key;
        self.connection.link.reuse();
        self.connection.wheel_entry = WheelEntry::default();
        self.connection.slot = None;
        self.connection.redirects = 0;
        self.connection.program_path = ProgramPath::ByName;
        self.connection.extra_headers = None;
        self.connection.forget_request();
        if let Some(stream) = &mut self.connection.stream {
            (stream.id, stream.answer) = (id, AnswerProgress::Head);
            (stream.received, stream.released, stream.acknowledged) = (0, 0, None);
        }
    }

    /// Answers the request that a stream was opened for.
    pub fn begin_stream(&mut self, core: &mut Core, request: StreamRequest, news: StreamNews) {
        match request {
            Ok(head) => {
                self.connection.http = ServerConnection::of_stream(Arc::clone(&head), core.now.instant);
                // Part of the body may have come with the head.
                self.take_body(core, &news);
                self.connection.note_arrival(core, Some(&head));
                self.connection.serve_request(core, &head, None);
            }
            Err((refusal, line)) => {
                self.connection.http = ServerConnection::of_refused_stream(core.now.instant);
                Reader::new(self.connection, core).refuse(&line, refusal);
            }
        }
        self.connection.note_answered(core);
        // The body may have come with the head.
        if matches!(self.connection.work, Work::Collecting(_)) {
            Reception::new(self.connection, core).collect_more();
        }
    }

    /// Takes what has come for a stream.
    pub fn take_news(&mut self, core: &mut Core, news: &StreamNews) {
        self.take_body(core, news);
        if news.is_reset {
            self.end_stream();
        }
    }

    fn take_body(&mut self, core: &mut Core, news: &StreamNews) {
        if let Some(stream) = &mut self.connection.stream {
            stream.received += news.body.len() as u64;
        }
        self.connection.http.handle(core.now.instant, Input::Received(&news.body), &mut core.http.heads);
        if news.is_whole {
            self.connection.http.end_stream_body();
        }
        self.connection.link.expect_bytes();
    }

    /// The client has reset the stream, or is gone.
    pub fn end_stream(&mut self) {
        self.connection.link.break_off();
    }

    /// Returns whether nothing more is done for a stream.
    pub fn has_ended(&self) -> bool {
        self.connection.is_over()
    }

    /// Has the wheel look at a stream when something may be due.
    pub fn set_clock(&mut self, core: &mut Core) {
        Clock::new(self.connection, core).set_clock();
    }

    /// Notes how much the client has taken of all that its connection sent.
    pub fn note_acknowledged(&mut self, acknowledged: Option<u64>) {
        if let Some(stream) = &mut self.connection.stream {
            stream.acknowledged = acknowledged;
        }
    }

    /// The client takes of a stream's answer.
    pub(crate) fn note_taken(&mut self, now: Instant) {
        self.connection.http.moved(now);
        if let Work::Sending(sending) = &mut self.connection.work {
            sending.body.moved = now;
        }
    }

    /// Returns whether this can be the next stream's, as nothing of this one is left.
    pub(crate) fn can_serve_another(&self) -> bool {
        !self.connection.link.is_broken() && self.connection.is_answered()
    }

    /// Waits for the next stream; what is told of it meanwhile goes to its connection, which has this key.
    pub(crate) fn rest(&mut self, key: Key) {
        self.connection.key = key;
        self.connection.redirected = None;
        self.connection.extra_headers = None;
    }
}
