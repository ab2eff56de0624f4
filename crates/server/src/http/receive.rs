//! A body on its way into a file: that of a `PUT`, or a piece of an upload that may go on later.
//!
//! What comes is collected and written by the blocking pool, a small file with a single trip; while the pool has
//! it nothing more is read. Only a file that came whole is committed: where the client goes before, a staged
//! upload was never there, and of a piece what came is kept.

use std::sync::Arc;
use std::time::Instant;

use millrace_http::{Refusal, Status};
use millrace_vfs::{FileError, Upload, VirtualPath};

use super::Message;
use super::connection::{Connection, Work};
use super::exchange::{Exchange, internal_error};
use super::hooking::{Committing, Unnamed};
use super::record::Record;
use super::tus::{Check, Piece, lent};
use super::writing::{Change, Refused};
use crate::hooks::Event;
use crate::http::answer::Answers;
use crate::http::hooking::HookGate;
use crate::http::hooking::Notices;
use crate::http::reading::Reader;
use crate::limits::Pace;
use crate::log;
use crate::worker::Core;

/// How much is collected before the pool writes it.
const COLLECT: usize = 256 * 1024;

/// A file on its way in.
#[derive(Debug)]
pub(super) struct Receiving {
    /// `None` while the pool has it.
    received: Option<Received>,
    purpose: Purpose,
    buffer: Vec<u8>,
    pace: Pace,
    moved: Instant,
    /// Names the job that has the upload.
    serial: u64,
    record: Record,
}

/// Where the bytes go, and what they have to hash to.
#[derive(Debug)]
pub(crate) struct Received {
    pub(super) upload: Box<dyn Upload>,
    pub(super) check: Option<Check>,
}

/// What a body is.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A file.
    File {
        change: Arc<Change>,
        /// Whether there was one before.
        replaces: bool,
    },
    /// A piece of one.
    Piece(Box<Piece>),
}

/// What the pool does behind the last bytes.
enum End {
    /// They are the end of the file: how it becomes one, which may find its tag.
    Commit(Box<Committing>),
    /// They are, and hooks have their word first.
    Hold,
    /// The rest of the file comes another time.
    Keep,
}

/// What the pool says of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// There is room for more.
    More(Received),
    /// It was the last; the tag of the file, where it is one and that could be had.
    All(Option<String>),
    /// It was the last of a file that is to have no name yet.
    Whole(Box<dyn Upload>),
    /// It is not what it was said to be, and gone.
    Mismatch,
    Failed(Refused),
}

/// A file on its way in, while the worker takes it.
pub(in crate::http) struct Reception<'a> {
    pub(in crate::http) connection: &'a mut Connection,
    pub(in crate::http) core: &'a mut Core,
}

impl<'a> Reception<'a> {
    pub(in crate::http) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Reception<'_> {
    /// Takes what has come.
    pub(super) fn receive_on(&mut self) {
        let Work::Receiving(mut receiving) = std::mem::replace(&mut self.connection.work, Work::Idle) else {
            return;
        };
        if receiving.received.is_none() {
            self.connection.work = Work::Receiving(receiving);
            return;
        }
        match self.collect(&mut receiving) {
            Err(refusal) => return self.receiving_failed(*receiving, refusal),
            Ok(()) if receiving.buffer.len() >= COLLECT || self.connection.http.has_whole_body() => {
                if let Some(refusal) = self.write_collected(&mut receiving) {
                    return self.receiving_failed(*receiving, refusal);
                }
            }
            // The client will send no more of it: what came is given up.
            Ok(()) => self.connection.break_where_ended(),
        }
        self.connection.work = Work::Receiving(receiving);
    }

    /// Collects what has come and the limits allow.
    fn collect(&mut self, receiving: &mut Receiving) -> Result<(), Refusal> {
        while receiving.buffer.len() < COLLECT && !self.connection.http.has_whole_body() {
            let before = receiving.buffer.len();
            let (limits, room) = (&self.core.server.limits, COLLECT - before);
            let allowed =
                receiving.pace.allowance(limits, &self.connection.member, self.core.now.instant, room as u64);
            // Where it is not a quota that forbids more, the wheel wakes it.
            let Some(allowed) = allowed else { return self.within_quota(receiving) };
            let most = before + usize::try_from(allowed).unwrap_or(usize::MAX).min(room);
            let taken = Reader::new(self.connection, self.core).take_body(&mut receiving.buffer, most);
            let count = receiving.buffer.len() - before;
            receiving.pace.spend(count as u64);
            if count > 0 {
                receiving.moved = self.core.now.instant;
            }
            taken.and_then(|()| self.within_quota(receiving))?;
            if receiving.buffer.len() < most {
                receiving.pace.fall_out_of_line();
                break;
            }
        }
        Ok(())
    }

