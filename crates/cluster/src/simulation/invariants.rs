//! What must hold in a simulated cluster.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use millrace_limits::Network;

use super::node::LEASE;
use super::world::{Process, World};
use crate::scope::SharedScope;
use crate::table::Epoch;

/// A broken promise of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Violation(pub(super) String);

/// How long after its death a node has places.
const FREED: Duration = Duration::from_secs(10);
/// How long a ban takes to all nodes: 2 s, and half a second, probably for slow clocks and busy keepers (seed 226).
pub(super) const SPREAD: Duration = Duration::from_millis(2500);
/// After so long without trouble nothing of it is left in a node: a question without an answer, a pause, a lease.
pub(super) const RECOVERY: Duration = Duration::from_secs(12);

/// A ban that is on its way to all nodes.
#[derive(Debug)]
struct Spreading {
    network: Network,
    by: usize,
    since: Instant,
}

/// What is remembered for the invariants.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    owners: HashMap<Epoch, usize>,
    /// Epochs that were ended because they were silent.
    ended: HashSet<Epoch>,
    spreading: Vec<Spreading>,
    /// After a crash: when all nodes that can speak have registered; until the first does, not known.
    crash: Option<Option<Instant>>,
}

impl Invariants {
    pub(super) fn registered(&mut self, epoch: Epoch, process: usize, now: Instant) {
        self.owners.insert(epoch, process);
        if let Some(grace @ None) = &mut self.crash {
            *grace = Some(now + LEASE);
        }
    }

    pub(super) fn crashed(&mut self) {
        self.crash = Some(None);
    }

    /// An epoch has ended by silence. Returns whose it was.
    pub(super) fn end(&mut self, epoch: Epoch) -> Option<usize> {
        self.ended.insert(epoch);
        self.owners.get(&epoch).copied()
    }

    pub(super) fn bans_changed(
        &mut self,
        network: Network,
        by: Option<usize>,
        now: Instant,
        up_since: Instant,
    ) {
        self.spreading.retain(|ban| ban.network != network);
        if let Some(by) = by.filter(|_| up_since <= now) {
            self.spreading.push(Spreading { network, by, since: now });
        }
    }

    /// Checks that the database counts at least the sessions of a node that is registered.
    pub(super) fn covered(&self, world: &World, process: usize) -> Result<(), Violation> {
        let node = &world.processes[process].node;
        let Some(epoch) = node.book.lease.epoch().filter(|epoch| world.database.nodes.contains_key(epoch))
        else {
            return Ok(());
        };
        for (scope, sessions) in counts(&world.processes[process]) {
            let counted = world.database.places(&scope, epoch);
            if counted < sessions {
                let text =
                    format!("node {process} has {sessions} sessions in {scope:?}, counted are {counted}");
                return Err(Violation(text));
            }
        }
        Ok(())
    }

    /// Checks that the session which this node has begun last may begin.
    pub(super) fn begun(&self, world: &World, process: usize) -> Result<(), Violation> {
        self.covered(world, process)?;
        let Process { node, known, .. } = &world.processes[process];
        if known.is_some_and(|known| self.ended.contains(&known)) {
            return Err(Violation(format!(
                "node {process} begins a session, and its registration has ended"
            )));
        }
        for claim in node.sessions.last().iter().flat_map(|session| &session.claims) {
            let counted = |process: &Process| {
                let counts = process.node.sessions.iter().filter(|session| !session.is_excess);
                counts.filter(|session| session.claims.contains(claim)).count() as u64
            };
            let sessions: u64 = world.processes.iter().map(counted).sum();
            if sessions > claim.most {
                return Err(Violation(format!("{sessions} sessions in {:?} of {}", claim.scope, claim.most)));
            }
        }
        Ok(())
    }

    /// Checks what depends on time.
    pub(super) fn after_step(&mut self, world: &World) -> Result<(), Violation> {
        self.bans_arrive(world)?;
        self.silent_are_gone(world)
    }

