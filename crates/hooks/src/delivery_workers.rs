//! Deliveries from the queue: each receiver has a thread, which tells it of its events in their order.
//!
//! A delivered event is not read again, though the writer of the queue may not have removed it yet. If an administrator
//! has put older events back, the thread returns to these after waiting for the writer.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::delivery::{Order, Recipient};
use super::delivery_state::{
    Deliveries, End, FIRST_PAUSE, LONGEST_PAUSE, PROGRAM_TRIES, ReceiverProgress, Shared,
};
use super::posting::{self, Door, Told};
use super::shared_queue::Mover;
use super::webhook::DeliveryError;

/// What is needed to start deliveries.
pub(super) struct DeliveryWorkers {
    orders: Sender<Order>,
    pub(super) shared: Arc<Shared>,
    /// Moves events to the queue that the nodes of a cluster share, instead of delivering them.
    mover: Option<Arc<Mover>>,
}

impl std::fmt::Debug for DeliveryWorkers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeliveryWorkers")
    }
}

impl DeliveryWorkers {
    pub(super) fn new(orders: Sender<Order>, shared: Arc<Shared>, mover: Option<Arc<Mover>>) -> Self {
        Self { orders, shared, mover }
    }

    /// There are events for a receiver, up to this one: its thread is told, or begun.
    pub(super) fn announce(&self, receiver: &str, last: i64) {
        if let Some(mover) = &self.mover {
            return mover.announce(last);
        }
        self.tell(receiver, |progress| progress.last = progress.last.max(last));
    }

    /// Retries a receiver's events up to this one, from the first on.
    pub(super) fn begin_again(&self, receiver: &str, last: i64) {
        self.shared.hurry();
        self.tell(receiver, |progress| {
            progress.last = progress.last.max(last);
            progress.begins_again = true;
        });
    }

    /// A thread is told, or begun.
    fn tell(&self, receiver: &str, news: impl FnOnce(&mut ReceiverProgress)) {
        let mut state = self.shared.state();
        let is_new = !state.workers.contains_key(receiver);
        if !(is_new && state.is_over()) {
            news(state.workers.entry(receiver.to_owned()).or_default());
        }
        let end = (is_new && !state.is_over()).then(|| self.shared.count_in(&mut state));
        drop(state);
        self.shared.change.notify_all();
        if let Some(end) = end {
            self.begin(receiver, end);
        }
    }

    fn begin(&self, receiver: &str, end: End) {
        let Ok(to) = serde_json::from_str::<Recipient>(receiver) else {
            return (self.shared.warn)(&format!("hooks: events for an unknown kind of receiver: {receiver}"));
        };
        let worker = DeliveryWorker {
            key: receiver.to_owned(),
            orders: self.orders.clone(),
            shared: Arc::clone(&self.shared),
            to,
        };
        let begun = thread::Builder::new().name("millrace-outbox".to_owned()).spawn(move || {
            worker.run();
            drop(end);
        });
        if begun.is_err() {
            self.shared.state().workers.remove(receiver);
        }
    }
}

/// One receiver's deliveries.
struct DeliveryWorker {
    key: String,
    orders: Sender<Order>,
    shared: Arc<Shared>,
    to: Recipient,
}

/// An event as it is kept.
struct Kept {
    id: i64,
    body: String,
    words: Vec<u8>,
    variables: Vec<u8>,
}

impl DeliveryWorker {
    fn run(&self) {
        let door = Door::of(&self.to);
        // Events that were read are delivered before more are read: the writer may not have removed them yet.
        let (mut behind, mut tries) = (0, 0);
        loop {
            behind = match self.wait_for_more(behind) {
                Some(behind) => behind,
                None => return,
            };
            let some = match self.read(behind) {
                Ok(some) => some,
                Err(error) => {
                    (self.shared.warn)(&format!("hooks: the queue cannot be read: {error}"));
                    if self.shared.pause(LONGEST_PAUSE) {
                        return;
                    }
                    continue;
                }
            };
            let Some(last) = some.last().map(|event| event.id) else {
                behind = self.shared.state().workers.get(&self.key).map_or(behind, |it| it.last.max(behind));
                continue;
            };
            let ids: Vec<i64> = some.iter().map(|event| event.id).collect();
            match self.deliver(&door, &some) {
                Ok(()) => {
                    let _ = self.orders.send(Order::Delivered(ids));
                    self.note(None);
                    (behind, tries) = (last, 0);
                }
                Err(DeliveryError::Permanent(_)) if some.len() > 1 => {
                    // One of them is to blame: one by one, to find out which.
                    let held_up;
                    (behind, held_up) = self.one_by_one(&door, &some);
                    tries = if held_up.is_some() { tries + 1 } else { 0 };
                    if held_up.is_some_and(|error| self.hold_off(tries, &error)) {
                        return;
                    }
                }
                Err(error) => {
                    tries += 1;
                    let gives_up = match &error {
                        DeliveryError::Permanent(_) => true,
                        DeliveryError::Retryable(_) => door.is_program() && tries >= PROGRAM_TRIES,
                    };
                    if gives_up {
                        self.park(&ids, &error);
                        (behind, tries) = (last, 0);
                    } else if self.hold_off(tries, &error) {
                        return;
                    }
                }
            }
        }
    }

