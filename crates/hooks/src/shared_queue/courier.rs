//! Takes receivers of the queue of all nodes that no other node has, and has a thread deliver the events of each.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millrace_cluster::{Cluster, Epoch, EventTable, Failure, Settlement, TableError, TakenReceiver};

use super::delivering::Delivering;
use crate::delivery::Recipient;
use crate::delivery_state::{LONGEST_PAUSE, Shared};
use crate::posting::Door;

/// How often a node looks for receivers that others have left, or whose pause is over.
const LOOK: Duration = Duration::from_secs(1);

/// Events that are read at a time.
const TOGETHER: usize = 50;

/// How long after a failure the database is told again.
const PAUSE: Duration = Duration::from_secs(1);

/// Takes receivers, on a thread of its own.
pub(super) struct Courier {
    cluster: Arc<Cluster>,
    table: Arc<dyn EventTable>,
    pub(super) shared: Arc<Shared>,
    /// Guarded for a look.
    hands: Mutex<Hands>,
    called: Condvar,
}

#[derive(Default)]
struct Hands {
    /// The receivers that have a thread here.
    busy: Vec<String>,
    /// Receivers that no rule of this node tells: they are for other nodes.
    unknown: Vec<String>,
    /// Their doors, which keep connections.
    doors: HashMap<String, Door>,
    is_called: bool,
}

impl std::fmt::Debug for Courier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Courier").field(&self.hands().busy).finish()
    }
}

impl Courier {
    pub(super) fn new(cluster: Arc<Cluster>, table: Arc<dyn EventTable>, shared: Arc<Shared>) -> Self {
        Self { cluster, table, shared, hands: Mutex::default(), called: Condvar::new() }
    }

    /// There may be something to deliver now.
    pub(super) fn call(&self) {
        self.hands().is_called = true;
        self.called.notify_all();
    }

    /// Takes receivers until the queue is closed.
    pub(super) fn run(self: &Arc<Self>) {
        while !self.shared.wait_for_right() {
            let epoch = self.cluster.epoch().filter(|epoch| self.cluster.holds(*epoch));
            match epoch.and_then(|epoch| Some((epoch, self.take(epoch)?))) {
                Some((epoch, taken)) => self.begin(epoch, taken),
                None => self.wait(),
            }
        }
    }

    /// Takes a receiver. Where the database is away, others say so.
    fn take(&self, epoch: Epoch) -> Option<TakenReceiver> {
        let busy = {
            let mut hands = self.hands();
            hands.is_called = false;
            // A reload may have brought them in.
            hands.unknown.retain(|unknown| self.known(unknown).is_none());
            [&hands.busy[..], &hands.unknown].concat()
        };
        self.table.take(epoch, &busy).ok().flatten()
    }

    /// Waits for a call, or until it is time to look.
    fn wait(&self) {
        let end = Instant::now() + LOOK;
        let mut hands = self.hands();
        while !hands.is_called && Instant::now() < end && !self.shared.is_over() {
            let waited = self.called.wait_timeout(hands, LOOK / 10);
            hands = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has a thread deliver.
    fn begin(self: &Arc<Self>, epoch: Epoch, taken: TakenReceiver) {
        let receiver = taken.receiver.clone();
        self.hands().busy.push(receiver.clone());
        let (courier, end) = (Arc::clone(self), self.shared.count_in(&mut self.shared.state()));
        let in_hand = InHand { courier: Arc::clone(self), receiver };
        let begun = thread::Builder::new().name("millrace-outbox".to_owned()).spawn(move || {
            courier.deliver_all(epoch, taken);
            drop((in_hand, end));
        });
        if begun.is_err() {
            // The receiver is in no hand any more, and this node takes it again.
            self.shared.pause(PAUSE);
        }
    }

    /// Delivers the events of a receiver until there are no more, or one is not taken.
    fn deliver_all(&self, epoch: Epoch, taken: TakenReceiver) {
        let TakenReceiver { receiver, mut tries } = taken;
        let Some(to) = self.known(&receiver) else {
            // What the database says alone is not done: another node may know it, and this one does not take it again.
            self.hands().unknown.push(receiver.clone());
            let trouble = format!("node {} has no hook that tells this receiver", self.cluster.name());
            let failure = Some(Failure { trouble, tries, pause: 0.0 });
            self.settle(epoch, &receiver, &Settlement { failure, ..Settlement::default() });
            return;
        };
        let door = self.hands().doors.entry(receiver.clone()).or_insert_with(|| Door::of(&to)).clone();
        let delivering = Delivering { courier: self, epoch, to: &to, door: &door };
        loop {
            let Ok(events) = self.table.read(&receiver, false, TOGETHER.max(to.together())) else {
                // The node has the receiver still, and takes it up again; or leaves it to the process that delivers.
                if self.shared.is_over() {
                    self.settle(epoch, &receiver, &Settlement::default());
                }
                return;
            };
            let mut settlement = delivering.run(&events, tries);
            settlement.keeps = !events.is_empty() && settlement.failure.is_none() && self.may_deliver(epoch);
            if !self.settle(epoch, &receiver, &settlement) || !settlement.keeps {
                return;
            }
            if !(settlement.delivered.is_empty() && settlement.parked.is_empty()) {
                tries = 0;
            }
        }
    }

    /// Reads a receiver, if a rule of this node tells it.
    fn known(&self, receiver: &str) -> Option<Recipient> {
        serde_json::from_str(receiver).ok().filter(|to| self.shared.knows(to))
    }

    /// Returns whether this node delivers, and its lease holds as far as it can know.
    pub(super) fn may_deliver(&self, epoch: Epoch) -> bool {
        !self.shared.is_over() && self.cluster.holds(epoch)
    }

    /// Says what came of events, however long the database is away: what was delivered should not come twice, and where another
    /// process delivers, it waits for the receiver. False: another node has the receiver.
    fn settle(&self, epoch: Epoch, receiver: &str, settlement: &Settlement) -> bool {
        loop {
            match self.table.settle(epoch, receiver, settlement) {
                Ok(is_ours) => return is_ours,
                Err(error @ TableError::Refused(_)) => {
                    (self.shared.warn)(&format!("hooks: what came of events cannot be noted: {error}"));
                    self.shared.pause(LONGEST_PAUSE);
                    return false;
                }
                Err(_) if self.shared.pause_until_stopped(PAUSE) => return false,
                Err(_) => {}
            }
        }
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receiver that has a thread here, until this is dropped.
struct InHand {
    courier: Arc<Courier>,
    receiver: String,
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.courier.hands().busy.retain(|busy| *busy != self.receiver);
        // What others have put since they did not find this receiver free.
        self.courier.call();
    }
}
