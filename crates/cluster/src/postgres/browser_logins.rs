//! The logins of administrators' browsers.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use super::{Parameter, seconds};
use crate::browser_logins::{BrowserLogin, LoginEnd, LoginLifetime, LoginUse};
use crate::table::TableError;

/// The table. No row has what a browser shows, but a hash of it.
pub(super) const BROWSER_LOGINS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE TABLE browser_login (
        hash   text PRIMARY KEY,
        "user" text,
        detail text NOT NULL,
        begun  timestamptz NOT NULL,
        used   timestamptz NOT NULL
    );
    CREATE INDEX browser_login_user ON browser_login ("user");
    REVOKE ALL ON browser_login FROM PUBLIC;

    -- What has ended, so that a login that a node tells later does not come back.
    CREATE TABLE browser_login_end (
        kind  text NOT NULL,
        value text NOT NULL,
        ended timestamptz NOT NULL,
        PRIMARY KEY (kind, value)
    );
    CREATE INDEX browser_login_end_time ON browser_login_end (ended);
    REVOKE ALL ON browser_login_end FROM PUBLIC;

    -- 1024 of them are kept: those that were used last. One that has idled may be in use at a node that could not tell.
    -- False: it has ended since it has begun.
    CREATE FUNCTION keep_login(hash text, "user" text, detail text, age double precision, longest double precision)
        RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        t timestamptz;
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 5);
        t := clock_timestamp();
        IF EXISTS (
            SELECT FROM millrace_cluster.browser_login_end AS e WHERE e.ended >= t - make_interval(secs => age)
                AND (e.kind = 'hash' AND e.value = keep_login.hash OR e.kind = 'user' AND e.value = keep_login."user")
        ) THEN
            RETURN false;
        END IF;
        DELETE FROM millrace_cluster.browser_login AS l
            WHERE l.begun < t - make_interval(secs => longest)
            OR l.hash IN (SELECT o.hash FROM millrace_cluster.browser_login AS o ORDER BY o.used DESC OFFSET 1023);
        INSERT INTO millrace_cluster.browser_login
            VALUES (keep_login.hash, keep_login."user", keep_login.detail, t - make_interval(secs => age), t)
            ON CONFLICT DO NOTHING;
        RETURN true;
    END $$;

    -- unused: how long ago the node that asks has seen a request, where it has. is_use: whether this is another.
    CREATE FUNCTION find_login(hash text, idle double precision, longest double precision, unused double precision,
                               is_use boolean)
        RETURNS TABLE ("user" text, detail text, age double precision) LANGUAGE plpgsql AS $$
    DECLARE
        t constant timestamptz := clock_timestamp();
        seen constant timestamptz := t - make_interval(secs => unused);
    BEGIN
        RETURN QUERY SELECT l."user", l.detail, extract(epoch FROM t - l.begun)::float8
            FROM millrace_cluster.browser_login AS l WHERE l.hash = find_login.hash
            AND greatest(l.used, seen) > t - make_interval(secs => idle)
            AND l.begun > t - make_interval(secs => longest);
        -- Not with each request: it is a write.
        IF FOUND THEN
            UPDATE millrace_cluster.browser_login AS l SET used = CASE WHEN is_use THEN t ELSE seen END
                WHERE l.hash = find_login.hash AND l.used < CASE WHEN is_use THEN t ELSE seen END
                    - least(interval '30 s', make_interval(secs => idle / 4));
        END IF;
    END $$;

    -- ago: how long ago they have ended. 4096 ends are remembered.
    CREATE FUNCTION end_logins(kind text, value text, ago double precision, longest double precision)
        RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        t timestamptz;
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 5);
        t := clock_timestamp() - make_interval(secs => ago);
        DELETE FROM millrace_cluster.browser_login AS l WHERE l.begun <= t
            AND (end_logins.kind = 'hash' AND l.hash = end_logins.value
                 OR end_logins.kind = 'user' AND l."user" = end_logins.value);
        DELETE FROM millrace_cluster.browser_login_end AS e
            WHERE e.ended < clock_timestamp() - make_interval(secs => longest)
            OR (e.kind, e.value) IN (SELECT o.kind, o.value FROM millrace_cluster.browser_login_end AS o
                                     ORDER BY o.ended DESC OFFSET 4095);
        INSERT INTO millrace_cluster.browser_login_end AS e VALUES (end_logins.kind, end_logins.value, t)
            ON CONFLICT ON CONSTRAINT browser_login_end_pkey DO UPDATE SET ended = greatest(e.ended, excluded.ended);
    END $$;
"#;

