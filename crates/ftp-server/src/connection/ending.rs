//! How a connection ends: with the last reply taken, and nothing of it left behind.

use millrace_ftp::session::{Answer, Input, TransferError};
use millrace_log as log;
use millrace_runtime::worker::Core;
use millrace_vfs::FileError;

use super::Connection;
use super::data::Data;
use super::wire::Wire;

impl Connection {
    pub(super) fn is_over(&self) -> bool {
        let Wire { state, output, closing, .. } = &self.wire;
        if state.is_broken() || (closing.is_some() && output.is_empty()) {
            return true;
        }
        state.has_read_end()
            && !self.lines.are_waiting()
            && output.is_empty()
            && !self.session.is_busy()
            && !self.hooks.awaits_hook()
    }

    /// Everything of the session ends but its socket, which waits, for a moment, for the client's end.
    pub(super) fn leave(&mut self, core: &mut Core) {
        self.end_session(core);
        self.wire.leave(core, self.hooks.holds_replies());
    }

    /// The client has said its last. What it asked for is done as far as that is possible, but a transfer, or a
    /// port for one, needs a client that hears how it ended: that is given up, and said while it can be.
    /// Returns whether there was such a thing, and what comes after it may go on.
    pub(super) fn hang_up(&mut self, core: &mut Core) -> bool {
        if self.data.port.deadline.take().is_some() {
            let why = "the control connection was closed before one was free".to_owned();
            self.feed(core, Input::Answer(Answer::NoPort(why)));
            return true;
        }
        let (data, mut scene) = self.data_parts(core);
        let Some(outcome) = data.hang_up(&mut scene) else { return false };
        self.finish(core, outcome);
        true
    }

    /// The server is closing.
    pub fn shut_down(&mut self, core: &mut Core) {
        self.feed(core, Input::Shutdown);
    }

    /// The time of grace is over.
    pub fn end_now(&mut self, core: &mut Core) {
        self.feed(core, Input::Shutdown);
        let outcome = self.abort(core, TransferError::Aborted);
        self.finish(core, outcome);
        // What the pool answers, or what a job brings back, is not heard any more.
        if self.question.take().is_some() {
            self.feed(core, Input::Answer(Answer::Failed(FileError::Cancelled)));
        }
        self.transfer_by(core, Data::overdue);
        if let Some(input) = self.abort_hook(core) {
            self.feed(core, input);
        }
    }

    /// Ends the connection and everything that belongs to it.
    pub fn close(mut self: Box<Self>, core: &mut Core) {
        if !self.wire.is_left {
            self.end_session(core);
        }
    }

    fn end_session(&mut self, core: &mut Core) {
        if let Some(question) = self.question.take() {
            question.cancel();
        }
        let (data, mut scene) = self.data_parts(core);
        data.give_up(&mut scene);
        let parting = self.parting.take();
        let reason = match (&parting, self.session.is_closed(), self.wire.state.is_broken()) {
            (Some(parting), ..) => parting,
            (None, true, _) => "closed",
            (None, false, true) => "connection lost",
            (None, false, false) => "client closed",
        };
        let lasted = core.now.instant.saturating_duration_since(self.began);
        self.log(core, log::Event::Disconnected { reason, lasted });
        let (hooks, me) = self.hook_parts();
        hooks.close(core, me);
        core.services.sessions.release(self.session.peer().ip());
    }
}
