//! How a connection ends behind its answers.

use millrace_http::{Head, Status};

use crate::connection::Connection;
use crate::record::Record;
use crate::worker::Core;

impl Connection {
    /// No further requests are taken; pending answers are still sent.
    pub(crate) fn close_behind(&mut self, core: &Core) {
        self.http.close_behind(core.now.instant);
    }

    /// The client may send more: it is read for a while, and discarded.
    pub(crate) fn linger(&mut self) {
        self.http.linger();
    }

    /// A client that has ended in the middle of a body has gone.
    pub(crate) fn break_where_ended(&mut self) {
        if self.http.has_peer_closed() {
            self.link.break_off();
        }
    }

    /// The time of grace is over.
    pub fn end_now(&mut self) {
        self.link.break_off();
    }
}

/// Of a request whose client is gone before anything was done.
pub(crate) fn unanswered(core: &Core, head: &Head) -> Record {
    Record { status: Status::BAD_REQUEST, ..Record::of(head, false, core.now.instant) }
}
