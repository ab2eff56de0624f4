//! Rates that several servers share: how much of each limit this one needs, and how much of it it has.
//!
//! Those of the server, of groups and of users are shared; listeners and sessions are of one server. A server has a small part of a
//! limit before it is granted more, so that a transfer can begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::node::Node;
use super::{Direction, Scope, Tree, lock};
use crate::bucket::SECOND;

/// A server that was granted nothing of a limit has one of this many parts of it.
const PARTS: u64 = 32;

/// A rate that servers share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedRate {
    /// Whose it is.
    pub scope: Scope,
    /// Which way.
    pub direction: Direction,
}

/// How much of a rate a server needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateDemand {
    /// Which.
    pub rate: SharedRate,
    /// The whole limit, in bytes a second.
    pub most: u64,
    /// So much of it would be used.
    pub wanted: u64,
    /// Transfers that draw from it; 0: it is given back.
    pub weight: u64,
}

/// A limit in one direction, and the part of it that this server has.
#[derive(Debug, Default)]
pub(super) struct Portion {
    most: AtomicU64,
    /// 0: none was granted.
    granted: AtomicU64,
}

impl Portion {
    /// The whole limit.
    pub(super) fn most(&self) -> u64 {
        self.most.load(Relaxed)
    }

    /// Notes the whole limit, and returns the part that this server may use.
    pub(super) fn of(&self, most: u64, is_shared: bool) -> u64 {
        self.most.store(most, Relaxed);
        match (most, is_shared, self.granted.load(Relaxed)) {
            (0, ..) | (_, false, _) => most,
            (_, true, 0) => (most / PARTS).max(1),
            (_, true, granted) => granted.min(most),
        }
    }
}

impl Node {
    /// Returns whether other servers have a part of its limits.
    pub(super) fn may_be_shared(&self) -> bool {
        matches!(self.scope(), Scope::Server | Scope::Group(_) | Scope::User(_))
    }

    /// Returns how much of a limit is needed, if this server has more of it than the first part, or needs it.
    fn demand(&self, direction: Direction, now: u64) -> Option<RateDemand> {
        let (bucket, portion) = (self.bucket(direction), self.portion(direction));
        let (most, granted) = (portion.most(), portion.granted.load(Relaxed));
        // Between two transfers of a client it is kept.
        let is_left = bucket.drawers() == 0 && bucket.is_settled(now.saturating_sub(2 * SECOND));
        if most == 0 || (granted == 0 && bucket.drawers() == 0) {
            return None;
        }
        let weight = if is_left { 0 } else { bucket.drawers().max(1) };
        let wanted =
            if bucket.has_queue(now) { most } else { (bucket.rate() - bucket.rate() / 4).max(most / PARTS) };
        let rate = SharedRate { scope: self.scope().clone(), direction };
        Some(RateDemand { rate, most, wanted, weight })
    }
}

impl Tree {
    /// Has other servers hold to the same limits: from now on this one has the part of each that it is granted.
    pub fn divide(&self, now: Instant) {
        self.is_divided.store(true, Relaxed);
        self.tick(now);
    }

    pub(super) fn shared_nodes(&self) -> Vec<Arc<Node>> {
        let mut nodes = vec![Arc::clone(&self.server)];
        nodes.extend(lock(&self.groups).values().cloned());
        nodes.extend(lock(&self.users).values().cloned());
        nodes
    }

    /// Returns how much of each rate is needed. What is not needed any more is given up with this.
    pub fn demands(&self, now: Instant) -> Vec<RateDemand> {
        let nanos = self.nanos(now);
        let nodes = self.shared_nodes();
        let both = [Direction::Download, Direction::Upload];
        let demands = nodes.iter().flat_map(|node| both.map(|direction| node.demand(direction, nanos)));
        let demands: Vec<RateDemand> = demands.flatten().collect();
        let given_up = demands.iter().filter(|demand| demand.weight == 0);
        let none: Vec<_> = given_up.map(|demand| (demand.rate.clone(), 0)).collect();
        self.grant(&none, now);
        demands
    }

    /// This server has these parts of rates from now on; 0: the first part.
    pub fn grant(&self, parts: &[(SharedRate, u64)], now: Instant) {
        let clock = self.moment(now);
        let mut changed = false;
        for (SharedRate { scope, direction }, part) in parts {
            let node = match scope {
                Scope::Server => Some(Arc::clone(&self.server)),
                Scope::Group(name) => lock(&self.groups).get(name).cloned(),
                Scope::User(name) => lock(&self.users).get(name).cloned(),
                Scope::Listener(_) | Scope::Session(_) => None,
            };
            if let Some(node) = node {
                node.portion(*direction).granted.store(*part, Relaxed);
                changed |= node.tick(clock);
            }
        }
        self.note_change(changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountLimits, Limits, ServerLimits};

    #[test]
    fn a_server_has_a_small_part_of_a_rate_until_it_is_granted_more_and_gives_it_up_unused() {
        let now = Instant::now();
        let server = Limits { download: Some("3200".parse().unwrap()), ..Limits::default() };
        let tree = Tree::new(ServerLimits { server, ..ServerLimits::default() }, now, 0);
        let rate = || tree.server.bucket(Direction::Download).rate();
        assert_eq!(rate(), 3200, "alone it has all");
        assert!(tree.demands(now).is_empty());
        tree.divide(now);
        assert_eq!((rate(), tree.report()[0].download), (100, 3200));

        let mut member = tree.connect("127.0.0.1:21".parse().unwrap(), now).unwrap();
        tree.log_in(&mut member, b"ann", &AccountLimits::default(), now).unwrap();
        let bucket = tree.server.bucket(Direction::Download);
        bucket.enter();
        let demand = |most, wanted, weight| {
            let rate = SharedRate { scope: Scope::Server, direction: Direction::Download };
            vec![RateDemand { rate, most, wanted, weight }]
        };
        assert_eq!(tree.demands(now), demand(3200, 100, 1), "nothing waits for it");
        bucket.reserve(1000, 0);
        assert_eq!(tree.demands(now), demand(3200, 3200, 1));
        let part = demand(3200, 3200, 1)[0].rate.clone();
        tree.grant(&[(part, 2000)], now);
        assert_eq!(rate(), 2000);
        assert_eq!(tree.demands(now), demand(3200, 1500, 1), "its clients take no more");
        bucket.leave();
        assert_eq!(tree.demands(now), demand(3200, 1500, 0));
        assert_eq!(rate(), 100);
        assert!(tree.demands(now).is_empty());
    }
}
