//! Answers other than files: pages, statuses, streams.

pub(crate) mod delivery;
pub(crate) mod file;
pub(crate) mod logging;

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_http::response::{Persistence, Writer};
use millrace_http::{Status, Version, page};
use millrace_limits::Reached;
use millrace_vfs::{FileError, ReadStream};

use crate::answer::delivery::Delivery;
use crate::body::{Body, Part};
use crate::chunks::Chunks;
use crate::common_headers::HeaderSet;
use crate::connection::Connection;
use crate::connection::exchange::Exchange;
use crate::record::Record;
use crate::refused::status_of;
use crate::sending::Sending;
use crate::worker::Core;

/// What a page that we make may do in a browser: show itself, and lead elsewhere.
pub(crate) const HARMLESS: (&str, &str) =
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'self'");

/// Content that is generated while it is sent.
pub(crate) enum Made {
    /// A file, such as a folder's archive: a download like any other.
    File(Box<dyn ReadStream>),
    /// What shows which files there are.
    Listing(Box<dyn ReadStream>),
}

/// An answer that is no file, while the worker writes it.
pub(crate) struct Answers<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) core: &'a mut Core,
}

impl<'a> Answers<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

/// Heads of answers on a connection.
pub(crate) struct AnswerHeads<'a> {
    pub(crate) connection: &'a Connection,
}

impl<'a> AnswerHeads<'a> {
    pub(crate) fn of(connection: &'a Connection) -> Self {
        Self { connection }
    }
}

impl AnswerHeads<'_> {
    /// Begins the head of an answer that is no file.
    pub(crate) fn begin_head<'a>(
        &self,
        core: &'a mut Core,
        status: Status,
        version: Version,
        goes_on: bool,
    ) -> Writer<'a> {
        self.open_head(core, HeaderSet::Whole, status, version, goes_on)
    }

    /// Begins the head of an answer with a file.
    pub(crate) fn begin_file_head<'a>(
        &self,
        core: &'a mut Core,
        status: Status,
        version: Version,
        goes_on: bool,
    ) -> Writer<'a> {
        self.open_head(core, HeaderSet::Bare, status, version, goes_on)
    }

    fn open_head<'a>(
        &self,
        core: &'a mut Core,
        opening: HeaderSet,
        status: Status,
        version: Version,
        goes_on: bool,
    ) -> Writer<'a> {
        let Core { http, kernel, .. } = core;
        let lines = http.common.lines(kernel.now.wall.seconds, opening, self.connection.is_encrypted());
        let mut writer = Writer::begin(&mut kernel.out, status, lines, Persistence::of(version, goes_on));
        if let Some(extra_headers) = &self.connection.extra_headers {
            writer.lines(extra_headers.0.as_bytes());
        }
        writer
    }
}

impl Answers<'_> {
    /// Answers without a body.
    pub(crate) fn answer_empty(&mut self, mut record: Record, status: Status, fields: &[(&str, &str)]) {
        let mut writer =
            AnswerHeads::of(self.connection).begin_head(self.core, status, record.version, record.persistent);
        for (name, value) in fields {
            writer.field(name, value);
        }
        if !status.is_bodiless() {
            writer.length(0);
        }
        writer.end();
        record.status = status;
        self.log_request(&record);
        if !record.persistent {
            self.connection.close_behind(self.core);
        }
    }

    /// Answers with a page of ours.
    pub(crate) fn answer_page(
        &mut self,
        mut record: Record,
        status: Status,
        reason: &str,
        fields: &[(&str, &str)],
    ) {
        let web = Arc::clone(&self.core.http.web);
        let made;
        let host = self.connection.who.as_ref().map_or(&b""[..], |who| &who.host);
        let theirs = web.error_page(status, &record.target, host);
        let (media_type, page) = match theirs {
            Some(page) => (&*page.media_type, &*page.body),
            None => {
                made = page::of(status, reason);
                (page::MEDIA_TYPE, &made[..])
            }
        };
        let mut writer =
            AnswerHeads::of(self.connection).begin_head(self.core, status, record.version, record.persistent);
        for (name, value) in fields {
            writer.field(name, value);
        }
        if theirs.is_none() {
            writer.field(HARMLESS.0, HARMLESS.1);
        }
        writer.field("Content-Type", media_type).length(page.len() as u64);
        writer.end();
        if !record.head_only {
            self.core.out.extend_from_slice(page);
            record.bytes = page.len() as u64;
        }
        record.status = status;
        self.log_request(&record);
        if !record.persistent {
            if record.has_body {
                self.connection.linger();
            }
            self.connection.close_behind(self.core);
        }
    }

    fn begin_body(&mut self, record: Record, body: Body) {
        let goes_on = record.persistent;
        Delivery::new(self.connection, self.core).send_body(Box::new(Sending {
            body,
            record,
            in_line: false,
            goes_on,
        }));
    }
}

