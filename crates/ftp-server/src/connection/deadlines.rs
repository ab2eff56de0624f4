//! The deadlines of a connection: the session's own, and those of what it waits for.

use std::time::Instant;

use millrace_ftp::session::{Answer, Input};
use millrace_runtime::worker::Core;

use super::Connection;
use super::data::Data;

impl Connection {
    /// Returns when something is due, whatever it is.
    pub(super) fn due(&self) -> Option<Instant> {
        let (transfer, question) = (
            self.data.due(&self.door.ftp.config),
            self.question.as_ref().and_then(|question| question.due(self.wire.state.has_hung_up())),
        );
        let (lease, hook) = (self.data.lease_due(), self.hooks.due());
        [
            self.session.deadline(),
            self.data.port.deadline,
            self.wire.closing_due(self.hooks.holds_replies()),
            transfer,
            question,
            lease,
            hook,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The wheel says that something may be due.
    pub fn look_at_clock(&mut self, core: &mut Core) {
        let now = core.now.instant;
        if !self.wheel_entry.take_due(now) {
            return;
        }
        let is_due = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= now);
        if is_due(self.wire.closing_due(self.hooks.holds_replies())) || is_due(self.hooks.due()) {
            self.wire.state.break_off();
        } else if is_due(self.data.port.deadline) {
            let (data, mut scene) = self.data_parts(core);
            let answer: Answer = data.port.wait_overdue(&mut scene);
            self.feed(core, Input::Answer(answer));
        } else if is_due(self.data.due(&self.door.ftp.config)) {
            self.transfer_by(core, Data::overdue);
        } else if is_due(
            self.question.as_ref().and_then(|question| question.due(self.wire.state.has_hung_up())),
        ) {
            self.question_overdue(core);
        } else if is_due(self.data.lease_due()) {
            let (data, mut scene) = self.data_parts(core);
            data.port.overdue(&mut scene);
        } else if is_due(self.session.deadline()) {
            self.feed(core, Input::Deadline);
        }
    }
}
