//! The body of a `PUT` on its way into a file.
//!
//! What comes is collected and written by the blocking pool, a small file with a single trip; while the pool has
//! it nothing more is read. Only a body that came whole is committed: where the client goes before, a staged
//! upload was never there.

use std::sync::Arc;
use std::time::Instant;

use millrace_http::intake::Intake;
use millrace_http::response::CONTINUE;
use millrace_http::{Head, Refusal, Status};
use millrace_vfs::{FileError, Storage, Upload, VirtualPath, Wait};

use super::Message;
use super::connection::{Connection, Work};
use super::record::Record;
use super::writing::Refused;
use crate::limits::{Direction, Pace};
use crate::worker::{self, Core};

/// What is collected before the pool writes it.
const COLLECT: usize = 256 * 1024;

/// A file on its way in.
#[derive(Debug)]
pub(super) struct Receiving {
    /// `None` while the pool has it.
    upload: Option<Box<dyn Upload>>,
    storage: Arc<dyn Storage>,
    path: VirtualPath,
    /// Whether there was a file before.
    replaces: bool,
    intake: Intake,
    buffer: Vec<u8>,
    pace: Pace,
    moved: Instant,
    /// Names the job that has the upload.
    serial: u64,
    record: Record,
}

/// What the pool says of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// There is room for more.
    More(Box<dyn Upload>),
    /// It was the last, and the file is what was sent; its tag, where that could be had.
    All(Option<String>),
    Failed(FileError),
}

impl Connection {
    /// Begins to receive a file.
    pub(super) fn receive_file(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        upload: Box<dyn Upload>,
        storage: Arc<dyn Storage>,
        path: VirtualPath,
        replaces: bool,
    ) {
        if head.expects_continue {
            core.out.extend_from_slice(CONTINUE);
            self.flush(core, false);
        }
        let goes_on = head.persistent && self.may_serve_on();
        let receiving = Receiving {
            upload: Some(upload),
            storage,
            path,
            replaces,
            intake: Intake::of(head.framing),
            buffer: Vec::new(),
            pace: Pace::new(Direction::Upload),
            moved: core.now.instant,
            serial: 0,
            record: Record::of(head, goes_on, core.now.instant),
        };
        self.work = Work::Receiving(Box::new(receiving));
        self.receive_on(core);
    }

    /// Takes what has come.
    pub(super) fn receive_on(&mut self, core: &mut Core) {
        let Work::Receiving(mut receiving) = std::mem::replace(&mut self.work, Work::Idle) else { return };
        if receiving.upload.is_none() {
            self.work = Work::Receiving(receiving);
            return;
        }
        match self.collect(core, &mut receiving) {
            Err(refusal) => return self.receiving_failed(core, *receiving, refusal),
            Ok(()) if receiving.buffer.len() >= COLLECT || receiving.intake.has_ended() => {
                self.write_collected(core, &mut receiving);
            }
            // The client will send no more of it: what came is given up.
            Ok(()) => self.break_where_ended(),
        }
        self.work = Work::Receiving(receiving);
    }

    fn collect(&mut self, core: &mut Core, receiving: &mut Receiving) -> Result<(), Refusal> {
        let room = COLLECT.saturating_sub(receiving.buffer.len());
        let allowed =
            receiving.pace.allowance(&core.server.limits, &self.member, core.now.instant, room as u64);
        let Some(allowed) = allowed else { return self.within_quota(core, receiving) };
        let before = receiving.buffer.len();
        let most = before + usize::try_from(allowed).unwrap_or(usize::MAX).min(room);
        let taken = self.take_body(core, &mut receiving.intake, &mut receiving.buffer, most);
        let count = receiving.buffer.len() - before;
        receiving.pace.spend(count as u64);
        if count > 0 {
            receiving.moved = core.now.instant;
        }
        taken.and_then(|()| self.within_quota(core, receiving))
    }

