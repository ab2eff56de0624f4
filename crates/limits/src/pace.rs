//! A transfer's state of the limits: its meter, until when it sleeps, and its share of a transfer quota.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_vfs::{OverQuota, Upload};

use super::Moved;
use super::credit::{Credit, Earning};
use super::flow::Flow;
use super::meter::{Allowance, Meter};
use super::tree::{Direction, LimitHandle, Tree};

/// How long a transfer waits before it looks again whether other servers have left its own some of a transfer quota.
const ROOM_PAUSE: Duration = Duration::from_millis(20);

/// The pace of one transfer.
#[derive(Debug)]
pub struct Pace {
    direction: Direction,
    /// `None` where nothing on its way is limited; and which state of the limits that was.
    meter: Option<Box<Meter>>,
    generation: u64,
    /// Until when a limit keeps it waiting.
    pub paused: Option<Instant>,
    /// Whether what moves is held against the user's transfer quotas.
    counts: bool,
    /// `None` where the user may move whatever there is.
    quota: Option<Box<Piece>>,
    /// The credit for a completed upload.
    credit: Option<Arc<Credit>>,
}

/// The part of a transfer quota that a transfer has reserved.
#[derive(Debug)]
struct Piece {
    moved: Moved,
    direction: Direction,
    /// Taken, and not yet moved.
    left: u64,
    /// When it was taken, in seconds since 1970.
    wall: i64,
    over: Option<OverQuota>,
}

/// Counts what a job on the pool moves of a transfer. It counts even if the transfer is aborted meanwhile, after its
/// unused quota was given back.
#[derive(Debug, Default)]
pub struct Errand {
    of: Option<(Moved, Direction)>,
    bytes: u64,
}

impl Errand {
    /// Counts bytes that were moved.
    pub fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if let Some((moved, direction)) = &self.of {
            moved.count(*direction, self.bytes);
        }
    }
}

impl Pace {
    /// That of a file's bytes.
    pub fn new(direction: Direction) -> Self {
        // No state of the limits has this number: the first turn looks.
        Self {
            direction,
            meter: None,
            generation: u64::MAX,
            paused: None,
            counts: true,
            quota: None,
            credit: None,
        }
    }

    /// That of an upload, of which so much has come by earlier requests, and the upload as it is to be written.
    pub fn of_upload(member: &LimitHandle, upload: Box<dyn Upload>, before: u64) -> (Self, Box<dyn Upload>) {
        let pace = Self::new(Direction::Upload);
        let Some(moved) = member.moved() else { return (pace, upload) };
        let credit = Credit::new(Arc::clone(&moved.traffic), before);
        let upload = Box::new(Earning::new(upload, Arc::clone(&credit)));
        (Self { credit: Some(credit), ..pace }, upload)
    }

    /// The pace of a listing. It has the bandwidth of a download, but no quota: a user whose download quota is used up
    /// can still list folders.
    pub fn of_listing() -> Self {
        Self { counts: false, ..Self::new(Direction::Download) }
    }

    /// How many bytes of `wanted` may move now; `None` where [`Pace::paused`] says when some may, or
    /// [`Pace::over`] that none will.
    pub fn allowance(&mut self, tree: &Tree, member: &LimitHandle, now: Instant, wanted: u64) -> Option<u64> {
        self.paused = None;
        let generation = tree.generation();
        if self.generation != generation {
            if self.generation == u64::MAX && self.counts {
                self.quota = Piece::of(member, self.direction);
            }
            self.generation = generation;
            // Out of the old line before it gets in the new.
            self.meter = None;
            self.meter = tree.meter(member, self.direction);
        }
        let most = match &mut self.quota {
            Some(piece) if piece.over.is_some() => return None,
            Some(piece) => piece.take(tree.wall(), wanted)?,
            None => u64::MAX,
        };
        if most == 0 {
            self.paused = Some(now + ROOM_PAUSE);
            return None;
        }
        let Some(meter) = &mut self.meter else { return Some(most) };
        match meter.allowance(tree.nanos(now), wanted) {
            Allowance::Now(bytes) => Some(bytes.min(most)),
            Allowance::Until(moment) => {
                self.paused = Some(tree.instant(moment));
                None
            }
        }
    }

    /// How fast the kernel is to send what moves; `None`: as it was told.
    pub fn flow(&self) -> Option<Flow> {
        self.meter.as_ref().map_or(Some(Flow::FREE), |meter| meter.flow())
    }

