//! The trait of a driver, and what it shares with the coordinator: a worker's task, and the gate where all workers
//! meet.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::DriverError;
use crate::chaos::{Deeds, Mischief};
use crate::plan::{Cell, Settings};
use crate::progress::FixtureProgress;
use crate::ramp_up::RampState;
use crate::stop::Stop;
use crate::tally::{Live, Tally};

/// A way to load a server.
pub(crate) trait Driver: Sync {
    /// Checks that the server answers and accepts the account, in the same way as the load: otherwise a whole run would
    /// only report failures.
    fn reach(&self, settings: &Settings, fixtures: FixtureProgress<'_>) -> Result<(), DriverError>;

    /// Prepares the server for the cell.
    fn prepare(&self, cell: &Cell, fixtures: FixtureProgress<'_>) -> Result<(), DriverError>;

    /// Does one worker's share of a cell, on its own thread.
    fn work(&self, task: &WorkerTask<'_>) -> Result<Tally, DriverError>;

    /// Misbehaves beside the workers, until the end.
    fn misbehave(&self, kind: Mischief, deeds: &Deeds);

    /// Checks the uploads that a cell left on the server; faults go into the tally.
    fn check(&self, cell: &Cell, tally: &mut Tally, fixtures: FixtureProgress<'_>)
    -> Result<(), DriverError>;

    /// Removes test files from the server.
    fn clean(&self, fixtures: FixtureProgress<'_>) -> Result<(), DriverError>;
}

/// A worker's place in a cell.
#[derive(Clone, Copy)]
pub(crate) struct WorkerTask<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) index: usize,
    pub(crate) workers: usize,
    pub(crate) gate: &'a Gate<'a>,
    pub(crate) live: &'a Live,
    /// With a death rule: the state of the users of all workers.
    pub(crate) ramp_state: &'a RampState,
    pub(crate) stop: &'a Stop,
}

impl WorkerTask<'_> {
    /// Passes through the phases without doing anything, so that the other workers do not block at the gate.
    pub(crate) fn sit_out(&self) {
        self.sit_out_after(0);
    }

    /// The same for a worker that has already met the others this many times.
    pub(crate) fn sit_out_after(&self, met: usize) {
        sit_out(self.gate, std::slice::from_ref(self.live), met);
    }

    /// How many of a cell's operations this worker may begin.
    pub(crate) fn share(&self) -> u64 {
        let (index, workers) = (self.index as u64, self.workers as u64);
        let total = self.cell.settings.total.map(u64::from);
        total.map_or(u64::MAX, |total| (total + workers - 1 - index) / workers)
    }

    /// This worker's users, the idle ones included: every `workers`-th, or in a ramp-up, a range.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> + use<> {
        let (index, workers, all) = (self.index as u32, self.workers as u32, self.cell.sessions());
        let row = all.div_ceil(workers);
        let (begin, end, step) = match self.cell.grows() {
            true => ((index * row).min(all), ((index + 1) * row).min(all), 1),
            false => (index, all, self.workers),
        };
        (begin..end).step_by(step)
    }
}

/// Passes through the phases in place of workers that have met the others this many times.
pub(crate) fn sit_out(gate: &Gate<'_>, lives: &[Live], met: usize) {
    for phase in met..PHASES {
        if phase == PHASES - 1 {
            lives.iter().for_each(|live| live.finished.store(1, Ordering::Release));
        }
        gate.meet();
    }
}

/// How often a worker meets the others: no user has connected, all users have logged in, the warm-up has ended, the
/// coordinator has looked at the machine, the last operation has ended.
pub(crate) const PHASES: usize = 5;

/// Where the workers of a cell and the coordinator wait for each other.
pub(crate) struct Gate<'a> {
    way: Way<'a>,
    /// A worker has failed, so the work of the others is useless.
    is_spoilt: AtomicBool,
}

/// How a worker meets the others.
enum Way<'a> {
    /// All are threads of this process.
    Here(Barrier),
    /// The others are in another process.
    Through(&'a dyn Meeting),
    /// Some are threads of this process, others are in other processes.
    Both(Barrier, &'a dyn Meeting),
}

/// A barrier shared with another process.
pub trait Meeting: Sync {
    /// Waits for all others.
    fn meet(&self);
}

impl<'a> Gate<'a> {
    /// A gate for this many workers and the coordinator.
    pub(crate) fn new(workers: usize) -> Self {
        Self { way: Way::Here(Barrier::new(workers + 1)), is_spoilt: AtomicBool::new(false) }
    }

    /// For the one worker of a process.
    pub(crate) fn through(meeting: &'a dyn Meeting) -> Self {
        Self { way: Way::Through(meeting), is_spoilt: AtomicBool::new(false) }
    }

    /// For this many workers and their coordinator, who together meet those of other processes.
    pub(crate) fn joined(workers: usize, meeting: &'a dyn Meeting) -> Self {
        Self { way: Way::Both(Barrier::new(workers + 1), meeting), is_spoilt: AtomicBool::new(false) }
    }

    /// Marks a worker as failed, and with it the figure.
    pub(crate) fn spoil(&self) {
        self.is_spoilt.store(true, Ordering::Relaxed);
    }

    /// Returns true if a worker has failed.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.is_spoilt.load(Ordering::Relaxed)
    }

    /// Waits for all others.
    pub(crate) fn meet(&self) {
        match &self.way {
            Way::Here(barrier) => drop(barrier.wait()),
            Way::Through(meeting) => meeting.meet(),
            Way::Both(barrier, meeting) => {
                // All are here; one of them meets the others, and then all go on at once.
                if barrier.wait().is_leader() {
                    meeting.meet();
                }
                barrier.wait();
            }
        }
    }
}