    /// Waits for an event after this one; returns the number after which there are some, or `None` if the queue is
    /// closed.
    fn wait_for_more(&self, behind: i64) -> Option<i64> {
        let has_nothing = |progress: &ReceiverProgress| progress.last <= behind && !progress.begins_again;
        let nothing_new =
            |state: &mut Deliveries| !state.is_over() && state.workers.get(&self.key).is_none_or(has_nothing);
        let waited = self.shared.change.wait_while(self.shared.state(), nothing_new);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_over() {
            return None;
        }
        let progress = state.workers.get_mut(&self.key);
        let begins_again = progress.is_some_and(|progress| std::mem::take(&mut progress.begins_again));
        drop(state);
        if !begins_again {
            return Some(behind);
        }
        // Delivered events must be removed by then.
        let (done, settled) = channel();
        let _ = self.orders.send(Order::Settle(done));
        let _ = settled.recv();
        Some(0)
    }

    /// Stores why the receiver refuses, for reports.
    fn note(&self, trouble: Option<String>) {
        if let Some(progress) = self.shared.state().workers.get_mut(&self.key) {
            progress.trouble = trouble;
        }
    }

    /// Waits before the next try; answers whether the queue is closed.
    fn hold_off(&self, tries: u32, error: &DeliveryError) -> bool {
        self.note(Some(error.to_string()));
        if tries == 1 {
            (self.shared.warn)(&format!("hooks: {} does not take events: {error}; they wait", self.name()));
        }
        self.shared.pause((FIRST_PAUSE * 2u32.pow(tries.min(10) - 1)).min(LONGEST_PAUSE))
    }

    fn park(&self, ids: &[i64], error: &DeliveryError) {
        let text = format!("hooks: {} event(s) for {} put aside: {error}", ids.len(), self.name());
        (self.shared.warn)(&text);
        self.note(None);
        let _ = self.orders.send(Order::Parked(ids.to_vec(), error.to_string()));
    }

    /// Returns the last event that was delivered, and the error of the next.
    fn one_by_one(&self, door: &Door, some: &[Kept]) -> (i64, Option<DeliveryError>) {
        let mut behind = some.first().map_or(0, |event| event.id - 1);
        for event in some {
            match self.deliver(door, std::slice::from_ref(event)) {
                Ok(()) => drop(self.orders.send(Order::Delivered(vec![event.id]))),
                Err(error @ DeliveryError::Permanent(_)) => self.park(&[event.id], &error),
                Err(error @ DeliveryError::Retryable(_)) => return (behind, Some(error)),
            }
            behind = event.id;
        }
        (behind, None)
    }

    fn name(&self) -> &str {
        self.to.name()
    }

    fn read(&self, behind: i64) -> rusqlite::Result<Vec<Kept>> {
        let most = self.to.together();
        // One connection a worker and thread, kept by the caller's thread.
        thread_local! {
            static DATABASE: std::cell::RefCell<Option<Connection>> = const { std::cell::RefCell::new(None) };
        }
        DATABASE.with_borrow_mut(|kept| {
            let database = match kept {
                Some(database) => database,
                None => {
                    let database = Connection::open(&self.shared.path)?;
                    database.busy_timeout(Duration::from_secs(30))?;
                    kept.insert(database)
                }
            };
            let mut query = database.prepare_cached(
                "SELECT id, body, words, variables FROM event
                 WHERE receiver = ?1 AND id > ?2 AND parked IS NULL ORDER BY id LIMIT ?3",
            )?;
            let rows = query.query_map(params![self.key, behind, most as i64], |row| {
                Ok(Kept { id: row.get(0)?, body: row.get(1)?, words: row.get(2)?, variables: row.get(3)? })
            })?;
            rows.collect()
        })
    }

    fn deliver(&self, door: &Door, some: &[Kept]) -> Result<(), DeliveryError> {
        let origin = &self.shared.origin;
        let events: Vec<Told<'_>> = some
            .iter()
            .map(|Kept { id, body, words, variables }| Told {
                id: format!("{origin}-{id}"),
                body,
                words,
                variables,
            })
            .collect();
        // Others, and so another post, if one of them is not there any more: `6f1a...-17-20`.
        let id = match some {
            [] => origin.clone(),
            [one] => format!("{origin}-{}", one.id),
            [first, .., last] => format!("{origin}-{}-{}", first.id, last.id),
        };
        posting::tell(&self.to, door, &self.shared.credentials(&self.to), &id, &events)
    }
}
