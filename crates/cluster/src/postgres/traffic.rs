//! What users have moved at all nodes, and how much more each node may move.
//!
//! Lock order: the node's row, that of its turns, those of users in the order of their names.

use millrace_limits::{CurrentQuota, MovedBytes, Per, TrafficAnswer, TrafficCounts, TrafficTelling};
use tokio_postgres::types::Type;

use super::connections::{Connections, Lane};
use super::error::ClusterError;
use super::{Parameter, number};
use crate::table::{TableError, TrafficTurn};

/// The tables. `traffic.moved` is what came and what went on the day, in its week and in its month; what became files of all that
/// ever came, and all that ever went. The clock of the database says which day it is.
pub(super) const TRAFFIC: &str = r#"
    SET LOCAL search_path = millrace_cluster;

    CREATE TABLE traffic (
        "user" bytea PRIMARY KEY,
        day    date NOT NULL,
        moved  bigint[] NOT NULL
    );

    -- The last of what a process has told. What it tells again, as it has had no answer, is not counted again; logged, like the
    -- counts, so that a crash of the database forgets both or none.
    CREATE TABLE traffic_turn (
        origin bigint PRIMARY KEY,
        turn   bigint NOT NULL,
        told   timestamptz NOT NULL
    );

    CREATE UNLOGGED TABLE traffic_room (
        "user" bytea NOT NULL,
        epoch  bigint NOT NULL REFERENCES node ON DELETE CASCADE,
        up     bigint NOT NULL,
        down   bigint NOT NULL,
        PRIMARY KEY ("user", epoch)
    );
    CREATE INDEX traffic_room_epoch ON traffic_room (epoch);

    -- The room of a node that wishes for so much: an eighth of what is left, so that it suffices for the other nodes, too; but
    -- what the node has kept of its room is its own, as it moves on while it asks.
    CREATE FUNCTION room_for_traffic(wish bigint, kept bigint, rest bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
        SELECT greatest(least(wish, kept), least(wish, greatest((rest + 7) / 8, 65536), rest), 0)
    $$;

    -- NULL: the epoch has ended or lapsed, or something later was told. Of each user: told: what came, what went, what became
    -- files; caps: how much may come within which period (0: a day, 1: a week, 2: a month), how much may go, how much may do
    -- both, and for how much that has become files how much may go; wishes: room for what comes and what goes; and where there is
    -- a day, before: what was counted until that day before the node shared it, as `moved` has it.
    -- The answer, of each user: the number of the day, what `moved` has, the room for what comes and what goes.
    CREATE FUNCTION share_traffic(mine bigint, process bigint, number bigint, users bytea[], told bigint[], caps bigint[],
                                  wishes bigint[], days bigint[], before bigint[])
        RETURNS bigint[] LANGUAGE plpgsql AS $$
    DECLARE
        first_day constant date := '1970-01-01';
        today constant date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        units constant text[] := '{day,week,month}';
        answer bigint[] := '{}';
        last bigint;
        is_new boolean;
        t record;
        own record;
        others record;
        m bigint[];
        c integer;
        rest bigint;
        rest_up bigint;
        rest_down bigint;
        room_up bigint;
        room_down bigint;
    BEGIN
        PERFORM FROM millrace_cluster.node AS n
            WHERE n.epoch = mine AND n.renewed + n.lease > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        INSERT INTO millrace_cluster.traffic_turn VALUES (process, 0, clock_timestamp()) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            DELETE FROM millrace_cluster.traffic_turn AS x WHERE x.told < clock_timestamp() - interval '30 days';
        END IF;
        SELECT x.turn INTO last FROM millrace_cluster.traffic_turn AS x WHERE x.origin = process FOR UPDATE;
        IF number < last THEN
            RETURN NULL;
        END IF;
        is_new := number > last;
        UPDATE millrace_cluster.traffic_turn AS x SET turn = number, told = clock_timestamp() WHERE x.origin = process;
        FOR i IN 1 .. cardinality(users) LOOP
            INSERT INTO millrace_cluster.traffic VALUES (users[i], today, array_fill(0::bigint, ARRAY[8]))
                ON CONFLICT DO NOTHING;
            SELECT x.day, x.moved INTO t FROM millrace_cluster.traffic AS x WHERE x."user" = users[i] FOR UPDATE;
            m := t.moved;
            c := 8 * (i - 1);
            FOR k IN 1 .. 3 LOOP
                IF date_trunc(units[k], today::timestamp) > date_trunc(units[k], t.day::timestamp) THEN
                    m[2 * k - 1] := 0;
                    m[2 * k] := 0;
                END IF;
                IF is_new THEN
                    m[2 * k - 1] := greatest(m[2 * k - 1] + told[3 * i - 2], 0);
                    m[2 * k] := greatest(m[2 * k] + told[3 * i - 1], 0);
                    IF first_day + days[i]::integer >= date_trunc(units[k], today::timestamp) THEN
                        m[2 * k - 1] := m[2 * k - 1] + before[c + 2 * k - 1];
                        m[2 * k] := m[2 * k] + before[c + 2 * k];
                    END IF;
                END IF;
            END LOOP;
            IF is_new THEN
                m[7] := m[7] + told[3 * i] + coalesce(before[c + 7], 0);
                m[8] := greatest(m[8] + told[3 * i - 1], 0) + coalesce(before[c + 8], 0);
                UPDATE millrace_cluster.traffic AS x SET day = greatest(t.day, today), moved = m WHERE x."user" = users[i];
            END IF;
            SELECT coalesce(sum(r.up), 0)::bigint AS up, coalesce(sum(r.down), 0)::bigint AS down INTO others
                FROM millrace_cluster.traffic_room AS r WHERE r."user" = users[i] AND r.epoch <> mine;
            SELECT coalesce(sum(r.up), 0)::bigint AS up, coalesce(sum(r.down), 0)::bigint AS down INTO own
                FROM millrace_cluster.traffic_room AS r WHERE r."user" = users[i] AND r.epoch = mine;
            IF is_new THEN
                own.up := own.up - greatest(told[3 * i - 2], 0);
                own.down := own.down - greatest(told[3 * i - 1], 0);
            END IF;
            -- Without a limit they are NULL.
            rest := caps[c + 5] - m[2 * caps[c + 6] + 1] - m[2 * caps[c + 6] + 2] - others.up - others.down;
            rest_up := caps[c + 1] - m[2 * caps[c + 2] + 1] - others.up;
            rest_down := least(
                caps[c + 3] - m[2 * caps[c + 4] + 2],
                least(trunc(m[7]::numeric * caps[c + 8] / caps[c + 7]), 9e18)::bigint - m[8]
            ) - others.down;
            room_up := millrace_cluster.room_for_traffic(
                wishes[2 * i - 1], own.up, least(rest_up, rest - greatest(least(wishes[2 * i], own.down), 0))
            );
            room_down := millrace_cluster.room_for_traffic(wishes[2 * i], own.down, least(rest_down, rest - room_up));
            IF room_up + room_down > 0 THEN
                INSERT INTO millrace_cluster.traffic_room AS r VALUES (users[i], mine, room_up, room_down)
                    ON CONFLICT ("user", epoch) DO UPDATE SET up = room_up, down = room_down;
            ELSE
                DELETE FROM millrace_cluster.traffic_room AS r WHERE r."user" = users[i] AND r.epoch = mine;
            END IF;
            answer := answer || (greatest(t.day, today) - first_day)::bigint || m || room_up || room_down;
        END LOOP;
        RETURN answer;
    END $$;
"#;

/// The numbers of an answer about one user.
const ANSWER: usize = 11;

/// Tells what users have moved, and returns what all nodes have told; `None` where the epoch holds no more.
pub(super) fn share(
    connections: &Connections,
    turn: TrafficTurn,
    told: &[TrafficTelling],
) -> Result<Option<Vec<TrafficAnswer>>, TableError> {
    const SHARE: &str = "SELECT millrace_cluster.share_traffic($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let users: Vec<&[u8]> = told.iter().map(|told| told.user.as_bytes()).collect();
    let moved = |told: &TrafficTelling| [told.moved.up, told.moved.down, amount(told.moved.credit)];
    let moved: Vec<i64> = told.iter().flat_map(moved).collect();
    let caps: Vec<Option<i64>> = told.iter().flat_map(|told| caps(&told.quota)).collect();
    let wishes: Vec<i64> = told.iter().flat_map(|told| both(told.wish)).collect();
    let days: Vec<Option<i64>> = told.iter().map(|told| told.before.map(|before| before.day)).collect();
    let before: Vec<i64> = told.iter().flat_map(|told| counts(&told.before.unwrap_or_default())).collect();
    connections.ask(Lane::Keeper, async |client| {
        let parameters: [Parameter<'_>; 9] = [
            (&turn.epoch.0, Type::INT8),
            (&turn.origin, Type::INT8),
            (&turn.number, Type::INT8),
            (&users, Type::BYTEA_ARRAY),
            (&moved, Type::INT8_ARRAY),
            (&caps, Type::INT8_ARRAY),
            (&wishes, Type::INT8_ARRAY),
            (&days, Type::INT8_ARRAY),
            (&before, Type::INT8_ARRAY),
        ];
        let answer: Option<Vec<i64>> = client.query_typed_one(SHARE, &parameters).await?.try_get(0)?;
        match answer {
            Some(answer) if answer.len() != told.len() * ANSWER => {
                Err(ClusterError::Answer(format!("{} numbers", answer.len())))
            }
            answer => Ok(answer.map(|answer| answer.chunks_exact(ANSWER).map(read).collect())),
        }
    })
}

fn both(MovedBytes { up, down }: MovedBytes) -> [i64; 2] {
    [amount(up), amount(down)]
}

/// An amount, or one with which sums do not overflow.
fn amount(bytes: u64) -> i64 {
    number(bytes.min(1 << 60))
}

fn counts(counts: &TrafficCounts) -> impl Iterator<Item = i64> + use<> {
    let [day, week, month] = counts.periods;
    [day, week, month, counts.ever].into_iter().flat_map(both)
}

fn caps(quota: &CurrentQuota) -> impl Iterator<Item = Option<i64>> + use<> {
    let per = |per: Option<Per>| {
        per.map_or([None; 2], |per| [Some(amount(per.bytes)), Some(i64::from(per.period as u8))])
    };
    let ratio = quota
        .ratio
        .map_or([None; 2], |ratio| [Some(i64::from(ratio.upload.max(1))), Some(i64::from(ratio.download))]);
    [per(quota.upload), per(quota.download), per(quota.total), ratio].into_iter().flatten()
}

/// Reads what is answered about one user.
fn read(numbers: &[i64]) -> TrafficAnswer {
    let both = |at: usize| {
        let [up, down] = [at, at + 1].map(|at| u64::try_from(numbers[at]).unwrap_or(0));
        MovedBytes { up, down }
    };
    let counts = TrafficCounts {
        day: numbers[0],
        periods: [both(1), both(3), both(5)],
        ever: both(7),
        is_shared: true,
    };
    TrafficAnswer { counts, room: both(9) }
}
