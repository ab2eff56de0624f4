//! A transfer's way through the buckets: how much it may move now, or when it may move more.
//!
//! It stands in the line of every bucket on its way with one slice, and may move it when its turn has come
//! in all of them. A transfer that no limit concerns has no meter at all.

use std::sync::Arc;

use super::bucket::{Nanos, Place, SECOND};
use super::flow::Flow;
use super::tree::{Direction, LimitHandle, Node, Tree};

/// A turn that comes within half a tick of the workers' wheel is taken at once: a transfer slower than the limit must
/// not sleep a whole tick because another has just moved a few bytes. With many transfers on a bucket it is shorter, or
/// the first would get ahead of the others by whole slices.
const EARLY: Nanos = SECOND / 40;

/// How often a waiting transfer checks whether the limits have changed.
const LONGEST: Nanos = SECOND / 2;

/// How far a transfer may fall behind its reservation and still keep it. More would be a burst.
const LATEST: Nanos = SECOND / 2;

/// How much may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// That many bytes, now.
    Now(u64),
    /// None before this moment.
    Until(Nanos),
}

/// A transfer's places in the buckets' lines.
#[derive(Debug)]
pub(crate) struct Meter {
    direction: Direction,
    /// Those with a limit, from the server's to the session's.
    way: Vec<(Arc<Node>, Option<Place>)>,
    /// The reserved bytes, and the rest of them.
    reserved: u64,
    left: u64,
    /// When it may move.
    start: Nanos,
    /// How much earlier it may begin.
    early: Nanos,
    /// Where this transfer was held up by a limit and nothing else, its last place: it loses nothing by
    /// being looked at late.
    in_line: Option<Nanos>,
    /// How fast its bytes are to leave, once that is known.
    flow: Option<Flow>,
}

impl Meter {
    /// A meter for these buckets; `None` where none has a limit.
    pub(super) fn new<'a>(direction: Direction, nodes: impl Iterator<Item = &'a Arc<Node>>) -> Option<Self> {
        let limited = nodes.filter(|node| node.bucket(direction).rate() > 0);
        let way: Vec<_> = limited.map(|node| (Arc::clone(node), None)).collect();
        way.iter().for_each(|(node, _)| node.bucket(direction).enter());
        (!way.is_empty()).then_some(Self {
            direction,
            way,
            reserved: 0,
            left: 0,
            start: 0,
            early: 0,
            in_line: None,
            flow: None,
        })
    }

    /// How much of `wanted` may move.
    pub(crate) fn allowance(&mut self, now: Nanos, wanted: u64) -> Allowance {
        let direction = self.direction;
        let stale = |(node, place): &(Arc<Node>, Option<Place>)| {
            place.is_some_and(|place| !node.bucket(direction).honours(place))
        };
        if self.left > 0 && self.way.iter().any(stale) {
            self.give_back();
            self.in_line = None;
        }
        if self.left == 0 {
            self.reserve(now, wanted.max(1));
        }
        match self.start <= now + self.early {
            true => Allowance::Now(self.left),
            false => Allowance::Until(self.start.min(now + LONGEST)),
        }
    }

    /// The rest of the last allowance.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Notes that this many bytes were moved. Bytes beyond the allowance (records are read whole) delay the next
    /// allowance.
    pub(crate) fn spend(&mut self, bytes: u64) {
        let owed = bytes.saturating_sub(self.left);
        self.left = self.left.saturating_sub(bytes);
        if owed > 0 {
            for (node, _) in &self.way {
                node.bucket(self.direction).reserve(owed, self.start);
            }
        }
    }

    /// Gives up the reservation, because the transfer waits for something else than the limit: others go ahead, and its
    /// next reservation is behind theirs.
    pub(crate) fn fall_out_of_line(&mut self) {
        self.give_back();
        self.in_line = None;
        // It may be the pace that filled the socket, and others may have left it more: all that there is.
        let rates = self.way.iter().map(|(node, _)| node.bucket(self.direction).rate());
        self.flow = rates.filter(|rate| *rate > 0).min().map(|rate| Flow::of(rate, SECOND));
    }

    /// How fast its bytes are to leave; `None` where that is not known, or not yet again.
    pub(crate) fn flow(&self) -> Option<Flow> {
        self.flow
    }

    fn reserve(&mut self, now: Nanos, wanted: u64) {
        let earliest = self.in_line.map_or(now, |place| place.max(now.saturating_sub(LATEST)));
        let slices = self.way.iter().map(|(node, _)| node.bucket(self.direction).slice());
        let slice = slices.min().unwrap_or(u64::MAX);
        // Half of one to begin with: over a time, what was moved is then as often too much as too little.
        let slice = if self.in_line.is_none() { slice.div_ceil(2) } else { slice };
        let bytes = slice.min(wanted);
        self.start = earliest;
        for (node, place) in &mut self.way {
            let reserved = node.bucket(self.direction).reserve(bytes, earliest);
            self.start = self.start.max(reserved.start);
            *place = Some(reserved);
        }
        // From one place in the line to the next: what came of all who stand in it, and of every bucket.
        if let Some(last) = self.in_line
            && self.start > last
        {
            self.flow = Some(Flow::of(self.reserved, self.start - last));
        }
        let drawers = self.way.iter().map(|(node, _)| node.bucket(self.direction).drawers()).max();
        self.early = EARLY / drawers.unwrap_or(1).max(1);
        (self.reserved, self.left) = (bytes, bytes);
        self.in_line = Some(self.start);
    }

    fn give_back(&mut self) {
        for (node, place) in &mut self.way {
            if let Some(place) = place.take() {
                node.bucket(self.direction).give_back(place, self.left, self.reserved);
            }
        }
        self.left = 0;
    }
}

impl Tree {
    /// The meter for a transfer that begins; `None` where nothing on its way is limited.
    pub(crate) fn meter(&self, member: &LimitHandle, direction: Direction) -> Option<Box<Meter>> {
        Meter::new(direction, member.way()).map(Box::new)
    }

    /// Returns true if something on a transfer's way is limited, or counted.
    pub fn is_limited(&self, member: &LimitHandle, direction: Direction) -> bool {
        member.moved().is_some() || self.meter(member, direction).is_some()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.give_back();
        self.way.iter().for_each(|(node, _)| node.bucket(self.direction).leave());
    }
}
