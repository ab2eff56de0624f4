//! The secrets that nodes derive keys from.
//!
//! They are unlogged: no write-ahead log, no copy made from one, and no standby has them. After a crash of the database the
//! first node to ask makes another. The server's own log may have them, where it logs parameters, and the table's file has a
//! deleted one until the next vacuum.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use super::seconds;
use crate::table::{Epoch, TableError};

/// The table.
pub(super) const SECRETS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE UNLOGGED TABLE secret (
        made  timestamptz NOT NULL,
        bytes bytea NOT NULL
    );
    REVOKE ALL ON secret FROM PUBLIC;

    -- Nothing where the epoch has ended or lapsed. fresh is the next secret, if it is time for one.
    CREATE FUNCTION secrets(mine bigint, fresh bytea) RETURNS TABLE (bytes bytea, age double precision)
        LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 4);
        PERFORM FROM millrace_cluster.node AS n
            WHERE n.epoch = mine AND n.renewed + n.lease > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        DELETE FROM millrace_cluster.secret AS s WHERE s.made < clock_timestamp() - interval '13 hours';
        INSERT INTO millrace_cluster.secret (made, bytes)
            SELECT clock_timestamp(), fresh WHERE fresh IS NOT NULL AND NOT EXISTS (
                SELECT FROM millrace_cluster.secret AS s WHERE s.made > clock_timestamp() - interval '6 hours'
            );
        RETURN QUERY SELECT s.bytes, extract(epoch FROM clock_timestamp() - s.made)::float8
            FROM millrace_cluster.secret AS s ORDER BY s.made DESC;
    END $$;
"#;

/// Returns the secrets and how old they are, the newest first; before that, makes the next one if it is time.
pub(super) fn secrets(
    connections: &Connections,
    epoch: Epoch,
    fresh: Option<&[u8; 32]>,
) -> Result<Vec<([u8; 32], Duration)>, TableError> {
    const SECRETS: &str = "SELECT bytes, age FROM millrace_cluster.secrets($1, $2)";
    let fresh = fresh.map(|fresh| &fresh[..]);
    connections.ask(Lane::Keeper, async |client| {
        // None: the epoch has ended or lapsed.
        let rows = client.query_typed(SECRETS, &[(&epoch.0, Type::INT8), (&fresh, Type::BYTEA)]).await?;
        rows.iter().map(secret).collect()
    })
}

fn secret(row: &Row) -> Result<([u8; 32], Duration), ClusterError> {
    let bytes = row.try_get::<_, &[u8]>(0)?.try_into();
    let bytes = bytes.map_err(|_| ClusterError::Answer("a secret of another length".to_owned()))?;
    Ok((bytes, seconds(row.try_get(1)?)))
}
