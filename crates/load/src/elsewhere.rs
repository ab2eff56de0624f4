//! A load that generators put on: processes here or on other machines, each with a share of the workers.
//!
//! The run remains what it is: it prepares the server, watches it, meets the workers between the phases and judges the
//! figure. For each generator a [`StandIn`] meets the others in its place, while the generator has [`generate`] do its share.
//! Worker `index` of all workers does the same wherever it runs (its users, its part of a rate), so that the shares together
//! are the load that one process puts on. How an order reaches a generator is up to [`Generators`].

use std::cell::Cell as Counter;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::attendance::{Attended, Coordinator};
use crate::driver::{self, DriverError, Gate, Meeting, WorkerTask, sit_out};
use crate::figure::{Figures, GeneratorShare};
use crate::plan::Cell;
use crate::ramp_up::RampState;
use crate::stop::Stop;
use crate::tally::{Counts, Live, Tally};
use crate::target::Target;
use crate::timeline::{self, Moment, Timeline};

/// How often a generator tells how far it is.
const TELL: Duration = Duration::from_millis(100);

/// The number of times that all generators of a load meet.
pub const MEETINGS: usize = driver::PHASES;
/// The meetings after which operations begin, counted from 0: those of the warm-up, and those that count.
pub const STARTS: [usize; 2] = [1, 3];

/// The workers of a cell that a generator has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The first of them.
    pub first: usize,
    /// How many they are.
    pub own: usize,
    /// How many workers the cell has.
    pub all: usize,
}

impl Share {
    /// Returns how many of this many users the workers of this share have.
    pub fn users(self, users: u32) -> u32 {
        let (all, users) = (self.all.max(1), users as usize);
        let of_worker = |index: usize| (users + all - 1 - index) / all;
        (self.first..self.first + self.own).map(of_worker).sum::<usize>() as u32
    }
}

/// What a generator is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadOrder {
    target: Target,
    address: SocketAddr,
    /// The whole cell.
    pub cell: Cell,
    /// The part of it that is this generator's.
    pub share: Share,
}

/// Why the generators do not put a load on.
#[derive(Debug, Error)]
pub enum GeneratorError {
    /// The load cannot be divided among processes.
    #[error("--from: {0}")]
    Undivided(String),
    /// A generator has ended, is silent, or could not do its share.
    #[error("the result is invalid: the generator {name} was lost: {why}")]
    Lost {
        /// As it was given.
        name: String,
        /// What was seen of it.
        why: String,
    },
}

/// What a generator has done.
#[derive(Debug, Default)]
pub struct Generated {
    /// The counts of its workers, by this machine's clock.
    pub tally: Tally,
    /// The course over time, since its own first operation.
    pub timeline: Vec<Moment>,
    /// Its part in the figure.
    pub share: Option<GeneratorShare>,
}

impl Generated {
    /// Returns what a worker of this process has done.
    pub(crate) fn of(tally: Tally) -> Self {
        Self { tally, ..Self::default() }
    }
}

/// Processes that put loads on.
pub trait Generators: Sync {
    /// Divides a cell: a share for each generator that takes part, from the first on.
    fn shares(&self, cell: &Cell) -> Result<Vec<Share>, GeneratorError>;

    /// Has the generator of this index do its share.
    fn generate(&self, index: usize, stand_in: &StandIn<'_>) -> Result<Generated, GeneratorError>;
}

/// A generator's place in the process that leads the run.
pub struct StandIn<'a> {
    /// What the generator is to do.
    pub order: LoadOrder,
    gate: &'a Gate<'a>,
    lives: &'a [Live],
    stop: &'a Stop,
    /// How often the others were met.
    met: Counter<usize>,
}

impl<'a> StandIn<'a> {
    pub(crate) fn new(
        (target, address): (&Target, SocketAddr),
        cell: &Cell,
        share: Share,
        gate: &'a Gate<'a>,
        lives: &'a [Live],
        stop: &'a Stop,
    ) -> Self {
        let order = LoadOrder { target: target.clone(), address, cell: cell.clone(), share };
        let lives = &lives[share.first..share.first + share.own];
        Self { order, gate, lives, stop, met: Counter::new(0) }
    }

    /// Has a generator do the share. A generator that is lost ends the load of the others, too.
    pub(crate) fn attend(
        &self,
        generators: &dyn Generators,
        index: usize,
    ) -> Result<Generated, GeneratorError> {
        let result = generators.generate(index, self);
        if result.is_err() {
            self.gate.spoil();
        }
        sit_out(self.gate, self.lives, self.met.get());
        result
    }

    /// Waits for all others; returns the number of the meeting, from 0.
    pub fn meet(&self) -> usize {
        let met = self.met.get();
        self.met.set(met + 1);
        self.gate.meet();
        met
    }

    /// Shows how far the generator is.
    pub fn show(&self, counts: &[Counts]) {
        self.lives.iter().zip(counts).for_each(|(live, counts)| counts.show(live));
    }

    /// Returns whether the load is to end early: by request, or because another generator was lost.
    pub fn is_over(&self) -> bool {
        self.stop.is_asked() || self.gate.is_spoilt()
    }
}

/// A generator's way to the process that leads the run.
pub trait Door: Meeting {
    /// Tells how far each of its workers is.
    fn tell(&self, counts: &[Counts]);
}

/// Does a share of a load: on the generator's side.
pub fn generate(order: &LoadOrder, door: &dyn Door, stop: &Stop) -> Result<Figures, DriverError> {
    let LoadOrder { target, address, cell, share } = order;
    let driver = driver::open(target, *address, cell.settings.patience);
    let lives: Vec<Live> = (0..share.own).map(|_| Live::default()).collect();
    let told = Told { door, lives: &lives };
    let (gate, ramp_state) = (Gate::joined(share.own, &told), RampState::new(share.all));
    let (results, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let attended = thread::scope(|scope| {
        for (index, live) in (share.first..).zip(&lives) {
            let (workers, gate, ramp_state) = (share.all, &gate, &ramp_state);
            let task = WorkerTask { cell, index, workers, gate, live, ramp_state, stop };
            let (driver, results) = (&driver, &results);
            scope.spawn(move || {
                let tally = driver.work(&task);
                results.lock().expect("no worker panics with it").push(tally);
            });
        }
        let teller = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                told.tell();
                thread::park_timeout(TELL);
            }
        });
        let timeline = Timeline::new();
        let coordinator = Coordinator { cell, gate: &gate, lives: &lives, tell: &|_| {}, timeline };
        let attended = coordinator.attend(stop, || {});
        is_over.store(true, Ordering::Relaxed);
        teller.thread().unpark();
        attended
    });
    let mut tally = Tally::default();
    for own in results.into_inner().expect("no worker panics with it") {
        tally.add(own?);
    }
    let Attended { audit, begun, login_seconds, timeline, .. } = attended;
    let later = tally.opened.map_or(Duration::ZERO, |opened| opened.saturating_duration_since(begun));
    let timeline = timeline::since(later, timeline);
    Ok(Figures { tally, audit, login_seconds, timeline, ..Figures::default() })
}

/// Tells the counts before each meeting, so that they are known there.
struct Told<'a> {
    door: &'a dyn Door,
    lives: &'a [Live],
}

impl Told<'_> {
    fn tell(&self) {
        self.door.tell(&self.lives.iter().map(Counts::of).collect::<Vec<_>>());
    }
}

impl Meeting for Told<'_> {
    fn meet(&self) {
        self.tell();
        self.door.meet();
    }
}
