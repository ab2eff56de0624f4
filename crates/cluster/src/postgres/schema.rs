//! The first tables and functions of a cluster: nodes, places and bans; trees, errands and rates. The steps behind them are in the
//! files of what they are for, and all are taken in `migrating.rs`.
//!
//! Nodes and places are unlogged: they cost no disk, and after a crash of the database they are gone together, so that each
//! node finds itself fenced and registers with what it has. Bans and the numbers of epochs are kept.
//!
//! Lock order, of every function: the scopes' advisory locks by kind, the node's row, rows of `held` by scope; the row of a
//! tree, its shares.

/// Nodes, their places, and bans.
pub(super) const PLACES_AND_BANS: &str = r#"
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
"#;

/// Trees with a quota. A tree holds what its row has, and the sum of its shares. The row is locked first by all who write.
///
/// A node has a share while it changes something in a tree. The share of a node that has died is added to the row, and what it
/// had reserved counts as `lost`, until the tree was counted: the node may have stored it and not told.
pub(super) const QUOTAS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE SEQUENCE tree_number;

    CREATE TABLE tree (
        tree       text PRIMARY KEY,
        number     bigint NOT NULL,
        bytes      bigint NOT NULL DEFAULT 0,
        files      bigint NOT NULL DEFAULT 0,
        lost_bytes bigint NOT NULL DEFAULT 0,
        lost_files bigint NOT NULL DEFAULT 0,
        changes    bigint NOT NULL DEFAULT 0,
        counted    boolean NOT NULL DEFAULT false,
        doubtful   boolean NOT NULL DEFAULT false
    );
    CREATE INDEX tree_by_number ON tree (number);

    -- Logged, so that a crash of the database does not forget that a tree was being changed.
    CREATE TABLE share (
        tree           text NOT NULL,
        epoch          bigint NOT NULL,
        bytes          bigint NOT NULL,
        files          bigint NOT NULL,
        reserved_bytes bigint NOT NULL,
        reserved_files bigint NOT NULL,
        changes        bigint NOT NULL,
        PRIMARY KEY (tree, epoch)
    );
    CREATE INDEX share_epoch ON share (epoch);

    CREATE UNLOGGED TABLE name_lock (
        tree   text NOT NULL,
        name   bytea NOT NULL,
        epoch  bigint NOT NULL REFERENCES node ON DELETE CASCADE,
        number bigint NOT NULL,
        PRIMARY KEY (tree, name)
    );
    CREATE INDEX name_lock_number ON name_lock (epoch, number);

    -- Ends the shares of nodes that are none any more. After a crash nodes register first.
    CREATE FUNCTION end_shares(of text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM millrace_cluster.pulse WHERE closed_until > clock_timestamp()) THEN
            RETURN;
        END IF;
        WITH gone AS (
            DELETE FROM millrace_cluster.share AS s WHERE s.tree = of
                AND NOT EXISTS (SELECT FROM millrace_cluster.node AS n WHERE n.epoch = s.epoch) RETURNING s.*
        ), added AS (
            SELECT sum(bytes) AS bytes, sum(files) AS files, sum(reserved_bytes) AS reserved_bytes,
                   sum(reserved_files) AS reserved_files, sum(changes) + 1 AS changes FROM gone HAVING count(*) > 0
        )
        UPDATE millrace_cluster.tree AS t SET
            bytes = t.bytes + a.bytes, files = t.files + a.files, changes = t.changes + a.changes, doubtful = true,
            lost_bytes = t.lost_bytes + a.reserved_bytes, lost_files = t.lost_files + a.reserved_files
            FROM added AS a WHERE t.tree = of;
    END $$;

    -- own: bytes, files, reserved bytes, reserved files, changes; flags: is new, is the last, is doubtful;
    -- wish: bytes, files, most bytes, most files (NULL: as many as there are), bytes ahead.
    -- The answer: 0; 1 or 2: too many bytes or files, and nothing is granted; -1: the epoch has ended or lapsed; -2: the share
    -- has ended. Then: granted bytes, files, held bytes, files, reserved by others bytes, files, changes, other shares, is
    -- counted, is doubtful.
    CREATE FUNCTION tell_share(mine bigint, of text, own bigint[], flags boolean[], wish bigint[]) RETURNS bigint[]
        LANGUAGE plpgsql AS $$
    DECLARE
        t millrace_cluster.tree;
        a record;
        left_bytes bigint;
        left_files bigint;
        state bigint := 0;
        granted_bytes bigint := 0;
        granted_files bigint := 0;
    BEGIN
        PERFORM FROM millrace_cluster.node AS n
            WHERE n.epoch = mine AND n.renewed + n.lease > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN ARRAY[-1];
        END IF;
        IF NOT EXISTS (SELECT FROM millrace_cluster.tree AS x WHERE x.tree = of) THEN
            -- Numbers grow in the order in which they are committed.
            PERFORM pg_advisory_xact_lock(1835625472, 1);
            INSERT INTO millrace_cluster.tree (tree, number) VALUES (of, nextval('millrace_cluster.tree_number'))
                ON CONFLICT DO NOTHING;
        END IF;
        PERFORM FROM millrace_cluster.tree AS x WHERE x.tree = of FOR UPDATE;
        PERFORM millrace_cluster.end_shares(of);
        IF NOT flags[1] AND NOT EXISTS (
            SELECT FROM millrace_cluster.share AS s WHERE s.tree = of AND s.epoch = mine
        ) THEN
            RETURN ARRAY[-2];
        END IF;
        -- That a share begins has to be on the disk before the tree is changed. What is told later is told again.
        IF NOT flags[1] AND NOT flags[2] AND NOT flags[3] THEN
            PERFORM set_config('synchronous_commit', 'off', true);
        END IF;
        IF flags[2] THEN
            DELETE FROM millrace_cluster.share AS s WHERE s.tree = of AND s.epoch = mine;
            UPDATE millrace_cluster.tree AS x SET
                bytes = x.bytes + own[1], files = x.files + own[2], changes = x.changes + own[5] WHERE x.tree = of;
        ELSE
            INSERT INTO millrace_cluster.share AS s VALUES (of, mine, own[1], own[2], own[3], own[4], own[5])
                ON CONFLICT (tree, epoch) DO UPDATE SET bytes = own[1], files = own[2], reserved_bytes = own[3],
                    reserved_files = own[4], changes = own[5];
        END IF;
        IF flags[3] THEN
            UPDATE millrace_cluster.tree AS x SET doubtful = true WHERE x.tree = of;
        END IF;
        SELECT * INTO t FROM millrace_cluster.tree AS x WHERE x.tree = of;
        SELECT coalesce(sum(s.bytes), 0)::bigint AS bytes, coalesce(sum(s.files), 0)::bigint AS files,
               coalesce(sum(s.changes), 0)::bigint AS changes, count(*) FILTER (WHERE s.epoch <> mine) AS others,
               coalesce(sum(s.reserved_bytes) FILTER (WHERE s.epoch <> mine), 0)::bigint AS reserved_bytes,
               coalesce(sum(s.reserved_files) FILTER (WHERE s.epoch <> mine), 0)::bigint AS reserved_files
            INTO a FROM millrace_cluster.share AS s WHERE s.tree = of;
        t.bytes := t.bytes + a.bytes;
        t.files := t.files + a.files;
        t.lost_bytes := t.lost_bytes + a.reserved_bytes;
        t.lost_files := t.lost_files + a.reserved_files;
        IF wish IS NOT NULL THEN
            left_bytes := wish[3] - t.bytes - t.lost_bytes - own[3];
            left_files := wish[4] - t.files - t.lost_files - own[4];
            IF wish[2] > 0 AND wish[2] > left_files THEN
                state := 2;
            ELSIF wish[1] > 0 AND wish[1] > left_bytes THEN
                state := 1;
            ELSE
                -- An eighth of what is left, so that it suffices for the other nodes, too.
                granted_bytes := greatest(wish[1], least(coalesce((left_bytes + 7) / 8, 16777216), wish[5]));
                granted_files := greatest(wish[2], least(coalesce((left_files + 7) / 8, 64), 64));
                UPDATE millrace_cluster.share AS s
                    SET reserved_bytes = s.reserved_bytes + granted_bytes,
                        reserved_files = s.reserved_files + granted_files
                    WHERE s.tree = of AND s.epoch = mine;
            END IF;
        END IF;
        RETURN ARRAY[state, granted_bytes, granted_files, t.bytes, t.files, t.lost_bytes, t.lost_files, t.changes + a.changes, a.others,
                     t.counted::integer, t.doubtful::integer];
    END $$;

    -- 1: locked; 0: another node has it, or may have had an upload before a crash; -1: the epoch has ended or lapsed.
    CREATE FUNCTION lock_name(mine bigint, of text, named bytea, number bigint) RETURNS integer LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM FROM millrace_cluster.node AS n
            WHERE n.epoch = mine AND n.renewed + n.lease > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN -1;
        END IF;
        IF of = 'tus' AND EXISTS (SELECT FROM millrace_cluster.pulse WHERE closed_until > clock_timestamp()) THEN
            RETURN 0;
        END IF;
        INSERT INTO millrace_cluster.name_lock AS l VALUES (of, named, mine, lock_name.number)
            ON CONFLICT (tree, name) DO UPDATE SET number = lock_name.number WHERE l.epoch = mine;
        RETURN CASE WHEN FOUND THEN 1 ELSE 0 END;
    END $$;

    -- False: it does not hold, as the tree was being changed; or the epoch has ended.
    CREATE FUNCTION count_tree(mine bigint, of text, bytes bigint, files bigint, seen bigint) RETURNS boolean
        LANGUAGE plpgsql AS $$
    DECLARE
        t millrace_cluster.tree;
        a record;
    BEGIN
        PERFORM FROM millrace_cluster.node AS n
            WHERE n.epoch = mine AND n.renewed + n.lease > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        PERFORM FROM millrace_cluster.tree AS x WHERE x.tree = of FOR UPDATE;
        PERFORM millrace_cluster.end_shares(of);
        SELECT * INTO t FROM millrace_cluster.tree AS x WHERE x.tree = of;
        SELECT coalesce(sum(s.bytes), 0) AS bytes, coalesce(sum(s.files), 0) AS files,
               coalesce(sum(s.changes), 0) AS changes, count(*) FILTER (WHERE s.epoch <> mine) AS others
            INTO a FROM millrace_cluster.share AS s WHERE s.tree = of;
        -- Until it was first counted, no node changes it.
        IF t.counted AND (a.others > 0 OR t.changes + a.changes <> seen) THEN
            RETURN false;
        END IF;
        UPDATE millrace_cluster.tree AS x SET bytes = count_tree.bytes - a.bytes, files = count_tree.files - a.files,
            lost_bytes = 0, lost_files = 0, counted = true, doubtful = false WHERE x.tree = of;
        RETURN true;
    END $$;

    -- A node that registers anew keeps its shares and its locks of names, unless another has ended them.
    CREATE OR REPLACE FUNCTION register(replaces bigint, name text, version text, seconds double precision,
                                        scopes bytea[], counts bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        mine constant bigint := nextval('millrace_cluster.epoch');
        length constant interval := make_interval(secs => seconds);
    BEGIN
        PERFORM FROM millrace_cluster.node AS n WHERE n.epoch = replaces FOR UPDATE;
        INSERT INTO millrace_cluster.node (epoch, name, version, lease, began, renewed)
            VALUES (mine, name, version, length, clock_timestamp(), clock_timestamp());
        UPDATE millrace_cluster.name_lock AS l SET epoch = mine WHERE l.epoch = replaces;
        DELETE FROM millrace_cluster.node AS n WHERE n.epoch = replaces;
        UPDATE millrace_cluster.share AS s SET epoch = mine WHERE s.epoch = replaces;
        INSERT INTO millrace_cluster.held (scope, epoch, places)
            SELECT h.scope, mine, h.places FROM unnest(scopes, counts) AS h (scope, places);
        PERFORM millrace_cluster.reap(length);
        RETURN mine;
    END $$;
"#;

/// What nodes ask of one another, while an administrator waits.
pub(super) const ERRANDS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE UNLOGGED TABLE errand (
        number bigserial PRIMARY KEY,
        epoch  bigint NOT NULL REFERENCES node ON DELETE CASCADE,
        text   text NOT NULL,
        taken  boolean NOT NULL DEFAULT false,
        answer text,
        made   timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE INDEX errand_new ON errand (epoch) WHERE NOT taken;
"#;

/// Rates that nodes share. The parts of all nodes are never more than the whole together.
pub(super) const RATES: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE UNLOGGED TABLE rate (
        name   bytea NOT NULL,
        epoch  bigint NOT NULL REFERENCES node ON DELETE CASCADE,
        wanted bigint NOT NULL,
        weight bigint NOT NULL,
        part   bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (name, epoch)
    );
    CREATE INDEX rate_epoch ON rate (epoch);

    -- NULL: the epoch has ended or lapsed. A part grows as far as the others have left it room; they make room when they ask
    -- next.
    CREATE FUNCTION share_rates(mine bigint, names bytea[], most bigint[], wanted bigint[], weights bigint[])
        RETURNS bigint[] LANGUAGE plpgsql AS $$
    DECLARE
        parts bigint[] := '{}';
        got bigint;
        fair double precision;
        left_rate double precision;
        left_weight double precision;
        others bigint;
        r record;
    BEGIN
        -- Taken by all who share rates, for a moment.
        PERFORM pg_advisory_xact_lock(1835625472, 2);
        PERFORM FROM millrace_cluster.node AS n
            WHERE n.epoch = mine AND n.renewed + n.lease > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        -- What is not named was given up, also where the question that gave it up was lost.
        DELETE FROM millrace_cluster.rate AS x WHERE x.epoch = mine AND x.name <> ALL (names);
        FOR i IN 1 .. cardinality(names) LOOP
            IF weights[i] = 0 THEN
                DELETE FROM millrace_cluster.rate AS x WHERE x.name = names[i] AND x.epoch = mine;
                parts := parts || 0::bigint;
                CONTINUE;
            END IF;
            INSERT INTO millrace_cluster.rate AS x (name, epoch, wanted, weight)
                VALUES (names[i], mine, share_rates.wanted[i], weights[i])
                ON CONFLICT (name, epoch) DO UPDATE SET wanted = excluded.wanted, weight = excluded.weight;
            SELECT coalesce(sum(x.weight), 0), coalesce(sum(x.part) FILTER (WHERE x.epoch <> mine), 0)
                INTO left_weight, others FROM millrace_cluster.rate AS x WHERE x.name = names[i];
            left_rate := most[i];
            got := 0;
            -- Each has by its weight, but no more than it wants; what one leaves is for the others.
            FOR r IN SELECT x.epoch, x.wanted, x.weight FROM millrace_cluster.rate AS x WHERE x.name = names[i]
                ORDER BY x.wanted::double precision / x.weight, x.epoch
            LOOP
                fair := least(r.wanted, left_rate * r.weight / left_weight);
                left_rate := left_rate - fair;
                left_weight := left_weight - r.weight;
                IF r.epoch = mine THEN
                    got := floor(fair);
                END IF;
            END LOOP;
            got := greatest(least(got, most[i] - others), 0);
            UPDATE millrace_cluster.rate AS x SET part = got WHERE x.name = names[i] AND x.epoch = mine;
            parts := parts || got;
        END LOOP;
        RETURN parts;
    END $$;
"#;
