//! Transfer quotas and ratios over several nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use millrace_cluster::{Epoch, NodeState, PostgresTable, Table, TrafficTurn};
use millrace_limits::{
    CurrentQuota, Direction, Moved, MovedBytes, Per, Period, Ratio, Since, TrafficAnswer, TrafficCounts,
    TrafficTelling, TransferQuota, wall_seconds,
};

use super::{Postgres, Server, end_grace, entry, eventually, node, silence, table};

const MOST: u64 = 1_000_000_000;

/// What a node tells of ann, who may download 1 GB a week.
fn telling(down: i64, wish: u64) -> TrafficTelling {
    let download = Some(Per { bytes: MOST, period: Period::Week });
    TrafficTelling {
        user: "ann".to_owned(),
        before: None,
        moved: Since { up: 7, down, credit: 5 },
        quota: CurrentQuota { download, ..CurrentQuota::default() },
        wish: MovedBytes { up: 0, down: wish },
    }
}

/// A node that tells.
struct Teller {
    table: PostgresTable,
    epoch: Epoch,
    number: i64,
}

impl Teller {
    fn new(server: &Postgres, name: &str) -> Self {
        let table = table(server);
        let epoch = table.register(&entry(name), None, &[]).unwrap();
        Self { table, epoch, number: 0 }
    }

    /// Tells under the number that is there.
    fn repeat(&self, told: &TrafficTelling) -> Option<TrafficAnswer> {
        let turn = TrafficTurn { epoch: self.epoch, origin: self.epoch.0, number: self.number };
        let answers = self.table.share_traffic(turn, std::slice::from_ref(told)).unwrap();
        answers.map(|answers| answers[0])
    }

    fn tell(&mut self, down: i64, wish: u64) -> TrafficAnswer {
        self.number += 1;
        self.repeat(&telling(down, wish)).unwrap()
    }
}

fn week(answer: &TrafficAnswer) -> MovedBytes {
    answer.counts.periods[1]
}

#[test]
fn what_is_told_counts_once_and_the_room_of_all_is_never_more_than_what_is_left() {
    let Some(server) = Postgres::new() else { return };
    let (mut one, mut other) = (Teller::new(&server, "one"), Teller::new(&server, "other"));
    end_grace(&server);
    let first = one.tell(1000, 600_000_000);
    assert_eq!(week(&first), MovedBytes { up: 7, down: 1000 });
    assert_eq!(first.counts.ever, MovedBytes { up: 5, down: 1000 });
    assert_eq!(first.room.down, (MOST - 1000).div_ceil(8));
    assert_eq!(one.repeat(&telling(1000, 600_000_000)), Some(first), "the answer was lost");
    one.number -= 1;
    assert_eq!(one.repeat(&telling(1000, 600_000_000)), None, "a question that was late");
    one.number += 1;

    let others = other.tell(0, 600_000_000);
    assert_eq!(others.room.down, (MOST - 1000 - first.room.down).div_ceil(8));
    // Of what it has room for it has used all but ten bytes, and the last eighths are smaller than what all may have.
    let used = i64::try_from(others.room.down - 10).unwrap();
    let next = other.tell(used, 600_000_000);
    let left = MOST - 1000 - first.room.down - u64::try_from(used).unwrap();
    assert_eq!(next.room.down, left.div_ceil(8));
    let rest = left - 30_000;
    let last = other.tell(i64::try_from(rest).unwrap(), 600_000_000);
    assert_eq!(last.room.down, 30_000, "no more than is left");
    // What one has room for and does not wish for any more, the other may have.
    assert_eq!(one.tell(0, 0).room.down, 0);
    assert!(other.tell(0, 600_000_000).room.down > 30_000);

    // The room of a node that dies is free, and its late word is not heard.
    let before = other.tell(0, 0);
    assert!(one.tell(0, 600_000_000).room.down > 0);
    silence(&server, one.epoch, 60);
    other.table.renew(other.epoch, NodeState::default(), &[]).unwrap();
    assert_eq!(server.run("SELECT count(*) FROM millrace_cluster.traffic_room"), "0");
    one.number += 1;
    assert_eq!(one.repeat(&telling(1, 1)), None);
    assert_eq!(week(&other.tell(0, 0)).down, week(&before).down);
    // It tells it under its next registration, with its number and the name of its process.
    let origin = one.epoch.0;
    one.epoch = one.table.register(&entry("one"), None, &[]).unwrap();
    let turn = TrafficTurn { epoch: one.epoch, origin, number: one.number };
    for _ in 0..2 {
        let answers = one.table.share_traffic(turn, &[telling(1, 1)]).unwrap().unwrap();
        assert_eq!(week(&answers[0]).down, week(&before).down + 1);
    }
}