    /// Refuses more than the user may upload.
    fn within_quota(&mut self, receiving: &Receiving) -> Result<(), Refusal> {
        let Some(over) = receiving.pace.over().cloned() else { return Ok(()) };
        Answers::new(self.connection, self.core).tell_limit(Some(&(&over).into()));
        Err(Refused::from(FileError::from(over)).refusal)
    }

    /// Has the pool write it; or what it is refused with.
    fn write_collected(&mut self, receiving: &mut Receiving) -> Option<Refusal> {
        let buffer = std::mem::take(&mut receiving.buffer);
        let total = receiving.record.bytes + buffer.len() as u64;
        let hooks = self.core.server.hooks().filter(|hooks| hooks.concerns(Event::Upload, receiving.verb()));
        let asks = hooks.is_some_and(|hooks| hooks.asks_beforehand());
        let end = match receiving.end(total, self.connection.http.has_whole_body(), asks) {
            Ok(end) => end,
            Err(refusal) => return Some(refusal),
        };
        let mut received = receiving.received.take()?;
        receiving.serial = self.core.next_serial();
        receiving.record.bytes = total;
        let serial = receiving.serial;
        let reply = self
            .connection
            .promise(self.core, Message::Written(serial, Written::Failed(internal_error().into())));
        self.core.server.pool.run(move || {
            let written = match received.write(&buffer) {
                Err(error) => Written::Failed(error.into()),
                Ok(()) => match end {
                    None => Written::More(received),
                    Some(end) => received.end(end),
                },
            };
            reply.keep(Message::Written(serial, written));
        });
        None
    }

    /// The pool has written something.
    pub(super) fn written(&mut self, serial: u64, written: Written) {
        let Work::Receiving(mut receiving) = std::mem::replace(&mut self.connection.work, Work::Idle) else {
            return self.core.discard(written);
        };
        if receiving.serial != serial || receiving.received.is_some() {
            self.connection.work = Work::Receiving(receiving);
            return self.core.discard(written);
        }
        receiving.moved = self.core.now.instant;
        match written {
            Written::More(received) => {
                receiving.received = Some(received);
                self.connection.work = Work::Receiving(receiving);
                self.receive_on();
            }
            Written::All(tag) => self.received_all(*receiving, tag),
            Written::Whole(upload) => self.received_whole(*receiving, upload),
            Written::Mismatch => {
                let reason = "The piece does not hash to its Upload-Checksum.";
                let refusal = Refusal { status: Status::CHECKSUM_MISMATCH, reason };
                self.receiving_failed(*receiving, refusal);
            }
            Written::Failed(Refused { refusal, reached }) => {
                Answers::new(self.connection, self.core).tell_limit(reached.as_deref());
                self.receiving_failed(*receiving, refusal);
            }
        }
    }

    fn received_all(&mut self, receiving: Receiving, tag: Option<String>) {
        let Receiving { record, purpose, .. } = receiving;
        match purpose {
            Purpose::File { replaces, .. } => {
                let status = if replaces { Status::NO_CONTENT } else { Status::CREATED };
                // The body was the request's, not the answer's.
                let (event, record) = ((Event::Upload, record.bytes), Record { bytes: 0, status, ..record });
                HookGate::new(self.connection, self.core).conclude(record, tag, Some(event));
            }
            Purpose::Piece(piece) => {
                let whole = piece.whole(record.bytes);
                let (status, fields) = piece.answer(record.bytes);
                let record = Record { bytes: 0, status, ..record };
                match whole {
                    Some(whole) => {
                        HookGate::new(self.connection, self.core).conclude_upload(record, fields, whole)
                    }
                    None => {
                        Answers::new(self.connection, self.core).answer_empty(record, status, &lent(&fields))
                    }
                }
            }
        }
    }

    /// Like [`Connection::received_all`], for a file that takes its name after the hooks' verdict.
    fn received_whole(&mut self, receiving: Receiving, upload: Box<dyn Upload>) {
        let Receiving { record, purpose, .. } = receiving;
        let bytes = record.bytes;
        let (status, unnamed) = match purpose {
            Purpose::File { change, replaces } => {
                let status = if replaces { Status::NO_CONTENT } else { Status::CREATED };
                let commit = Box::new(move |upload| change.commit(upload));
                let (path, fields, settle) = (None, Vec::new(), None);
                (status, Unnamed { upload, path, bytes, commit, settle, fields })
            }
            Purpose::Piece(piece) => piece.unnamed(bytes, upload),
        };
        HookGate::new(self.connection, self.core)
            .conclude_unnamed(Record { bytes: 0, status, ..record }, unnamed);
    }

