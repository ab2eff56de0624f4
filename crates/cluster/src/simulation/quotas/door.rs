//! A node of the simulated cluster as its tree with a quota sees it: the real ledger, and the way to the database, on which
//! anything may happen.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use millrace_storage::{
    Allowance, Ledger, MemoryStorage, Quota, SharedCountError, SharedCounts, Telling, TreeState, Wish,
};
use millrace_vfs::{QuotaScope, Storage, Upload};

use super::table::QuotaTable;
use super::world::{MOST, World};
use crate::lease::{Lease, LeaseTimes};
use crate::lock::lock;
use crate::places::Timing;
use crate::simulation::node::LEASE;
use crate::table::{Epoch, Locking, Told};

/// What is known of a node beside its ledger.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) lease: Lease,
    /// Its last registration, whose shares and locks the next one has.
    pub(super) last: Option<Epoch>,
    pub(super) is_dead: bool,
    /// It waits for an answer: nothing else of it runs but its keeper.
    pub(super) is_asking: bool,
    /// It is stopped: its keeper does not run either.
    pub(super) is_stopped: bool,
    pub(super) cut_until: Instant,
    pub(super) next_turn: Instant,
    /// Locks to give back.
    pub(super) ended: Vec<u64>,
    next_lock: u64,
    /// What the tree had left when it heard of it last; `None` since it could not ask.
    left: Option<u64>,
    /// It may have changed something that the database does not know of.
    pub(super) is_in_doubt: bool,
}

/// The way of a node to the database.
#[derive(Debug)]
pub(super) struct Way {
    world: Weak<World>,
    state: Mutex<NodeState>,
}

impl Way {
    pub(super) fn state(&self) -> MutexGuard<'_, NodeState> {
        lock(&self.state)
    }

    pub(super) fn world(&self) -> Weak<World> {
        Weak::clone(&self.world)
    }

    /// Asks under the epoch of the node.
    fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&mut QuotaTable, Epoch, Instant) -> T + Send + 'static,
    ) -> Result<(Epoch, T), SharedCountError> {
        let world = self.world.upgrade().ok_or(SharedCountError::Away)?;
        let now = world.now();
        let grants = { self.state().lease.grants(now) };
        let epoch = grants.filter(|_| !self.state().is_dead).ok_or_else(|| self.is_away(&world))?;
        match world.ask(self, move |table, now| question(table, epoch, now)) {
            Some(answer) => Ok((epoch, answer)),
            None => {
                self.is_away(&world);
                Err(SharedCountError::Unanswered)
            }
        }
    }

    /// Stands for `Shared::unanswered`.
    fn unanswered(&self) {
        let Some(world) = self.world.upgrade() else { return };
        let mut state = self.state();
        if let Some(epoch) = state.lease.epoch() {
            state.lease.doubt(epoch);
            state.next_turn = state.next_turn.min(world.now());
        }
    }

    /// From now on the node has an eighth of what was left when it heard of it, and what it changes may be unknown.
    fn is_away(&self, world: &World) -> SharedCountError {
        let mut state = self.state();
        state.is_in_doubt = true;
        if let Some(left) = state.left.take() {
            drop(state);
            world.allow(left / 8 + 1);
        }
        SharedCountError::Away
    }

    fn fenced(&self, epoch: Epoch) -> SharedCountError {
        self.state().lease.fence(epoch);
        self.world.upgrade().map_or(SharedCountError::Away, |world| self.is_away(&world))
    }
}

/// As the one of `Cluster` in `quotas.rs`.
impl SharedCounts for Way {
    fn is_in_use(&self) -> bool {
        true
    }

    fn tell(&self, _: &str, telling: Telling, wish: Option<Wish>) -> Result<TreeState, SharedCountError> {
        let question =
            move |table: &mut QuotaTable, epoch, now| table.tell(epoch, &telling, wish, (LEASE, now));
        let answer = self.ask(question);
        if telling.is_new && matches!(answer, Err(SharedCountError::Unanswered)) {
            self.unanswered();
        }
        match answer? {
            (_, Told::Known(told)) => {
                let used = u64::try_from(told.bytes).unwrap_or(0) + told.others_bytes;
                let mut state = self.state();
                (state.left, state.is_in_doubt) = (Some(MOST.saturating_sub(used)), false);
                Ok(told)
            }
            (_, Told::Ended) => Err(SharedCountError::Ended),
            (epoch, Told::Fenced) => Err(self.fenced(epoch)),
        }
    }

    /// A name that another node has is not waited for, as that node may be one that waits for this one to go on here.
    fn lock(&self, _: &str, name: &[u8]) -> Result<Option<u64>, SharedCountError> {
        let number = {
            let mut state = self.state();
            state.next_lock += 1;
            state.next_lock
        };
        let name = name.to_vec();
        match self.ask(move |table, epoch, now| table.lock(epoch, &name, number, (LEASE, now))) {
            Ok((_, Locking::Locked)) => Ok(Some(number)),
            Ok((_, Locking::Busy)) => {
                self.state().is_in_doubt = true;
                Err(SharedCountError::Away)
            }
            Ok((epoch, Locking::Fenced)) => Err(self.fenced(epoch)),
            Err(error) => {
                if error == SharedCountError::Unanswered {
                    self.unanswered();
                }
                self.unlock(number);
                Err(error)
            }
        }
    }

    fn unlock(&self, number: u64) {
        self.state().ended.push(number);
    }

    fn counted(&self, _: &str, found: (u64, u64), changes: u64) -> Result<bool, SharedCountError> {
        let answer = self.ask(move |table, epoch, now| table.count(epoch, found, changes, (LEASE, now)))?;
        Ok(answer.1)
    }

    fn knows(&self, _: &str) -> bool {
        true
    }
}

/// A node.
pub(super) struct Door {
    pub(super) uploads: Mutex<Vec<Box<dyn Upload>>>,
    pub(super) quota: Quota,
    pub(super) ledger: Ledger,
    pub(super) way: Arc<Way>,
}

impl Door {
    /// The node of this number, from now on. All serve the same files.
    pub(super) fn open(world: &Weak<World>, number: u64, files: &Arc<MemoryStorage>, now: Instant) -> Self {
        let Timing { lease, renewal, exchange } = Timing::of_lease(LEASE);
        let state = NodeState {
            lease: Lease::new(LeaseTimes { length: lease, renewal, pause: exchange }),
            last: None,
            is_dead: false,
            is_asking: false,
            is_stopped: false,
            cut_until: now,
            next_turn: now,
            ended: Vec::new(),
            next_lock: number << 32,
            left: None,
            is_in_doubt: false,
        };
        let way = Arc::new(Way { world: Weak::clone(world), state: Mutex::new(state) });
        let ledger = Ledger::new(None).share(Arc::clone(&way) as _);
        let files: Arc<dyn Storage> = Arc::clone(files) as _;
        let allowance = Allowance { bytes: Some(MOST), files: None };
        let tally = ledger.tally("tree", &files);
        let quota = Quota::new(files, tally, allowance, QuotaScope::Account);
        Self { uploads: Mutex::default(), quota, ledger, way }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("way", &self.way).finish_non_exhaustive()
    }
}