#[test]
fn each_period_begins_anew_by_the_clock_of_the_database() {
    let Some(server) = Postgres::new() else { return };
    let mut node = Teller::new(&server, "one");
    let downs = |answer: TrafficAnswer| {
        let [day, week, month] = answer.counts.periods.map(|bytes| bytes.down);
        (day, week, month, answer.counts.ever.down)
    };
    assert_eq!(downs(node.tell(100, 0)), (100, 100, 100, 100));
    let today = server.run("SELECT (now() AT TIME ZONE 'UTC')::date - date '1970-01-01'");
    let today: i64 = today.parse().unwrap();
    assert_eq!(node.tell(0, 0).counts.day, today);
    // As if it had been told so many days ago: whether that is another week or month depends on today.
    for days in [1, 7, 40] {
        server.run(&format!(
            "UPDATE millrace_cluster.traffic SET moved = '{{1,100,1,100,1,100,1,100}}', \
             day = (now() AT TIME ZONE 'UTC')::date - {days}"
        ));
        let begun = |unit: &str| {
            server.run(&format!(
                "SELECT date_trunc('{unit}', now() AT TIME ZONE 'UTC') > \
                 date_trunc('{unit}', now() AT TIME ZONE 'UTC' - interval '{days} d')"
            )) == "t"
        };
        let left = |unit| if begun(unit) { 3 } else { 103 };
        assert_eq!(downs(node.tell(3, 0)), (3, left("week"), left("month"), 103), "{days} days");
    }
    // A clock that was put back restarts nothing.
    server.run("UPDATE millrace_cluster.traffic SET day = day + 1, moved = '{1,100,1,100,1,100,1,100}'");
    assert_eq!(downs(node.tell(3, 0)), (103, 103, 103, 103));
}

#[test]
fn what_nodes_had_counted_before_they_shared_is_added_to_the_periods_that_still_last() {
    let Some(server) = Postgres::new() else { return };
    let mut nodes = [Teller::new(&server, "one"), Teller::new(&server, "other")];
    let bytes = |down| MovedBytes { up: 1, down };
    let today = wall_seconds().div_euclid(86_400);
    for (node, day) in nodes.iter_mut().zip([today, today - 400]) {
        let before = TrafficCounts {
            day,
            periods: [bytes(10), bytes(20), bytes(30)],
            ever: bytes(1000),
            is_shared: false,
        };
        node.number += 1;
        node.repeat(&TrafficTelling { before: Some(before), ..telling(1, 0) }).unwrap();
    }
    let counts = nodes[0].tell(0, 0).counts;
    assert_eq!(counts.periods.map(|bytes| bytes.down), [12, 22, 32]);
    assert_eq!(counts.ever, MovedBytes { up: 3 * 5 + 2, down: 2002 });
}

#[test]
fn each_way_has_its_room_and_a_ratio_and_both_ways_together_too() {
    let Some(server) = Postgres::new() else { return };
    let mut node = Teller::new(&server, "one");
    let day = |bytes| Some(Per { bytes, period: Period::Day });
    let mut room = |quota, down, credit| {
        node.number += 1;
        let moved = Since { up: 0, down, credit };
        let wish = MovedBytes { up: MOST, down: MOST };
        node.repeat(&TrafficTelling { moved, quota, wish, ..telling(0, 0) }).unwrap().room
    };
    let ratio = Some(Ratio { upload: 1, download: 3 });
    let none = CurrentQuota::default();
    assert_eq!(room(CurrentQuota { ratio, ..none }, 0, 0).down, 0);
    assert_eq!(room(CurrentQuota { ratio, ..none }, 0, 1000).down, 3000);
    assert_eq!(room(CurrentQuota { ratio, ..none }, 3000, 0).down, 0);
    let both = room(CurrentQuota { total: day(83_000), ..none }, 0, 0);
    assert_eq!((both.up, both.down), (65_536, 83_000 - 3000 - 65_536), "what goes has what is left");
    let each = room(CurrentQuota { upload: day(800_000), download: day(8_003_000), ..none }, 0, 0);
    assert_eq!((each.up, each.down), (100_000, 1_000_000));
}

