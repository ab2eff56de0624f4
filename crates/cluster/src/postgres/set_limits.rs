//! Limits that are set for all nodes.

use std::error::Error;

use millrace_limits::{Limit, Limits, Scope};
use tokio_postgres::types::Type;

use super::connections::Lane;
use super::{Parameter, PostgresTable};
use crate::set_limits::{LimitTable, SetLimits};
use crate::table::{Asker, TableError};

/// The table. There are no more than 256 rows, which each node reads once a second.
pub(super) const SET_LIMITS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE TABLE set_limit (
        scope    text PRIMARY KEY,
        download text,
        upload   text,
        sessions text
    );

    -- False: there are no more rows.
    CREATE FUNCTION set_limits(whose text, down text, up text, most text, restores boolean) RETURNS boolean
        LANGUAGE plpgsql AS $$
    BEGIN
        -- Taken by all who set limits, for a moment.
        PERFORM pg_advisory_xact_lock(1835625472, 8);
        IF restores THEN
            DELETE FROM millrace_cluster.set_limit AS l WHERE l.scope = whose;
        END IF;
        IF coalesce(down, up, most) IS NULL THEN
            RETURN true;
        END IF;
        UPDATE millrace_cluster.set_limit AS l SET download = coalesce(down, l.download),
            upload = coalesce(up, l.upload), sessions = coalesce(most, l.sessions) WHERE l.scope = whose;
        IF NOT FOUND THEN
            INSERT INTO millrace_cluster.set_limit SELECT whose, down, up, most
                WHERE (SELECT count(*) FROM millrace_cluster.set_limit) < 256;
        END IF;
        RETURN FOUND;
    END $$;
"#;

impl LimitTable for PostgresTable {
    fn set_limits(&self, scope: &Scope, limits: &Limits, restores: bool) -> Result<bool, TableError> {
        const SET: &str = "SELECT millrace_cluster.set_limits($1, $2, $3, $4, $5)";
        let text = |limit: &Option<Limit>| limit.as_ref().map(Limit::to_string);
        let scope = scope.to_string();
        let [down, up, most] = [&limits.download, &limits.upload, &limits.sessions].map(text);
        self.connections.ask(Lane::Login, async |client| {
            let parameters: [Parameter<'_>; 5] = [
                (&scope, Type::TEXT),
                (&down, Type::TEXT),
                (&up, Type::TEXT),
                (&most, Type::TEXT),
                (&restores, Type::BOOL),
            ];
            Ok(client.query_typed_one(SET, &parameters).await?.try_get(0)?)
        })
    }

    fn pull_limits(&self, by: Asker) -> Result<SetLimits, TableError> {
        const PULL: &str =
            "SELECT scope, download, upload, sessions FROM millrace_cluster.set_limit ORDER BY scope";
        self.connections.ask(by.into(), async |client| {
            let mut set = SetLimits::default();
            for row in client.query_typed(PULL, &[]).await? {
                let (scope, download, upload) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                match parse(scope, [download, upload, row.try_get(3)?]) {
                    Ok(limits) => set.limits.push(limits),
                    Err(error) => set.unread.push(format!(
                        "limits of {scope} that are set for all nodes cannot be read, and do not hold here: {error}"
                    )),
                }
            }
            Ok(set)
        })
    }
}

/// Reads the limits of a scope.
fn parse(scope: &str, texts: [Option<&str>; 3]) -> Result<(Scope, Limits), Box<dyn Error>> {
    let limit = |text: Option<&str>| text.map(str::parse::<Limit>).transpose();
    let [download, upload, sessions] = texts.map(limit);
    Ok((scope.parse()?, Limits { download: download?, upload: upload?, sessions: sessions? }))
}
