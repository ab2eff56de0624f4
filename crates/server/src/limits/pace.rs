//! What a transfer keeps of the limits: its meter, and until when it sleeps.

use std::time::Instant;

use super::meter::{Allowance, Meter};
use super::tree::{Direction, Member, Tree};

/// The pace of one transfer.
#[derive(Debug)]
pub(crate) struct Pace {
    direction: Direction,
    /// `None` where nothing on its way is limited; and which state of the limits that was.
    meter: Option<Box<Meter>>,
    generation: u64,
    /// Until when a limit keeps it waiting.
    pub(crate) paused: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(direction: Direction) -> Self {
        // No state of the limits has this number: the first turn looks.
        Self { direction, meter: None, generation: u64::MAX, paused: None }
    }

    /// How many bytes of `wanted` may move now; `None` where [`Pace::paused`] says when some may.
    pub(crate) fn allowance(
        &mut self,
        tree: &Tree,
        member: &Member,
        now: Instant,
        wanted: u64,
    ) -> Option<u64> {
        self.paused = None;
        let generation = tree.generation();
        if self.generation != generation {
            self.generation = generation;
            // Out of the old line before it gets in the new.
            self.meter = None;
            self.meter = tree.meter(member, self.direction);
        }
        let Some(meter) = &mut self.meter else { return Some(u64::MAX) };
        match meter.allowance(tree.nanos(now), wanted) {
            Allowance::Now(bytes) => Some(bytes),
            Allowance::Until(moment) => {
                self.paused = Some(tree.instant(moment));
                None
            }
        }
    }

    /// What may still be moved of the last allowance.
    pub(crate) fn left(&self) -> u64 {
        self.meter.as_ref().map_or(u64::MAX, |meter| meter.left())
    }

    /// So many bytes were moved.
    pub(crate) fn spend(&mut self, bytes: u64) {
        if let Some(meter) = &mut self.meter {
            meter.spend(bytes);
        }
    }

    /// It is not the limit that the transfer waits for.
    pub(crate) fn fall_out_of_line(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.fall_out_of_line();
        }
    }

    /// Claims that something on its way is limited.
    pub(crate) fn is_limited(&self) -> bool {
        self.meter.is_some()
    }
}
