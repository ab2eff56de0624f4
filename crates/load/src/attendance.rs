//! The coordinator of a cell: meets the workers between the phases, and watches server and machine meanwhile.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::driver::Gate;
use crate::figure::Commands;
use crate::host::{Audit, GLANCE, Watch};
use crate::plan::Cell;
use crate::progress::Snapshot;
use crate::stop::Stop;
use crate::tally::Live;
use crate::timeline::{Moment, Timeline};

/// How often progress is told and the timeline gets a point.
const TELL: Duration = Duration::from_millis(200);

/// The coordinator's observations.
pub(crate) struct Attended {
    pub(crate) audit: Audit,
    pub(crate) begun: Instant,
    pub(crate) login_seconds: f64,
    pub(crate) timeline: Vec<Moment>,
    pub(crate) ran: Option<Ran>,
    /// The run was not cancelled before it began to count.
    pub(crate) was_in_time: bool,
}

/// Commands of the server's, as the file tells that each of them adds a byte to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ran {
    count: u64,
    /// When the last of them was seen.
    pub(crate) last: Instant,
}

impl Ran {
    /// How long a file is; nothing of none.
    fn length(file: &str) -> u64 {
        fs::metadata(file).map_or(0, |metadata| metadata.len())
    }

    /// For the report: how many operations there were, and when the last of them ended.
    pub(crate) fn told(self, ops: u64, ended: Option<Instant>) -> Commands {
        let behind = ended.map_or(Duration::ZERO, |ended| self.last.saturating_duration_since(ended));
        Commands { ran: self.count, of: ops, behind_s: behind.as_secs_f64() }
    }
}

/// Meets the workers between the phases, and watches meanwhile.
pub(crate) struct Coordinator<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) gate: &'a Gate<'a>,
    pub(crate) lives: &'a [Live],
    pub(crate) tell: &'a dyn Fn(Snapshot<'_>),
    pub(crate) timeline: Timeline,
}

impl Coordinator<'_> {
    /// `logged_in` is called when everyone is.
    pub(crate) fn attend(mut self, stop: &Stop, logged_in: impl FnOnce()) -> Attended {
        let mut watch = Watch::new(self.cell.settings.server_pid, self.cell.settings.server_root.as_deref());
        self.gate.meet();
        let connecting = Instant::now();
        self.gate.meet(); // everyone has logged in
        let login_seconds = connecting.elapsed().as_secs_f64();
        watch.logged_in();
        logged_in();
        self.gate.meet(); // the warm-up has ended
        watch.begin(self.lives.iter().map(|live| live.thread.load(Ordering::Relaxed)).collect());
        let was_in_time = !stop.is_asked();
        let begun = Instant::now();
        let before = self.counts();
        let had_run = self.cell.settings.ran.as_deref().map_or(0, Ran::length);
        self.gate.meet();
        let mut told = begun;
        while self.lives.iter().any(|live| live.finished.load(Ordering::Acquire) == 0) {
            watch.glance();
            if told.elapsed() + GLANCE / 2 >= TELL {
                told = Instant::now();
                self.note(before, begun.elapsed());
            }
        }
        let ran = self.attend_commands(had_run, before[0], stop, &mut watch);
        let end = self.moment(before, begun.elapsed());
        let audit = watch.end();
        self.gate.meet();
        let timeline = self.timeline.ending(end);
        Attended { audit, begun, login_seconds, timeline, ran, was_in_time }
    }

    /// Where the server runs a command for each operation: waits until the last command has added its byte, or until
    /// the timeout passes without a further byte.
    fn attend_commands(&self, had_run: u64, ops: u64, stop: &Stop, watch: &mut Watch) -> Option<Ran> {
        let (file, patience) = (self.cell.settings.ran.as_deref()?, self.cell.settings.patience);
        let asked = self.counts()[0] - ops;
        let mut ran = Ran { count: 0, last: Instant::now() };
        loop {
            let count = Ran::length(file).saturating_sub(had_run);
            if count > ran.count {
                ran = Ran { count, last: Instant::now() };
            }
            if ran.count >= asked || ran.last.elapsed() >= patience || stop.is_asked() {
                return Some(ran);
            }
            watch.glance();
        }
    }

    fn note(&mut self, before: [u64; 5], elapsed: Duration) {
        let [ops, bytes, faults, waited_us, sessions] = self.counts();
        let what = self.cell;
        (self.tell)(Snapshot { cell: (0, 1), what, elapsed, sessions, ops, bytes, faults, waited_us });
        self.timeline.note(self.moment(before, elapsed));
    }

    /// How far it has come since it counted `before`.
    fn moment(&self, before: [u64; 5], elapsed: Duration) -> Moment {
        let [ops, bytes, faults, waited_us, _] = self.counts();
        Moment {
            seconds: elapsed.as_secs_f64(),
            ops: ops - before[0],
            bytes: bytes - before[1],
            faults: faults - before[2],
            waited_us: waited_us - before[3],
        }
    }

    /// Operations, bytes, faults, their latencies' sum and the sessions of all workers.
    fn counts(&self) -> [u64; 5] {
        let sum = |field: fn(&Live) -> &AtomicU64| {
            self.lives.iter().map(|live| field(live).load(Ordering::Relaxed)).sum()
        };
        [
            sum(|live| &live.ops),
            sum(|live| &live.bytes),
            sum(|live| &live.faults),
            sum(|live| &live.waited_us),
            sum(|live| &live.sessions),
        ]
    }
}
