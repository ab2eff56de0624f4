//! Events on their way to somebody who is told later: kept in an SQLite database until they are delivered.
//!
//! One thread writes ([`Queue::put`] returns when its transaction is committed, so many sessions share one), and each
//! receiver has a thread that delivers its events in their order. What is delivered is forgotten; what is not is
//! tried again, later each time, for as long as it takes, also by the next server. The process may be killed
//! at any moment: an event that was put is delivered at least once, and has the same `id` each time.
//!
//! Before a command that changes something, what it is about to do is put down as *intended*. An intention that a
//! killed server left behind becomes an event `interrupted`: it may or may not have been done.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::webhook::{Keyring, NotTaken, Webhook};
use super::{HEARD, facts};
use crate::program::{How, Program, Purpose};

/// Puts that share a transaction at most.
const TOGETHER: usize = 1000;

/// How long a database that cannot be written to (a full disk) is tried.
const PATIENCE: Duration = Duration::from_secs(10);

/// Before a second try; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Between tries at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A program that fails so often for the same event is not asked again.
const PROGRAM_TRIES: u32 = 5;

/// How long the server's end waits for a delivery that has begun.
const LAST: Duration = Duration::from_secs(5);

/// Somebody who is told. Written down with each event: what was put is delivered, whatever the configuration says
/// by then.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Recipient {
    /// It is posted to this address: one at a time, or arrays of so many. Which of the credentials for that are shown is
    /// written down, and not what they are.
    Webhook {
        url: String,
        batch: usize,
        milliseconds: u64,
        #[serde(default)]
        shows: usize,
    },
    /// This program is run; its arguments are kept with each event.
    Program { name: String, milliseconds: u64 },
}

/// An event to be put.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) to: Recipient,
    /// A JSON object, not yet with its `id`.
    pub(super) body: String,
    /// A program's words and variables, packed.
    pub(super) words: Vec<u8>,
    pub(super) variables: Vec<u8>,
}

/// What the writing thread is told.
enum Order {
    /// Put these; a session's intention, if it had one, is carried out.
    Put { letters: Vec<Letter>, session: u64, done: Sender<Result<(), String>> },
    /// A session intends this.
    Intend { letters: Vec<Letter>, session: u64, done: Sender<Result<(), String>> },
    /// Nothing came of it.
    Drop { session: u64 },
    /// These were delivered.
    Delivered(Vec<i64>),
    /// These never will be: why.
    Parked(Vec<i64>, String),
}

/// Says what an operator should look at.
pub(super) type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// The queue, open.
#[derive(Debug)]
pub(super) struct Queue {
    orders: Mutex<Option<Sender<Order>>>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Locked while this server has the queue.
    _lock: File,
}

