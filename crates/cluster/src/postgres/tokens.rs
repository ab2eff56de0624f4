//! The tokens of the admin API.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connections::Lane;
use super::error::ClusterError;
use super::{Parameter, PostgresTable};
use crate::table::{Asker, TableError};
use crate::tokens::{SharedToken, TokenEdition, TokenKeeping, TokenTable};

/// The tables. No row has a token, but a hash of it.
///
/// A revision is the time of its change in microseconds, but greater than the one before: a standby that takes over without the
/// last changes does not come to a revision that nodes know with other tokens.
pub(super) const TOKENS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE TABLE token (
        name    text PRIMARY KEY,
        role    text NOT NULL,
        sha256  text NOT NULL UNIQUE,
        created bigint NOT NULL,
        expires bigint
    );
    REVOKE ALL ON token FROM PUBLIC;

    -- What was removed, so that a node that tells it later does not bring it back. 4096 of them are kept.
    CREATE TABLE token_removal (
        sha256  text PRIMARY KEY,
        removed timestamptz NOT NULL
    );
    REVOKE ALL ON token_removal FROM PUBLIC;

    -- One row. Each change locks it first.
    CREATE TABLE token_edition (
        tables   text NOT NULL,
        revision bigint NOT NULL
    );
    REVOKE ALL ON token_edition FROM PUBLIC;
    INSERT INTO token_edition VALUES (md5(random()::text || clock_timestamp()::text), 0);

    CREATE FUNCTION revise_tokens() RETURNS void LANGUAGE sql AS $$
        UPDATE millrace_cluster.token_edition AS e
            SET revision = greatest(e.revision + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    $$;

    CREATE FUNCTION keep_token(name text, role text, sha256 text, created bigint, expires bigint) RETURNS text
        LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM millrace_cluster.token_edition FOR UPDATE;
        IF EXISTS (SELECT FROM millrace_cluster.token_removal AS r WHERE r.sha256 = keep_token.sha256) THEN
            RETURN 'removed';
        END IF;
        IF EXISTS (
            SELECT FROM millrace_cluster.token AS t
                WHERE t.name = keep_token.name AND t.sha256 = keep_token.sha256
        ) THEN
            RETURN 'kept';
        END IF;
        IF EXISTS (
            SELECT FROM millrace_cluster.token AS t
                WHERE t.name = keep_token.name OR t.sha256 = keep_token.sha256
        ) THEN
            RETURN 'taken';
        END IF;
        IF (SELECT count(*) FROM millrace_cluster.token) >= 256 THEN
            RETURN 'full';
        END IF;
        INSERT INTO millrace_cluster.token
            VALUES (keep_token.name, keep_token.role, keep_token.sha256, keep_token.created, keep_token.expires);
        PERFORM millrace_cluster.revise_tokens();
        RETURN 'kept';
    END $$;

    CREATE FUNCTION remove_token(sha256 text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM millrace_cluster.token_edition FOR UPDATE;
        DELETE FROM millrace_cluster.token AS t WHERE t.sha256 = remove_token.sha256;
        IF FOUND THEN
            PERFORM millrace_cluster.revise_tokens();
        END IF;
        DELETE FROM millrace_cluster.token_removal AS r WHERE r.sha256 IN (
            SELECT o.sha256 FROM millrace_cluster.token_removal AS o ORDER BY o.removed DESC OFFSET 4095
        );
        INSERT INTO millrace_cluster.token_removal VALUES (remove_token.sha256, clock_timestamp())
            ON CONFLICT DO NOTHING;
    END $$;
"#;

impl TokenTable for PostgresTable {
    fn keep_token(&self, by: Asker, token: &SharedToken) -> Result<TokenKeeping, TableError> {
        const KEEP: &str = "SELECT millrace_cluster.keep_token($1, $2, $3, $4, $5)";
        let (created, expires) = (seconds(token.created), token.expires.map(seconds));
        self.connections.ask(by.into(), async |client| {
            let parameters: [Parameter<'_>; 5] = [
                (&token.name, Type::TEXT),
                (&token.role, Type::TEXT),
                (&token.sha256, Type::TEXT),
                (&created, Type::INT8),
                (&expires, Type::INT8),
            ];
            match client.query_typed_one(KEEP, &parameters).await?.try_get(0)? {
                "kept" => Ok(TokenKeeping::Kept),
                "taken" => Ok(TokenKeeping::Taken),
                "full" => Ok(TokenKeeping::Full),
                "removed" => Ok(TokenKeeping::Removed),
                other => Err(ClusterError::Answer(other.to_owned())),
            }
        })
    }

    fn remove_token(&self, sha256: &str) -> Result<(), TableError> {
        const REMOVE: &str = "SELECT millrace_cluster.remove_token($1)";
        self.connections.ask(Lane::Login, async |client| {
            client.query_typed(REMOVE, &[(&sha256, Type::TEXT)]).await?;
            Ok(())
        })
    }

    fn pull_tokens(
        &self,
        by: Asker,
        known: Option<&TokenEdition>,
    ) -> Result<Option<(TokenEdition, Vec<SharedToken>)>, TableError> {
        // One statement sees one state of both tables. Without tokens there is a row of the edition alone.
        const PULL: &str = "
            SELECT e.tables, e.revision, t.name, t.role, t.sha256, t.created, t.expires
            FROM millrace_cluster.token_edition AS e LEFT JOIN millrace_cluster.token AS t ON true
            WHERE e.tables IS DISTINCT FROM $1 OR e.revision IS DISTINCT FROM $2
            ORDER BY t.created, t.name";
        let tables = known.map(|known| &*known.tables);
        let revision = known.map(|known| known.revision);
        self.connections.ask(by.into(), async |client| {
            let rows = client.query_typed(PULL, &[(&tables, Type::TEXT), (&revision, Type::INT8)]).await?;
            let Some(first) = rows.first() else { return Ok(None) };
            let edition = TokenEdition { tables: first.try_get(0)?, revision: first.try_get(1)? };
            let tokens = rows.iter().filter_map(|row| token(row).transpose()).collect::<Result<_, _>>()?;
            Ok(Some((edition, tokens)))
        })
    }
}

/// Returns the token of a row, where it has one.
fn token(row: &Row) -> Result<Option<SharedToken>, ClusterError> {
    let Some(name) = row.try_get(2)? else { return Ok(None) };
    let time = |seconds: i64| u64::try_from(seconds).unwrap_or(0);
    Ok(Some(SharedToken {
        name,
        role: row.try_get(3)?,
        sha256: row.try_get(4)?,
        created: time(row.try_get(5)?),
        expires: row.try_get::<_, Option<i64>>(6)?.map(time),
    }))
}

/// Seconds since 1970, as the database has them. What is further away than it can say is as far as it can.
fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