    /// Refuses more than the user may upload.
    fn within_quota(&mut self, core: &mut Core, receiving: &Receiving) -> Result<(), Refusal> {
        let Some(over) = receiving.pace.over().cloned() else { return Ok(()) };
        self.log_over_quota(core, Some(&over));
        Err(Refused::from(FileError::from(over)).refusal)
    }

    fn write_collected(&mut self, core: &mut Core, receiving: &mut Receiving) {
        let Some(mut upload) = receiving.upload.take() else { return };
        let buffer = std::mem::take(&mut receiving.buffer);
        let is_all = receiving.intake.has_ended();
        let (storage, path) = (Arc::clone(&receiving.storage), receiving.path.clone());
        receiving.serial = core.next_serial();
        receiving.record.bytes += buffer.len() as u64;
        let (key, serial, inbox) = (self.key, receiving.serial, core.sender.clone());
        core.server.pool.run(move || {
            let written = match upload.write_all(&buffer) {
                Err(error) => Written::Failed(error),
                Ok(()) if !is_all => Written::More(upload),
                Ok(()) => match upload.commit() {
                    Err(error) => Written::Failed(error),
                    Ok(_) => Written::All(tag(&*storage, &path)),
                },
            };
            inbox.send(worker::Message::Http(key, Message::Written(serial, written)));
        });
    }

    /// The pool has written something.
    pub(super) fn written(&mut self, core: &mut Core, serial: u64, written: Written) {
        let Work::Receiving(mut receiving) = std::mem::replace(&mut self.work, Work::Idle) else {
            return core.discard(written);
        };
        if receiving.serial != serial || receiving.upload.is_some() {
            self.work = Work::Receiving(receiving);
            return core.discard(written);
        }
        receiving.moved = core.now.instant;
        match written {
            Written::More(upload) => {
                receiving.upload = Some(upload);
                self.work = Work::Receiving(receiving);
                self.receive_on(core);
            }
            Written::All(tag) => {
                let Receiving { record, replaces, .. } = *receiving;
                let status = if replaces { Status::NO_CONTENT } else { Status::CREATED };
                let tag: Vec<(&str, &str)> = tag.iter().map(|tag| ("ETag", tag.as_str())).collect();
                // The body was the request's, not the answer's.
                self.answer_empty(core, Record { bytes: 0, ..record }, status, &tag);
            }
            Written::Failed(error) => {
                let Refused { refusal, over } = error.into();
                self.log_over_quota(core, over.as_deref());
                self.receiving_failed(core, *receiving, refusal);
            }
        }
    }

    fn receiving_failed(&mut self, core: &mut Core, receiving: Receiving, refusal: Refusal) {
        let Receiving { upload, record, intake, .. } = receiving;
        core.discard(upload);
        if !intake.has_ended() {
            self.linger();
        }
        let persistent = record.persistent && intake.has_ended();
        let record = Record { persistent, bytes: 0, ..record };
        self.answer_page(core, record, refusal.status, refusal.reason, &[]);
    }
}

impl Receiving {
    /// Claims that the pool has the upload.
    pub(super) fn is_lent(&self) -> bool {
        self.upload.is_none()
    }

    /// Until when a limit keeps it waiting.
    pub(super) fn paused(&self) -> Option<Instant> {
        self.pace.paused
    }

    /// When a byte last moved.
    pub(super) fn moved(&self) -> Instant {
        self.moved
    }

    /// Gives up.
    pub(super) fn into_parts(self) -> (Option<Box<dyn Upload>>, Record) {
        (self.upload, self.record)
    }
}

/// The tag of what was just written.
fn tag(storage: &dyn Storage, path: &VirtualPath) -> Option<String> {
    let now = storage.metadata(path, Wait::Allowed).ok()?;
    let validators = millrace_http::conditional::Validators::of(now.identity.1, now.size, now.modified);
    Some(validators.etag.to_string())
}