    /// The quota that keeps anything more from moving.
    pub fn over(&self) -> Option<&OverQuota> {
        self.quota.as_ref()?.over.as_ref()
    }

    /// The rest of the last allowance.
    pub fn left(&self) -> u64 {
        let metered = self.meter.as_ref().map_or(u64::MAX, |meter| meter.left());
        self.quota.as_ref().map_or(metered, |piece| metered.min(piece.left))
    }

    /// For a job that moves some of the last allowance.
    pub fn errand(&self) -> Errand {
        Errand { of: self.quota.as_ref().map(|piece| (piece.moved.clone(), piece.direction)), bytes: 0 }
    }

    /// The job is done: [`Pace::spend`] for what it moved.
    pub fn take_back(&mut self, mut errand: Errand) {
        self.spend(std::mem::take(&mut errand.bytes));
    }

    /// Notes that this many bytes were moved, allowed or not: see [`Meter::spend`].
    pub fn spend(&mut self, bytes: u64) {
        if let Some(meter) = &mut self.meter {
            meter.spend(bytes);
        }
        if let Some(piece) = &mut self.quota {
            piece.spend(bytes);
        }
        if let Some(credit) = &self.credit {
            credit.came(bytes);
        }
    }

    /// It is not the limit that the transfer waits for.
    pub fn fall_out_of_line(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.fall_out_of_line();
        }
    }

    /// Returns true if something on its way is limited.
    pub fn is_limited(&self) -> bool {
        self.meter.is_some() || self.quota.is_some()
    }
}

impl Piece {
    fn of(member: &LimitHandle, direction: Direction) -> Option<Box<Self>> {
        let moved = member.moved()?.clone();
        Some(Box::new(Self { moved, direction, left: 0, wall: 0, over: None }))
    }

    /// How much may move: 0 for nothing now, `None` for nothing any more.
    fn take(&mut self, wall: i64, wanted: u64) -> Option<u64> {
        // All data has arrived: only the reply remains.
        if wanted == 0 {
            return Some(u64::MAX);
        }
        // Another minute, another quota perhaps: what was taken of the last one and not moved is to be taken of this one.
        if wall.div_euclid(60) != self.wall.div_euclid(60) {
            self.moved.give_back(self.direction, std::mem::take(&mut self.left));
        }
        if self.left == 0 {
            self.wall = wall;
            match self.moved.reserve(self.direction, wall, wanted) {
                Ok(piece) => self.left = piece,
                // Nothing else tells whether more is coming; should it, that is too much.
                Err(_) if self.direction == Direction::Upload => return Some(1),
                Err(over) => {
                    self.over = Some(over);
                    return None;
                }
            }
        }
        Some(self.left)
    }

    fn spend(&mut self, bytes: u64) {
        let mut more = bytes.saturating_sub(self.left);
        self.left = self.left.saturating_sub(bytes);
        // Records, and what was read along with it: it is here, and may be too much.
        while more > 0 && self.over.is_none() {
            match self.moved.reserve(self.direction, self.wall, more) {
                // No room for it just now: it counts none the less.
                Ok(0) => break,
                Ok(piece) => more -= piece,
                Err(over) => self.over = Some(over),
            }
        }
        self.moved.count(self.direction, more);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.moved.give_back(self.direction, self.left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountLimits, ServerLimits, TransferQuota};

    #[test]
    fn bytes_of_a_job_count_once_also_after_its_transfer() {
        let now = Instant::now();
        let tree = Tree::new(ServerLimits::default(), now, 0);
        let mut member = tree.connect("127.0.0.1:1".parse().unwrap(), now).unwrap();
        let quota = TransferQuota { upload: "1M/day".parse().unwrap(), ..TransferQuota::default() };
        let moved = Moved { quota: Arc::new(quota), traffic: Arc::default() };
        let limits = AccountLimits { moved: Some(moved.clone()), ..AccountLimits::default() };
        tree.log_in(&mut member, b"u", &limits, now).unwrap();
        for is_gone in [true, false] {
            let mut pace = Pace::new(Direction::Upload);
            assert!(pace.allowance(&tree, &member, now, u64::MAX).is_some());
            let mut errand = pace.errand();
            errand.moved(100_000);
            match is_gone {
                true => drop((pace, errand)),
                false => pace.take_back(errand),
            }
        }
        let mut left = 0;
        while let Ok(piece) = moved.reserve(Direction::Upload, tree.wall(), u64::MAX) {
            left += piece;
        }
        assert_eq!(left, 800_000);
    }
}
