//! Where nodes take data connections of their sessions from one another.
//!
//! The table is unlogged: no write-ahead log, and no copy made from one, has the keys of nodes. After a crash of the database
//! each node writes its row anew.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Parameter;
use super::connections::{Connections, Lane};
use super::error::ClusterError;
use crate::data_route::DataRoute;
use crate::table::{Epoch, TableError};

/// The table.
pub(super) const DATA_ROUTES: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE UNLOGGED TABLE data_route (
        epoch      bigint PRIMARY KEY REFERENCES node ON DELETE CASCADE,
        address    text NOT NULL,
        first_port integer NOT NULL,
        last_port  integer NOT NULL,
        key        bytea NOT NULL
    );
    REVOKE ALL ON data_route FROM PUBLIC;

    -- The routes of the others, the newest first. Nothing is written where the epoch has ended, or has told it before.
    CREATE FUNCTION share_data_route(mine bigint, place text, lowest integer, highest integer, secret bytea)
        RETURNS TABLE (of_node text, at_address text, from_port integer, to_port integer, by_key bytea)
        LANGUAGE plpgsql AS $$
    BEGIN
        IF NOT EXISTS (SELECT FROM millrace_cluster.data_route AS r WHERE r.epoch = mine) THEN
            INSERT INTO millrace_cluster.data_route AS r
                SELECT n.epoch, place, lowest, highest, secret FROM millrace_cluster.node AS n
                WHERE n.epoch = mine FOR KEY SHARE;
        END IF;
        RETURN QUERY SELECT n.name, r.address, r.first_port, r.last_port, r.key
            FROM millrace_cluster.data_route AS r JOIN millrace_cluster.node AS n ON n.epoch = r.epoch
            WHERE r.epoch <> mine ORDER BY r.epoch DESC;
    END $$;
"#;

/// Tells the route of a node, and returns those of the others.
pub(super) fn share(
    connections: &Connections,
    epoch: Epoch,
    own: &DataRoute,
) -> Result<Vec<DataRoute>, TableError> {
    const SHARE: &str = "SELECT of_node, at_address, from_port, to_port, by_key
        FROM millrace_cluster.share_data_route($1, $2, $3, $4, $5)";
    let address = own.address.to_string();
    let [first, last] = [own.ports.start(), own.ports.end()].map(|port| i32::from(*port));
    let key = &own.key[..];
    connections.ask(Lane::Keeper, async |client| {
        let parameters: [Parameter<'_>; 5] = [
            (&epoch.0, Type::INT8),
            (&address, Type::TEXT),
            (&first, Type::INT4),
            (&last, Type::INT4),
            (&key, Type::BYTEA),
        ];
        let rows = client.query_typed(SHARE, &parameters).await?;
        // What cannot be read is of a later version.
        let routes = rows.iter().map(route).collect::<Result<Vec<_>, _>>()?;
        Ok(routes.into_iter().flatten().collect())
    })
}

fn route(row: &Row) -> Result<Option<DataRoute>, ClusterError> {
    let port = |index| row.try_get::<_, i32>(index).map(|port| u16::try_from(port).unwrap_or(0));
    let (Ok(address), Ok(key)) = (row.try_get::<_, &str>(1)?.parse(), row.try_get::<_, &[u8]>(4)?.try_into())
    else {
        return Ok(None);
    };
    Ok(Some(DataRoute { node: row.try_get(0)?, address, ports: port(2)?..=port(3)?, key }))
}
