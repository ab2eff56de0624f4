//! Administration of the queue: lists waiting and failed events with their errors, and retries or removes them.
//!
//! Where the nodes of a cluster share a queue, that one is meant; the file of this node has what waits for the database.
//!
//! It opens a connection for each call: the calls are rare, and do not delay sessions that queue events.

mod of_all;

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde_json::Value;

use self::of_all::OfAll;
use super::delivery::Recipient;
use super::queue::Queue;
use super::queue_error::QueueError;

/// How long another process may lock the database.
const PATIENCE: Duration = Duration::from_secs(10);

/// The queue of rules, as an administrator sees it.
#[derive(Debug)]
pub struct Backlog(Arc<Queue>);

/// Which events are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// Those of these ids, as [`Undelivered::id`] has them, or only their numbers.
    These(Vec<String>),
    /// All that were put aside, and with `waiting` those that wait as well.
    All {
        /// Only of this receiver, as [`Undelivered::to`] names it.
        to: Option<String>,
        /// Whether waiting events are included.
        waiting: bool,
    },
}

/// The contents of the queue.
#[derive(Debug, Default)]
pub struct Undeliverables {
    /// How many wait for their receivers.
    pub waiting: u64,
    /// How many were put aside.
    pub parked: u64,
    /// Some of them: first those that were put aside, and the older before the newer.
    pub events: Vec<Undelivered>,
}

/// An event that is in the queue.
#[derive(Debug)]
pub struct Undelivered {
    /// As its receiver sees it.
    pub id: String,
    /// The address or program that is told.
    pub to: String,
    /// Whether it was put aside.
    pub is_parked: bool,
    /// Why, or why it still waits.
    pub error: Option<String>,
    /// The event as the receiver gets it.
    pub body: Value,
}

/// A receiver as it is written in the queue, and as people call it.
struct Receiver {
    key: String,
    name: String,
    count: u64,
    /// The newest of its events.
    last: i64,
}

/// Whether an event was put aside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Parked,
    Waiting,
}

impl State {
    fn condition(self) -> &'static str {
        match self {
            Self::Parked => "parked IS NOT NULL",
            Self::Waiting => "parked IS NULL",
        }
    }
}

impl Backlog {
    pub(super) fn of(queue: &Arc<Queue>) -> Self {
        Self(Arc::clone(queue))
    }

    /// How many events there are, or are for one receiver, and this many of them at most.
    pub fn list(&self, to: Option<&str>, most: usize) -> Result<Undeliverables, QueueError> {
        let database = self.open()?;
        let mut found = self.read(&database, to, most).map_err(|error| self.failed(error))?;
        let Some(of_all) = self.0.of_all() else { return Ok(found) };
        if let Some(trouble) = of_all.mover().trouble() {
            found
                .events
                .iter_mut()
                .for_each(|event| event.error = event.error.take().or(Some(trouble.clone())));
        } else {
            OfAll(of_all).list(&mut found, to, most)?;
        }
        Ok(found)
    }

    /// Returns how many events wait for their receivers, and how many were put aside.
    pub fn counts(&self) -> Result<(u64, u64), QueueError> {
        self.list(None, 0).map(|found| (found.waiting, found.parked))
    }

    /// Has events delivered that were put aside, and those that wait tried now; answers how many there are.
    pub fn retry(&self, meant: &Meant) -> Result<u64, QueueError> {
        if let Some(of_all) = self.0.of_all() {
            return OfAll(of_all).retry(meant);
        }
        let mut database = self.open()?;
        let count = change(&mut database, |transaction| match meant {
            Meant::These(ids) => self.each(transaction, ids, |transaction, id| {
                let put = "UPDATE event SET parked = NULL WHERE id = ?1";
                transaction.execute(put, [id])
            }),
            Meant::All { to, .. } => {
                let parked = receivers(transaction, State::Parked, to.as_deref())?;
                for receiver in &parked {
                    let put = "UPDATE event SET parked = NULL WHERE receiver = ?1 AND parked IS NOT NULL";
                    transaction.execute(put, [&receiver.key])?;
                }
                Ok(Ok(parked.iter().map(|receiver| receiver.count).sum()))
            }
        });
        let count = count.map_err(|error| self.failed(error))??;
        // The waiting events are read from the beginning: only failed ones are skipped.
        let waiting = receivers(&database, State::Waiting, None).map_err(|error| self.failed(error))?;
        waiting.iter().for_each(|receiver| self.0.begin_again(&receiver.key, receiver.last));
        Ok(count)
    }

