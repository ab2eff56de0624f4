//! The tables and functions of WebDAV's locks and properties.
//!
//! They are logged: a lock is the client's, which no node could tell anew after a crash of the database.

/// Locks, properties, and how much of them there is. Each write takes the advisory lock of `begin_dav` first, so that
/// editions grow in the order in which they are committed. Totals have the holder `''` for all locks, `u` and a user or `a`
/// and an address for those of one holder, `P` for all properties, and `p` and a user for those of one.
pub(super) const DAV: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE SEQUENCE dav_edition;

    CREATE TABLE dav_lock (
        token        text PRIMARY KEY,
        place        bytea NOT NULL,
        above        bytea[] NOT NULL,
        root         text NOT NULL,
        is_exclusive boolean NOT NULL,
        is_deep      boolean NOT NULL,
        owner        text,
        "user"       bytea,
        address      text,
        bytes        bigint NOT NULL,
        until        timestamptz NOT NULL,
        number       bigserial,
        edition      bigint NOT NULL
    );
    CREATE INDEX dav_lock_place ON dav_lock (place);
    CREATE INDEX dav_lock_above ON dav_lock USING gin (above) WITH (fastupdate = off);
    CREATE INDEX dav_lock_until ON dav_lock (until);
    CREATE INDEX dav_lock_edition ON dav_lock (edition);

    CREATE TABLE dav_properties (
        place   bytea PRIMARY KEY,
        content bytea NOT NULL,
        "user"  bytea,
        bytes   bigint NOT NULL,
        edition bigint NOT NULL
    );

    CREATE TABLE dav_total (
        holder bytea PRIMARY KEY,
        number bigint NOT NULL,
        bytes  bigint NOT NULL
    );

    CREATE FUNCTION count_dav(holders bytea[], number bigint, bytes bigint) RETURNS void LANGUAGE sql AS $$
        INSERT INTO millrace_cluster.dav_total AS t SELECT h, number, bytes FROM unnest(holders) AS h WHERE h IS NOT NULL
            ON CONFLICT (holder) DO UPDATE SET number = t.number + excluded.number, bytes = t.bytes + excluded.bytes;
        DELETE FROM millrace_cluster.dav_total AS t WHERE t.holder = ANY (holders) AND t.number <= 0;
    $$;

    CREATE FUNCTION count_lock() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        l millrace_cluster.dav_lock;
        n bigint;
    BEGIN
        IF TG_OP = 'INSERT' THEN l := NEW; n := 1; ELSE l := OLD; n := -1; END IF;
        PERFORM millrace_cluster.count_dav(
            ARRAY[''::bytea, 'u'::bytea || l."user", 'a'::bytea || convert_to(l.address, 'UTF8')], n, n * l.bytes);
        RETURN NULL;
    END $$;
    CREATE TRIGGER count_lock AFTER INSERT OR DELETE ON dav_lock FOR EACH ROW EXECUTE FUNCTION count_lock();

    CREATE FUNCTION count_properties() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        p millrace_cluster.dav_properties;
        n bigint;
    BEGIN
        IF TG_OP = 'INSERT' THEN p := NEW; n := 1; ELSE p := OLD; n := -1; END IF;
        PERFORM millrace_cluster.count_dav(
            ARRAY['P'::bytea, 'p'::bytea || coalesce('u'::bytea || p."user", '')], n, n * p.bytes);
        RETURN NULL;
    END $$;
    CREATE TRIGGER count_properties AFTER INSERT OR DELETE ON dav_properties
        FOR EACH ROW EXECUTE FUNCTION count_properties();

    -- Writers take turns.
    CREATE FUNCTION begin_dav() RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(1835625472, 5);
        DELETE FROM millrace_cluster.dav_lock AS l WHERE l.until <= clock_timestamp();
    END $$;

    -- 0: given; 1: another is in its way; 2: there are too many. most: locks, bytes, of one holder locks, bytes, shared locks
    -- that reach a place.
    CREATE FUNCTION give_lock(token text, place bytea, above bytea[], root text, is_exclusive boolean, is_deep boolean,
                              owner text, "user" bytea, address text, bytes bigint, seconds double precision, most bigint[])
        RETURNS integer LANGUAGE plpgsql AS $$
    #variable_conflict use_variable
    DECLARE
        beside bigint;
        excludes boolean;
    BEGIN
        PERFORM millrace_cluster.begin_dav();
        SELECT count(*) FILTER (WHERE l.place = place OR l.is_deep AND l.place = ANY (above)),
               coalesce(bool_or(is_exclusive OR l.is_exclusive), false)
            INTO beside, excludes FROM millrace_cluster.dav_lock AS l
            WHERE l.place = place OR l.place = ANY (above) AND l.is_deep OR is_deep AND l.above && ARRAY[place];
        IF excludes THEN
            RETURN 1;
        END IF;
        IF beside >= most[5] OR EXISTS (
            SELECT FROM millrace_cluster.dav_total AS t
            WHERE t.holder = '' AND (t.number >= most[1] OR t.bytes + bytes > most[2])
               OR t.holder IN ('u'::bytea || "user", 'a'::bytea || convert_to(address, 'UTF8'))
                  AND (t.number >= most[3] OR t.bytes + bytes > most[4])
        ) THEN
            RETURN 2;
        END IF;
        INSERT INTO millrace_cluster.dav_lock AS l (token, place, above, root, is_exclusive, is_deep, owner, "user", address,
                                                    bytes, until, edition)
            VALUES (token, place, above, root, is_exclusive, is_deep, owner, "user", address, bytes,
                    clock_timestamp() + make_interval(secs => seconds), nextval('millrace_cluster.dav_edition'));
        RETURN 0;
    END $$;

    -- False: it has ended.
    CREATE FUNCTION extend_lock(of text, seconds double precision) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM millrace_cluster.begin_dav();
        UPDATE millrace_cluster.dav_lock AS l SET until = clock_timestamp() + make_interval(secs => seconds),
            edition = nextval('millrace_cluster.dav_edition') WHERE l.token = of;
        RETURN FOUND;
    END $$;

    CREATE FUNCTION release_lock(of text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM millrace_cluster.begin_dav();
        DELETE FROM millrace_cluster.dav_lock AS l WHERE l.token = of;
    END $$;

    CREATE FUNCTION forget_place(of bytea) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM millrace_cluster.begin_dav();
        DELETE FROM millrace_cluster.dav_lock AS l WHERE l.place = of OR l.above && ARRAY[of];
        DELETE FROM millrace_cluster.dav_properties AS p WHERE p.place = of;
    END $$;

    -- 0: changed; 1: there is no room; 2: they were changed meanwhile. No content: there are none any more.
    CREATE FUNCTION change_properties(of bytea, content bytea, "user" bytea, bytes bigint, seen bigint, most bigint,
                                      share bigint) RETURNS integer LANGUAGE plpgsql AS $$
    #variable_conflict use_variable
    DECLARE
        old millrace_cluster.dav_properties;
        others bigint;
        of_user bigint;
    BEGIN
        PERFORM millrace_cluster.begin_dav();
        SELECT * INTO old FROM millrace_cluster.dav_properties AS p WHERE p.place = of;
        IF coalesce(old.edition, 0) <> seen THEN
            RETURN 2;
        END IF;
        SELECT coalesce(sum(t.bytes), 0) - coalesce(old.bytes, 0) INTO others
            FROM millrace_cluster.dav_total AS t WHERE t.holder = 'P';
        SELECT coalesce(sum(t.bytes), 0) INTO of_user FROM millrace_cluster.dav_total AS t
            WHERE t.holder = 'p'::bytea || coalesce('u'::bytea || "user", '');
        IF old.place IS NOT NULL AND old."user" IS NOT DISTINCT FROM "user" THEN
            of_user := of_user - old.bytes;
        END IF;
        IF bytes > coalesce(old.bytes, 0) AND (others + bytes > most OR of_user + bytes > share) THEN
            RETURN 1;
        END IF;
        DELETE FROM millrace_cluster.dav_properties AS p WHERE p.place = of;
        IF bytes > 0 THEN
            INSERT INTO millrace_cluster.dav_properties
                VALUES (of, content, "user", bytes, nextval('millrace_cluster.dav_edition'));
        END IF;
        RETURN 0;
    END $$;
"#;
