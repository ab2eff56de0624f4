//! How a connection ends: behind its last answer, at once, or with the server.

use millrace_http::h1::{Act, Input, Unread};
use millrace_http::{Head, Status};
use millrace_log::Direction;
use millrace_runtime::transfer::TURN;

use crate::answer::Answers;
use crate::answer::delivery::Delivery;
use crate::body_reader::Reader;
use crate::connection::ending::unanswered;
use crate::connection::{Connection, Work};
use crate::hook_state::Then;
use crate::notices::Notices;
use crate::record::Record;
use crate::worker::Core;

/// Returns whether the request of a head is one that may change something.
fn may_change(head: &Head) -> bool {
    !head.method.is_safe()
}

impl Connection {
    pub(crate) fn is_over(&self) -> bool {
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
    pub(crate) fn ends_behind_output(&self) -> bool {
        self.http.is_closing()
            && !self.http.expects_rest()
            && !self.link.may_read()
            && self.link.channel().is_none()
    }

    /// The close that follows is a reset.
    pub fn reset(&self) {
        self.link.reset_on_close();
    }

    /// Ends our side, and reads what still comes: closing a socket with something unread resets it, and a
    /// reset can overtake the last answer.
    pub(crate) fn say_farewell(&mut self, core: &mut Core) {
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

    /// Another server accepts: the next answer is the last, and an idle client is not cut off from an answer.
    pub fn retire(&mut self) {
        if self.stream.is_none() {
            self.http.retire();
        }
    }

    /// The server is closing: pending requests are still answered.
    pub fn shut_down(&mut self) {
        self.http.shut_down();
    }

    /// Ends the connection and everything that belongs to it.
    pub fn close(mut self: Box<Self>, core: &mut Core) {
        if matches!(self.work, Work::Idle) && self.link.is_flushed() && !self.link.is_broken() {
            // A client that has ended TLS between two requests is told the same.
            self.link.end_tls();
        }
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
            Work::Resumed(resumed) => unanswered(core, &resumed.head),
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
