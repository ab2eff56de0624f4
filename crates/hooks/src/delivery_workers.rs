//! Deliveries from the queue: each receiver has a thread, which tells it of its events in their order.
//!
//! A delivered event is not read again, though the writer of the queue may not have removed it yet. If an administrator
//! has put older events back, the thread returns to these after waiting for the writer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::delivery::{Order, Recipient, Warn};
use super::webhook::{DeliveryError, Keyring, Webhook};
use super::{HEARD, facts};
use millrace_process::{How, Program, Purpose};

/// Before a second try; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Between tries at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A program that fails so often for the same event is not asked again.
const PROGRAM_TRIES: u32 = 5;

/// The state shared by the threads.
pub(super) struct Shared {
    pub(super) path: PathBuf,
    /// The prefix of event ids.
    pub(super) origin: String,
    pub(super) warn: Warn,
    /// Guarded for a look.
    state: Mutex<State>,
    change: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.path.display())
    }
}

#[derive(Default)]
struct State {
    /// The receivers that have a thread.
    workers: HashMap<String, Progress>,
    /// How often an administrator asked to retry now.
    hurries: u64,
    /// The credentials for receivers; replaced by a reload.
    keys: Keyring,
    /// Threads that have not ended.
    running: usize,
    /// Another process delivers.
    resting: bool,
    stopped: bool,
}

impl State {
    /// Returns true if nothing is delivered here any more.
    fn is_over(&self) -> bool {
        self.stopped || self.resting
    }
}

/// How far a receiver's events are.
#[derive(Default)]
struct Progress {
    /// The last event that was put.
    last: i64,
    /// Older ones are to be delivered, too.
    begins_again: bool,
    /// Why the receiver has not taken the one that was tried.
    trouble: Option<String>,
}

impl Shared {
    pub(super) fn new(path: &Path, origin: String, keys: Keyring, warn: Warn) -> Self {
        let state = Mutex::new(State { keys, ..State::default() });
        Self { path: path.to_owned(), origin, warn, state, change: Condvar::new() }
    }

    /// Receivers are shown these from now on.
    pub(super) fn take_keys(&self, keys: Keyring) {
        self.state().keys = keys;
    }

    /// Why the events of a receiver still wait.
    pub(super) fn trouble_of(&self, receiver: &str) -> Option<String> {
        self.state().workers.get(receiver)?.trouble.clone()
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        self.state().stopped = true;
        self.change.notify_all();
    }

    /// Ends the threads because another process delivers, and waits for them for at most this time.
    pub(super) fn rest(&self, most: Duration) {
        let mut state = self.state();
        state.resting = true;
        self.change.notify_all();
        let waited = self.change.wait_timeout_while(state, most, |state| state.running > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.workers.clear();
    }

    /// Resumes deliveries, beginning with events announced from now on.
    pub(super) fn resume(&self) {
        self.state().resting = false;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, unless an administrator asks to retry now; returns true if the queue is closed.
    fn pause(&self, time: Duration) -> bool {
        let state = self.state();
        let hurries = state.hurries;
        let waits = |state: &mut State| !state.is_over() && state.hurries == hurries;
        let waited = self.change.wait_timeout_while(state, time, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over()
    }
}

/// What is needed to start deliveries.
pub(super) struct DeliveryWorkers {
    orders: Sender<Order>,
    pub(super) shared: Arc<Shared>,
}

impl std::fmt::Debug for DeliveryWorkers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeliveryWorkers")
    }
}

impl DeliveryWorkers {
    pub(super) fn new(orders: Sender<Order>, shared: Arc<Shared>) -> Self {
        Self { orders, shared }
    }

    /// There are events for a receiver, up to this one: its thread is told, or begun.
    pub(super) fn announce(&self, receiver: &str, last: i64) {
        self.tell(receiver, |progress| progress.last = progress.last.max(last));
    }

    /// Retries a receiver's events up to this one, from the first on.
    pub(super) fn begin_again(&self, receiver: &str, last: i64) {
        self.shared.state().hurries += 1;
        self.tell(receiver, |progress| {
            progress.last = progress.last.max(last);
            progress.begins_again = true;
        });
    }

    /// A thread is told, or begun.
    fn tell(&self, receiver: &str, news: impl FnOnce(&mut Progress)) {
        let mut state = self.shared.state();
        let is_new = !state.workers.contains_key(receiver);
        if !(is_new && state.is_over()) {
            news(state.workers.entry(receiver.to_owned()).or_default());
        }
        let begins = is_new && !state.is_over();
        state.running += usize::from(begins);
        drop(state);
        self.shared.change.notify_all();
        if begins {
            self.begin(receiver);
        }
    }