    /// Removes events; returns how many. One that is being delivered may still arrive.
    pub fn forget(&self, meant: &Meant) -> Result<u64, QueueError> {
        if let Some(of_all) = self.0.of_all() {
            return OfAll(of_all).forget(meant);
        }
        let mut database = self.open()?;
        let count = change(&mut database, |transaction| match meant {
            Meant::These(ids) => self.each(transaction, ids, |transaction, id| {
                transaction.execute("DELETE FROM event WHERE id = ?1", [id])
            }),
            Meant::All { to, waiting } => {
                let states = if *waiting { &[State::Parked, State::Waiting][..] } else { &[State::Parked] };
                let mut count = 0;
                for &state in states {
                    for receiver in receivers(transaction, state, to.as_deref())? {
                        let forget =
                            format!("DELETE FROM event WHERE receiver = ?1 AND {}", state.condition());
                        count += transaction.execute(&forget, [&receiver.key])? as u64;
                    }
                }
                Ok(Ok(count))
            }
        });
        count.map_err(|error| self.failed(error))?
    }

    /// Does something to each of these events, if all of them are there.
    fn each(
        &self,
        transaction: &Transaction<'_>,
        ids: &[String],
        act: impl Fn(&Transaction<'_>, i64) -> rusqlite::Result<usize>,
    ) -> rusqlite::Result<Result<u64, QueueError>> {
        let mut count = 0;
        for id in ids {
            let found = match self.number(id) {
                Some(number) => act(transaction, number)?,
                None => 0,
            };
            if found == 0 {
                return Ok(Err(QueueError::NoEvent(id.clone())));
            }
            count += 1;
        }
        Ok(Ok(count))
    }

    /// `17`, or `6f1ac0de9e3b7a42-17` where the queue is of this origin.
    fn number(&self, id: &str) -> Option<i64> {
        let number = match id.rsplit_once('-') {
            Some((origin, number)) => (origin == self.0.origin()).then_some(number)?,
            None => id,
        };
        number.parse().ok()
    }

    fn read(&self, database: &Connection, to: Option<&str>, most: usize) -> rusqlite::Result<Undeliverables> {
        let mut found = Undeliverables::default();
        for state in [State::Parked, State::Waiting] {
            let some = receivers(database, state, to)?;
            let count = some.iter().map(|receiver| receiver.count).sum();
            match state {
                State::Parked => found.parked = count,
                State::Waiting => found.waiting = count,
            }
            for receiver in some {
                let left = most.saturating_sub(found.events.len());
                found.events.extend(self.events(database, state, &receiver, left)?);
            }
        }
        Ok(found)
    }

    fn events(
        &self,
        database: &Connection,
        state: State,
        receiver: &Receiver,
        most: usize,
    ) -> rusqlite::Result<Vec<Undelivered>> {
        let condition = state.condition();
        let query = format!(
            "SELECT id, body, parked FROM event WHERE receiver = ?1 AND {condition} ORDER BY id LIMIT ?2"
        );
        let trouble = self.0.trouble_of(&receiver.key);
        let mut query = database.prepare(&query)?;
        let rows = query.query_map(params![receiver.key, most as i64], |row| {
            let (id, body, parked): (i64, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Undelivered {
                id: format!("{}-{id}", self.0.origin()),
                to: receiver.name.clone(),
                is_parked: state == State::Parked,
                error: parked.or_else(|| trouble.clone()),
                body: serde_json::from_str(&body).unwrap_or_default(),
            })
        })?;
        rows.collect()
    }

    fn open(&self) -> Result<Connection, QueueError> {
        let opened = Connection::open(self.0.path()).and_then(|database| {
            database.busy_timeout(PATIENCE)?;
            Ok(database)
        });
        opened.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> QueueError {
        QueueError::at(self.0.path(), error)
    }
}

/// One transaction; it is not done where the answer is an error.
fn change<T>(
    database: &mut Connection,
    act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Result<T, QueueError>>,
) -> rusqlite::Result<Result<T, QueueError>> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = act(&transaction)?;
    if done.is_ok() {
        transaction.commit()?;
    }
    Ok(done)
}

/// The receivers with events in this state, or those of one name.
fn receivers(database: &Connection, state: State, to: Option<&str>) -> rusqlite::Result<Vec<Receiver>> {
    let condition = state.condition();
    let query = format!("SELECT receiver, count(*), max(id) FROM event WHERE {condition} GROUP BY receiver");
    let mut query = database.prepare(&query)?;
    let rows = query.query_map([], |row| {
        let (key, count, last): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let name = Recipient::name_of(&key);
        Ok(Receiver { key, name, count: count.cast_unsigned(), last })
    })?;
    let named = |receiver: &Receiver| to.is_none_or(|to| receiver.name == to);
    rows.filter(|row| row.as_ref().map_or(true, named)).collect()
}