impl Exchange<'_> {
    /// Answers with bytes that are here.
    pub(crate) fn answer_bytes(
        &mut self,
        status: Status,
        media_type: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) {
        let head = self.head;
        let persistent = self.may_go_on();
        let mut writer =
            AnswerHeads::of(self.connection).begin_head(self.core, status, head.version, persistent);
        for (name, value) in fields {
            writer.field(name, value);
        }
        writer.field("Content-Type", media_type).length(body.len() as u64);
        writer.end();
        let sent = if head.wants_head_only() { 0 } else { body.len() };
        self.core.out.extend_from_slice(&body[..sent]);
        self.log_answer(status, sent as u64);
        if !persistent {
            self.connection.close_behind(self.core);
        }
    }

    /// Answers with content of unknown length: chunked, or for HTTP/1.0 until the connection closes.
    pub(crate) fn answer_stream(
        &mut self,
        status: Status,
        media_type: &str,
        fields: &[(&str, &str)],
        made: Made,
    ) {
        let head = self.head;
        let chunked = head.version == Version::Http11;
        if !chunked {
            self.connection.close_behind(self.core);
        }
        let mut writer =
            AnswerHeads::of(self.connection).begin_head(self.core, status, head.version, self.may_go_on());
        for (name, value) in fields {
            writer.field(name, value);
        }
        writer.field("Content-Type", media_type);
        if chunked {
            writer.field("Transfer-Encoding", "chunked");
        }
        writer.end();
        let is_file = matches!(made, Made::File(_));
        let (Made::File(stream) | Made::Listing(stream)) = made;
        let conversion = stream.conversion();
        if head.wants_head_only() {
            self.core.discard(stream);
            return self.log_answer(status, 0);
        }
        let now = self.core.now.instant;
        let body = match chunked {
            true => Body::chunked(Chunks::new(stream), now),
            false => Body::new(VecDeque::from([Part::Stream(stream, 0, None)]), now),
        };
        let record = Record { status, is_file, conversion, ..self.record() };
        Answers::new(self.connection, self.core)
            .begin_body(record, if is_file { body } else { body.of_listing() });
    }

    /// Answers with an error's page.
    pub(crate) fn fail(&mut self, status: Status, reason: &str) {
        let record = self.record();
        Answers::new(self.connection, self.core).answer_page(record, status, reason, &[]);
    }

    /// Answers that a file cannot be had.
    pub(crate) fn fail_with(&mut self, error: &FileError) {
        let (status, reason) = match error {
            FileError::NotFound
            | FileError::NotDirectory
            | FileError::InvalidName
            | FileError::NameTooLong
            | FileError::Loop => (Status::NOT_FOUND, "There is no such file."),
            FileError::PermissionDenied | FileError::NotRegular | FileError::ReadOnly => {
                (Status::FORBIDDEN, "This may not be read.")
            }
            FileError::Exhausted => (Status::SERVICE_UNAVAILABLE, "The server is out of resources for now."),
            FileError::Busy | FileError::OverQuota(_) => status_of(error),
            _ => (Status::INTERNAL_SERVER_ERROR, "The file system failed."),
        };
        Answers::new(self.connection, self.core).tell_limit(Reached::by(error).as_ref());
        self.fail(status, reason);
    }

    /// Begins to send a file, or parts of one.
    pub(crate) fn begin_file(&mut self, status: Status, parts: VecDeque<Part>) {
        let record = Record { status, is_file: true, ..self.record() };
        let body = Body::new(parts, self.core.now.instant);
        Answers::new(self.connection, self.core).begin_body(record, body);
    }
}