    fn receiving_failed(&mut self, receiving: Receiving, refusal: Refusal) {
        let is_piece = receiving.is_piece();
        let Receiving { received, record, purpose, .. } = receiving;
        self.core.server.pool.run(move || {
            drop(received);
            if let Purpose::Piece(piece) = purpose {
                piece.give_up();
            }
        });
        if !is_piece {
            Notices::of(self.connection).note_transfer(
                self.core,
                log::Direction::Upload,
                &record,
                record.bytes,
                Some(refusal.reason),
            );
        }
        let is_whole = self.connection.http.has_whole_body();
        if !is_whole {
            self.connection.linger();
        }
        let persistent = record.persistent && is_whole;
        let record = Record { persistent, bytes: 0, ..record };
        let fields: &[_] = if is_piece { &super::tus::OF_REFUSALS } else { &[] };
        Answers::new(self.connection, self.core).answer_page(record, refusal.status, refusal.reason, fields);
    }
}

impl Exchange<'_> {
    /// Begins to receive a file.
    pub(super) fn receive_file(&mut self, upload: Box<dyn Upload>, change: Arc<Change>, replaces: bool) {
        let received = Received { upload, check: None };
        self.receive_body(received, Purpose::File { change, replaces });
    }

    /// Begins to receive a body.
    pub(super) fn receive_body(&mut self, received: Received, purpose: Purpose) {
        let head = self.head;
        self.connection.want_body(self.core);
        self.connection.flush(self.core, false);
        let goes_on = head.persistent && self.connection.http.may_keep_alive();
        let before = if let Purpose::Piece(piece) = &purpose { piece.before() } else { 0 };
        let Received { upload, check } = received;
        let (pace, upload) = Pace::of_upload(&self.connection.member, upload, before);
        let receiving = Receiving {
            received: Some(Received { upload, check }),
            purpose,
            buffer: Vec::new(),
            pace,
            moved: self.core.now.instant,
            serial: 0,
            record: Record::of(head, goes_on, self.core.now.instant),
        };
        self.connection.work = Work::Receiving(Box::new(receiving));
        Reception::new(self.connection, self.core).receive_on();
    }
}

impl Receiving {
    /// Returns whether the pool has the upload.
    pub(super) fn is_lent(&self) -> bool {
        self.received.is_none()
    }

    /// Returns whether the rest may come another time: that it does not come now is no failure of the upload.
    pub(super) fn is_piece(&self) -> bool {
        matches!(self.purpose, Purpose::Piece(_))
    }

    /// The method that hooks hear of: whatever brings a file in pieces, it is one.
    fn verb(&self) -> &str {
        if self.is_piece() { "PUT" } else { &self.record.method }
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// The file that comes.
    pub(super) fn path(&self) -> &VirtualPath {
        match &self.purpose {
            Purpose::File { change, .. } => change.path(),
            Purpose::Piece(piece) => piece.path(),
        }
    }

    /// Until when a limit keeps it waiting.
    pub(super) fn paused(&self) -> Option<Instant> {
        self.pace.paused
    }

    /// When a byte last moved.
    pub(super) fn moved(&self) -> Instant {
        self.moved
    }

    /// What follows the collected bytes, if they are the last of so many.
    fn end(&self, total: u64, is_all: bool, asks: bool) -> Result<Option<End>, Refusal> {
        let is_file = is_all
            & match &self.purpose {
                Purpose::File { .. } => true,
                Purpose::Piece(piece) => piece.ends_with(total)?,
            };
        let can_wait = || self.received.as_ref().is_some_and(|received| received.upload.is_staged());
        Ok(match &self.purpose {
            _ if is_file && asks && can_wait() => Some(End::Hold),
            Purpose::File { change, .. } if is_file => {
                let change = Arc::clone(change);
                Some(End::Commit(Box::new(move |upload| change.commit(upload))))
            }
            Purpose::Piece(piece) if is_file => Some(End::Commit(Box::new(piece.commit()))),
            Purpose::Piece(_) if is_all => Some(End::Keep),
            _ => None,
        })
    }

    /// Gives up; what came of a piece is kept, which the pool has to do.
    pub(super) fn into_parts(self) -> (impl FnOnce() + Send + 'static, Record) {
        let Self { received, purpose, buffer, record, .. } = self;
        let total = record.bytes + buffer.len() as u64;
        let leave = move || {
            if let (Some(Received { mut upload, check: None }), Purpose::Piece(piece)) = (received, purpose)
                && piece.ends_with(total).is_ok()
                && upload.write_all(&buffer).is_ok()
            {
                upload.abort();
            }
        };
        (leave, record)
    }
}

impl Received {
    fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if let Some(check) = &mut self.check {
            check.update(bytes);
        }
        self.upload.write_all(bytes)
    }

    fn end(self, end: End) -> Written {
        let Self { upload, check } = self;
        if check.is_some_and(|check| !check.holds()) {
            upload.undo();
            return Written::Mismatch;
        }
        match end {
            End::Keep => match upload.keep() {
                Ok(()) => Written::All(None),
                Err(error) => Written::Failed(error.into()),
            },
            End::Hold => Written::Whole(upload),
            End::Commit(commit) => commit(upload).map_or_else(Written::Failed, Written::All),
        }
    }
}
