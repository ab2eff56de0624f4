//! The queue of events to be delivered later, stored in an SQLite database until then.
//!
//! One thread writes ([`Queue::put`] returns when its transaction is committed, which many sessions share), and each
//! receiver has a thread that delivers its events in their order. A delivered event is removed; others are retried with
//! growing pauses until they succeed, also by the next server. The process may be killed at any moment: a stored event
//! is delivered at least once, with the same `id` each time.
//!
//! Before a command that changes something, what it is about to do is put down as *intended*. An intention that a
//! killed server left behind becomes an event `interrupted`: it may or may not have been done.
//!
//! Where the nodes of a cluster share a queue, this one is where an event is put first: [`SharedQueue`] moves it on, before the
//! session hears of it if the database is there.
//!
//! A server that hands over to its successor leaves the deliveries to that, and only puts what its last sessions do; the
//! successor sees what was put so by looking at the file now and then.

mod writer;

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millrace_cluster::Cluster;
use rusqlite::Connection;

use self::writer::{waiting, write};
use super::delivery::{Delivery, Order, Warn};
use super::delivery_state::Shared;
use super::delivery_workers::DeliveryWorkers;
use super::queue_error::{Cause, QueueError};
use super::shared_queue::SharedQueue;
use super::webhook::Keyring;

/// How long the server's end waits for a delivery that has begun.
const LAST: Duration = Duration::from_secs(5);

/// The queue, open.
#[derive(Debug)]
pub(super) struct Queue {
    orders: Mutex<Option<Sender<Order>>>,
    workers: Arc<DeliveryWorkers>,
    shared: Arc<Shared>,
    /// The queue of all nodes, where they share one.
    of_all: Option<SharedQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Locked while this server delivers.
    lock: File,
    /// Locked for reading while this server has sessions that intend something.
    _presence: File,
}

