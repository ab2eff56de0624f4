//! What nodes tell one another of failed logins, and of networks from which users have logged in.
//!
//! Tallies are a log of the last ten minutes, and of a bounded number of rows. They are unlogged: after a crash of the
//! database each node has its own counts. Familiar networks are kept, as many as a node keeps.

use std::time::Duration;

use millrace_limits::{FailureTally, FamiliarNetwork, Network, TallyOf};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use super::{Parameter, renewal, seconds};
use crate::table::{Epoch, FailureEditions, PulledFailures, Renewal, TableError};

/// The tables. `edition` grows in the order in which rows are committed, as writers take turns.
pub(super) const FAILURES: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE SEQUENCE failure_edition;
    CREATE UNLOGGED TABLE failure (
        edition  bigint PRIMARY KEY,
        origin   bigint NOT NULL,
        kind     integer NOT NULL,
        network  text NOT NULL,
        "user"   bytea NOT NULL,
        failures double precision NOT NULL,
        forgiven boolean NOT NULL,
        made     timestamptz NOT NULL
    );

    CREATE SEQUENCE familiar_edition;
    CREATE TABLE familiar (
        network text NOT NULL,
        "user"  bytea NOT NULL,
        until   timestamptz NOT NULL,
        edition bigint NOT NULL,
        PRIMARY KEY (network, "user")
    );
    CREATE INDEX familiar_by_edition ON familiar (edition);
    CREATE INDEX familiar_by_end ON familiar (until);

    -- False: the epoch has ended.
    CREATE FUNCTION tell_failures(mine bigint, origin bigint, kinds integer[], networks text[], users bytea[],
                                  counts double precision[], forgiven boolean[], near_networks text[],
                                  near_users bytea[], near_seconds double precision[])
        RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 3);
        PERFORM FROM millrace_cluster.node AS n WHERE n.epoch = mine FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        INSERT INTO millrace_cluster.failure (edition, origin, kind, network, "user", failures, forgiven, made)
            SELECT nextval('millrace_cluster.failure_edition'), tell_failures.origin, x.kind, x.network, x."user", x.failures,
                   x.forgiven, clock_timestamp()
            FROM unnest(kinds, networks, users, counts, tell_failures.forgiven)
                AS x (kind, network, "user", failures, forgiven);
        DELETE FROM millrace_cluster.failure AS f
            WHERE f.edition <= (SELECT max(m.edition) - 8192 FROM millrace_cluster.failure AS m)
            OR f.made < clock_timestamp() - interval '10 minutes';
        IF cardinality(near_networks) > 0 THEN
            INSERT INTO millrace_cluster.familiar AS f (network, "user", until, edition)
                SELECT x.network, x."user", clock_timestamp() + make_interval(secs => x.seconds),
                       nextval('millrace_cluster.familiar_edition')
                FROM unnest(near_networks, near_users, near_seconds) AS x (network, "user", seconds)
                ON CONFLICT (network, "user") DO UPDATE SET until = excluded.until, edition = excluded.edition
                    WHERE excluded.until > f.until + interval '1 hour';
            DELETE FROM millrace_cluster.familiar AS f
                WHERE f.edition <= (SELECT m.edition FROM millrace_cluster.familiar AS m
                                    ORDER BY m.edition DESC OFFSET 32768 LIMIT 1)
                OR f.until < clock_timestamp();
        END IF;
        RETURN true;
    END $$;
"#;

/// How failures count, as `failure.kind` has it.
const USER: i32 = 0;
const ADDRESS: i32 = 1;
const ACCOUNT: i32 = 2;
const NETWORK: i32 = 3;
/// Not a row of `failure`, but of `familiar`.
const FAMILIAR: i32 = 4;

