//! Sends collected answers, and bodies that do not fit into one write.

use millrace_ftp::session::TransferError;
use millrace_log::Direction;
use millrace_metrics::Protocol;
use millrace_runtime::transfer::{Sender, describe};
use millrace_vfs::FileError;

use crate::answer::Answers;
use crate::body::Progress;
use crate::connection::exchange::internal_error;
use crate::connection::{Connection, Work};
use crate::message::Message;
use crate::notices::Notices;
use crate::record::Record;
use crate::sending::Sending;
use crate::worker::Core;

/// A body on its way out, while the worker sends it.
pub(crate) struct Delivery<'a> {
    connection: &'a mut Connection,
    core: &'a mut Core,
}

impl<'a> Delivery<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Delivery<'_> {
    /// What was sent may have been a file.
    pub(crate) fn note_sent(&mut self, record: &Record, failure: Option<&str>) {
        if record.is_file {
            Notices::of(self.connection).note_transfer(
                self.core,
                Direction::Download,
                record,
                record.bytes,
                failure,
            );
        }
    }
}

impl Delivery<'_> {
    /// Begins to send a body, whose head is in `core.out`.
    pub(crate) fn send_body(&mut self, sending: Box<Sending>) {
        self.connection.work = Work::Sending(sending);
        self.send_on();
    }

    /// Sends on.
    pub(crate) fn send_on(&mut self) {
        loop {
            let follows = match &self.connection.work {
                Work::Sending(sending) => sending.body.has_more(),
                _ => false,
            };
            self.connection.flush(self.core, follows);
            if !self.connection.link.has_room() || self.connection.link.is_broken() {
                return;
            }
            let Work::Sending(sending) = &mut self.connection.work else { return };
            let kernel = &mut self.core.kernel;
            let limits = (&kernel.services.limits, &self.connection.member);
            let before = sending.body.paused();
            sending.in_line = false;
            let progress = sending.body.advance(
                &mut self.connection.link.sink(),
                &mut kernel.scratch,
                kernel.now.instant,
                limits,
            );
            sending.note_first_byte(&kernel.services.clock);
            if matches!(progress, Progress::Pause) {
                kernel.note_limit_wait(Protocol::Http, before, sending.body.paused());
            }
            if !matches!(progress, Progress::Bytes(_) | Progress::Done) {
                // The next bytes are not here yet: the head goes ahead.
                self.connection.link.flush_held(self.core, self.connection.key);
            }
            match progress {
                Progress::Bytes(bytes) => {
                    self.core.out.extend_from_slice(&bytes);
                    if let Work::Sending(sending) = &mut self.connection.work {
                        sending.record.bytes += bytes.len() as u64;
                    }
                }
                // The wheel wakes it.
                Progress::Pause => return,
                Progress::Wait => return self.connection.link.watch_writable(self.core, self.connection.key),
                Progress::Yield => {
                    if let Work::Sending(sending) = &mut self.connection.work {
                        sending.in_line = true;
                    }
                    return self.core.yielded.push_back(self.connection.key);
                }
                Progress::Fill(sender) => return self.fill(sender),
                Progress::Spent(sender) => self.core.discard(sender),
                // What waits in a stream is the answer's until it is taken.
                Progress::Done if self.has_unsent_body() => return,
                Progress::Done => return self.body_sent(),
                Progress::Failed(error) => {
                    if let TransferError::File(FileError::OverQuota(over)) = &error {
                        Answers::new(self.connection, self.core).tell_limit(Some(&(&**over).into()));
                    }
                    return self.body_failed(&describe(&error));
                }
            }
        }
    }

    /// Returns whether bytes of the body wait to be sent.
    fn has_unsent_body(&self) -> bool {
        match &self.connection.work {
            Work::Sending(sending) => {
                !self.connection.link.is_flushed() && sending.record.bytes + sending.body.bytes() > 0
            }
            _ => false,
        }
    }

    fn fill(&mut self, mut sender: Box<Sender>) {
        let serial = self.core.next_serial();
        if let Work::Sending(sending) = &mut self.connection.work {
            sending.body.serial = serial;
        }
        let reply = self.connection.promise(self.core, Message::Filled(serial, None, Err(internal_error())));
        self.core.server.pool.run(move || {
            let result = sender.fill();
            reply.keep(Message::Filled(serial, Some(*sender), result));
        });
    }

    fn body_sent(&mut self) {
        let Work::Sending(sending) = std::mem::replace(&mut self.connection.work, Work::Idle) else { return };
        let Sending { body, mut record, goes_on, .. } = *sending;
        record.bytes += body.bytes();
        Delivery::new(self.connection, self.core).note_sent(&record, None);
        Answers::new(self.connection, self.core).log_request(&record);
        if !goes_on {
            self.connection.close_behind(self.core);
        }
    }

    /// The body cannot be sent completely: closes the connection, so that a part is not taken for the whole.
    pub(crate) fn body_failed(&mut self, why: &str) {
        let Work::Sending(sending) = std::mem::replace(&mut self.connection.work, Work::Idle) else { return };
        let (record, body) = self.connection.cut_short(*sending);
        Delivery::new(self.connection, self.core).note_sent(&record, Some(why));
        Answers::new(self.connection, self.core).log_request(&record);
        Notices::of(self.connection).warn(self.core, &format!("an answer was cut: {why}"));
        self.connection.link.cut();
        if let Some(remains) = body.remains() {
            self.core.discard(remains);
        }
    }
}
