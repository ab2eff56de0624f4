//! How a connection ends: behind its last answer, at once, or with the server.

use millrace_http::h1::{Act, Input, Unread};
use millrace_http::{Head, Status};

use super::connection::{Connection, Work};
use super::hooking::Then;
use super::record::Record;
use crate::http::answer::Answers;
use crate::http::hooking::Notices;
use crate::http::reading::Reader;
use crate::http::sending::Delivery;
use crate::log::Direction;
use crate::transfer::TURN;
use crate::worker::Core;

/// Returns whether the request of a head is one that may change something.
fn may_change(head: &Head) -> bool {
    !head.method.is_safe()
}

impl Connection {
    pub(super) fn is_over(&self) -> bool {
        if self.link.is_broken() {
            return !self.owes_an_end();
        }
        let is_at_rest = matches!(self.work, Work::Idle) && self.link.is_flushed();
        if self.stream.is_some() {
            return is_at_rest && self.http.is_closing();
        }
        is_at_rest
            && match self.http.is_closing() {
                true => self.http.is_closed(),
                // A client that sends no more may have sent more than was taken.
                false => {
                    self.http.is_last() || self.http.has_peer_closed() && !self.hooked.waits_to_be_heard()
                }
            }
    }

    /// Returns whether an operation is under way that must be logged and reported to hooks, even if the client has
    /// gone: a commit on the pool, or, with hooks, another change; or a verdict of hooks.
    fn owes_an_end(&self) -> bool {
        match &self.work {
            Work::Receiving(receiving) => receiving.is_lent() && self.http.has_whole_body(),
            Work::Asked(asked) => self.hooked.get().is_some() && may_change(&asked.head),
            Work::Ruled(_, then) => {
                matches!(**then, Then::Answer(..) | Then::Named(..) | Then::Dav(..))
            }
            _ => false,
        }
    }

    /// Returns whether the connection is closed as soon as what there is to say was sent.
    pub(super) fn ends_behind_output(&self) -> bool {
        self.http.is_closing()
            && !self.http.expects_rest()
            && !self.link.may_read()
            && self.link.channel().is_none()
    }

    /// No further requests are taken; pending answers are still sent.
    pub(super) fn close_behind(&mut self, core: &Core) {
        self.http.close_behind(core.now.instant);
    }

    /// The close that follows is a reset.
    pub(crate) fn reset(&self) {
        self.link.reset_on_close();
    }

    /// Ends our side, and reads what still comes: closing a socket with something unread resets it, and a
    /// reset can overtake the last answer.
    pub(super) fn say_farewell(&mut self, core: &mut Core) {
        let is_due = self.http.is_closing() && matches!(self.work, Work::Idle);
        if !is_due || !self.link.is_flushed() || self.link.is_broken() {
            return;
        }
        if !self.http.has_ended_output() {
            self.link.end_tls();
            let unread = if self.link.may_read() { Unread::Possible } else { Unread::Nothing };
            let step = self.http.handle(core.now.instant, Input::Sent(unread), &mut core.http.heads);
            if let Some(Act::EndOutput) = step.act {
                self.link.end_writing();
            }
        }
        let (mut buffer, mut share) = (std::mem::take(&mut core.scratch), TURN);
        while self.link.may_read() && !self.link.is_broken() && !self.http.is_closed() && share > 0 {
            // Whatever it is, in TLS or not, it is thrown away.
            if let Some(count) = Reader::new(self, core).receive(&mut buffer) {
                share = share.saturating_sub(count);
                let rest = Input::Received(&buffer[..count]);
                self.http.handle(core.now.instant, rest, &mut core.http.heads);
            }
        }
        core.scratch = buffer;
        if self.link.may_read() && !self.link.is_broken() && !self.http.is_closed() {
            core.yielded.push_back(self.key);
        }
    }

    /// The client may send more: it is read for a while, and discarded.
    pub(super) fn linger(&mut self) {
        self.http.linger();
    }

    /// A client that has ended in the middle of a body has gone.
    pub(super) fn break_where_ended(&mut self) {
        if self.http.has_peer_closed() {
            self.link.break_off();
        }
    }

    /// Another server accepts: the next answer is the last, and an idle client is not cut off from an answer.
    pub(crate) fn retire(&mut self) {
        if self.stream.is_none() {
            self.http.retire();
        }
    }

    /// The server is closing: pending requests are still answered.
    pub(crate) fn shut_down(&mut self) {
        self.http.shut_down();
    }

    /// The time of grace is over.
    pub(crate) fn end_now(&mut self) {
        self.link.break_off();
    }

    /// Ends the connection and everything that belongs to it.
    pub(crate) fn close(mut self: Box<Self>, core: &mut Core) {
        self.end_work(core);
        self.note_end(core);
    }

    fn end_work(&mut self, core: &mut Core) {
        let record = match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Sending(sending) => {
                let (record, body) = self.cut_short(*sending);
                Delivery::new(self, core).note_sent(&record, Some("the connection ended"));
                // What was sent must not look like the whole of an answer that ends with the connection.
                self.link.reset_on_close();
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
                    Notices::of(self).note_transfer(core, Direction::Upload, &record, record.bytes, why);
                }
                // What was counted is the request's body; there was no answer.
                Record { status: Status::BAD_REQUEST, bytes: 0, ..record }
            }
            Work::Queued(_, asked) | Work::Held(_, asked) => unanswered(core, &asked.head),
            Work::Collecting(collecting) => unanswered(core, collecting.head()),
            Work::Ruled(_, then) => {
                self.hooked.give_up();
                let Then::Request(head) = *then else { return };
                unanswered(core, &head)
            }
            _ => return,
        };
        Answers::new(self, core).log_request(&record);
    }
}

/// Of a request whose client is gone before anything was done.
pub(super) fn unanswered(core: &Core, head: &Head) -> Record {
    Record { status: Status::BAD_REQUEST, ..Record::of(head, false, core.now.instant) }
}