    fn begin(&self, receiver: &str) {
        let Ok(to) = serde_json::from_str::<Recipient>(receiver) else {
            self.shared.state().running -= 1;
            return (self.shared.warn)(&format!("hooks: events for an unknown kind of receiver: {receiver}"));
        };
        let worker = DeliveryWorker {
            key: receiver.to_owned(),
            orders: self.orders.clone(),
            shared: Arc::clone(&self.shared),
            to,
        };
        let end = End(Arc::clone(&self.shared));
        let begun = thread::Builder::new().name("millrace-outbox".to_owned()).spawn(move || {
            worker.run();
            drop(end);
        });
        if begun.is_err() {
            self.shared.state().workers.remove(receiver);
        }
    }
}

/// Notes the end of a thread, also after a panic or if it did not start.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.change.notify_all();
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
        let webhook = match &self.to {
            Recipient::Webhook { url, milliseconds, .. } => {
                Some(Webhook::new(url, Duration::from_millis(*milliseconds)))
            }
            Recipient::Program { .. } => None,
        };
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
            match self.deliver(webhook.as_ref(), &some) {
                Ok(()) => {
                    let _ = self.orders.send(Order::Delivered(ids));
                    self.note(None);
                    (behind, tries) = (last, 0);
                }
                Err(DeliveryError::Permanent(_)) if some.len() > 1 => {
                    // One of them is to blame: one by one, to find out which.
                    let held_up;
                    (behind, held_up) = self.one_by_one(webhook.as_ref(), &some);
                    tries = if held_up.is_some() { tries + 1 } else { 0 };
                    if held_up.is_some_and(|error| self.hold_off(tries, &error)) {
                        return;
                    }
                }
                Err(error) => {
                    tries += 1;
                    let gives_up = match &error {
                        DeliveryError::Permanent(_) => true,
                        DeliveryError::Retryable(_) => webhook.is_none() && tries >= PROGRAM_TRIES,
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
        let has_nothing = |progress: &Progress| progress.last <= behind && !progress.begins_again;
        let nothing_new =
            |state: &mut State| !state.is_over() && state.workers.get(&self.key).is_none_or(has_nothing);
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
    fn one_by_one(&self, webhook: Option<&Webhook>, some: &[Kept]) -> (i64, Option<DeliveryError>) {
        let mut behind = some.first().map_or(0, |event| event.id - 1);
        for event in some {
            match self.deliver(webhook, std::slice::from_ref(event)) {
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
        let most = match &self.to {
            Recipient::Webhook { batch, .. } => (*batch).max(1),
            Recipient::Program { .. } => 1,
        };
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

    fn deliver(&self, webhook: Option<&Webhook>, some: &[Kept]) -> Result<(), DeliveryError> {
        let bodies: Vec<String> = some.iter().map(|event| self.with_id(event)).collect();
        match (&self.to, webhook) {
            (Recipient::Webhook { url, batch, shows, .. }, Some(webhook)) => {
                let body = match *batch {
                    0 | 1 => bodies.concat(),
                    _ => format!("[{}]", bodies.join(",")),
                };
                let credentials = self.shared.state().keys.find(url, *shows);
                webhook.post(&credentials, Some(&self.id(some)), body.as_bytes()).map(drop)
            }
            (Recipient::Program { milliseconds, .. }, _) => {
                some.iter().zip(bodies).try_for_each(|(event, body)| run(event, body, *milliseconds))
            }
            (Recipient::Webhook { .. }, None) => Ok(()),
        }
    }

    /// `{"id":"6f1a...-17",...}`
    fn with_id(&self, event: &Kept) -> String {
        let rest = event.body.strip_prefix('{').unwrap_or("}");
        format!("{{\"id\":\"{}\",{rest}", self.id(std::slice::from_ref(event)))
    }

    /// `6f1a...-17`, of several `6f1a...-17-20`: others, and so another post, if one of them is not there any more.
    fn id(&self, some: &[Kept]) -> String {
        match some {
            [] => self.shared.origin.clone(),
            [one] => format!("{}-{}", self.shared.origin, one.id),
            [first, .., last] => format!("{}-{}-{}", self.shared.origin, first.id, last.id),
        }
    }
}

fn run(event: &Kept, body: String, milliseconds: u64) -> Result<(), DeliveryError> {
    let variables = facts::unpack(&event.variables);
    let mut pairs = variables.into_iter();
    let environment = std::iter::from_fn(|| Some((pairs.next()?, pairs.next()?))).collect();
    let program = Program {
        words: facts::unpack(&event.words),
        environment,
        time: Duration::from_millis(milliseconds),
        most: HEARD,
        purpose: Purpose::Work,
    };
    match program.run(body.as_bytes()) {
        Ok(ended) if ended.how == How::Exited(0) => Ok(()),
        Ok(ended) => {
            let errors = String::from_utf8_lossy(&ended.complaints);
            Err(DeliveryError::Retryable(format!("it {} {}", ended.how, errors.trim())))
        }
        Err(error) => Err(DeliveryError::Retryable(error.to_string())),
    }
}