/// The files of a queue, and what was found in them.
struct Opened {
    lock: File,
    presence: File,
    database: Connection,
    origin: String,
    /// The receivers with waiting events, and the last event of each.
    left: Vec<(String, i64)>,
}

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA busy_timeout = 30000;
    -- The sandbox has no folder for temporary files.
    PRAGMA temp_store = MEMORY;
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
    CREATE INDEX IF NOT EXISTS put_aside ON event (receiver, id) WHERE parked IS NOT NULL;
    CREATE TABLE IF NOT EXISTS intended (
        session INTEGER NOT NULL,
        receiver TEXT NOT NULL,
        body TEXT NOT NULL,
        words BLOB NOT NULL,
        variables BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS by_session ON intended (session);
";

/// What a killed process intended becomes an event again: its action may or may not have been done.
const INTERRUPTED: &str = "
    INSERT INTO event (receiver, body, words, variables) SELECT receiver, body, words, variables FROM intended;
    DELETE FROM intended;
";

impl Queue {
    /// Opens the queue of this file, or returns the one that this process has open, so that reloaded rules continue
    /// with their predecessors' queue.
    pub(super) fn of(
        path: &Path,
        keys: &Keyring,
        cluster: Option<&Arc<Cluster>>,
        warn: Warn,
    ) -> Result<Arc<Self>, QueueError> {
        static OPEN: Mutex<Vec<Weak<Queue>>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|queue| queue.strong_count() > 0);
        if let Some(queue) = open.iter().filter_map(Weak::upgrade).find(|queue| queue.is_at(path)) {
            queue.shared.take_keys(keys.clone());
            return Ok(queue);
        }
        let queue = Arc::new(Self::open(path, keys, cluster, warn)?);
        open.push(Arc::downgrade(&queue));
        Ok(queue)
    }

    /// Returns true if it is kept in this file, and not closed.
    fn is_at(&self, path: &Path) -> bool {
        self.shared.path == path && !self.shared.is_stopped()
    }

    fn open(
        path: &Path,
        keys: &Keyring,
        cluster: Option<&Arc<Cluster>>,
        warn: Warn,
    ) -> Result<Self, QueueError> {
        let opened = Self::open_files(path).map_err(|cause| QueueError::at(path, cause))?;
        let Opened { lock, presence, mut database, origin, left } = opened;
        let shared = Arc::new(Shared::new(path, origin, keys.clone(), warn));
        let (orders, inbox) = channel();
        // Workers are made by the writer too, and hold a way back to it.
        let of_all = cluster.and_then(|cluster| SharedQueue::of(cluster, &shared, &orders));
        if of_all.is_some() {
            // An id that the database has seen must not come again after a power cut.
            let full = database.execute_batch("PRAGMA synchronous = FULL");
            full.map_err(|error| QueueError::at(path, error))?;
        }
        let mover = of_all.as_ref().map(|queue| Arc::clone(queue.mover()));
        let workers = Arc::new(DeliveryWorkers::new(orders.clone(), Arc::clone(&shared), mover));
        let queue = Self {
            orders: Mutex::new(Some(orders)),
            workers: Arc::clone(&workers),
            shared,
            of_all,
            threads: Mutex::default(),
            lock,
            _presence: presence,
        };
        for (receiver, last) in left {
            workers.announce(&receiver, last);
        }
        let writer = thread::Builder::new()
            .name("millrace-events".to_owned())
            .spawn(move || write(&mut database, &inbox, &workers))
            .map_err(|error| QueueError::at(path, error))?;
        let mut threads = vec![writer];
        if let Some(of_all) = &queue.of_all {
            threads.extend(of_all.begin().map_err(|error| QueueError::at(path, error))?);
        }
        *queue.threads.lock().unwrap_or_else(PoisonError::into_inner) = threads;
        Ok(queue)
    }

    /// Opens and locks the files. What a killed process intended becomes events, unless another one has sessions.
    fn open_files(path: &Path) -> Result<Opened, Cause> {
        let lock = lock(path)?;
        let presence = lock_file(path, ".sessions")?;
        let database = Connection::open(path)?;
        database.execute_batch(SCHEMA)?;
        if presence.try_lock().is_ok() {
            database.execute_batch(INTERRUPTED)?;
            presence.unlock()?;
        }
        presence.lock_shared()?;
        let origin = database.query_row("SELECT name FROM origin", [], |row| row.get(0))?;
        let left = waiting(&database)?;
        Ok(Opened { lock, presence, database, origin, left })
    }

    /// Puts events; they are safe when this returns.
    pub(super) fn put(&self, session: u64, deliveries: Vec<Delivery>) -> Result<(), QueueError> {
        self.order(|done| Order::Put { deliveries, session, done })?;
        self.of_all.iter().for_each(|of_all| of_all.mover().wait());
        Ok(())
    }

    /// Puts down what a session is about to do.
    pub(super) fn intend(&self, session: u64, deliveries: Vec<Delivery>) -> Result<(), QueueError> {
        self.order(|done| Order::Intend { deliveries, session, done })
    }

    /// Nothing came of what a session was about to do.
    pub(super) fn forget(&self, session: u64) {
        if let Some(orders) = &*self.orders() {
            let _ = orders.send(Order::Drop { session });
        }
    }

    /// The queue of all nodes, where they share one.
    pub(super) fn of_all(&self) -> Option<&SharedQueue> {
        self.of_all.as_ref()
    }

    /// Where it is kept.
    pub(super) fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The prefix of its event ids.
    pub(super) fn origin(&self) -> &str {
        &self.shared.origin
    }

    /// Why the events of a receiver still wait, where it has not taken one.
    pub(super) fn trouble_of(&self, receiver: &str) -> Option<String> {
        self.shared.trouble_of(receiver)
    }

    /// Retries a receiver's events up to this one, from the first on, because older ones may have been put back.
    pub(super) fn begin_again(&self, receiver: &str, last: i64) {
        self.workers.begin_again(receiver, last);
    }

    fn order(&self, order: impl FnOnce(Sender<Result<(), QueueError>>) -> Order) -> Result<(), QueueError> {
        let (done, answer) = channel();
        match &*self.orders() {
            Some(orders) => drop(orders.send(order(done))),
            None => return Err(QueueError::Closed),
        }
        answer.recv().unwrap_or(Err(QueueError::Closed))
    }

    fn orders(&self) -> MutexGuard<'_, Option<Sender<Order>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the threads.
    fn stop(&self) {
        self.shared.stop();
        self.orders().take();
    }

    /// Leaves deliveries to another process, and waits a while for running ones. New events are still stored.
    pub(super) fn give_way(&self) {
        self.shared.rest(LAST);
        let _ = self.lock.unlock();
    }

    /// Delivers again.
    pub(super) fn take_back(&self) -> Result<(), QueueError> {
        self.lock.try_lock().map_err(|error| QueueError::at(self.path(), error))?;
        self.shared.resume();
        let left = Connection::open(self.path()).and_then(|database| waiting(&database));
        for (receiver, last) in left.map_err(|error| QueueError::at(self.path(), error))? {
            self.workers.announce(&receiver, last);
        }
        Ok(())
    }

    /// Ends deliveries; the next server continues with the rest.
    pub(super) fn close(&self) {
        self.stop();
        if self.of_all.is_some() {
            self.shared.wait_for_ends(LAST);
        }
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
    let lock = lock_file(path, ".lock")?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(std::io::Error::other("another server has it")),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// A file beside the queue that is there to be locked.
fn lock_file(path: &Path, ending: &str) -> std::io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(name)
}
