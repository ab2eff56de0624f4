//! What nodes tell one another of logins.
//!
//! A row is a bucket of all nodes: it says when the rate will have caught up with the logins that were told. The rows are
//! unlogged, and of a bounded number: after a crash of the database each node has its own counts.

use millrace_limits::{LoginTally, LoginsOf};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use super::{Parameter, renewal, seconds};
use crate::table::{Epoch, Renewal, TableError};

/// The table. `edition` grows in the order in which rows are committed, as writers take turns.
pub(super) const LOGINS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE SEQUENCE login_edition;
    CREATE UNLOGGED TABLE login (
        kind    integer NOT NULL,
        name    bytea NOT NULL,
        ends    timestamptz NOT NULL,
        edition bigint NOT NULL,
        PRIMARY KEY (kind, name)
    );
    CREATE INDEX login_by_edition ON login (edition);
    CREATE INDEX login_by_end ON login (ends);

    -- False: the epoch has ended.
    CREATE FUNCTION tell_logins(mine bigint, kinds integer[], names bytea[], seconds double precision[])
        RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        t timestamptz;
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 7);
        t := clock_timestamp();
        PERFORM FROM millrace_cluster.node AS n WHERE n.epoch = mine FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        INSERT INTO millrace_cluster.login AS l (kind, name, ends, edition)
            SELECT x.kind, x.name, t + make_interval(secs => x.seconds), nextval('millrace_cluster.login_edition')
            FROM unnest(kinds, names, tell_logins.seconds) AS x (kind, name, seconds)
            ON CONFLICT (kind, name) DO UPDATE
                SET ends = greatest(l.ends, t) + (excluded.ends - t), edition = excluded.edition;
        DELETE FROM millrace_cluster.login AS l
            WHERE l.edition <= (SELECT m.edition FROM millrace_cluster.login AS m
                                ORDER BY m.edition DESC OFFSET 32768 LIMIT 1)
            OR l.ends < t;
        RETURN true;
    END $$;
"#;

/// Whose logins they are, as `login.kind` has it.
const SERVER: i32 = 0;
const ADDRESS: i32 = 1;
const NETWORK: i32 = 2;
const USER: i32 = 3;

/// Tells of logins.
pub(super) fn push(
    connections: &Connections,
    epoch: Epoch,
    tallies: &[LoginTally],
) -> Result<Renewal, TableError> {
    const TELL: &str = "SELECT millrace_cluster.tell_logins($1, $2, $3, $4)";
    let (kinds, names): (Vec<i32>, Vec<Vec<u8>>) = tallies.iter().map(|tally| columns(&tally.of)).unzip();
    let seconds: Vec<f64> = tallies.iter().map(|tally| tally.time.as_secs_f64()).collect();
    connections.ask(Lane::Keeper, async |client| {
        let parameters: [Parameter<'_>; 4] = [
            (&epoch.0, Type::INT8),
            (&kinds, Type::INT4_ARRAY),
            (&names, Type::BYTEA_ARRAY),
            (&seconds, Type::FLOAT8_ARRAY),
        ];
        renewal(&client.query_typed_one(TELL, &parameters).await?)
    })
}

fn columns(of: &LoginsOf) -> (i32, Vec<u8>) {
    match of {
        LoginsOf::Server => (SERVER, Vec::new()),
        LoginsOf::Address(address) => (ADDRESS, address.to_string().into()),
        LoginsOf::Network(network) => (NETWORK, network.to_string().into()),
        LoginsOf::User(name) => (USER, name.to_vec()),
    }
}

/// Returns what was told since this edition, in part where it is much, and the edition after it.
pub(super) fn pull(connections: &Connections, since: i64) -> Result<(Vec<LoginTally>, i64), TableError> {
    const PULL: &str = "
        SELECT edition, kind, name, extract(epoch FROM ends - clock_timestamp())::float8
        FROM millrace_cluster.login WHERE edition > $1 ORDER BY edition LIMIT 4096";
    connections.ask(Lane::Keeper, async |client| {
        let rows = client.query_typed(PULL, &[(&since, Type::INT8)]).await?;
        let edition = rows.last().map_or(Ok(since), |row| row.try_get(0))?;
        let tallies = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok((tallies.into_iter().flatten().collect(), edition))
    })
}

/// Reads a row. One that cannot be read, or whose time is over, says nothing.
fn read(row: &Row) -> Result<Option<LoginTally>, ClusterError> {
    let (kind, name, left): (i32, Vec<u8>, f64) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let text = std::str::from_utf8(&name).unwrap_or_default();
    let of = match kind {
        SERVER => Some(LoginsOf::Server),
        ADDRESS => text.parse().ok().map(LoginsOf::Address),
        NETWORK => text.parse().ok().map(LoginsOf::Network),
        USER => Some(LoginsOf::User(name.into())),
        _ => None,
    };
    Ok(of.filter(|_| left > 0.0).map(|of| LoginTally { of, time: seconds(left) }))
}
