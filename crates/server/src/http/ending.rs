//! How a connection ends: behind its last answer, at once, or with the server.

use std::time::Duration;

use millrace_http::{Head, Status};
use millrace_net::stream;

use super::connection::{Connection, Work};
use super::hooking::Then;
use super::record::Record;
use crate::log::Direction;
use crate::transfer::TURN;
use crate::worker::Core;

/// How long a client that is being closed may take to read its last answer, or to send more that is thrown away. Many
/// programs read an answer only when all of their request is sent: what is not read of that resets the connection, and
/// the answer is lost.
const FAREWELL: Duration = Duration::from_secs(5);

/// For how long one may go on sending.
const LONGEST_FAREWELL: Duration = Duration::from_secs(30);

/// Claims that the request of a head is one that may change something.
fn may_change(head: &Head) -> bool {
    !head.method.is_safe()
}

impl Connection {
    pub(super) fn is_over(&self) -> bool {
        if self.flags.broken {
            return !self.owes_an_end();
        }
        let said_all = matches!(self.work, Work::Idle) && self.output_is_empty();
        match self.closing {
            Some(_) => said_all && self.flags.ended,
            // Whoever will say no more may have said more than was taken.
            None => said_all && (self.flags.last || self.flags.ended && !self.waits_to_be_heard()),
        }
    }

    /// Claims that something is under way that logs and hooks have to hear of, whether the client is still there or not:
    /// the pool gives a file its name, or, where there are hooks, may change something else; or hooks have their word in
    /// what was done.
    fn owes_an_end(&self) -> bool {
        match &self.work {
            Work::Receiving(receiving) => receiving.is_being_ended(),
            Work::Asked(asked) => self.hooked.get().is_some() && may_change(&asked.head),
            Work::Ruled(_, then) => {
                matches!(**then, Then::Answer(..) | Then::Named(..) | Then::Dav(..))
            }
            _ => false,
        }
    }

    /// Claims that the connection is closed as soon as what there is to say was sent.
    pub(super) fn ends_behind_output(&self) -> bool {
        self.closing.is_some()
            && matches!(self.work, Work::Idle)
            && !self.is_listened_to()
            && self.socket.tls.is_none()
    }

    /// Claims that a client that is being closed may have said something that is to be read first.
    fn is_listened_to(&self) -> bool {
        self.flags.readable || self.flags.lingers
    }

    /// Nothing more is taken; what is answered is still sent.
    pub(super) fn close_behind(&mut self, core: &Core) {
        self.closing.get_or_insert(core.now.instant + FAREWELL);
        self.input = Vec::new();
    }

    /// The connection ends so that nobody takes the part of an answer for the whole.
    pub(super) fn cut(&mut self) {
        stream::reset_on_close(&self.socket.fd);
        self.flags.broken = true;
    }

    /// The close that follows is a reset.
    pub(crate) fn reset(&self) {
        stream::reset_on_close(&self.socket.fd);
    }

    /// Ends our side, and reads what still comes: closing a socket with something unread resets it, and a
    /// reset can overtake the last answer.
    pub(super) fn say_farewell(&mut self, core: &mut Core) {
        if self.closing.is_none()
            || !self.output_is_empty()
            || self.flags.broken
            || !matches!(self.work, Work::Idle)
        {
            return;
        }
        if !self.flags.shut {
            self.flags.shut = true;
            self.end_tls();
            if !self.is_listened_to() {
                self.flags.ended = true;
                return;
            }
            self.flags.broken |= stream::end_writing(&self.socket.fd).is_err();
        }
        let (mut buffer, mut share) = (std::mem::take(&mut core.scratch), TURN);
        while self.flags.readable && !self.flags.broken && share > 0 {
            // Whatever it is, in TLS or not: nobody will look at it.
            if let Some(count) = self.receive(&mut buffer) {
                share = share.saturating_sub(count);
                let (now, longest) = (core.now.instant, self.since + LONGEST_FAREWELL);
                self.closing = self.closing.map(|closing| closing.max(longest.min(now + FAREWELL)));
            }
        }
        core.scratch = buffer;
        if self.flags.readable && !self.flags.broken {
            core.yielded.push_back(self.key);
        }
    }

    /// The client may send more that nobody will take: it is read for a while, and thrown away.
    pub(super) fn linger(&mut self) {
        self.flags.lingers = true;
    }

    /// A client that has ended in the middle of a body has gone.
    pub(super) fn break_where_ended(&mut self) {
        self.flags.broken |= self.flags.ended;
    }

    /// Another server accepts: the next answer is the last, and who asks nothing is not cut off from an answer.
    pub(crate) fn retire(&mut self) {
        self.flags.retires = self.carries.is_none();
    }

    /// The server is closing: what is asked is still answered.
    pub(crate) fn shut_down(&mut self) {
        self.flags.last = true;
    }

    /// The time of grace is over.
    pub(crate) fn end_now(&mut self) {
        self.flags.broken = true;
    }

    /// Ends the connection and everything that belongs to it.
    pub(crate) fn close(mut self: Box<Self>, core: &mut Core) {
        self.end_work(core);
        if !self.is_handed_over() {
            self.note_end(core);
        }
    }

    fn end_work(&mut self, core: &mut Core) {
        let record = match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Sending(sending) => {
                let (record, body) = self.cut_short(*sending);
                self.note_sent(core, &record, Some("the connection ended"));
                // What was sent must not look like the whole of an answer that ends with the connection.
                stream::reset_on_close(&self.socket.fd);
                if let Some(remains) = body.remains() {
                    core.discard(remains);
                }
                record
            }
            Work::Running(running) => {
                let (program, record) = running.into_parts();
                core.discard(program);
                self.as_sent(record)
            }
            Work::Receiving(receiving) => {
                let is_piece = receiving.is_piece();
                let (leave, record) = receiving.into_parts();
                core.server.pool.run(leave);
                if !is_piece {
                    let why = Some("the connection ended");
                    self.note_transfer(core, Direction::Upload, &record, record.bytes, why);
                }
                // What was counted is the request's body; there was no answer.
                Record { status: Status::BAD_REQUEST, bytes: 0, ..record }
            }
            Work::Queued(_, asked) | Work::Held(_, asked) => unanswered(core, &asked.head),
            Work::Collecting(collecting) => unanswered(core, collecting.head()),
            Work::Ruled(_, then) => {
                self.give_up_ruling();
                let Then::Request(head) = *then else { return };
                unanswered(core, &head)
            }
            _ => return,
        };
        self.log_request(core, &record);
    }
}

/// Of a request whose client is gone before anything was done.
pub(super) fn unanswered(core: &Core, head: &Head) -> Record {
    Record { status: Status::BAD_REQUEST, ..Record::of(head, false, core.now.instant) }
}
