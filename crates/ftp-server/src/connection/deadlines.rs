//! What is due on a connection, and when: the session's own deadlines, and those of whatever it waits for.

use std::time::Instant;

use millrace_ftp::session::Input;
use millrace_runtime::worker::Core;

use super::Connection;

impl Connection {
    /// When something is due, whatever it is.
    fn due(&self) -> Option<Instant> {
        let transfer = self.running.as_deref().and_then(|running| self.transfer_due(running));
        let (question, lease, hook) = (self.question_due(), self.lease_due(), self.hook_due());
        let closing = self.state.closing.filter(|_| !self.holds_replies());
        [self.session.deadline(), self.port_deadline, closing, transfer, question, lease, hook]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn set_clock(&mut self, core: &mut Core) {
        if let Some(due) = self.due()
            && self.look_at.is_none_or(|look_at| due < look_at)
        {
            self.look_at = Some(core.wheel.insert(due, self.key));
        }
    }

    /// The wheel says that something may be due.
    pub fn look_at_clock(&mut self, core: &mut Core) {
        let now = core.now.instant;
        if self.look_at.is_none_or(|look_at| look_at > now) {
            return;
        }
        self.look_at = None;
        let is_due = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= now);
        if (is_due(self.state.closing) && !self.holds_replies()) || is_due(self.hook_due()) {
            self.state.broken = true;
        } else if is_due(self.port_deadline) {
            self.no_port(core);
        } else if is_due(self.running.as_deref().and_then(|running| self.transfer_due(running))) {
            self.transfer_overdue(core);
        } else if is_due(self.question_due()) {
            self.question_overdue(core);
        } else if is_due(self.lease_due()) {
            self.lease_overdue(core);
        } else if is_due(self.session.deadline()) {
            self.feed(core, Input::Deadline);
        }
    }
}
