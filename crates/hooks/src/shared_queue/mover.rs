//! Moves the events of this node from its queue file to the queue of all nodes, in their order.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_cluster::{EventTable, SharedEvent, TableError};
use rusqlite::{Connection, params};

use super::courier::Courier;
use crate::delivery::Order;
use crate::delivery_state::Shared;

/// Events that are moved at a time.
const TOGETHER: usize = 500;

/// How long after a failure the database is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often it is looked whether the queue was closed.
const LOOK: Duration = Duration::from_millis(100);

/// Moves events, on a thread of its own.
pub(crate) struct Mover {
    table: Arc<dyn EventTable>,
    shared: Arc<Shared>,
    orders: Sender<Order>,
    courier: Arc<Courier>,
    /// Guarded for a look.
    progress: Mutex<Progress>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// The last event of the file.
    announced: i64,
    /// The last event that was moved.
    moved: i64,
    /// Why events wait in the file; until all have been moved.
    trouble: Option<String>,
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Mover").field(&self.progress()).finish()
    }
}

impl Mover {
    pub(super) fn new(
        table: Arc<dyn EventTable>,
        shared: Arc<Shared>,
        orders: Sender<Order>,
        courier: Arc<Courier>,
    ) -> Self {
        let (progress, change) = (Mutex::default(), Condvar::new());
        Self { table, shared, orders, courier, progress, change }
    }

    /// There are events in the file, up to this one.
    pub(crate) fn announce(&self, last: i64) {
        let mut progress = self.progress();
        progress.announced = progress.announced.max(last);
        self.change.notify_all();
    }

    /// Waits until the events that are in the file now have been moved. Not while the database is away, nor where another
    /// process moves them: in the file they are as safe as those of a server without a cluster.
    pub(crate) fn wait(&self) {
        let mut progress = self.progress();
        let goal = progress.announced;
        while progress.moved < goal && progress.trouble.is_none() && !self.shared.is_over() {
            let waited = self.change.wait_timeout(progress, LOOK);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Why events wait in the file of this node.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.progress().trouble.clone()
    }

    /// Moves events until the queue is closed.
    pub(super) fn run(&self) {
        let mut database = None;
        let mut behind = 0;
        while !self.shared.wait_for_right() {
            let announced = self.progress().announced;
            match self.read(&mut database, behind) {
                Ok(some) if some.is_empty() => {
                    // What was announced is not there: another process has moved it.
                    behind = behind.max(announced);
                    self.progress().moved = behind;
                    self.note(None);
                    self.wait_for_more(behind);
                }
                Ok(some) => match self.move_on(some) {
                    Ok(last) => behind = last,
                    Err(error) => self.fail(&error.to_string()),
                },
                Err(error) => self.fail(&format!("the queue file cannot be read: {error}")),
            }
        }
    }

    /// Moves these; returns the last of them.
    fn move_on(&self, some: Vec<(i64, SharedEvent)>) -> Result<i64, TableError> {
        let (numbers, events): (Vec<i64>, Vec<SharedEvent>) = some.into_iter().unzip();
        let last = numbers.last().copied().unwrap_or(0);
        let numbers = match self.table.put(&events) {
            Err(TableError::Refused(_)) => self.move_each(&numbers, &events)?,
            put => put.map(|()| numbers)?,
        };
        if numbers.len() < TOGETHER {
            // These were all; who has put others since waits for them again.
            self.note(None);
        }
        // Where the process is killed before they are removed, they are put once more, by the same ids.
        let _ = self.orders.send(Order::Delivered(numbers));
        self.progress().moved = last;
        self.change.notify_all();
        self.courier.call();
        Ok(last)
    }

    /// Moves these one by one, as the database refuses one of them: that one is put aside here. Returns those that were moved.
    fn move_each(&self, numbers: &[i64], events: &[SharedEvent]) -> Result<Vec<i64>, TableError> {
        let mut moved = Vec::new();
        for (&number, event) in numbers.iter().zip(events) {
            match self.table.put(std::slice::from_ref(event)) {
                Err(error @ TableError::Refused(_)) => {
                    (self.shared.warn)(&format!(
                        "hooks: the event {} is put aside at this node: {error}",
                        event.id
                    ));
                    let _ = self.orders.send(Order::Parked(vec![number], error.to_string()));
                }
                put => put.map(|()| moved.push(number))?,
            }
        }
        Ok(moved)
    }

    fn fail(&self, why: &str) {
        self.note(Some(why));
        self.shared.pause(PAUSE);
    }

    /// Tells the operator when events begin to wait here, and when they have all been moved.
    fn note(&self, trouble: Option<&str>) {
        let before = std::mem::replace(&mut self.progress().trouble, trouble.map(str::to_owned));
        self.change.notify_all();
        match (before, trouble) {
            (None, Some(why)) => {
                (self.shared.warn)(&format!("hooks: {why}; events wait in the queue file of this node"));
            }
            (Some(_), None) => {
                (self.shared.warn)("hooks: no event waits in the queue file of this node any more")
            }
            _ => {}
        }
    }

    /// Waits for an event after this one, or a moment.
    fn wait_for_more(&self, behind: i64) {
        let nothing_new = |progress: &mut Progress| progress.announced <= behind;
        drop(self.change.wait_timeout_while(self.progress(), LOOK, nothing_new));
    }

    fn read(
        &self,
        database: &mut Option<Connection>,
        behind: i64,
    ) -> rusqlite::Result<Vec<(i64, SharedEvent)>> {
        let database = match database {
            Some(database) => database,
            None => {
                let opened = Connection::open(&self.shared.path)?;
                opened.busy_timeout(Duration::from_secs(30))?;
                database.insert(opened)
            }
        };
        let mut query = database.prepare_cached(
            "SELECT id, receiver, body, words, variables, parked FROM event WHERE id > ?1 ORDER BY id LIMIT ?2",
        )?;
        let rows = query.query_map(params![behind, TOGETHER as i64], |row| {
            let number: i64 = row.get(0)?;
            let event = SharedEvent {
                id: format!("{}-{number}", self.shared.origin),
                receiver: row.get(1)?,
                body: row.get(2)?,
                words: row.get(3)?,
                variables: row.get(4)?,
                parked: row.get(5)?,
            };
            Ok((number, event))
        })?;
        rows.collect()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
