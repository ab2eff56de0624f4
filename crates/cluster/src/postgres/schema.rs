//! The tables and functions of a cluster, in a schema of their own, and bringing them up to date.
//!
//! Nodes and places are unlogged: they cost no disk, and after a crash of the database they are gone together, so that each
//! node finds itself fenced and registers with what it has. Bans and the numbers of epochs are kept.
//!
//! Lock order, of every function: the scopes' advisory locks by kind, the node's row, rows of `held` by scope.

use millrace_storage::PostgresError;
use tokio_postgres::Client;

use super::error::ClusterError;

/// Keeps two nodes from migrating concurrently; the number is arbitrary.
const LOCK: i64 = 0x6d69_6c6c_6e6f_6465;

/// The migrations; the database records how many it has applied.
const MIGRATIONS: &[&str] = &[r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE SEQUENCE epoch;

    CREATE UNLOGGED TABLE node (
        epoch    bigint PRIMARY KEY,
        name     text NOT NULL,
        version  text NOT NULL,
        lease    interval NOT NULL,
        began    timestamptz NOT NULL,
        renewed  timestamptz NOT NULL,
        sessions bigint NOT NULL DEFAULT 0,
        draining boolean NOT NULL DEFAULT false
    );

    CREATE UNLOGGED TABLE held (
        scope  bytea NOT NULL,
        epoch  bigint NOT NULL REFERENCES node ON DELETE CASCADE,
        places bigint NOT NULL,
        PRIMARY KEY (scope, epoch)
    );
    CREATE INDEX held_epoch ON held (epoch);

    -- When any node was heard last. Where none was for longer than a lease, the database was away from all of them, and
    -- silence says nothing of a node: until spare_until none is ended.
    -- The row is missing after a crash alone: then no place is taken until closed_until, as nodes register first, with the
    -- sessions that they have.
    CREATE UNLOGGED TABLE pulse (
        one          boolean PRIMARY KEY DEFAULT true CHECK (one),
        heard        timestamptz NOT NULL,
        spare_until  timestamptz NOT NULL,
        closed_until timestamptz NOT NULL DEFAULT '-infinity'
    );
    INSERT INTO pulse (heard, spare_until) VALUES (clock_timestamp(), clock_timestamp());

    -- No user: the whole network. Lifted bans are remembered, for nodes that were away. edition grows in the order in which
    -- changes are committed, as writers take turns.
    CREATE TABLE ban (
        network text NOT NULL,
        "user"  bytea NOT NULL,
        until   timestamptz,
        lifted  boolean NOT NULL,
        changed timestamptz NOT NULL,
        edition bigint NOT NULL,
        PRIMARY KEY (network, "user")
    );
    CREATE INDEX ban_edition ON ban (edition);
    CREATE SEQUENCE ban_edition_number;

    CREATE FUNCTION reap(length interval) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        t constant timestamptz := clock_timestamp();
        spare timestamptz;
    BEGIN
        INSERT INTO millrace_cluster.pulse AS p (heard, spare_until, closed_until)
            VALUES (t, t + length, t + length)
            ON CONFLICT (one) DO UPDATE SET
                spare_until = CASE WHEN t > p.heard + length THEN t + length ELSE p.spare_until END,
                heard = greatest(t, p.heard)
            RETURNING p.spare_until INTO spare;
        IF t >= spare THEN
            DELETE FROM millrace_cluster.node WHERE epoch IN (
                SELECT n.epoch FROM millrace_cluster.node AS n WHERE n.renewed + n.lease < t
                ORDER BY n.epoch FOR UPDATE SKIP LOCKED
            );
        END IF;
    END $$;

    CREATE FUNCTION register(replaces bigint, name text, version text, seconds double precision,
                             scopes bytea[], counts bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        mine constant bigint := nextval('millrace_cluster.epoch');
        length constant interval := make_interval(secs => seconds);
    BEGIN
        DELETE FROM millrace_cluster.node AS n WHERE n.epoch = replaces;
        INSERT INTO millrace_cluster.node (epoch, name, version, lease, began, renewed)
            VALUES (mine, name, version, length, clock_timestamp(), clock_timestamp());
        INSERT INTO millrace_cluster.held (scope, epoch, places)
            SELECT h.scope, mine, h.places FROM unnest(scopes, counts) AS h (scope, places);
        PERFORM millrace_cluster.reap(length);
        RETURN mine;
    END $$;

    -- False: the epoch has ended.
    CREATE FUNCTION renew(mine bigint, sessions bigint, draining boolean, scopes bytea[], counts bigint[])
        RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        length interval;
    BEGIN
        UPDATE millrace_cluster.node AS n
            SET renewed = clock_timestamp(), sessions = renew.sessions, draining = renew.draining
            WHERE n.epoch = mine RETURNING n.lease INTO length;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        FOR i IN 1 .. cardinality(scopes) LOOP
            UPDATE millrace_cluster.held AS h SET places = h.places - counts[i]
                WHERE h.scope = scopes[i] AND h.epoch = mine;
            DELETE FROM millrace_cluster.held AS h WHERE h.scope = scopes[i] AND h.epoch = mine AND h.places <= 0;
        END LOOP;
        PERFORM millrace_cluster.reap(length);
        RETURN true;
    END $$;

    -- 0: taken; n: the places of the n-th scope are all taken, and nothing was written; -1: the epoch has ended or lapsed;
    -- -2: nodes register after a crash.
    CREATE FUNCTION take(mine bigint, scopes bytea[], most bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
    DECLARE
        taken bigint;
    BEGIN
        FOR i IN 1 .. cardinality(scopes) LOOP
            -- One lock of a kind at most, and kinds in their order: names with the same hash are no deadlock.
            PERFORM pg_advisory_xact_lock(1835625472 + get_byte(scopes[i], 0), hashtext(encode(scopes[i], 'hex')));
            SELECT coalesce(sum(h.places), 0) INTO taken FROM millrace_cluster.held AS h WHERE h.scope = scopes[i];
            IF taken >= most[i] THEN
                RETURN i;
            END IF;
        END LOOP;
        PERFORM FROM millrace_cluster.node AS n
            WHERE n.epoch = mine AND n.renewed + n.lease > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN -1;
        END IF;
        IF EXISTS (SELECT FROM millrace_cluster.pulse WHERE closed_until > clock_timestamp()) THEN
            RETURN -2;
        END IF;
        FOR i IN 1 .. cardinality(scopes) LOOP
            INSERT INTO millrace_cluster.held AS h (scope, epoch, places) VALUES (scopes[i], mine, 1)
                ON CONFLICT (scope, epoch) DO UPDATE SET places = h.places + 1;
        END LOOP;
        RETURN 0;
    END $$;

    -- False: the epoch has ended. A ban is for so many seconds, or without them until it is lifted.
    CREATE FUNCTION change_bans(mine bigint, networks text[], users bytea[], seconds double precision[], lifts boolean[])
        RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 0);
        PERFORM FROM millrace_cluster.node AS n WHERE n.epoch = mine FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        FOR i IN 1 .. cardinality(networks) LOOP
            INSERT INTO millrace_cluster.ban AS b (network, "user", until, lifted, changed, edition)
                VALUES (networks[i], users[i], clock_timestamp() + make_interval(secs => seconds[i]), lifts[i],
                        clock_timestamp(), nextval('millrace_cluster.ban_edition_number'))
                ON CONFLICT (network, "user") DO UPDATE SET until = excluded.until, lifted = excluded.lifted,
                    changed = excluded.changed, edition = excluded.edition;
        END LOOP;
        DELETE FROM millrace_cluster.ban AS b WHERE b.until < clock_timestamp() AND NOT b.lifted
            OR b.lifted AND b.changed < clock_timestamp() - interval '7 days';
        RETURN true;
    END $$;
"#];

/// Brings the tables up to date, all or nothing.
pub(super) async fn migrate(client: &Client) -> Result<(), ClusterError> {
    match steps_taken(client).await? {
        Some(taken) if taken == MIGRATIONS.len() => return Ok(()),
        Some(taken) if taken > MIGRATIONS.len() => return Err(ClusterError::LaterTables),
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
    for step in MIGRATIONS.iter().skip(taken.unwrap_or(0)) {
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