    /// Checks that no registration is left of a node that died, or has gone on without it, long ago.
    fn silent_are_gone(&self, world: &World) -> Result<(), Violation> {
        let healthy = world.processes.iter().filter(|process| world.is_healthy(process, FREED + LEASE));
        if healthy.take(3).count() < 3 {
            return Ok(());
        }
        match world.database.nodes.iter().find(|(_, row)| row.renewed + FREED < world.now) {
            Some((epoch, _)) => Err(Violation(format!("{epoch:?} is silent for 10 s and is there yet"))),
            None => Ok(()),
        }
    }

    /// Checks that bans are at all nodes in time.
    fn bans_arrive(&mut self, world: &World) -> Result<(), Violation> {
        let (due, spreading) =
            std::mem::take(&mut self.spreading).into_iter().partition(|ban| ban.since + SPREAD <= world.now);
        self.spreading = spreading;
        let due: Vec<Spreading> = due;
        for Spreading { network, by, .. } in due {
            let is_locked = world.bans_locked_until + RECOVERY > world.now;
            if is_locked || !world.is_healthy(&world.processes[by], RECOVERY) {
                continue;
            }
            let mut others = world.processes.iter().filter(|process| world.is_healthy(process, RECOVERY));
            let has = |process: &Process| {
                process.node.bans.list(world.now).iter().any(|ban| ban.network == network)
            };
            if !others.all(has) {
                return Err(Violation(format!(
                    "a ban of {network} by node {by} is not at all nodes in time"
                )));
            }
        }
        Ok(())
    }

    /// After a crash, nodes that could not register in time have lost their places.
    pub(super) fn grace_is_over(&mut self, now: Instant) -> bool {
        let is_over = matches!(self.crash, Some(Some(end)) if end < now);
        if is_over {
            self.crash = None;
        }
        is_over
    }

    /// Checks that the database has what the nodes have, and nothing else, when all has been calm for long.
    pub(super) fn at_rest(&self, world: &World) -> Result<(), Violation> {
        let living = || world.processes.iter().filter(|process| process.is_alive && process.born < world.now);
        let epochs = living().filter_map(|process| process.node.book.lease.epoch()).collect::<HashSet<_>>();
        if epochs.len() != living().count()
            || !world.database.nodes.keys().all(|epoch| epochs.contains(epoch))
        {
            let text = format!("registered are {:?}, and not {epochs:?}", world.database.nodes.keys());
            return Err(Violation(text));
        }
        let mut sessions: BTreeMap<(SharedScope, Epoch), u64> = BTreeMap::new();
        for process in living() {
            let Some(epoch) = process.node.book.lease.epoch() else { continue };
            sessions.extend(counts(process).into_iter().map(|(scope, count)| ((scope, epoch), count)));
        }
        let held = world.database.held.iter().flat_map(|(scope, counts)| {
            counts.iter().map(|(epoch, count)| ((scope.clone(), *epoch), *count))
        });
        let held: BTreeMap<(SharedScope, Epoch), u64> = held.collect();
        if held != sessions {
            return Err(Violation(format!("counted are {held:?}, of {sessions:?}")));
        }
        let bans = |process: &Process| {
            let mut bans: Vec<_> =
                process.node.bans.list(world.now).iter().map(|ban| ban.network.to_string()).collect();
            bans.sort();
            bans
        };
        let mut all = living().map(bans);
        let first = all.next().unwrap_or_default();
        match all.all(|bans| bans == first) {
            true => Ok(()),
            false => Err(Violation("not all nodes have the same bans".to_owned())),
        }
    }
}

fn counts(process: &Process) -> BTreeMap<SharedScope, u64> {
    let claims = process.node.sessions.iter().flat_map(|session| &session.claims);
    let scopes: HashSet<&SharedScope> = claims.map(|claim| &claim.scope).collect();
    scopes.into_iter().map(|scope| (scope.clone(), process.node.count(scope))).collect()
}
