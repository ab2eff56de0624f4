//! The questions about events that all nodes deliver, on connections of their own: neither logins nor the lease wait for
//! them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use millrace_storage::PostgresServer;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use super::{Parameter, number};
use crate::events::{EventTable, MeantEvents, ReceiverCount, Settlement, SharedEvent, TakenReceiver};
use crate::table::{Epoch, TableError};

/// The tables of events in one database. A node that has registered has made them.
#[derive(Debug)]
pub struct PostgresEvents {
    connections: Connections,
}

impl PostgresEvents {
    /// Makes it without connecting. An answer may take so long.
    pub fn new(server: Arc<dyn PostgresServer>, time: Duration) -> io::Result<Self> {
        Ok(Self { connections: Connections::new(server, time)? })
    }

    /// Makes a change that may be about many rows, and returns about how many.
    fn change(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<u64, TableError> {
        self.connections.ask(Lane::Survey, async |client| {
            let count: i64 = client.query_typed_one(statement, parameters).await?.try_get(0)?;
            Ok(u64::try_from(count).unwrap_or(0))
        })
    }
}

impl EventTable for PostgresEvents {
    fn put(&self, events: &[SharedEvent]) -> Result<(), TableError> {
        const PUT: &str = "SELECT millrace_cluster.put_events($1, $2, $3, $4, $5, $6)";
        fn column<'a, T: ?Sized>(events: &'a [SharedEvent], of: fn(&'a SharedEvent) -> &'a T) -> Vec<&'a T> {
            events.iter().map(of).collect()
        }
        let ids = column(events, |event| &*event.id);
        let receivers = column(events, |event| &*event.receiver);
        let bodies = column(events, |event| &*event.body);
        let words = column(events, |event| &*event.words);
        let variables = column(events, |event| &*event.variables);
        let parked: Vec<Option<&str>> = events.iter().map(|event| event.parked.as_deref()).collect();
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 6] = [
                (&ids, Type::TEXT_ARRAY),
                (&receivers, Type::TEXT_ARRAY),
                (&bodies, Type::TEXT_ARRAY),
                (&words, Type::BYTEA_ARRAY),
                (&variables, Type::BYTEA_ARRAY),
                (&parked, Type::TEXT_ARRAY),
            ];
            client.query_typed(PUT, &parameters).await?;
            Ok(())
        })
    }

    fn take(&self, epoch: Epoch, busy: &[String]) -> Result<Option<TakenReceiver>, TableError> {
        const TAKE: &str = "SELECT name, failed FROM millrace_cluster.take_receiver($1, $2)";
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 2] = [(&epoch.0, Type::INT8), (&busy, Type::TEXT_ARRAY)];
            let row = client.query_typed_one(TAKE, &parameters).await?;
            let Some(receiver) = row.try_get(0)? else { return Ok(None) };
            let tries: Option<i32> = row.try_get(1)?;
            Ok(Some(TakenReceiver {
                receiver,
                tries: tries.and_then(|tries| u32::try_from(tries).ok()).unwrap_or(0),
            }))
        })
    }

    fn read(&self, receiver: &str, is_parked: bool, most: usize) -> Result<Vec<SharedEvent>, TableError> {
        // A constant condition each, for which there is an index.
        const WAITING: &str =
            "SELECT id, receiver, body, words, variables, parked FROM millrace_cluster.event
            WHERE receiver = $1 AND parked IS NULL ORDER BY number LIMIT $2";
        const PARKED: &str = "SELECT id, receiver, body, words, variables, parked FROM millrace_cluster.event
            WHERE receiver = $1 AND parked IS NOT NULL ORDER BY number LIMIT $2";
        let most = number(most as u64);
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 2] = [(&receiver, Type::TEXT), (&most, Type::INT8)];
            let rows = client.query_typed(if is_parked { PARKED } else { WAITING }, &parameters).await?;
            rows.iter().map(event).collect()
        })
    }

    fn settle(&self, epoch: Epoch, receiver: &str, settlement: &Settlement) -> Result<bool, TableError> {
        const SETTLE: &str = "SELECT millrace_cluster.settle_events($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let Settlement { delivered, parked, failure, keeps } = settlement;
        let (parked, reasons): (Vec<&str>, Vec<&str>) =
            parked.iter().map(|(id, why)| (&**id, &**why)).unzip();
        let trouble = failure.as_ref().map(|failure| &*failure.trouble);
        let tries = failure.as_ref().map_or(0, |failure| i32::try_from(failure.tries).unwrap_or(i32::MAX));
        let pause = failure.as_ref().map(|failure| failure.pause);
        self.connections.ask(Lane::Transfer, async |client| {
            let parameters: [Parameter<'_>; 9] = [
                (&epoch.0, Type::INT8),
                (&receiver, Type::TEXT),
                (delivered, Type::TEXT_ARRAY),
                (&parked, Type::TEXT_ARRAY),
                (&reasons, Type::TEXT_ARRAY),
                (&trouble, Type::TEXT),
                (&tries, Type::INT4),
                (&pause, Type::FLOAT8),
                (keeps, Type::BOOL),
            ];
            Ok(client.query_typed_one(SETTLE, &parameters).await?.try_get(0)?)
        })
    }

    fn counts(&self) -> Result<Vec<ReceiverCount>, TableError> {
        // By the indices alone, which have no bodies; every event has the row of its receiver.
        const COUNTS: &str = "
            SELECT r.receiver, c.is_parked, c.count, r.trouble FROM millrace_cluster.event_receiver AS r
            CROSS JOIN LATERAL (
                SELECT false AS is_parked, count(*) AS count FROM millrace_cluster.event AS e
                    WHERE e.receiver = r.receiver AND e.parked IS NULL
                UNION ALL
                SELECT true, count(*) FROM millrace_cluster.event AS e
                    WHERE e.receiver = r.receiver AND e.parked IS NOT NULL
            ) AS c WHERE c.count > 0 ORDER BY 1, 2";
        self.connections.ask(Lane::Survey, async |client| {
            client.query_typed(COUNTS, &[]).await?.iter().map(count).collect()
        })
    }

    fn missing(&self, ids: &[String]) -> Result<Option<String>, TableError> {
        const MISSING: &str = "SELECT i FROM unnest($1) AS i
            WHERE NOT EXISTS (SELECT FROM millrace_cluster.event AS e WHERE e.id = i) LIMIT 1";
        self.connections.ask(Lane::Login, async |client| {
            let row = client.query_typed_opt(MISSING, &[(&ids, Type::TEXT_ARRAY)]).await?;
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        })
    }

    fn put_back(&self, meant: &MeantEvents<'_>) -> Result<u64, TableError> {
        match meant {
            MeantEvents::These(ids) => self.change(
                "WITH c AS (UPDATE millrace_cluster.event SET parked = NULL WHERE id = ANY ($1) RETURNING 1)
                 SELECT count(*) FROM c",
                &[(ids, Type::TEXT_ARRAY)],
            ),
            MeantEvents::Of { receiver, .. } => self.change(
                "WITH c AS (UPDATE millrace_cluster.event SET parked = NULL
                            WHERE receiver = $1 AND parked IS NOT NULL RETURNING 1)
                 SELECT count(*) FROM c",
                &[(receiver, Type::TEXT)],
            ),
        }
    }

    fn forget(&self, meant: &MeantEvents<'_>) -> Result<u64, TableError> {
        match meant {
            MeantEvents::These(ids) => self.change(
                "WITH c AS (DELETE FROM millrace_cluster.event WHERE id = ANY ($1) RETURNING 1)
                 SELECT count(*) FROM c",
                &[(ids, Type::TEXT_ARRAY)],
            ),
            MeantEvents::Of { receiver, is_parked } => self.change(
                "WITH c AS (DELETE FROM millrace_cluster.event
                            WHERE receiver = $1 AND (parked IS NOT NULL) = $2 RETURNING 1)
                 SELECT count(*) FROM c",
                &[(receiver, Type::TEXT), (is_parked, Type::BOOL)],
            ),
        }
    }

    fn hurry(&self) -> Result<(), TableError> {
        const HURRY: &str =
            "UPDATE millrace_cluster.event_receiver SET due = '-infinity' WHERE due > clock_timestamp()";
        self.connections.ask(Lane::Login, async |client| {
            client.query_typed(HURRY, &[]).await?;
            Ok(())
        })
    }
}

fn event(row: &Row) -> Result<SharedEvent, ClusterError> {
    Ok(SharedEvent {
        id: row.try_get(0)?,
        receiver: row.try_get(1)?,
        body: row.try_get(2)?,
        words: row.try_get(3)?,
        variables: row.try_get(4)?,
        parked: row.try_get(5)?,
    })
}

fn count(row: &Row) -> Result<ReceiverCount, ClusterError> {
    Ok(ReceiverCount {
        receiver: row.try_get(0)?,
        is_parked: row.try_get(1)?,
        count: u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0),
        trouble: row.try_get(3)?,
    })
}
