//! A body on its way into a file: that of a `PUT`, or a piece of an upload that may go on later.
//!
//! What comes is collected and written by the blocking pool, a small file with a single trip; while the pool has
//! it nothing more is read. Only a file that came whole is committed: where the client goes before, a staged
//! upload was never there, and of a piece what came is kept.

pub(crate) mod collecting;

use std::sync::Arc;

use millrace_hooks::Event;
use millrace_http::{Refusal, Status};
use millrace_limits::Pace;
use millrace_metrics::Protocol;
use millrace_vfs::{FileError, Upload};

use crate::answer::Answers;
use crate::body_reader::Reader;
use crate::change::Change;
use crate::connection::exchange::{Exchange, internal_error};
use crate::connection::{Connection, Work};
use crate::hook_gate::HookGate;
use crate::message::Message;
use crate::notices::Notices;
use crate::receiving::{Purpose, Received, Receiving, Written};
use crate::record::Record;
use crate::refused::Refused;
use crate::tus_state::OF_REFUSALS;
use crate::upload_outcome::{Unnamed, lent};
use crate::worker::Core;
use millrace_log as log;

/// How much is collected before the pool writes it.
const COLLECT: usize = 256 * 1024;

/// A file on its way in, while the worker takes it.
pub(crate) struct Reception<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) core: &'a mut Core,
}

impl<'a> Reception<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Reception<'_> {
    /// Takes what has come.
    pub(crate) fn receive_on(&mut self) {
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
            let paused = receiving.pace.paused;
            let (limits, room) = (&self.core.server.limits, COLLECT - before);
            let allowed =
                receiving.pace.allowance(limits, &self.connection.member, self.core.now.instant, room as u64);
            // Where it is not a quota that forbids more, the wheel wakes it.
            let Some(allowed) = allowed else {
                self.core.note_limit_wait(Protocol::Http, paused, receiving.pace.paused);
                return self.within_quota(receiving);
            };
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
        let elapsed = self.core.now.instant.saturating_duration_since(receiving.record.began);
        receiving.record.first_byte.get_or_insert(elapsed);
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
    pub(crate) fn written(&mut self, serial: u64, written: Written) {
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
            Written::All(tag, hashes) => {
                receiving.record.hash = hashes.map(|hashes| hashes.to_string());
                self.received_all(*receiving, tag);
            }
            Written::Whole(upload) => {
                receiving.record.hash = upload.hashes().map(|hashes| hashes.to_string());
                self.received_whole(*receiving, upload);
            }
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
        let fields: &[_] = if is_piece { &OF_REFUSALS } else { &[] };
        Answers::new(self.connection, self.core).answer_page(record, refusal.status, refusal.reason, fields);
    }
}

impl Exchange<'_> {
    /// Begins to receive a file.
    pub(crate) fn receive_file(&mut self, upload: Box<dyn Upload>, change: Arc<Change>, replaces: bool) {
        let received = Received { upload, check: None };
        self.receive_body(received, Purpose::File { change, replaces });
    }

    /// Begins to receive a body.
    pub(crate) fn receive_body(&mut self, received: Received, purpose: Purpose) {
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