/// Tells of failures and familiar networks.
pub(super) fn push(
    connections: &Connections,
    epoch: Epoch,
    origin: Epoch,
    tallies: &[FailureTally],
    familiar: &[FamiliarNetwork],
) -> Result<Renewal, TableError> {
    const TELL: &str = "SELECT millrace_cluster.tell_failures($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let all: Vec<(i32, String, &[u8])> = tallies.iter().map(|tally| columns(&tally.of)).collect();
    let kinds: Vec<i32> = all.iter().map(|(kind, ..)| *kind).collect();
    let networks: Vec<&str> = all.iter().map(|(_, network, _)| &**network).collect();
    let users: Vec<&[u8]> = all.iter().map(|(.., user)| *user).collect();
    let counts: Vec<f64> = tallies.iter().map(|tally| tally.failures).collect();
    let forgiven: Vec<bool> = tallies.iter().map(|tally| tally.is_forgiven).collect();
    let near_networks: Vec<String> = familiar.iter().map(|familiar| familiar.network.to_string()).collect();
    let near_users: Vec<&[u8]> = familiar.iter().map(|familiar| &*familiar.user).collect();
    let near_seconds: Vec<f64> = familiar.iter().map(|familiar| familiar.left.as_secs_f64()).collect();
    connections.ask(Lane::Keeper, async |client| {
        let parameters: [Parameter<'_>; 10] = [
            (&epoch.0, Type::INT8),
            (&origin.0, Type::INT8),
            (&kinds, Type::INT4_ARRAY),
            (&networks, Type::TEXT_ARRAY),
            (&users, Type::BYTEA_ARRAY),
            (&counts, Type::FLOAT8_ARRAY),
            (&forgiven, Type::BOOL_ARRAY),
            (&near_networks, Type::TEXT_ARRAY),
            (&near_users, Type::BYTEA_ARRAY),
            (&near_seconds, Type::FLOAT8_ARRAY),
        ];
        renewal(&client.query_typed_one(TELL, &parameters).await?)
    })
}

fn columns(of: &TallyOf) -> (i32, String, &[u8]) {
    match of {
        TallyOf::User(network, user) => (USER, network.to_string(), user),
        TallyOf::Address(network) => (ADDRESS, network.to_string(), &[]),
        TallyOf::Account(user) => (ACCOUNT, String::new(), user),
        TallyOf::Network(network) => (NETWORK, network.to_string(), &[]),
    }
}

/// Returns what others have told since then.
pub(super) fn pull(
    connections: &Connections,
    origin: Epoch,
    since: FailureEditions,
) -> Result<PulledFailures, TableError> {
    // A count is half of what it was after ten minutes.
    const PULL: &str = r#"
        SELECT * FROM (
            (SELECT edition, kind, network, "user",
                    failures * 0.5 ^ (greatest(extract(epoch FROM clock_timestamp() - made)::float8, 0) / 600), forgiven
                FROM millrace_cluster.failure
                WHERE edition > $1 AND origin <> $3 AND made > clock_timestamp() - interval '10 minutes'
                ORDER BY edition LIMIT 4096)
            UNION ALL
            (SELECT edition, 4, network, "user", extract(epoch FROM until - clock_timestamp())::float8, false
                FROM millrace_cluster.familiar WHERE edition > $2 ORDER BY edition LIMIT 4096)
        ) AS x ORDER BY edition"#;
    connections.ask(Lane::Keeper, async |client| {
        let parameters: [Parameter<'_>; 3] =
            [(&since.tallies, Type::INT8), (&since.familiar, Type::INT8), (&origin.0, Type::INT8)];
        let rows = client.query_typed(PULL, &parameters).await?;
        let mut pulled = PulledFailures { editions: since, ..PulledFailures::default() };
        rows.iter().try_for_each(|row| read(row, &mut pulled))?;
        Ok(pulled)
    })
}

/// Reads a row. One that cannot be read says nothing.
fn read(row: &Row, pulled: &mut PulledFailures) -> Result<(), ClusterError> {
    let (edition, kind): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
    let network = row.try_get::<_, &str>(2)?.parse::<Network>();
    let (user, count): (Vec<u8>, f64) = (row.try_get(3)?, row.try_get(4)?);
    let read = if kind == FAMILIAR { &mut pulled.editions.familiar } else { &mut pulled.editions.tallies };
    *read = edition.max(*read);
    let of = match (kind, network) {
        (FAMILIAR, Ok(network)) if count > 0.0 => {
            let left: Duration = seconds(count);
            pulled.familiar.push(FamiliarNetwork { network, user, left });
            return Ok(());
        }
        (USER, Ok(network)) => TallyOf::User(network, user.into()),
        (ADDRESS, Ok(network)) => TallyOf::Address(network),
        (ACCOUNT, _) => TallyOf::Account(user.into()),
        (NETWORK, Ok(network)) => TallyOf::Network(network),
        _ => return Ok(()),
    };
    if count.is_finite() && count >= 0.0 {
        pulled.tallies.push(FailureTally { of, failures: count, is_forgiven: row.try_get(5)? });
    }
    Ok(())
}