/// Logins and their ends by the clock of the database. A statement may be executed long after it was sent, where the database
/// had stopped; an age would have grown meanwhile, and a login would seem to have begun behind its end.
///
/// A cookie is new for each login, so its end holds at whatever time. The functions that older programs call do the same, but
/// with times that are as wrong as they are late.
pub(super) const LATE_LOGINS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    -- As keep_login, of one that has begun at this time.
    CREATE FUNCTION keep_login_begun(hash text, "user" text, detail text, begun timestamptz, longest double precision)
        RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        t timestamptz;
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 5);
        t := clock_timestamp();
        -- An end is forgotten when the logins before it have ended by themselves.
        IF keep_login_begun.begun <= t - make_interval(secs => longest) OR EXISTS (
            SELECT FROM millrace_cluster.browser_login_end AS e
                WHERE e.kind = 'hash' AND e.value = keep_login_begun.hash
                OR e.kind = 'user' AND e.value = keep_login_begun."user" AND e.ended >= keep_login_begun.begun
        ) THEN
            RETURN false;
        END IF;
        DELETE FROM millrace_cluster.browser_login AS l
            WHERE l.begun < t - make_interval(secs => longest)
            OR l.hash IN (SELECT o.hash FROM millrace_cluster.browser_login AS o ORDER BY o.used DESC OFFSET 1023);
        INSERT INTO millrace_cluster.browser_login
            VALUES (keep_login_begun.hash, keep_login_begun."user", keep_login_begun.detail, keep_login_begun.begun, t)
            ON CONFLICT DO NOTHING;
        RETURN true;
    END $$;

    CREATE OR REPLACE FUNCTION keep_login(hash text, "user" text, detail text, age double precision,
                                          longest double precision) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        RETURN millrace_cluster.keep_login_begun(hash, "user", detail, clock_timestamp() - make_interval(secs => age),
                                                 longest);
    END $$;

    -- As end_logins, of those that have begun until then.
    CREATE FUNCTION end_logins_begun(kind text, value text, until timestamptz, longest double precision)
        RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 5);
        DELETE FROM millrace_cluster.browser_login AS l
            WHERE end_logins_begun.kind = 'hash' AND l.hash = end_logins_begun.value
            OR end_logins_begun.kind = 'user' AND l."user" = end_logins_begun.value AND l.begun <= end_logins_begun.until;
        DELETE FROM millrace_cluster.browser_login_end AS e
            WHERE e.ended < clock_timestamp() - make_interval(secs => longest)
            OR (e.kind, e.value) IN (SELECT o.kind, o.value FROM millrace_cluster.browser_login_end AS o
                                     ORDER BY o.ended DESC OFFSET 4095);
        INSERT INTO millrace_cluster.browser_login_end AS e
            VALUES (end_logins_begun.kind, end_logins_begun.value, end_logins_begun.until)
            ON CONFLICT ON CONSTRAINT browser_login_end_pkey DO UPDATE SET ended = greatest(e.ended, excluded.ended);
    END $$;

    CREATE OR REPLACE FUNCTION end_logins(kind text, value text, ago double precision, longest double precision)
        RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM millrace_cluster.end_logins_begun(kind, value, clock_timestamp() - make_interval(secs => ago), longest);
    END $$;
"#;

/// Returns the time by the clock of the database, in seconds since 1970.
async fn time(client: &Client) -> Result<f64, ClusterError> {
    const TIME: &str = "SELECT extract(epoch FROM clock_timestamp())::float8";
    Ok(client.query_typed_one(TIME, &[]).await?.try_get(0)?)
}

/// Keeps a login. False: it has ended since it has begun.
pub(super) fn keep(
    connections: &Connections,
    hash: &str,
    login: &BrowserLogin,
    lifetime: LoginLifetime,
) -> Result<bool, TableError> {
    const KEEP: &str = "SELECT millrace_cluster.keep_login_begun($1, $2, $3, to_timestamp($4), $5)";
    let asked = Instant::now();
    connections.ask(Lane::Login, async |client| {
        // Rather before it has begun than after that: an end in between holds.
        let begun = time(client).await? - (login.age + asked.elapsed()).as_secs_f64();
        let parameters: [Parameter<'_>; 5] = [
            (&hash, Type::TEXT),
            (&login.user, Type::TEXT),
            (&login.detail, Type::TEXT),
            (&begun, Type::FLOAT8),
            (&lifetime.longest.as_secs_f64(), Type::FLOAT8),
        ];
        Ok(client.query_typed_one(KEEP, &parameters).await?.try_get(0)?)
    })
}

/// Returns a login that has not ended.
pub(super) fn find(
    connections: &Connections,
    hash: &str,
    lifetime: LoginLifetime,
    usage: LoginUse,
) -> Result<Option<BrowserLogin>, TableError> {
    const FIND: &str = r#"SELECT "user", detail, age FROM millrace_cluster.find_login($1, $2, $3, $4, $5)"#;
    connections.ask(Lane::Login, async |client| {
        let parameters: [Parameter<'_>; 5] = [
            (&hash, Type::TEXT),
            (&lifetime.idle.as_secs_f64(), Type::FLOAT8),
            (&lifetime.longest.as_secs_f64(), Type::FLOAT8),
            (&usage.unused.map(|unused| unused.as_secs_f64()), Type::FLOAT8),
            (&usage.is_use, Type::BOOL),
        ];
        let rows = client.query_typed(FIND, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let age = seconds(row.try_get(2)?);
        Ok(Some(BrowserLogin { user: row.try_get(0)?, detail: row.try_get(1)?, age }))
    })
}

/// Ends logins, since so long ago.
pub(super) fn end(
    connections: &Connections,
    end: &LoginEnd,
    ago: Duration,
    lifetime: LoginLifetime,
) -> Result<(), TableError> {
    const END: &str = "SELECT millrace_cluster.end_logins_begun($1, $2, to_timestamp($3), $4)";
    let (kind, value) = match end {
        LoginEnd::Hash(hash) => ("hash", hash),
        LoginEnd::User(user) => ("user", user),
    };
    let asked = Instant::now();
    connections.ask(Lane::Login, async |client| {
        // Rather after the end than before it. It may have waited for a connection.
        let ago = (ago + asked.elapsed()).as_secs_f64();
        let until = time(client).await? - ago;
        let parameters: [Parameter<'_>; 4] = [
            (&kind, Type::TEXT),
            (value, Type::TEXT),
            (&until, Type::FLOAT8),
            (&lifetime.longest.as_secs_f64(), Type::FLOAT8),
        ];
        client.query_typed(END, &parameters).await?;
        Ok(())
    })
}
