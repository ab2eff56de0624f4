//! The tables of the events that all nodes deliver.

/// Events, and their receivers.
///
/// Events are on disk: an upload is acknowledged when its event is here. Which node has a receiver is an epoch, and holds as
/// long as the lease of that node; so a node that dies leaves its receivers to the others without a word.
pub(super) const EVENTS: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    -- number is the order in which they are delivered; parked is why an event was put aside.
    CREATE TABLE event (
        number    bigserial PRIMARY KEY,
        id        text NOT NULL UNIQUE,
        receiver  text NOT NULL,
        body      text NOT NULL,
        words     bytea NOT NULL,
        variables bytea NOT NULL,
        parked    text
    );
    CREATE INDEX event_waiting ON event (receiver, number) WHERE parked IS NULL;
    CREATE INDEX event_parked ON event (receiver, number) WHERE parked IS NOT NULL;

    -- epoch: the node that delivers, if it is alive; 0 is none.
    CREATE TABLE event_receiver (
        receiver text PRIMARY KEY,
        epoch    bigint NOT NULL DEFAULT 0,
        tries    integer NOT NULL DEFAULT 0,
        due      timestamptz NOT NULL DEFAULT '-infinity',
        trouble  text
    );

    CREATE FUNCTION put_events(ids text[], receivers text[], bodies text[], words bytea[], variables bytea[],
                               parked text[]) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        other text;
    BEGIN
        INSERT INTO millrace_cluster.event_receiver (receiver)
            SELECT DISTINCT r FROM unnest(receivers) AS r ORDER BY r ON CONFLICT DO NOTHING;
        FOR i IN 1 .. cardinality(ids) LOOP
            INSERT INTO millrace_cluster.event (id, receiver, body, words, variables, parked)
                VALUES (ids[i], receivers[i], bodies[i], put_events.words[i], put_events.variables[i],
                        put_events.parked[i])
                ON CONFLICT (id) DO NOTHING;
            IF NOT FOUND THEN
                SELECT e.id INTO other FROM millrace_cluster.event AS e
                    WHERE e.id = ids[i] AND (e.body, e.receiver) IS DISTINCT FROM (bodies[i], receivers[i]);
                IF FOUND THEN
                    RAISE EXCEPTION 'the id % is that of another event: two nodes have copies of one queue file', other;
                END IF;
            END IF;
        END LOOP;
    END $$;

    -- NULL: there is none, the epoch has ended or lapsed, or the database has crashed a moment ago.
    CREATE FUNCTION take_receiver(mine bigint, busy text[], OUT name text, OUT failed integer) LANGUAGE plpgsql AS $$
    DECLARE
        holder bigint;
    BEGIN
        PERFORM FROM millrace_cluster.node AS n
            WHERE n.epoch = mine AND n.renewed + n.lease > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        -- After a crash of the database nodes are not known that may be alive, and deliver yet.
        IF EXISTS (SELECT FROM millrace_cluster.pulse WHERE closed_until > clock_timestamp()) THEN
            RETURN;
        END IF;
        SELECT r.receiver, r.tries, r.epoch INTO name, failed, holder FROM millrace_cluster.event_receiver AS r
            WHERE r.due <= clock_timestamp() AND r.receiver <> ALL (busy)
                AND EXISTS (SELECT FROM millrace_cluster.event AS e
                            WHERE e.receiver = r.receiver AND e.parked IS NULL)
                AND (r.epoch = mine OR NOT EXISTS (
                    SELECT FROM millrace_cluster.node AS n
                    WHERE n.epoch = r.epoch AND n.renewed + n.lease > clock_timestamp()))
            ORDER BY r.due, r.receiver LIMIT 1 FOR UPDATE SKIP LOCKED;
        -- Once more, as of now: another may have taken it before it was locked.
        IF holder <> mine AND EXISTS (SELECT FROM millrace_cluster.node AS n
            WHERE n.epoch = holder AND n.renewed + n.lease > clock_timestamp())
        THEN
            name := NULL;
            RETURN;
        END IF;
        UPDATE millrace_cluster.event_receiver AS r SET epoch = mine WHERE r.receiver = name;
    END $$;

    -- False: another node has the receiver. A pause of NULL: it has taken what it was told, if it was told anything.
    CREATE FUNCTION settle_events(mine bigint, name text, delivered text[], parked text[], reasons text[],
                                  failure text, failed integer, pause double precision, keeps boolean)
        RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        -- The first event is the one that was tried before.
        is_same boolean := failure IS NULL AND cardinality(delivered) = 0 AND cardinality(settle_events.parked) = 0
            AND EXISTS (SELECT FROM millrace_cluster.event AS e WHERE e.receiver = name AND e.parked IS NULL);
    BEGIN
        PERFORM FROM millrace_cluster.event_receiver AS r WHERE r.receiver = name AND r.epoch = mine FOR UPDATE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        DELETE FROM millrace_cluster.event AS e WHERE e.id = ANY (delivered);
        UPDATE millrace_cluster.event AS e SET parked = p.reason
            FROM unnest(settle_events.parked, reasons) AS p (id, reason) WHERE e.id = p.id;
        UPDATE millrace_cluster.event_receiver AS r
            SET epoch = CASE WHEN keeps THEN mine ELSE 0 END,
                tries = CASE WHEN is_same THEN r.tries ELSE failed END,
                trouble = CASE WHEN is_same THEN r.trouble ELSE failure END,
                due = coalesce(clock_timestamp() + make_interval(secs => pause), '-infinity')
            WHERE r.receiver = name;
        RETURN true;
    END $$;
"#;
