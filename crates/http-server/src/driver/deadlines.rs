//! When a connection has waited for long enough.
//!
//! The wheel's entries are hints: one that comes too early finds that nothing is due yet.

use std::time::Instant;

use millrace_http::Version;
use millrace_http::h1::{Input, Timeouts};
use millrace_http::response::CONTINUE;
use millrace_runtime::hook_line::LEFT_GRACE;

use crate::answer::Answers;
use crate::body_reader::Reader;
use crate::connection::{Connection, Work};
use crate::upload::Reception;
use crate::upstream::relaying::Relay;
use crate::upstream_response::{DOUBTED, HEARD_OUT};
use crate::worker::Core;

/// The deadlines of a connection, while the worker looks at them.
pub(crate) struct Clock<'a> {
    connection: &'a mut Connection,
    core: &'a mut Core,
}

impl<'a> Clock<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Connection {
    fn due(&self, core: &Core) -> Option<Instant> {
        let config = &core.server.config;
        match &self.work {
            Work::Idle if (!self.http.is_closing() || self.stream.is_some()) && !self.link.is_flushed() => {
                Some(self.http.since() + config.stall_timeout)
            }
            Work::Idle if self.stream.is_some() => None,
            // It is the hooks that are waited for.
            Work::Idle if !self.http.is_closing() && self.hooked.waits_to_be_heard() => None,
            Work::Idle => {
                self.http.deadline(&Timeouts { head: config.head_timeout, idle: config.idle_timeout })
            }
            Work::Securing(_) => Some(self.http.since() + config.head_timeout),
            Work::Asked(asked) => asked.patience.as_ref().and_then(|patience| patience.doubted_at),
            Work::Ruled(..) if self.link.has_hung_up() && !self.link.is_broken() => {
                Some(self.http.since() + LEFT_GRACE)
            }
            // How long hooks may take is theirs to say.
            Work::Ruled(..) | Work::Resumed(_) => None,
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

    /// The wheel says that something may be due.
    pub fn look_at_clock(&mut self, core: &mut Core) {
        let now = core.now.instant;
        if !self.wheel_entry.take_due(now) || self.due(core).is_none_or(|due| due > now) {
            return;
        }
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Asked(asked) => {
                self.work = Work::Asked(asked);
                Clock::new(self, core).probe_client_alive();
            }
            Work::Held(_, asked) => self.exchange(core, &asked.head).deny(),
            Work::Queued(_, asked) => Answers::new(self, core).queued_too_long(&asked),
            Work::Running(running) if running.is_overdue(now) => {
                self.work = Work::Running(running);
                // It may be the client that is waited for.
                if !self.is_read_slowly(now) {
                    Relay::new(self, core).program_overdue();
                }
            }
            Work::Running(running) if running.is_doubted(now) => {
                self.work = Work::Running(running);
                Relay::new(self, core).ask_client();
            }
            Work::Running(running) => {
                let is_paused = running.paused().is_some();
                self.work = Work::Running(running);
                if !is_paused {
                    // For something to compare with later.
                    self.is_read_slowly(now);
                }
                Relay::new(self, core).run_on();
            }
            Work::Receiving(receiving) if receiving.paused().is_some() => {
                self.work = Work::Receiving(receiving);
                Reception::new(self, core).receive_on();
            }
            Work::Sending(sending) if sending.body.paused().is_some() => {
                self.work = Work::Sending(sending);
                self.go_on(core);
            }
            Work::Idle if self.link.is_flushed() => Reader::new(self, core).converse(Input::Deadline),
            work => {
                self.work = work;
                if !self.is_read_slowly(now) {
                    self.link.break_off();
                    if let Some(stream) = &mut self.stream {
                        stream.note_stall();
                    }
                }
            }
        }
    }

    /// Returns whether the client takes of a body that it is sent, though it is slow.
    fn is_read_slowly(&mut self, now: Instant) -> bool {
        let taken = || match &self.stream {
            Some(stream) => stream.acknowledged(),
            None => self.link.acknowledged(),
        };
        match &mut self.work {
            Work::Sending(sending) => sending.body.still_takes(taken(), now),
            Work::Running(running) => running.still_takes(taken(), now),
            _ => false,
        }
    }
}

impl Clock<'_> {
    pub(crate) fn set_clock(&mut self) {
        let (due, key) = (self.connection.due(self.core), self.connection.key);
        self.connection.wheel_entry.cover(due, &mut self.core.wheel, key);
    }

    /// A client that has closed its side may still wait for the answer: work for it alone is only done if it does.
    pub(crate) fn doubt_who_asks(&mut self) {
        if let Work::Asked(asked) = &mut self.connection.work
            && let Some(patience) = &mut asked.patience
        {
            patience.doubted_at.get_or_insert(self.core.now.instant + DOUBTED);
        }
    }

    /// An interim answer tells, where one may be sent.
    fn probe_client_alive(&mut self) {
        let Work::Asked(asked) = &mut self.connection.work else { return };
        match &mut asked.patience {
            Some(patience) if asked.head.version == Version::Http11 => {
                patience.doubted_at = Some(self.core.now.instant + HEARD_OUT);
                self.core.out.extend_from_slice(CONTINUE);
            }
            _ => self.connection.link.break_off(),
        }
    }
}
