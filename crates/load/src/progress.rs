//! Reports a run's progress, and requests its end.

use std::time::Duration;

use crate::figure::CellReport;
use crate::fixture::FixtureStep;
use crate::plan::Cell;
use crate::stop::Stop;

/// The progress of a run at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// Which cell, from 0, of how many.
    pub cell: (usize, usize),
    /// The cell that is measured.
    pub what: &'a Cell,
    /// Since its measured phase began; zero before that.
    pub elapsed: Duration,
    /// Users that are logged in.
    pub sessions: u64,
    /// So far in this cell, its warm-up included.
    pub ops: u64,
    /// So far.
    pub bytes: u64,
    /// So far.
    pub faults: u64,
    /// The sum of the latencies of `ops`, in microseconds.
    pub waited_us: u64,
}

/// Receives the progress of a run.
pub trait Progress {
    /// Called some times a second.
    fn tell(&self, snapshot: &Snapshot<'_>);
    /// Called when a cell has been measured.
    fn cell_done(&self, cell: &CellReport);
    /// Called often while there is work between the figures: how many are done, and of how many.
    fn between(&self, _: FixtureStep, _done: usize, _all: usize) {}
    /// The request to end the run, with the figures so far.
    fn stop(&self) -> &Stop {
        Stop::never()
    }
}

/// Ignores all progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn tell(&self, _: &Snapshot<'_>) {}
    fn cell_done(&self, _: &CellReport) {}
}

/// Tells of the work between figures, and not of a load.
#[derive(Clone, Copy)]
pub(crate) struct Untold<'a>(pub(crate) &'a dyn Progress);

impl Progress for Untold<'_> {
    fn tell(&self, _: &Snapshot<'_>) {}
    fn cell_done(&self, _: &CellReport) {}
    fn between(&self, step: FixtureStep, done: usize, all: usize) {
        self.0.between(step, done, all);
    }
    fn stop(&self) -> &Stop {
        self.0.stop()
    }
}

/// The user has cancelled a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left;

/// Receives the progress of fixtures, and can cancel them.
#[derive(Clone, Copy)]
pub(crate) struct FixtureProgress<'a>(pub(crate) &'a dyn Progress);

impl FixtureProgress<'_> {
    /// Reports that `done` of `all` are done; fails if the user has cancelled the step.
    pub(crate) fn note(self, step: FixtureStep, done: usize, all: usize) -> Result<(), Left> {
        self.0.between(step, done, all);
        if self.is_left(step) { Err(Left) } else { Ok(()) }
    }

    /// Returns true if the user has cancelled the step.
    pub(crate) fn is_left(self, step: FixtureStep) -> bool {
        match step {
            FixtureStep::Reaching | FixtureStep::Making | FixtureStep::Checking => self.0.stop().is_asked(),
            FixtureStep::Removing => self.0.stop().is_left(),
        }
    }
}
