//! The questions about errands of nodes to one another.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use crate::table::{Epoch, TableError};

/// Sends an errand.
pub(super) fn send(
    connections: &Connections,
    epoch: Epoch,
    errand: &str,
    only: Option<Epoch>,
) -> Result<Vec<(i64, Epoch, String)>, TableError> {
    const SEND: &str = "
        INSERT INTO millrace_cluster.errand AS e (epoch, text)
            SELECT n.epoch, $2 FROM millrace_cluster.node AS n
            WHERE n.epoch <> $1 AND n.renewed + n.lease > clock_timestamp() AND ($3 IS NULL OR n.epoch = $3)
            RETURNING e.number, e.epoch, (SELECT n.name FROM millrace_cluster.node AS n WHERE n.epoch = e.epoch)";
    let only = only.map(|only| only.0);
    connections.ask(Lane::Login, async |client| {
        let rows = client
            .query_typed(SEND, &[(&epoch.0, Type::INT8), (&errand, Type::TEXT), (&only, Type::INT8)])
            .await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, Epoch(row.try_get(1)?), row.try_get(2)?))).collect()
    })
}

/// Takes the errands of a node.
pub(super) fn take(connections: &Connections, epoch: Epoch) -> Result<Vec<(i64, String)>, TableError> {
    const TAKE: &str = "UPDATE millrace_cluster.errand SET taken = true WHERE epoch = $1 AND NOT taken RETURNING number, text";
    connections
        .ask(Lane::Keeper, async |client| pairs(&client.query_typed(TAKE, &[(&epoch.0, Type::INT8)]).await?))
}

/// Answers an errand.
pub(super) fn answer(connections: &Connections, number: i64, answer: &str) -> Result<(), TableError> {
    const ANSWER: &str = "UPDATE millrace_cluster.errand SET answer = $2 WHERE number = $1";
    connections.ask(Lane::Login, async |client| {
        client.query_typed(ANSWER, &[(&number, Type::INT8), (&answer, Type::TEXT)]).await?;
        Ok(())
    })
}

/// Returns the answers that are there.
pub(super) fn answers(connections: &Connections, numbers: &[i64]) -> Result<Vec<(i64, String)>, TableError> {
    const ANSWERS: &str =
        "SELECT number, answer FROM millrace_cluster.errand WHERE number = ANY ($1) AND answer IS NOT NULL";
    connections.ask(Lane::Login, async |client| {
        pairs(&client.query_typed(ANSWERS, &[(&numbers, Type::INT8_ARRAY)]).await?)
    })
}

/// Forgets errands.
pub(super) fn end(connections: &Connections, numbers: &[i64]) -> Result<(), TableError> {
    const END: &str = "DELETE FROM millrace_cluster.errand
        WHERE number = ANY ($1) OR made < clock_timestamp() - interval '1 minute'";
    connections.ask(Lane::Login, async |client| {
        client.query_typed(END, &[(&numbers, Type::INT8_ARRAY)]).await?;
        Ok(())
    })
}

fn pairs(rows: &[Row]) -> Result<Vec<(i64, String)>, ClusterError> {
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
