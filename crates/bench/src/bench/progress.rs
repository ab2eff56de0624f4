//! A line of progress on standard error.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use millrace_load::figure::CellReport;
use millrace_load::fixture::FixtureStep;
use millrace_load::progress::{Progress, Snapshot};
use millrace_load::stop::Stop;
use millrace_load::units::{counted, users};

/// A line that is written over, where a person looks at it; else a line a figure.
pub(super) struct Line {
    is_terminal: bool,
    cells: usize,
    between: Between,
}

impl Line {
    pub(super) fn new(cells: usize) -> Self {
        Self { is_terminal: stderr().is_terminal(), cells, between: Between::default() }
    }
}

impl Progress for Line {
    fn tell(&self, snapshot: &Snapshot<'_>) {
        if !self.is_terminal {
            return;
        }
        let line = format!(
            "{}/{} {} {:.1} s, {}, {}, {}",
            snapshot.cell.0 + 1,
            self.cells,
            snapshot.what.op,
            snapshot.elapsed.as_secs_f64(),
            counted(snapshot.sessions, "session"),
            counted(snapshot.ops, "operation"),
            counted(snapshot.faults, "error")
        );
        let _ = write!(stderr(), "\r{line}\x1b[K");
    }

    fn stop(&self) -> &Stop {
        &super::STOP
    }

    fn between(&self, step: FixtureStep, done: usize, all: usize) {
        self.between.tell(step, done, all);
    }

    fn cell_done(&self, cell: &CellReport) {
        if self.is_terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        } else {
            let measured = &cell.measured;
            let (ops, errors) = (cell.held().unwrap_or(cell.ops), cell.failures());
            let what = if cell.held().is_some() { "held session" } else { "operation" };
            let _ = writeln!(
                stderr(),
                "{}, {}: {}, {}",
                measured.op,
                users(measured.users),
                counted(ops, what),
                counted(errors, "error")
            );
        }
    }
}

/// Reports work between figures that takes long.
pub(crate) struct Between {
    /// Where the output is not a terminal, lines remain: they are written seldom.
    pause: Duration,
    is_terminal: bool,
    /// The step, and when it was last reported, or began.
    told: Cell<Option<(FixtureStep, Instant)>>,
}

impl Default for Between {
    fn default() -> Self {
        let is_terminal = stderr().is_terminal();
        let pause = Duration::from_millis(if is_terminal { 200 } else { 3000 });
        Self { pause, is_terminal, told: Cell::new(None) }
    }
}

impl Between {
    pub(crate) fn tell(&self, step: FixtureStep, done: usize, all: usize) {
        if !self.is_due(step, done) {
            return;
        }
        let words = step.words(done, all);
        let _ = match self.is_terminal {
            true => write!(stderr(), "\r{words}\x1b[K"),
            false => writeln!(stderr(), "{words}"),
        };
    }

    /// Returns true if it has gone on for so long since it began, or was told.
    pub(crate) fn is_due(&self, step: FixtureStep, done: usize) -> bool {
        let now = Instant::now();
        let is_due = match self.told.get() {
            Some((same, since)) if same == step && (done > 0 || step == FixtureStep::Reaching) => {
                now - since >= self.pause
            }
            _ => {
                self.told.set(Some((step, now)));
                false
            }
        };
        if is_due {
            self.told.set(Some((step, now)));
        }
        is_due
    }
}
