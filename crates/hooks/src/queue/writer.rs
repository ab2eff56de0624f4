//! The thread that writes: it executes orders, many in one transaction.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use crate::delivery::{Delivery, Order};
use crate::delivery_workers::DeliveryWorkers;
use crate::queue_error::QueueError;

/// Puts that share a transaction at most.
const TOGETHER: usize = 1000;

/// How long a database that cannot be written to (a full disk) is tried.
const PATIENCE: Duration = Duration::from_secs(10);

/// The receivers with waiting events, and the last event of each.
pub(super) fn waiting(database: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    let mut query =
        database.prepare("SELECT receiver, max(id) FROM event WHERE parked IS NULL GROUP BY receiver")?;
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Executes orders, many in one transaction.
pub(super) fn write(database: &mut Connection, inbox: &Receiver<Order>, workers: &DeliveryWorkers) {
    let mut seen = None;
    loop {
        announce_others(database, &mut seen, workers);
        // The workers hold ways to here as well, so the end is not that of the channel.
        let first = match inbox.recv_timeout(Duration::from_millis(250)) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) if !workers.shared.is_stopped() => continue,
            Err(_) => return,
        };
        let mut orders = vec![first];
        orders.extend(inbox.try_iter().take(TOGETHER));
        let begun = Instant::now();
        let result = loop {
            match commit(database, &orders) {
                Ok(put) => break Ok(put),
                Err(error) if begun.elapsed() > PATIENCE => {
                    break Err(QueueError::at(&workers.shared.path, error));
                }
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        };
        match &result {
            Ok(put) => put.iter().for_each(|(receiver, last)| workers.announce(receiver, *last)),
            Err(error) => (workers.shared.warn)(&format!("hooks: events cannot be kept: {error}")),
        }
        let result = result.map(drop);
        for order in orders {
            if let Order::Put { done, .. } | Order::Intend { done, .. } | Order::Settle(done) = order {
                let _ = done.send(result.clone());
            }
        }
    }
}

/// Announces what another process has put, if it has put something.
fn announce_others(database: &Connection, seen: &mut Option<i64>, workers: &DeliveryWorkers) {
    let version = database.prepare_cached("PRAGMA data_version").and_then(|mut query| {
        let version: i64 = query.query_row([], |row| row.get(0))?;
        Ok(version)
    });
    // A failed read is repeated in a moment.
    let Ok(version) = version else { return };
    if seen.replace(version).is_some_and(|seen| seen != version) {
        let waiting = waiting(database).unwrap_or_default();
        waiting.iter().for_each(|(receiver, last)| workers.announce(receiver, *last));
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
        let key = |delivery: &Delivery| serde_json::to_string(&delivery.to).unwrap_or_default();
        for order in orders {
            match order {
                Order::Put { deliveries, session, .. } => {
                    forget.execute([session.cast_signed()])?;
                    for delivery in deliveries {
                        let key = key(delivery);
                        insert.execute(params![key, delivery.body, delivery.words, delivery.variables])?;
                        put.insert(key, transaction.last_insert_rowid());
                    }
                }
                Order::Intend { deliveries, session, .. } => {
                    forget.execute([session.cast_signed()])?;
                    for delivery in deliveries {
                        let session = session.cast_signed();
                        intend.execute(params![
                            session,
                            key(delivery),
                            delivery.body,
                            delivery.words,
                            delivery.variables
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
                Order::Settle(_) => {}
            }
        }
    }
    transaction.commit()?;
    Ok(put)
}
