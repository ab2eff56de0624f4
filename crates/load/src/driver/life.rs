//! The state of every user, whatever its protocol: its number, the clock of its operation, its timeout and its counts.
//!
//! Invariant: `WorkerContext::busy` counts the users between [`Life::start`] and the moment that their protocol says they
//! are free or out.

use std::time::{Duration, Instant};

use super::gap::Gap;
use super::worker::WorkerContext;
use crate::fault::Fault;
use crate::plan::Job;
use crate::plan::Op;
use crate::tally::{Live, UserTally};

/// How long a user pauses after a refusal, so that a server that refuses everything is not flooded.
pub(super) const AFTER_REFUSAL: Duration = Duration::from_millis(10);
/// And after it lost its session.
pub(super) const AFTER_LOSS: Duration = Duration::from_millis(100);

/// A user's state that does not depend on the protocol.
#[derive(Debug)]
pub(super) struct Life {
    /// Its place in its worker.
    pub(super) index: u32,
    pub(super) number: u32,
    /// When the operation was due, and when it began.
    pub(super) intended: Instant,
    pub(super) begun: Instant,
    /// How many operations it has begun since the warm-up.
    begun_ops: u32,
    deadline: Instant,
    /// The timer wheel has an entry for the deadline.
    is_watched: bool,
    /// It failed, and a death rule holds: it never comes back.
    is_dead: bool,
    pub(super) counts: UserTally,
}

impl Life {
    pub(super) fn new(index: u32, number: u32) -> Self {
        let now = Instant::now();
        Self {
            index,
            number,
            intended: now,
            begun: now,
            begun_ops: 0,
            deadline: now,
            is_watched: false,
            is_dead: false,
            counts: UserTally { number, ..UserTally::default() },
        }
    }

    /// Clears the counts of the warm-up, except the uploads, which must be removed, and the index of the next file.
    pub(super) fn clear_warm_up(&mut self) {
        self.begun_ops = 0;
        let UserTally { number, downloads, uploads, confirmed, .. } = self.counts;
        self.counts = UserTally { number, downloads, uploads, confirmed, ..UserTally::default() };
    }

    /// Returns true if it only keeps a session open.
    pub(super) fn is_idler(&self, context: &WorkerContext<'_>) -> bool {
        self.number >= context.cell.users
    }

    /// Returns true if it has begun as many operations as it may.
    pub(super) fn has_done_all(&self, context: &WorkerContext<'_>) -> bool {
        let most = match context.cell.op {
            Op::Quit => Some(1),
            Op::Replay => Some(context.jobs(self.number).len() as u32),
            _ => context.cell.settings.count,
        };
        let is_enough = context.begun >= context.total;
        self.is_dead || is_enough || self.is_idler(context) || most.is_some_and(|most| self.begun_ops >= most)
    }

    /// Begins an operation.
    pub(super) fn begin(&mut self, intended: Instant, now: Instant, context: &mut WorkerContext<'_>) {
        context.begun += 1;
        (self.intended, self.begun) = (intended, now);
        if context.cell.op == Op::Replay {
            context.tally.late.record(now.saturating_duration_since(intended));
        }
        self.begun_ops += 1;
        self.counts.began.get_or_insert(now);
    }

    /// Its next job in a replayed log, and when it is due.
    pub(super) fn next_job(&self, context: &WorkerContext<'_>) -> Option<(Job, Instant)> {
        let job = *context.jobs(self.number).get(self.begun_ops as usize)?;
        Some((job, context.opened + job.at.div_f64(context.cell.settings.speed)))
    }

    /// Starts the timeout for the server's answer.
    pub(super) fn start(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        context.busy += 1;
        // Logins before the load do not count.
        if self.begun_ops > 0 {
            context.tally.most_at_once = context.tally.most_at_once.max(context.busy as u32);
        }
        self.be_patient_from(now, context);
    }

    pub(super) fn be_patient_from(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        self.deadline = now + context.cell.settings.patience;
        if !self.is_watched {
            self.is_watched = true;
            context.look_later(self.index, self.deadline);
        }
    }

    /// Called by the timer wheel. Returns true if the timeout has expired; otherwise schedules the next look.
    pub(super) fn is_overdue(
        &mut self,
        is_waiting: bool,
        now: Instant,
        context: &mut WorkerContext<'_>,
    ) -> bool {
        self.is_watched = is_waiting && self.deadline > now;
        if self.is_watched {
            context.look_later(self.index, self.deadline);
        }
        is_waiting && !self.is_watched
    }

    /// Counts a successful operation.
    pub(super) fn record(&mut self, now: Instant, moved: u64, context: &mut WorkerContext<'_>) {
        let latency = now.saturating_duration_since(self.intended);
        context.tally.latency.record(latency);
        if context.is_paced() || context.cell.op == Op::Replay {
            context.tally.raw.record(now.saturating_duration_since(self.begun));
        }
        context.tally.ended = Some(now);
        self.counts.ops += 1;
        self.counts.ended = Some(now);
        self.counts.longest = self.counts.longest.max(latency);
        Live::bump(&context.live.ops, 1);
        Live::bump(&context.live.waited_us, latency.as_micros() as u64);
        self.count_bytes(moved, context);
    }

    /// Counts the longest gap of a transfer that was not throttled.
    pub(super) fn record_gap(&mut self, gap: Gap, context: &mut WorkerContext<'_>) {
        if let Some(longest) = gap.longest() {
            context.tally.gap.record(longest);
            self.counts.longest_gap = self.counts.longest_gap.max(longest);
        }
    }

    pub(super) fn count_bytes(&mut self, moved: u64, context: &mut WorkerContext<'_>) {
        context.tally.bytes += moved;
        self.counts.bytes += moved;
    }

    /// Counts a failure; with a death rule the user is out.
    pub(super) fn count_fault(
        &mut self,
        fault: Fault,
        was_connecting: bool,
        context: &mut WorkerContext<'_>,
        text: impl FnOnce() -> String,
    ) {
        let now = Instant::now();
        context.tally.ended = Some(now);
        Live::bump(&context.live.faults, 1);
        let Some(ramp) = &mut context.ramp else {
            return context.tally.faults.record(fault, self.number, text);
        };
        let text = text();
        ramp.note_death(was_connecting, now, &text);
        self.is_dead = true;
        context.tally.faults.record(fault, self.number, || text);
    }
}
