//! How a connection ends: with the last reply taken, and nothing of it left behind.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_ftp::session::{Answer, Input, TransferError};
use millrace_log as log;
use millrace_net::stream;
use millrace_runtime::worker::Core;
use millrace_vfs::FileError;

use super::{Connection, State};

/// How long the last replies may take to be read by a client that is being closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Reads of a client that goes on sending to a session that has ended, until it is cut.
const DRAIN: usize = 64;

impl Connection {
    pub(super) fn is_over(&self) -> bool {
        if self.state.broken || (self.state.closing.is_some() && self.output.is_empty()) {
            return true;
        }
        self.state.ended
            && self.held.is_none()
            && self.pending.is_empty()
            && self.output.is_empty()
            && !self.session.is_busy()
            && !self.awaits_hook()
    }

    /// Everything of the session ends but its socket, which waits, for a moment, for the client's end.
    pub(super) fn leave(&mut self, core: &mut Core) {
        self.end_session(core);
        self.state.is_left = true;
        self.answer_close_notify(core);
        self.give_time_to_leave(core);
        if !self.state.broken {
            self.state.broken = stream::end_writing(&self.socket).is_err();
        }
        if self.state.readable {
            self.drain(core);
        }
    }

    /// Reads what nobody wants any more: all that has come, as there is one event for it, but no flood.
    pub(super) fn drain(&mut self, core: &mut Core) {
        if self.state.broken {
            return;
        }
        for _ in 0..DRAIN {
            match stream::read(&self.socket, &mut core.control_buffer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.state.broken = true;
    }

    /// The server is closing.
    pub fn shut_down(&mut self, core: &mut Core) {
        self.feed(core, Input::Shutdown);
    }

    /// The time of grace is over.
    pub fn end_now(&mut self, core: &mut Core) {
        self.feed(core, Input::Shutdown);
        if let Some(outcome) = self.abort(core, TransferError::Aborted)
            && let Some(outcome) = self.transfer_over(core, outcome)
        {
            self.feed(core, Input::TransferEnded(outcome));
        }
        // Nobody will be there to hear what the pool answers, or what a job brings back.
        if self.question.take().is_some() {
            self.feed(core, Input::Answer(Answer::Failed(FileError::Cancelled)));
        }
        if self.running.is_some() {
            self.transfer_overdue(core);
        }
        if let Some(input) = self.abort_hook(core) {
            self.feed(core, input);
        }
    }

    /// Ends the connection and everything that belongs to it.
    pub fn close(mut self: Box<Self>, core: &mut Core) {
        if !self.state.is_left {
            self.end_session(core);
        }
    }

    fn end_session(&mut self, core: &mut Core) {
        if let Some(question) = self.question.take() {
            question.shared.cancelled.store(true, Ordering::Relaxed);
        }
        self.give_up_transfer(core);
        self.drop_lease(core);
        self.port_deadline = None;
        let parting = self.state.parting.take();
        let reason = match (&parting, &self.state, self.session.is_closed()) {
            (Some(parting), ..) => parting,
            (None, _, true) => "closed",
            (None, State { broken: true, .. }, _) => "connection lost",
            _ => "client closed",
        };
        self.log(core, log::Event::Disconnected { reason });
        self.tell_the_rest(core);
        core.services.sessions.release(self.session.peer().ip());
    }

    /// What was said last may take so long to be read.
    pub(super) fn give_time_to_leave(&mut self, core: &Core) {
        self.state.closing = Some(core.now.instant + FAREWELL);
    }
}
