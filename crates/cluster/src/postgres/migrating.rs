//! Bringing the tables of a cluster up to date, in a schema of their own.
//!
//! In a rolling upgrade nodes of two versions use the same tables. So a step adds: a table, a column with a default, a function,
//! or another body of a function with the same parameters and the same meaning. A program that does not know the step goes on
//! with what it knows. Where a step cannot be of that kind, [`OLDEST`] has to say so.

use millrace_storage::PostgresError;
use tokio_postgres::Client;

use super::audit::AUDIT;
use super::browser_logins::{BROWSER_LOGINS, LATE_LOGINS};
use super::data_routes::DATA_ROUTES;
use super::dav_schema::DAV;
use super::error::ClusterError;
use super::events_schema::EVENTS;
use super::failures::FAILURES;
use super::logins::LOGINS;
use super::schema::{ERRANDS, PLACES_AND_BANS, QUOTAS, RATES};
use super::secrets::SECRETS;
use super::traffic::TRAFFIC;
use super::uploads::UPLOADS;

/// Keeps two nodes from migrating concurrently; the number is arbitrary.
const LOCK: i64 = 0x6d69_6c6c_6e6f_6465;

/// The steps; the database records how many it has taken. One that was released is never changed.
const STEPS: &[&str] = &[
    PLACES_AND_BANS,
    QUOTAS,
    ERRANDS,
    RATES,
    FAILURES,
    SECRETS,
    BROWSER_LOGINS,
    DAV,
    UPLOADS,
    EVENTS,
    AUDIT,
    DATA_ROUTES,
    TRAFFIC,
    LOGINS,
    LATE_LOGINS,
];

/// Brings the tables up to date, all or nothing.
pub(super) async fn migrate(client: &Client) -> Result<(), ClusterError> {
    match steps_taken(client).await? {
        Some(taken) if taken == STEPS.len() => return Ok(()),
        Some(taken) if taken > STEPS.len() => return Err(ClusterError::LaterTables),
        _ => {}
    }
    let run = async |text: &str| client.batch_execute(text).await.map_err(PostgresError);
    run(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock({LOCK}); CREATE SCHEMA IF NOT EXISTS millrace_cluster"
    ))
    .await?;
    run("CREATE TABLE IF NOT EXISTS millrace_cluster.form (steps integer NOT NULL)").await?;
    let taken = steps_taken(client).await?;
    if taken.is_none() {
        run("INSERT INTO millrace_cluster.form VALUES (0)").await?;
    }
    for step in STEPS.iter().skip(taken.unwrap_or(0)) {
        run(step).await?;
        run("UPDATE millrace_cluster.form SET steps = steps + 1").await?;
    }
    run("COMMIT").await?;
    Ok(())
}

/// Returns how many steps the tables have taken; `None` where there are none.
async fn steps_taken(client: &Client) -> Result<Option<usize>, ClusterError> {
    const KNOWN: &str = "SELECT to_regclass('millrace_cluster.form') IS NOT NULL";
    let known = client.query_typed_one(KNOWN, &[]).await.map_err(PostgresError)?;
    if !known.try_get::<_, bool>(0).map_err(PostgresError)? {
        return Ok(None);
    }
    let row = client
        .query_typed_opt("SELECT steps FROM millrace_cluster.form", &[])
        .await
        .map_err(PostgresError)?;
    let steps = row.map(|row| row.try_get::<_, i32>(0)).transpose().map_err(PostgresError)?;
    Ok(steps.map(|steps| usize::try_from(steps).unwrap_or(0)))
}