/// What the threads share.
struct Shared {
    path: PathBuf,
    warn: Warn,
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
    /// The receivers that have a thread, and the last event that was put for each.
    lanes: HashMap<String, i64>,
    /// What is shown to receivers; another where the configuration was read again.
    keys: Keyring,
    stopped: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; answers whether the queue is closed.
    fn pause(&self, time: Duration) -> bool {
        let waited = self.change.wait_timeout_while(self.state(), time, |state| !state.stopped);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }
}

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA busy_timeout = 30000;
    CREATE TABLE IF NOT EXISTS origin (name TEXT NOT NULL);
    INSERT INTO origin SELECT lower(hex(randomblob(8))) WHERE NOT EXISTS (SELECT 1 FROM origin);
    CREATE TABLE IF NOT EXISTS event (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        receiver TEXT NOT NULL,
        body TEXT NOT NULL,
        words BLOB NOT NULL,
        variables BLOB NOT NULL,
        parked TEXT
    );
    CREATE INDEX IF NOT EXISTS waiting ON event (receiver, id) WHERE parked IS NULL;
    CREATE TABLE IF NOT EXISTS intended (
        session INTEGER NOT NULL,
        receiver TEXT NOT NULL,
        body TEXT NOT NULL,
        words BLOB NOT NULL,
        variables BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS by_session ON intended (session);
    INSERT INTO event (receiver, body, words, variables) SELECT receiver, body, words, variables FROM intended;
    DELETE FROM intended;
";

impl Queue {
    /// The queue of this file: opened, with what is in it, or the one that this process has open. So rules that are
    /// read again go on with the queue of those before them.
    pub(super) fn of(path: &Path, keys: &Keyring, warn: Warn) -> Result<Arc<Self>, String> {
        static OPEN: Mutex<Vec<Weak<Queue>>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|queue| queue.strong_count() > 0);
        if let Some(queue) = open.iter().filter_map(Weak::upgrade).find(|queue| queue.is_at(path)) {
            queue.shared.state().keys = keys.clone();
            return Ok(queue);
        }
        let queue = Arc::new(Self::open(path, keys, warn)?);
        open.push(Arc::downgrade(&queue));
        Ok(queue)
    }

    /// Claims that it is kept in this file, and not closed.
    fn is_at(&self, path: &Path) -> bool {
        self.shared.path == path && !self.shared.state().stopped
    }

    fn open(path: &Path, keys: &Keyring, warn: Warn) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("the queue of hooks {}: {error}", path.display());
        let lock = lock(path).map_err(|error| wrong(&error))?;
        let mut database = Connection::open(path).map_err(|error| wrong(&error))?;
        database.execute_batch(SCHEMA).map_err(|error| wrong(&error))?;
        let origin: String = database
            .query_row("SELECT name FROM origin", [], |row| row.get(0))
            .map_err(|error| wrong(&error))?;
        let left = waiting(&database).map_err(|error| wrong(&error))?;
        let state = Mutex::new(State { keys: keys.clone(), ..State::default() });
        let shared = Arc::new(Shared { path: path.to_owned(), warn, state, change: Condvar::new() });
        let (orders, inbox) = channel();
        let queue = Self {
            orders: Mutex::new(Some(orders.clone())),
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
            _lock: lock,
        };
        // Lanes are made by the writer too, and hold a way back to it.
        let lanes = Lanes { origin, orders, shared };
        for (receiver, last) in left {
            lanes.announce(&receiver, last);
        }
        let writer = thread::Builder::new()
            .name("millrace-events".to_owned())
            .spawn(move || write(&mut database, &inbox, &lanes))
            .map_err(|error| wrong(&error))?;
        queue.threads.lock().unwrap_or_else(PoisonError::into_inner).push(writer);
        Ok(queue)
    }

    /// Puts events; they are safe when this returns.
    pub(super) fn put(&self, session: u64, letters: Vec<Letter>) -> Result<(), String> {
        self.order(|done| Order::Put { letters, session, done })
    }

    /// Puts down what a session is about to do.
    pub(super) fn intend(&self, session: u64, letters: Vec<Letter>) -> Result<(), String> {
        self.order(|done| Order::Intend { letters, session, done })
    }

    /// Nothing came of what a session was about to do.
    pub(super) fn forget(&self, session: u64) {
        if let Some(orders) = &*self.orders() {
            let _ = orders.send(Order::Drop { session });
        }
    }

    fn order(&self, order: impl FnOnce(Sender<Result<(), String>>) -> Order) -> Result<(), String> {
        let (done, answer) = channel();
        match &*self.orders() {
            Some(orders) => drop(orders.send(order(done))),
            None => return Err("the queue of hooks is closed".to_owned()),
        }
        answer.recv().unwrap_or_else(|_| Err("the queue of hooks has ended".to_owned()))
    }

    fn orders(&self) -> MutexGuard<'_, Option<Sender<Order>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the threads end.
    fn stop(&self) {
        self.shared.state().stopped = true;
        self.shared.change.notify_all();
        self.orders().take();
    }

    /// Ends deliveries; what is left is for the next server.
    pub(super) fn close(&self) {
        self.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let end = Instant::now() + LAST;
        for thread in threads {
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Takes the queue for this process.
fn lock(path: &Path) -> std::io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(name)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(std::io::Error::other("another server has it")),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Who has events to come, and the last of each.
fn waiting(database: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    let mut query =
        database.prepare("SELECT receiver, max(id) FROM event WHERE parked IS NULL GROUP BY receiver")?;
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// What it takes to begin deliveries.
struct Lanes {
    origin: String,
    orders: Sender<Order>,
    shared: Arc<Shared>,
}

impl Lanes {
    /// There are events for a receiver, up to this one: its thread is told, or begun.
    fn announce(&self, receiver: &str, last: i64) {
        let mut state = self.shared.state();
        if state.stopped || state.lanes.insert(receiver.to_owned(), last).is_some() {
            drop(state);
            return self.shared.change.notify_all();
        }
        drop(state);
        let Ok(to) = serde_json::from_str::<Recipient>(receiver) else {
            return (self.shared.warn)(&format!("hooks: events for an unknown kind of receiver: {receiver}"));
        };
        let lane = Lane {
            key: receiver.to_owned(),
            origin: self.origin.clone(),
            orders: self.orders.clone(),
            shared: Arc::clone(&self.shared),
            to,
        };
        let begun = thread::Builder::new().name("millrace-lane".to_owned()).spawn(move || lane.run());
        if begun.is_err() {
            self.shared.state().lanes.remove(receiver);
        }
    }
}

/// Writes what it is told to, many orders in one transaction.
fn write(database: &mut Connection, inbox: &Receiver<Order>, lanes: &Lanes) {
    loop {
        // The lanes hold ways to here as well, so the end is not that of the channel.
        let first = match inbox.recv_timeout(Duration::from_millis(250)) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) if !lanes.shared.state().stopped => continue,
            Err(_) => return,
        };
        let mut orders = vec![first];
        orders.extend(inbox.try_iter().take(TOGETHER));
        let begun = Instant::now();
        let result = loop {
            match commit(database, &orders) {
                Ok(put) => break Ok(put),
                Err(error) if begun.elapsed() > PATIENCE => break Err(error.to_string()),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        };
        match &result {
            Ok(put) => put.iter().for_each(|(receiver, last)| lanes.announce(receiver, *last)),
            Err(error) => (lanes.shared.warn)(&format!("hooks: events cannot be kept: {error}")),
        }
        let result = result.map(drop);
        for order in orders {
            if let Order::Put { done, .. } | Order::Intend { done, .. } = order {
                let _ = done.send(result.clone());
            }
        }
    }
}

/// One transaction; the receivers that have something new, and the last of it.
fn commit(database: &mut Connection, orders: &[Order]) -> rusqlite::Result<HashMap<String, i64>> {
    let transaction = database.transaction()?;
    let mut put = HashMap::new();
    {
        let mut insert = transaction
            .prepare_cached("INSERT INTO event (receiver, body, words, variables) VALUES (?1, ?2, ?3, ?4)")?;
        let mut intend = transaction.prepare_cached(
            "INSERT INTO intended (session, receiver, body, words, variables) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let mut forget = transaction.prepare_cached("DELETE FROM intended WHERE session = ?1")?;
        let mut remove = transaction.prepare_cached("DELETE FROM event WHERE id = ?1")?;
        let mut park = transaction.prepare_cached("UPDATE event SET parked = ?2 WHERE id = ?1")?;
        let key = |letter: &Letter| serde_json::to_string(&letter.to).unwrap_or_default();
        for order in orders {
            match order {
                Order::Put { letters, session, .. } => {
                    forget.execute([session.cast_signed()])?;
                    for letter in letters {
                        let key = key(letter);
                        insert.execute(params![key, letter.body, letter.words, letter.variables])?;
                        put.insert(key, transaction.last_insert_rowid());
                    }
                }
                Order::Intend { letters, session, .. } => {
                    forget.execute([session.cast_signed()])?;
                    for letter in letters {
                        let session = session.cast_signed();
                        intend.execute(params![
                            session,
                            key(letter),
                            letter.body,
                            letter.words,
                            letter.variables
                        ])?;
                    }
                }
                Order::Drop { session } => drop(forget.execute([session.cast_signed()])?),
                Order::Delivered(ids) => {
                    for id in ids {
                        remove.execute([id])?;
                    }
                }
                Order::Parked(ids, why) => {
                    for id in ids {
                        park.execute(params![id, why])?;
                    }
                }
            }
        }
    }
    transaction.commit()?;
    Ok(put)
}

/// One receiver's deliveries.
struct Lane {
    key: String,
    origin: String,
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

impl Lane {
    fn run(&self) {
        let webhook = match &self.to {
            Recipient::Webhook { url, milliseconds, .. } => {
                Some(Webhook::new(url, Duration::from_millis(*milliseconds)))
            }
            Recipient::Program { .. } => None,
        };
        // What was read is delivered before more is: the writer may not have removed it yet.
        let (mut behind, mut tries) = (0, 0);
        loop {
            if self.wait_for_more(behind) {
                return;
            }
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
                behind = self.shared.state().lanes.get(&self.key).copied().unwrap_or(behind).max(behind);
                continue;
            };
            let ids: Vec<i64> = some.iter().map(|event| event.id).collect();
            match self.deliver(webhook.as_ref(), &some) {
                Ok(()) => {
                    let _ = self.orders.send(Order::Delivered(ids));
                    (behind, tries) = (last, 0);
                }
                Err(NotTaken::Ever(_)) if some.len() > 1 => {
                    // One of them is to blame: one by one, to find out which.
                    behind = self.one_by_one(webhook.as_ref(), &some);
                }
                Err(error) => {
                    tries += 1;
                    let gives_up = match &error {
                        NotTaken::Ever(_) => true,
                        NotTaken::Yet(_) => webhook.is_none() && tries >= PROGRAM_TRIES,
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

    /// Waits for an event behind this one; answers whether the queue is closed.
    fn wait_for_more(&self, behind: i64) -> bool {
        let nothing_new = |state: &mut State| {
            !state.stopped && state.lanes.get(&self.key).is_none_or(|last| *last <= behind)
        };
        let waited = self.shared.change.wait_while(self.shared.state(), nothing_new);
        waited.unwrap_or_else(PoisonError::into_inner).stopped
    }

    /// Waits before the next try; answers whether the queue is closed.
    fn hold_off(&self, tries: u32, error: &NotTaken) -> bool {
        if tries == 1 {
            (self.shared.warn)(&format!("hooks: {} does not take events: {error}; they wait", self.name()));
        }
        self.shared.pause((FIRST_PAUSE * 2u32.pow(tries.min(10) - 1)).min(LONGEST_PAUSE))
    }

    fn park(&self, ids: &[i64], error: &NotTaken) {
        let text = format!("hooks: {} event(s) for {} put aside: {error}", ids.len(), self.name());
        (self.shared.warn)(&text);
        let _ = self.orders.send(Order::Parked(ids.to_vec(), error.to_string()));
    }

    /// Answers up to which event it came.
    fn one_by_one(&self, webhook: Option<&Webhook>, some: &[Kept]) -> i64 {
        let mut behind = some.first().map_or(0, |event| event.id - 1);
        for event in some {
            match self.deliver(webhook, std::slice::from_ref(event)) {
                Ok(()) => drop(self.orders.send(Order::Delivered(vec![event.id]))),
                Err(error @ NotTaken::Ever(_)) => self.park(&[event.id], &error),
                Err(NotTaken::Yet(_)) => return behind,
            }
            behind = event.id;
        }
        behind
    }

    fn name(&self) -> &str {
        match &self.to {
            Recipient::Webhook { url, .. } => url,
            Recipient::Program { name, .. } => name,
        }
    }

    fn read(&self, behind: i64) -> rusqlite::Result<Vec<Kept>> {
        let most = match &self.to {
            Recipient::Webhook { batch, .. } => (*batch).max(1),
            Recipient::Program { .. } => 1,
        };
        // One connection a lane and thread, kept by the caller's thread.
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

    fn deliver(&self, webhook: Option<&Webhook>, some: &[Kept]) -> Result<(), NotTaken> {
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
            [] => self.origin.clone(),
            [one] => format!("{}-{}", self.origin, one.id),
            [first, .., last] => format!("{}-{}-{}", self.origin, first.id, last.id),
        }
    }
}

fn run(event: &Kept, body: String, milliseconds: u64) -> Result<(), NotTaken> {
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
            Err(NotTaken::Yet(format!("it {} {}", ended.how, errors.trim())))
        }
        Err(error) => Err(NotTaken::Yet(error.to_string())),
    }
}
