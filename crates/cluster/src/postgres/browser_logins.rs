//! The logins of administrators' browsers.

use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::{Parameter, seconds};
use crate::browser_logins::{BrowserLogin, LoginEnd, LoginLifetime};
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

    -- 1024 of them are kept: those that were used last.
    CREATE FUNCTION keep_login(hash text, "user" text, detail text, age double precision, idle double precision,
                               longest double precision) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        t constant timestamptz := clock_timestamp();
    BEGIN
        DELETE FROM millrace_cluster.browser_login AS l
            WHERE l.used < t - make_interval(secs => idle) OR l.begun < t - make_interval(secs => longest)
            OR l.hash IN (SELECT o.hash FROM millrace_cluster.browser_login AS o ORDER BY o.used DESC OFFSET 1023);
        INSERT INTO millrace_cluster.browser_login
            VALUES (keep_login.hash, keep_login."user", keep_login.detail, t - make_interval(secs => age), t)
            ON CONFLICT DO NOTHING;
    END $$;

    CREATE FUNCTION find_login(hash text, idle double precision, longest double precision)
        RETURNS TABLE ("user" text, detail text, age double precision) LANGUAGE plpgsql AS $$
    DECLARE
        t constant timestamptz := clock_timestamp();
    BEGIN
        RETURN QUERY SELECT l."user", l.detail, extract(epoch FROM t - l.begun)::float8
            FROM millrace_cluster.browser_login AS l WHERE l.hash = find_login.hash
            AND l.used > t - make_interval(secs => idle) AND l.begun > t - make_interval(secs => longest);
        -- Not with each request: it is a write.
        IF FOUND THEN
            UPDATE millrace_cluster.browser_login AS l SET used = t
                WHERE l.hash = find_login.hash AND l.used < t - least(interval '30 s', make_interval(secs => idle / 4));
        END IF;
    END $$;
"#;

/// Keeps a login.
pub(super) fn keep(
    connections: &Connections,
    hash: &str,
    login: &BrowserLogin,
    lifetime: LoginLifetime,
) -> Result<(), TableError> {
    const KEEP: &str = "SELECT millrace_cluster.keep_login($1, $2, $3, $4, $5, $6)";
    connections.ask(Lane::Login, async |client| {
        let parameters: [Parameter<'_>; 6] = [
            (&hash, Type::TEXT),
            (&login.user, Type::TEXT),
            (&login.detail, Type::TEXT),
            (&login.age.as_secs_f64(), Type::FLOAT8),
            (&lifetime.idle.as_secs_f64(), Type::FLOAT8),
            (&lifetime.longest.as_secs_f64(), Type::FLOAT8),
        ];
        client.query_typed(KEEP, &parameters).await?;
        Ok(())
    })
}

/// Returns a login that has not ended.
pub(super) fn find(
    connections: &Connections,
    hash: &str,
    lifetime: LoginLifetime,
) -> Result<Option<BrowserLogin>, TableError> {
    const FIND: &str = r#"SELECT "user", detail, age FROM millrace_cluster.find_login($1, $2, $3)"#;
    connections.ask(Lane::Login, async |client| {
        let parameters: [Parameter<'_>; 3] = [
            (&hash, Type::TEXT),
            (&lifetime.idle.as_secs_f64(), Type::FLOAT8),
            (&lifetime.longest.as_secs_f64(), Type::FLOAT8),
        ];
        let rows = client.query_typed(FIND, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let age = seconds(row.try_get(2)?);
        Ok(Some(BrowserLogin { user: row.try_get(0)?, detail: row.try_get(1)?, age }))
    })
}

/// Ends logins.
pub(super) fn end(connections: &Connections, end: &LoginEnd) -> Result<(), TableError> {
    const OF_HASH: &str = "DELETE FROM millrace_cluster.browser_login WHERE hash = $1";
    const OF_USER: &str = r#"DELETE FROM millrace_cluster.browser_login WHERE "user" = $1"#;
    let (delete, value) = match end {
        LoginEnd::Hash(hash) => (OF_HASH, hash),
        LoginEnd::User(user) => (OF_USER, user),
    };
    connections.ask(Lane::Login, async |client| {
        client.query_typed(delete, &[(value, Type::TEXT)]).await?;
        Ok(())
    })
}
