//! What is sent: answers that were collected, and bodies that do not fit into one write.

use millrace_ftp::session::TransferError;
use millrace_vfs::FileError;

use super::Message;
use super::body::{Body, Progress};
use super::connection::{Connection, Work};
use super::exchange::internal_error;
use super::record::Record;
use crate::log::{self, Direction, Subject};
use crate::transfer::{Sender, describe};
use crate::worker::{self, Core};

/// An answer whose body is on its way.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) body: Body,
    /// Its bytes are those that stood between the parts of the body.
    pub(super) record: Record,
    /// Whether the connection goes on behind it.
    pub(super) goes_on: bool,
}

impl Connection {
    /// Begins to send a body, whose head is in `core.out`.
    pub(super) fn send_body(&mut self, core: &mut Core, sending: Box<Sending>) {
        self.work = Work::Sending(sending);
        self.go_on(core);
    }

    /// Sends on.
    pub(super) fn send_on(&mut self, core: &mut Core) {
        loop {
            let follows = match &self.work {
                Work::Sending(sending) => sending.body.has_more(),
                _ => false,
            };
            self.flush(core, follows);
            if !self.link.is_flushed() || self.link.is_broken() {
                return;
            }
            let Work::Sending(sending) = &mut self.work else { return };
            let limits = (&core.server.limits, &self.member);
            let progress =
                sending.body.advance(&mut self.link.socket, &mut core.scratch, core.now.instant, limits);
            if !matches!(progress, Progress::Bytes(_) | Progress::Done) {
                // The next bytes are not here yet: the head goes ahead.
                self.link.flush_held(core, self.key);
            }
            match progress {
                Progress::Bytes(bytes) => {
                    core.out.extend_from_slice(&bytes);
                    if let Work::Sending(sending) = &mut self.work {
                        sending.record.bytes += bytes.len() as u64;
                    }
                }
                // The wheel wakes it.
                Progress::Pause => return,
                Progress::Wait => return self.link.watch_writable(core, self.key),
                Progress::Yield => return core.yielded.push_back(self.key),
                Progress::Fill(sender) => return self.fill(core, sender),
                Progress::Spent(sender) => core.discard(sender),
                Progress::Done => return self.body_sent(core),
                Progress::Failed(error) => {
                    if let TransferError::File(FileError::OverQuota(over)) = &error {
                        self.tell_limit(core, Some(&(&**over).into()));
                    }
                    return self.body_failed(core, &describe(&error));
                }
            }
        }
    }

    fn fill(&mut self, core: &mut Core, mut sender: Box<Sender>) {
        let serial = core.next_serial();
        if let Work::Sending(sending) = &mut self.work {
            sending.body.serial = serial;
        }
        let (key, reply) =
            (self.key, self.promise(core, Message::Filled(serial, None, Err(internal_error()))));
        core.server.pool.run(move || {
            let result = sender.fill();
            reply.keep(worker::Message::Http(key, Message::Filled(serial, Some(*sender), result)));
        });
    }

    fn body_sent(&mut self, core: &mut Core) {
        let Work::Sending(sending) = std::mem::replace(&mut self.work, Work::Idle) else { return };
        let Sending { body, mut record, goes_on } = *sending;
        record.bytes += body.bytes();
        self.note_sent(core, &record, None);
        self.log_request(core, &record);
        if !goes_on {
            self.close_behind(core);
        }
    }

    /// What was sent may have been a file.
    pub(super) fn note_sent(&self, core: &mut Core, record: &Record, failure: Option<&str>) {
        if record.is_file {
            self.note_transfer(core, Direction::Download, record, record.bytes, failure);
        }
    }

    /// The body cannot be sent whole: the connection ends, so that nobody takes the part for the whole.
    pub(super) fn body_failed(&mut self, core: &mut Core, why: &str) {
        let Work::Sending(sending) = std::mem::replace(&mut self.work, Work::Idle) else { return };
        let (record, body) = self.cut_short(*sending);
        self.note_sent(core, &record, Some(why));
        self.log_request(core, &record);
        let subject = Subject { session: self.number, peer: self.peer, user: None };
        core.log(&subject, log::Event::Warning { text: &format!("an answer was cut: {why}") });
        self.link.cut();
        if let Some(remains) = body.remains() {
            core.discard(remains);
        }
    }

    /// An answer that ends before its body does, with what was sent of it.
    pub(super) fn cut_short(&self, sending: Sending) -> (Record, Body) {
        let Sending { body, mut record, .. } = sending;
        record.bytes += body.bytes();
        (self.as_sent(record), body)
    }

    /// Of an answer that ends here: what waits to be sent never is, and what came no further than to who relays it
    /// was not, either.
    pub(super) fn as_sent(&self, record: Record) -> Record {
        let bytes = record.bytes.saturating_sub(self.link.unsent());
        let relayed = self.carries.as_ref().map_or(u64::MAX, |carried| carried.relayed());
        Record { bytes: bytes.min(relayed), ..record }
    }

    /// Sends what there is to say, as far as the client takes it.
    pub(super) fn flush(&mut self, core: &mut Core, follows: bool) {
        if self.link.flush(core, self.key, follows) {
            self.http.moved(core.now.instant);
            if let Work::Sending(sending) = &mut self.work {
                sending.body.moved = core.now.instant;
            }
        }
    }
}
