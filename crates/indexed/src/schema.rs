//! The tables and functions of names, in a schema of their own. Each change is one call of a function there: one round trip,
//! and one transaction.
//!
//! Nothing keeps a session's state between questions, so a pooler that shares connections by transaction may stand between.
//!
//! A function says in a number what became of it (`Outcome`), because an error would be a line in the database's log each.
//! It looks a path up, locks the row that it found, and begins anew where that has gone or moved meanwhile. Who puts
//! something into a folder holds the folder's row against removal. Folders are moved one at a time in each tree, so that
//! none is moved beneath itself.
//!
//! `enable_seqscan` is off in them: plans that the database has made while the tables were small stay until they are
//! analysed.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::IndexError;

/// Keeps two servers from making the tables at once; the number is arbitrary.
const LOCK: i64 = 0x6d69_6c6c_6e61_6d65;

/// The form of the tables, which the database remembers.
const FORM: i32 = 1;

const TABLES: &str = r#"
    CREATE SCHEMA IF NOT EXISTS millrace_index;
    SET LOCAL search_path = millrace_index;

    CREATE TABLE form (number integer NOT NULL);

    -- A bucket and a prefix in it.
    CREATE TABLE tree (
        name text PRIMARY KEY,
        root bigint NOT NULL
    );

    -- A folder has no object.
    CREATE TABLE node (
        id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        parent  bigint REFERENCES node,
        name    bytea NOT NULL,
        object  bytea,
        size    bigint NOT NULL DEFAULT 0,
        mode    bigint NOT NULL,
        "user"  bigint NOT NULL DEFAULT 0,
        grp     bigint NOT NULL DEFAULT 0,
        modified_seconds     bigint NOT NULL,
        modified_nanoseconds bigint NOT NULL,
        created_seconds      bigint NOT NULL,
        created_nanoseconds  bigint NOT NULL,
        hashes  text,
        UNIQUE (parent, name)
    );

    -- Objects that no node has. Without a time when they are due they are pending: their upload goes on, as long as its
    -- server is heard of. Others are garbage.
    CREATE TABLE unnamed (
        object bytea PRIMARY KEY,
        tree   bigint NOT NULL,
        heard  timestamptz NOT NULL DEFAULT clock_timestamp(),
        due    timestamptz
    );
    CREATE INDEX unnamed_due ON unnamed (tree, due);

    CREATE FUNCTION clock(OUT seconds bigint, OUT nanoseconds bigint) LANGUAGE sql VOLATILE AS $$
        SELECT m / 1000000, m % 1000000 * 1000
        FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS m) AS micros
    $$;

    CREATE FUNCTION add_node(parent bigint, name bytea, object bytea, size bigint, mode bigint, hashes text)
        RETURNS bigint LANGUAGE sql AS $$
        INSERT INTO millrace_index.node (parent, name, object, size, mode, hashes, modified_seconds,
                                         modified_nanoseconds, created_seconds, created_nanoseconds)
            SELECT parent, name, object, size, mode, hashes, c.seconds, c.nanoseconds, c.seconds, c.nanoseconds
            FROM millrace_index.clock() AS c
            ON CONFLICT DO NOTHING RETURNING id
    $$;

    -- The root of a tree, which is made where it is not there.
    CREATE FUNCTION open_tree(called text) RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        found_root bigint;
    BEGIN
        SELECT t.root INTO found_root FROM millrace_index.tree AS t WHERE t.name = called;
        IF found_root IS NULL THEN
            PERFORM pg_advisory_xact_lock(1835625486, hashtext(called));
            SELECT t.root INTO found_root FROM millrace_index.tree AS t WHERE t.name = called;
        END IF;
        IF found_root IS NULL THEN
            found_root := millrace_index.add_node(NULL, '', NULL, 0, 493, NULL);
            INSERT INTO millrace_index.tree VALUES (called, found_root);
        END IF;
        RETURN found_root;
    END $$;

    -- Goes down a path as far as there are nodes: the last one, the folder that it is in, and how many names are left.
    CREATE FUNCTION walk(root bigint, names bytea[],
                         OUT id bigint, OUT folder bigint, OUT rest integer, OUT is_folder boolean)
        LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
    DECLARE
        step record;
    BEGIN
        id := root;
        is_folder := true;
        rest := cardinality(names);
        FOR i IN 1 .. cardinality(names) LOOP
            SELECT n.id, n.object IS NULL AS is_folder INTO step
                FROM millrace_index.node AS n WHERE n.parent = walk.id AND n.name = names[i];
            EXIT WHEN NOT FOUND;
            folder := id;
            id := step.id;
            is_folder := step.is_folder;
            rest := rest - 1;
        END LOOP;
    END $$;

    -- Where a name is or may be put: the folder, which stays until the end of the transaction, and what has the name.
    CREATE FUNCTION place(root bigint, names bytea[], OUT outcome integer, OUT folder bigint, OUT old bigint)
        LANGUAGE plpgsql AS $$
    DECLARE
        w record;
    BEGIN
        SELECT * INTO w FROM millrace_index.walk(root, names);
        outcome := CASE WHEN w.rest = 0 THEN 0 WHEN NOT w.is_folder THEN 2 WHEN w.rest > 1 THEN 1 ELSE 0 END;
        IF outcome <> 0 THEN
            RETURN;
        END IF;
        IF w.rest = 0 THEN
            folder := w.folder;
            old := w.id;
        ELSE
            folder := w.id;
            PERFORM FROM millrace_index.node AS n WHERE n.id = w.id FOR KEY SHARE;
            outcome := CASE WHEN FOUND THEN 0 ELSE 1 END;
        END IF;
    END $$;

    -- An object has lost its name.
    CREATE FUNCTION discard(root bigint, object bytea, keep interval) RETURNS void LANGUAGE sql AS $$
        INSERT INTO millrace_index.unnamed (object, tree, due) VALUES (object, root, clock_timestamp() + keep)
            ON CONFLICT DO NOTHING
    $$;

    -- Makes an object pending, if its file may be made.
    CREATE FUNCTION begin_upload(root bigint, names bytea[], mine bytea, only_new boolean)
        RETURNS integer LANGUAGE plpgsql AS $$
    DECLARE
        w record;
    BEGIN
        SELECT * INTO w FROM millrace_index.walk(root, names);
        IF w.rest > 0 AND NOT w.is_folder THEN
            RETURN 2;
        ELSIF w.rest > 1 THEN
            RETURN 1;
        ELSIF w.rest = 0 AND w.is_folder THEN
            RETURN 3;
        ELSIF w.rest = 0 AND only_new THEN
            RETURN 4;
        END IF;
        INSERT INTO millrace_index.unnamed (object, tree) VALUES (mine, root) ON CONFLICT DO NOTHING;
        RETURN 0;
    END $$;

    -- Gives a pending object its name: a new one alone, the place of this object alone, or whatever has it now.
    CREATE FUNCTION commit_upload(root bigint, names bytea[], mine bytea, length bigint, bits bigint, sums text,
                                  only_new boolean, instead_of bytea, keep interval)
        RETURNS integer LANGUAGE plpgsql SET enable_seqscan = off AS $$
    DECLARE
        p record;
        was record;
        t record;
        is_pending boolean;
    BEGIN
        PERFORM FROM millrace_index.unnamed AS u WHERE u.object = mine AND u.due IS NULL FOR UPDATE;
        is_pending := FOUND;
        LOOP
            SELECT * INTO p FROM millrace_index.place(root, names);
            IF p.outcome <> 0 THEN
                RETURN p.outcome;
            END IF;
            IF p.old IS NULL THEN
                IF NOT is_pending THEN
                    RETURN 8;
                ELSIF instead_of IS NOT NULL THEN
                    RETURN 9;
                END IF;
                -- None, where another one has taken the name just now.
                CONTINUE WHEN millrace_index.add_node(p.folder, names[cardinality(names)], mine, length,
                                                      coalesce(bits, 420), sums) IS NULL;
                EXIT;
            END IF;
            SELECT n.object INTO was FROM millrace_index.node AS n
                WHERE n.id = p.old AND n.parent = p.folder AND n.name = names[cardinality(names)] FOR NO KEY UPDATE;
            CONTINUE WHEN NOT FOUND;
            IF was.object = mine THEN
                -- The answer to an earlier try was lost.
                RETURN 0;
            ELSIF was.object IS NULL THEN
                RETURN 3;
            ELSIF NOT is_pending THEN
                RETURN 8;
            ELSIF only_new THEN
                RETURN 4;
            ELSIF was.object <> instead_of THEN
                RETURN 9;
            END IF;
            SELECT * INTO t FROM millrace_index.clock();
            UPDATE millrace_index.node AS n SET object = mine, size = length, hashes = sums,
                modified_seconds = t.seconds, modified_nanoseconds = t.nanoseconds WHERE n.id = p.old;
            PERFORM millrace_index.discard(root, was.object, keep);
            EXIT;
        END LOOP;
        DELETE FROM millrace_index.unnamed AS u WHERE u.object = mine;
        RETURN 0;
    END $$;

    CREATE FUNCTION make_folder(root bigint, names bytea[], bits bigint) RETURNS integer LANGUAGE plpgsql AS $$
    DECLARE
        p record;
    BEGIN
        SELECT * INTO p FROM millrace_index.place(root, names);
        IF p.outcome <> 0 THEN
            RETURN p.outcome;
        ELSIF p.old IS NOT NULL THEN
            RETURN 4;
        END IF;
        RETURN CASE WHEN millrace_index.add_node(p.folder, names[cardinality(names)], NULL, 0,
                                                 coalesce(bits, 493), NULL) IS NULL THEN 4 ELSE 0 END;
    END $$;

    -- Removes a file, or an empty folder.
    CREATE FUNCTION remove(root bigint, names bytea[], folders boolean, keep interval)
        RETURNS integer LANGUAGE plpgsql SET enable_seqscan = off AS $$
    DECLARE
        w record;
        was record;
    BEGIN
        LOOP
            SELECT * INTO w FROM millrace_index.walk(root, names);
            IF w.rest > 0 THEN
                RETURN CASE WHEN w.is_folder THEN 1 ELSE 2 END;
            ELSIF w.is_folder <> folders THEN
                RETURN CASE WHEN w.is_folder THEN 3 ELSE 2 END;
            END IF;
            SELECT n.object INTO was FROM millrace_index.node AS n
                WHERE n.id = w.id AND n.parent = w.folder AND n.name = names[cardinality(names)] FOR UPDATE;
            EXIT WHEN FOUND;
        END LOOP;
        IF folders AND EXISTS (SELECT FROM millrace_index.node AS n WHERE n.parent = w.id) THEN
            RETURN 5;
        END IF;
        DELETE FROM millrace_index.node AS n WHERE n.id = w.id;
        IF was.object IS NOT NULL THEN
            PERFORM millrace_index.discard(root, was.object, keep);
        END IF;
        RETURN 0;
    END $$;

    CREATE FUNCTION rename(root bigint, source bytea[], target bytea[], keep interval)
        RETURNS integer LANGUAGE plpgsql SET enable_seqscan = off AS $$
    DECLARE
        s record;
        p record;
        was record;
        up bigint;
        is_locked boolean := false;
        rows_locked integer;
    BEGIN
        LOOP
            SELECT * INTO s FROM millrace_index.walk(root, source);
            IF s.rest > 0 THEN
                RETURN CASE WHEN s.is_folder THEN 1 ELSE 2 END;
            END IF;
            IF s.is_folder AND NOT is_locked THEN
                PERFORM pg_advisory_xact_lock(1835625487, hashint8(root));
                is_locked := true;
                CONTINUE;
            END IF;
            SELECT * INTO p FROM millrace_index.place(root, target);
            IF p.outcome <> 0 THEN
                RETURN p.outcome;
            ELSIF p.old = s.id THEN
                RETURN 0;
            END IF;
            up := p.folder;
            WHILE s.is_folder AND up IS NOT NULL LOOP
                IF up = s.id THEN
                    RETURN 7;
                END IF;
                SELECT n.parent INTO up FROM millrace_index.node AS n WHERE n.id = up;
            END LOOP;
            -- In the order of their numbers, so that two renames are no deadlock.
            PERFORM FROM millrace_index.node AS n
                WHERE n.id = s.id AND n.parent = s.folder AND n.name = source[cardinality(source)]
                   OR n.id = p.old AND n.parent = p.folder AND n.name = target[cardinality(target)]
                ORDER BY n.id FOR UPDATE;
            GET DIAGNOSTICS rows_locked = ROW_COUNT;
            CONTINUE WHEN rows_locked < CASE WHEN p.old IS NULL THEN 1 ELSE 2 END;
            IF p.old IS NOT NULL THEN
                SELECT n.object INTO was FROM millrace_index.node AS n WHERE n.id = p.old;
                IF s.is_folder THEN
                    RETURN 4;
                ELSIF was.object IS NULL THEN
                    RETURN 3;
                END IF;
                DELETE FROM millrace_index.node AS n WHERE n.id = p.old;
                PERFORM millrace_index.discard(root, was.object, keep);
            END IF;
            BEGIN
                UPDATE millrace_index.node AS n SET parent = p.folder, name = target[cardinality(target)]
                    WHERE n.id = s.id;
                RETURN 0;
            EXCEPTION WHEN unique_violation THEN
                -- The name was taken just now; had something been removed for it, none could have.
                NULL;
            END;
        END LOOP;
    END $$;
"#;

/// Makes the tables where they are not there, and returns the root of a tree, which is made likewise.
pub(crate) async fn open_tree(client: &Client, name: &str) -> Result<i64, IndexError> {
    if form(client).await?.is_none() {
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})");
        client.batch_execute(&begin).await?;
        if form(client).await?.is_none() {
            client.batch_execute(TABLES).await?;
            client.batch_execute(&format!("INSERT INTO millrace_index.form VALUES ({FORM})")).await?;
        }
        client.batch_execute("COMMIT").await?;
    }
    if form(client).await?.is_some_and(|form| form > FORM) {
        return Err(IndexError::LaterTables);
    }
    let row = client.query_typed_one("SELECT millrace_index.open_tree($1)", &[(&name, Type::TEXT)]).await?;
    Ok(row.try_get(0)?)
}

/// Returns the form of the tables that are there.
async fn form(client: &Client) -> Result<Option<i32>, IndexError> {
    // By a table of the catalogue: names that are looked up otherwise may be those of a moment ago.
    const KNOWN: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables
        WHERE schemaname = 'millrace_index' AND tablename = 'form')";
    if !client.query_typed_one(KNOWN, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let row = client.query_typed_opt("SELECT max(number) FROM millrace_index.form", &[]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
}
