//! When a connection has waited for long enough.
//!
//! The wheel's entries are hints: one that comes too early finds that nothing is due yet.

use std::time::Instant;

use millrace_http::{Refusal, Status};

use super::connection::{Connection, Work};
use crate::worker::Core;

impl Connection {
    fn due(&self, core: &Core) -> Option<Instant> {
        if let Some(closing) = self.closing
            && matches!(self.work, Work::Idle)
        {
            return Some(closing);
        }
        let config = &core.server.config;
        match &self.work {
            Work::Idle if !self.output_is_empty() => Some(self.since + config.stall_timeout),
            // It is the hooks that are waited for.
            Work::Idle if self.waits_to_be_heard() => None,
            Work::Idle if self.input.is_empty() && self.flags.spoke => {
                Some(self.since + config.http_idle_timeout)
            }
            Work::Idle | Work::Securing(_) => Some(self.since + config.http_head_timeout),
            // How long hooks may take is theirs to say.
            Work::Asked(_) | Work::Ruled(..) => None,
            Work::Collecting(collecting) => Some(collecting.began + config.stall_timeout),
            Work::Held(until, _) | Work::Queued(until, _) => Some(*until),
            Work::Running(running) => Some(running.due()),
            Work::Receiving(receiving) if receiving.is_lent() => None,
            Work::Receiving(receiving) => {
                Some(receiving.paused().unwrap_or(receiving.moved() + config.stall_timeout))
            }
            Work::Sending(sending) if sending.body.is_lent() => None,
            Work::Sending(sending) => match sending.body.paused() {
                Some(until) => Some(until),
                None => Some(sending.body.taken.due(sending.body.moved, config.stall_timeout)),
            },
        }
    }

    pub(super) fn set_clock(&mut self, core: &mut Core) {
        if let Some(due) = self.due(core)
            && self.look_at.is_none_or(|look_at| due < look_at)
        {
            self.look_at = Some(core.wheel.insert(due, self.key));
        }
    }

    /// The wheel says that something may be due.
    pub(crate) fn look_at_clock(&mut self, core: &mut Core) {
        let now = core.now.instant;
        if self.look_at.is_none_or(|look_at| look_at > now) {
            return;
        }
        self.look_at = None;
        if self.due(core).is_none_or(|due| due > now) {
            return;
        }
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Held(_, asked) => self.deny(core, &asked.head),
            Work::Queued(_, asked) => self.queued_too_long(core, &asked.head),
            Work::Running(running) if running.is_overdue(now) => self.program_overdue(core, *running),
            Work::Running(running) if running.is_doubted(now) => {
                self.work = Work::Running(running);
                self.ask_client(core);
            }
            Work::Running(running) => {
                self.work = Work::Running(running);
                self.run_on(core);
            }
            Work::Receiving(receiving) if receiving.paused().is_some() => {
                self.work = Work::Receiving(receiving);
                self.receive_on(core);
            }
            Work::Sending(sending) if sending.body.paused().is_some() => {
                self.work = Work::Sending(sending);
                self.go_on(core);
            }
            Work::Idle if self.closing.is_none() && !self.input.is_empty() && self.output_is_empty() => {
                let reason = "The head did not come in time.";
                let input = std::mem::take(&mut self.input);
                self.refuse(core, &input, Refusal { status: Status::REQUEST_TIMEOUT, reason });
            }
            work => {
                self.work = work;
                self.flags.broken |= !self.is_read_slowly(now);
            }
        }
    }

    /// Claims that the client takes of a body that it is sent, though it is slow.
    fn is_read_slowly(&mut self, now: Instant) -> bool {
        match &mut self.work {
            Work::Sending(sending) => sending.body.still_takes(&self.socket.fd, now),
            _ => false,
        }
    }
}