/// A user with a download quota, at a node.
fn user(server: &Arc<Server>, download: &str) -> Moved {
    let quota = TransferQuota { download: download.parse().unwrap(), ..TransferQuota::default() };
    Moved { quota: Arc::new(quota), traffic: server.quotas.traffic("ann") }
}

#[test]
fn transfers_at_three_nodes_move_all_of_a_quota_and_no_byte_more() {
    let Some(server) = Postgres::new() else { return };
    let nodes = ["one", "two", "three"].map(|name| node(&server, name));
    let (sum, waited) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for (_, member) in &nodes {
            let moved = user(member, &format!("{MOST}/day"));
            let (sum, waited) = (&sum, &waited);
            scope.spawn(move || {
                while let Ok(piece) = moved.reserve(Direction::Download, wall_seconds(), 1 << 20) {
                    let unused = piece / 10;
                    moved.give_back(Direction::Download, unused);
                    let all = sum.fetch_add(piece - unused, Ordering::Relaxed) + piece - unused;
                    assert!(all <= MOST, "{all}");
                    if piece == 0 {
                        waited.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), MOST);
    assert!(waited.into_inner() >= 3);
    let told = || server.run("SELECT moved[2], moved[8] FROM millrace_cluster.traffic");
    eventually("all is told", || told() == format!("{MOST}|{MOST}"));
    eventually("no room is left", || server.run("SELECT count(*) FROM millrace_cluster.traffic_room") == "0");
}

#[test]
fn while_the_database_is_away_no_transfer_waits_and_what_moved_is_told_later() {
    let Some(mut server) = Postgres::new() else { return };
    let (_node, member) = node(&server, "one");
    let moved = user(&member, "50M/day");
    let reserve = || moved.reserve(Direction::Download, wall_seconds(), 1 << 20);
    eventually("it has room", || reserve().unwrap() > 0);
    server.daemon.kill();
    let mut taken = 0;
    eventually("it is noticed, and all of the quota may go", || match reserve() {
        Ok(piece) => {
            taken += piece;
            false
        }
        Err(_) => true,
    });
    assert!(taken > 40_000_000, "{taken}");
    server.start();
    let told = "SELECT moved[2] FROM millrace_cluster.traffic";
    eventually("it is told", || server.run(told) == "50000000");
    let (_late, there) = node(&server, "late");
    let moved = user(&there, "50M/day");
    eventually("another node knows it", || moved.check(Direction::Download, wall_seconds()).is_err());
}

#[test]
fn a_node_that_ends_has_told_all() {
    let Some(server) = Postgres::new() else { return };
    let (cluster, member) = node(&server, "one");
    let moved = user(&member, "50M/day");
    moved.count(Direction::Download, 1000);
    moved.count(Direction::Upload, 10);
    cluster.leave();
    assert_eq!(server.run("SELECT moved[1], moved[2] FROM millrace_cluster.traffic"), "10|1000");
    assert_eq!(server.run("SELECT count(*) FROM millrace_cluster.node"), "0");
}

#[test]
fn what_the_database_refuses_of_one_step_keeps_no_other_from_being_taken() {
    let Some(server) = Postgres::new() else { return };
    let (_one, here) = node(&server, "one");
    server.run(
        "CREATE OR REPLACE FUNCTION millrace_cluster.change_bans(mine bigint, networks text[], users bytea[], \
         seconds double precision[], lifts boolean[]) RETURNS boolean LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'no'; END $$",
    );
    assert!(here.bans.ban("192.0.2.0/24".parse().unwrap(), None));
    eventually("it is refused", || here.told.lock().unwrap().iter().any(|text| text.contains("refuses it")));
    let told = here.told.lock().unwrap().join("\n");
    assert!(told.contains("what does not need it goes on") && !told.contains("logins that need"), "{told}");
    for _ in 0..3 {
        here.bans.failed("198.51.100.1".parse().unwrap(), b"ann", std::time::Instant::now());
    }
    eventually("failures are told none the less", || {
        server.run("SELECT count(*) > 0 FROM millrace_cluster.failure") == "t"
    });
}
