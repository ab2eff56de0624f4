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
use super::set_limits::SET_LIMITS;
use super::tokens::TOKENS;
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
    OLDEST_PROGRAM,
    LOCK_TIMES,
    TOKENS,
    SET_LIMITS,
];

/// As many steps a program has to know that may use the tables when all of [`STEPS`] are taken. This grows only with a step that
/// takes away, or gives another meaning to, what programs use that know fewer. Those that
/// know fewer than 16 do not look at it.
const OLDEST: usize = 16;

/// Programs that know fewer steps than `oldest` may not use the tables.
const OLDEST_PROGRAM: &str = "ALTER TABLE millrace_cluster.form ADD COLUMN oldest integer NOT NULL DEFAULT 0";

/// How long a function waits for a lock, in milliseconds: half of the time that a question has by default, so that the database
/// says what it waits for, and a hundred times as long as one of our functions holds a lock. Behind a question that is given up
/// its process would go on waiting, one more with each attempt, until the database has no connections left.
///
/// It is said of the functions, as a connection may be shared by a pooler, and has no settings of ours.
const LOCK_TIME: &str = "DO $$
    DECLARE
        f regprocedure;
    BEGIN
        FOR f IN SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = 'millrace_cluster'::regnamespace LOOP
            EXECUTE format('ALTER FUNCTION %s SET lock_timeout = 1000', f);
        END LOOP;
    END $$";

/// Says nothing by itself: behind it, as behind each step since, [`LOCK_TIME`] is said of all functions.
const LOCK_TIMES: &str = "SELECT 1";

/// What the tables say of themselves.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// The steps that they have taken.
    steps: usize,
    /// The steps that a program has to know.
    oldest: usize,
}

impl Form {
    /// Returns whether this program may use them as they are: they have what it knows, and a later program has left that alone.
    fn is_sufficient(self) -> Result<bool, ClusterError> {
        match self.oldest > STEPS.len() {
            true => Err(ClusterError::LaterTables),
            false => Ok(self.steps >= STEPS.len()),
        }
    }
}

/// Returns whether the tables are up to date.
pub(super) async fn is_done(client: &Client) -> Result<bool, ClusterError> {
    form(client).await?.map_or(Ok(false), Form::is_sufficient)
}

/// Brings the tables up to date, all or nothing. Those that a later program has added to stay as they are.
pub(super) async fn migrate(client: &Client) -> Result<(), ClusterError> {
    let run = async |text: &str| client.batch_execute(text).await.map_err(PostgresError);
    run(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock({LOCK}); CREATE SCHEMA IF NOT EXISTS millrace_cluster"
    ))
    .await?;
    run("CREATE TABLE IF NOT EXISTS millrace_cluster.form (steps integer NOT NULL)").await?;
    // Another node may have been first.
    let form = form(client).await?;
    if form.is_none() {
        run("INSERT INTO millrace_cluster.form (steps) VALUES (0)").await?;
    }
    if !form.map_or(Ok(false), Form::is_sufficient)? {
        for step in STEPS.iter().skip(form.map_or(0, |form| form.steps)) {
            run(step).await?;
        }
        run(LOCK_TIME).await?;
        let steps = STEPS.len();
        run(&format!("UPDATE millrace_cluster.form SET steps = {steps}, oldest = {OLDEST}")).await?;
    }
    run("COMMIT").await?;
    Ok(())
}

/// Returns what the tables say of themselves; `None` where there are none.
async fn form(client: &Client) -> Result<Option<Form>, ClusterError> {
    const KNOWN: &str = "SELECT to_regclass('millrace_cluster.form') IS NOT NULL";
    // The column may not be there yet. Tables without it that have taken more steps are of programs that did not look at it.
    const FORM: &str = "
        SELECT steps, coalesce((to_jsonb(f) ->> 'oldest')::integer, steps) FROM millrace_cluster.form AS f";
    let known = client.query_typed_one(KNOWN, &[]).await?;
    if !known.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let Some(row) = client.query_typed_opt(FORM, &[]).await? else { return Ok(None) };
    let count = |index| row.try_get::<_, i32>(index).map(|count| usize::try_from(count).unwrap_or(0));
    Ok(Some(Form { steps: count(0)?, oldest: count(1)? }))
}
