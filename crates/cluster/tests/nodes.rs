//! A cluster in a real PostgreSQL: places, fencing, bans, and what becomes of nodes while the database is away.

#[path = "audits/mod.rs"]
mod audits;
#[path = "browser_logins/mod.rs"]
mod browser_logins;
#[path = "../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
#[path = "events/mod.rs"]
mod events;
#[path = "failures/mod.rs"]
mod failures;
#[path = "held_locks/mod.rs"]
mod held_locks;
#[path = "logins/mod.rs"]
mod logins;
#[path = "../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;
#[path = "quotas/mod.rs"]
mod quotas;
#[path = "routes/mod.rs"]
mod routes;
#[path = "secrets/mod.rs"]
mod secrets;
#[path = "set_limits/mod.rs"]
mod set_limits;
#[path = "tokens/mod.rs"]
mod tokens;
#[path = "transfers/mod.rs"]
mod transfers;
#[path = "uploads/mod.rs"]
mod uploads;

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_cluster::{
    Asker, BanChange, Claim, Cluster, DataRoute, Epoch, Member, NodeEntry, NodeState, Place, PlaceError,
    PostgresTable, Renewal, SetLimits, SharedBan, SharedScope, SharedSecret, Table, TableError, Taking,
    Timing, TokenTable,
};
use millrace_limits::{
    BanReport, BanRules, Bans, Direction, Limit, LoginRates, Logins, NetworkBits, Quotas, RateDemand, Scope,
    SharedRate,
};
use millrace_storage::{Connecting, Ledger, PostgresServer};
use postgresql::Postgres;
use tokio_postgres::{Config, NoTls};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(30);

/// The way to a database without TLS.
#[derive(Debug)]
struct Way(Config);

impl PostgresServer for Way {
    fn place(&self) -> String {
        String::new()
    }

    fn connect(&self) -> Connecting {
        let config = self.0.clone();
        Box::pin(async move {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        })
    }
}

fn table(server: &Postgres) -> PostgresTable {
    let config = server.connection().parse().unwrap();
    PostgresTable::new(Arc::new(Way(config)), PATIENT).unwrap()
}

fn entry(name: &str) -> NodeEntry {
    NodeEntry { name: name.to_owned(), version: "1".to_owned(), lease: 6 * SECOND }
}

fn claim(scope: SharedScope, most: u64) -> Claim {
    Claim { scope, most }
}

/// Sets a node's last renewal back, as if so many seconds had passed for it alone.
fn silence(server: &Postgres, Epoch(epoch): Epoch, seconds: u32) {
    server.run(&format!(
        "UPDATE millrace_cluster.node SET renewed = renewed - interval '{seconds} s' WHERE epoch = {epoch}"
    ));
}

/// Lets the database have been up for long.
fn end_grace(server: &Postgres) {
    server.run("UPDATE millrace_cluster.pulse SET spare_until = '-infinity'");
}

fn held(server: &Postgres) -> String {
    server.run("SELECT coalesce(sum(places), 0) FROM millrace_cluster.held")
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENT;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_tables_are_made_once_and_those_of_a_later_version_are_used_as_far_as_that_allows() {
    let Some(server) = Postgres::new() else { return };
    let tables: Vec<_> = (0..8).map(|_| table(&server)).collect();
    let epochs: HashSet<Epoch> = thread::scope(|scope| {
        let register =
            |table| scope.spawn(move || PostgresTable::register(table, &entry("one"), None, &[]).unwrap());
        let threads: Vec<_> = tables.iter().map(register).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(epochs.len(), 8);
    assert_eq!(server.run("SELECT steps FROM millrace_cluster.form"), "19");
    // A later program has added to them.
    server.run("UPDATE millrace_cluster.form SET steps = 99");
    table(&server).register(&entry("one"), None, &[]).unwrap();
    assert_eq!(server.run("SELECT steps FROM millrace_cluster.form"), "99");
    // And one has changed what is used here.
    server.run("UPDATE millrace_cluster.form SET oldest = 99");
    let error = table(&server).register(&entry("one"), None, &[]).unwrap_err();
    assert_eq!(error.to_string(), "the tables of the cluster are of a later version of Millrace");
}

#[test]
fn of_three_hundred_logins_over_three_nodes_exactly_as_many_find_a_place_as_there_are() {
    let Some(server) = Postgres::new() else { return };
    let nodes: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            let table = table(&server);
            let epoch = table.register(&entry(name), None, &[]).unwrap();
            (table, epoch)
        })
        .into();
    let user = |index: usize| SharedScope::user(format!("user {}", index % 10).as_bytes());
    for round in 0..3 {
        let taken: Vec<usize> = thread::scope(|scope| {
            let logins = (0..300).map(|index| {
                let (table, epoch) = &nodes[index % 3];
                let claims = [claim(SharedScope::server(), 7), claim(user(index), 2)];
                scope.spawn(move || (table.take(*epoch, &claims).unwrap() == Taking::Taken).then_some(index))
            });
            let logins: Vec<_> = logins.collect();
            logins.into_iter().filter_map(|login| login.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 7, "round {round}");
        for name in 0..10 {
            assert!(taken.iter().filter(|index| **index % 10 == name).count() <= 2);
        }
        for (number, (table, epoch)) in nodes.iter().enumerate() {
            let mine = || taken.iter().filter(|index| **index % 3 == number);
            let mut freed = vec![(SharedScope::server(), mine().count() as u64)];
            let users: HashSet<SharedScope> = mine().map(|index| user(*index)).collect();
            freed.extend(users.into_iter().map(|scope| {
                let count = mine().filter(|index| user(**index) == scope).count();
                (scope, count as u64)
            }));
            freed.sort();
            assert_eq!(table.renew(*epoch, NodeState::default(), &freed).unwrap(), Renewal::Kept);
        }
        assert_eq!(server.run("SELECT count(*) FROM millrace_cluster.held"), "0");
    }
}

#[test]
fn a_node_that_was_silent_for_longer_than_its_lease_loses_its_places_and_writes_nothing_more() {
    let Some(server) = Postgres::new() else { return };
    let (dead, other) = (table(&server), table(&server));
    let epoch = dead.register(&entry("dead"), None, &[]).unwrap();
    let others = other.register(&entry("other"), None, &[]).unwrap();
    end_grace(&server);
    let claims = [claim(SharedScope::server(), 1)];
    assert_eq!(dead.take(epoch, &claims).unwrap(), Taking::Taken);
    assert_eq!(other.take(others, &claims).unwrap(), Taking::Full(0));
    silence(&server, epoch, 1);
    let renew = || other.renew(others, NodeState::default(), &[]).unwrap();
    assert_eq!(renew(), Renewal::Kept);
    assert_eq!(
        other.take(others, &claims).unwrap(),
        Taking::Full(0),
        "its lease holds for another five seconds"
    );

    silence(&server, epoch, 6);
    let more = [claim(SharedScope::user(b"ann"), 1)];
    assert_eq!(dead.take(epoch, &more).unwrap(), Taking::Fenced, "its lease is over, if not yet taken");
    assert_eq!(other.take(others, &claims).unwrap(), Taking::Full(0), "until then its places count");
    assert_eq!(renew(), Renewal::Kept);
    assert_eq!(other.take(others, &claims).unwrap(), Taking::Taken);

    let ban = SharedBan { network: "192.0.2.1".parse().unwrap(), user: None };
    let bans = [BanChange::Banned(ban, None)];
    assert_eq!(dead.take(epoch, &more).unwrap(), Taking::Fenced);
    assert_eq!(dead.renew(epoch, NodeState::default(), &[]).unwrap(), Renewal::Fenced);
    assert_eq!(dead.push_bans(epoch, &bans).unwrap(), Renewal::Fenced);
    assert_eq!(other.pull_bans(0).unwrap().changes, []);
    assert_eq!(held(&server), "1");

    let again = dead.register(&entry("dead"), None, &[(SharedScope::server(), 1)]).unwrap();
    assert!(again > others && others > epoch);
    assert_eq!(held(&server), "2", "a session that runs is counted, whatever the limit is");
}

#[test]
fn a_lease_that_is_over_may_be_renewed_while_no_other_node_has_taken_it() {
    let Some(server) = Postgres::new() else { return };
    let table = table(&server);
    let epoch = table.register(&entry("alone"), None, &[]).unwrap();
    silence(&server, epoch, 60);
    assert_eq!(table.take(epoch, &[claim(SharedScope::server(), 1)]).unwrap(), Taking::Fenced);
    assert_eq!(table.renew(epoch, NodeState::default(), &[]).unwrap(), Renewal::Kept);
    assert_eq!(table.take(epoch, &[claim(SharedScope::server(), 1)]).unwrap(), Taking::Taken);
}

#[test]
fn after_the_database_was_away_from_all_nodes_none_loses_its_places_before_it_can_speak() {
    let Some(server) = Postgres::new() else { return };
    let (one, other) = (table(&server), table(&server));
    let silent = one.register(&entry("one"), None, &[(SharedScope::server(), 1)]).unwrap();
    let first = other.register(&entry("other"), None, &[]).unwrap();
    end_grace(&server);
    server.run("UPDATE millrace_cluster.node SET renewed = renewed - interval '60 s'");
    server.run("UPDATE millrace_cluster.pulse SET heard = heard - interval '60 s'");
    assert_eq!(other.renew(first, NodeState::default(), &[]).unwrap(), Renewal::Kept);
    assert_eq!(other.take(first, &[claim(SharedScope::server(), 1)]).unwrap(), Taking::Full(0));
    assert_eq!(one.renew(silent, NodeState::default(), &[]).unwrap(), Renewal::Kept);
    // One that does not come back is given up after that.
    silence(&server, silent, 60);
    end_grace(&server);
    assert_eq!(other.renew(first, NodeState::default(), &[]).unwrap(), Renewal::Kept);
    assert_eq!(one.renew(silent, NodeState::default(), &[]).unwrap(), Renewal::Fenced);
}

#[test]
fn a_registration_that_replaces_another_ends_it_with_its_places() {
    let Some(server) = Postgres::new() else { return };
    let table = table(&server);
    let scope = SharedScope::address("192.0.2.1".parse().unwrap());
    let epoch = table.register(&entry("one"), None, &[(scope.clone(), 3)]).unwrap();
    let next = table.register(&entry("one"), Some(epoch), &[(scope.clone(), 2)]).unwrap();
    assert_eq!(held(&server), "2");
    assert_eq!(table.take(epoch, &[claim(scope.clone(), 9)]).unwrap(), Taking::Fenced);
    assert_eq!(table.take(next, &[claim(scope, 2)]).unwrap(), Taking::Full(0));
    table.leave(next).unwrap();
    assert_eq!((held(&server), table.nodes(Asker::Order).unwrap()), ("0".to_owned(), Vec::new()));
}

#[test]
fn a_crash_of_the_database_takes_nodes_and_places_together_and_leaves_bans_and_epochs() {
    let Some(mut server) = Postgres::new() else { return };
    let table = table(&server);
    let epoch = table.register(&entry("one"), None, &[(SharedScope::server(), 3)]).unwrap();
    let ban = SharedBan { network: "192.0.2.1".parse().unwrap(), user: Some(b"a\xffb".to_vec()) };
    table.push_bans(epoch, &[BanChange::Banned(ban.clone(), None)]).unwrap();
    server.daemon.kill();
    server.start();
    assert_eq!(held(&server), "0");
    eventually("an old connection is given up", || {
        table.renew(epoch, NodeState::default(), &[]).is_ok_and(|renewal| renewal == Renewal::Fenced)
    });
    let next = table.register(&entry("one"), None, &[]).unwrap();
    assert!(next > epoch);
    let claims = [claim(SharedScope::server(), 9)];
    assert_eq!(table.take(next, &claims).unwrap(), Taking::Closed, "the others register first");
    server.run("UPDATE millrace_cluster.pulse SET closed_until = clock_timestamp()");
    assert_eq!(table.take(next, &claims).unwrap(), Taking::Taken);
    let pulled = table.pull_bans(0).unwrap();
    assert_eq!(pulled.changes, [BanChange::Banned(ban.clone(), None)]);
    assert_eq!(table.pull_bans(pulled.edition).unwrap().changes, []);
}

/// A server with bans, and what its operator was told.
struct Server {
    bans: Bans,
    quotas: Arc<Quotas>,
    logins: Logins,
    told: std::sync::Mutex<Vec<String>>,
    secrets: std::sync::Mutex<Vec<[u8; 32]>>,
    limits: std::sync::Mutex<Vec<String>>,
    route: Option<DataRoute>,
    routes: std::sync::Mutex<Vec<DataRoute>>,
}

impl Member for Server {
    fn state(&self) -> NodeState {
        NodeState { sessions: 3, is_draining: false }
    }

    fn bans(&self) -> &Bans {
        &self.bans
    }

    fn logins(&self) -> &Logins {
        &self.logins
    }

    fn quotas(&self) -> Option<Arc<Quotas>> {
        Some(Arc::clone(&self.quotas))
    }

    fn use_secrets(&self, secrets: &[SharedSecret]) {
        *self.secrets.lock().unwrap() = secrets.iter().map(|secret| secret.bytes).collect();
    }

    fn note_ban(&self, ban: &BanReport) {
        self.told.lock().unwrap().push(format!("banned {}", ban.network));
    }

    fn warn(&self, text: &str) {
        self.told.lock().unwrap().push(text.to_owned());
    }

    fn demands(&self) -> Vec<RateDemand> {
        Vec::new()
    }

    fn grant(&self, parts: &[(SharedRate, u64)]) {
        assert!(parts.is_empty());
    }

    fn data_route(&self) -> Option<DataRoute> {
        self.route.clone()
    }

    fn use_data_routes(&self, routes: Vec<DataRoute>) {
        *self.routes.lock().unwrap() = routes;
    }

    fn exchange_tokens(&self, _: &dyn TokenTable) -> Result<(), TableError> {
        Ok(())
    }

    fn use_limits(&self, set: &SetLimits) {
        let texts = set.limits.iter().map(|(scope, limits)| {
            let text = |limit: &Option<_>| limit.as_ref().map_or("-".to_owned(), Limit::to_string);
            let [down, up, most] = [&limits.download, &limits.upload, &limits.sessions].map(text);
            format!("{scope} {down} {up} {most}")
        });
        *self.limits.lock().unwrap() = texts.chain(set.unread.iter().cloned()).collect();
    }

    fn perform(&self, errand: &str) -> String {
        format!("{errand}, done")
    }
}

/// Logins that are let in.
fn rates() -> LoginRates {
    let [address, user] = ["6/hour", "3/hour"].map(|rate| rate.parse().unwrap());
    LoginRates { address, user, ..LoginRates::default() }
}

fn node(server: &Postgres, name: &str) -> (Cluster, Arc<Server>) {
    node_at(server, name, None)
}

fn node_at(server: &Postgres, name: &str, route: Option<DataRoute>) -> (Cluster, Arc<Server>) {
    let config = server.connection().parse().unwrap();
    let table = PostgresTable::new(Arc::new(Way(config)), SECOND).unwrap();
    let cluster = Cluster::new(Box::new(table), entry(name), Timing::of_lease(6 * SECOND));
    let member = Arc::new(Server {
        bans: Bans::new(BanRules::default()),
        quotas: Arc::new(Quotas::new(Ledger::new(None))),
        logins: Logins::new(rates(), NetworkBits::default(), Instant::now()),
        told: Default::default(),
        secrets: Default::default(),
        limits: Default::default(),
        route,
        routes: Default::default(),
    });
    cluster.begin(Arc::clone(&member) as _).unwrap();
    (cluster, member)
}

fn take(node: &Cluster, session: u64, most: u64) -> Result<Arc<Place>, PlaceError> {
    node.take(session, b"ann", &[claim(SharedScope::server(), most)])
}

#[test]
fn sessions_keep_their_places_while_the_database_is_away_and_none_is_added() {
    let Some(mut server) = Postgres::new() else { return };
    let ((one, told), (other, _)) = (node(&server, "one"), node(&server, "other"));
    let first = take(&one, 1, 2).unwrap();
    let second = take(&other, 1, 2).unwrap();
    assert!(Arc::ptr_eq(&first, &take(&one, 1, 2).unwrap()), "the same session as the same user");
    assert!(matches!(take(&one, 2, 2), Err(PlaceError::Full(0))));

    server.daemon.kill();
    eventually("the node notices", || matches!(take(&one, 2, 2), Err(PlaceError::Away(_))));
    let start = Instant::now();
    assert!(matches!(take(&one, 2, 2), Err(PlaceError::Away(_))));
    assert!(start.elapsed() < Duration::from_millis(500), "it refuses at once");
    drop(second);
    server.start();
    eventually("both are back", || one.epoch().is_some() && other.epoch().is_some() && held(&server) == "1");
    server.run("UPDATE millrace_cluster.pulse SET closed_until = clock_timestamp()");
    let third = take(&other, 2, 2).unwrap();
    assert!(matches!(take(&one, 2, 2), Err(PlaceError::Full(0))), "the first has its place yet");
    drop((first, third));
    eventually("their places are free", || held(&server) == "0");
    eventually("the operator is told", || {
        let told = told.told.lock().unwrap();
        told.len() >= 2 && told[0].contains("are refused") && told.iter().any(|text| text.contains("again"))
    });
    one.leave();
    eventually("the other is alone", || other.nodes().is_ok_and(|nodes| nodes.len() == 1));
    let report = &other.nodes().unwrap()[0];
    assert_eq!((&*report.name, report.state.sessions, report.is_alive()), ("other", 3, true));
}

#[test]
fn parts_of_a_rate_follow_the_demand_and_are_never_more_than_the_whole() {
    let Some(server) = Postgres::new() else { return };
    let table = table(&server);
    let [one, other] = ["one", "other"].map(|name| table.register(&entry(name), None, &[]).unwrap());
    end_grace(&server);
    let share = |epoch, wanted, weight| {
        let rate = SharedRate { scope: Scope::Server, direction: Direction::Download };
        let demands = [RateDemand { rate, most: 1000, wanted, weight }];
        table.share_rates(epoch, &demands).unwrap().map(|parts| parts[0])
    };
    assert_eq!(share(one, 1000, 1), Some(1000), "it is alone");
    assert_eq!(share(other, 1000, 3), Some(0), "until the other has made room");
    assert_eq!((share(one, 1000, 1), share(other, 1000, 3)), (Some(250), Some(750)));
    assert_eq!(
        (share(one, 100, 1), share(other, 1000, 3)),
        (Some(100), Some(900)),
        "the rest is for the other"
    );
    assert_eq!((share(one, 100, 0), share(other, 1000, 3)), (Some(0), Some(1000)));
    assert_eq!(share(one, 1000, 1), Some(0));
    // The question that gives a part up may be lost: what the next does not name is given up, too.
    assert_eq!(table.share_rates(other, &[]).unwrap(), Some(Vec::new()));
    assert_eq!(share(one, 1000, 1), Some(1000));
    assert_eq!(
        (share(other, 1000, 3), share(one, 1000, 1), share(other, 1000, 3)),
        (Some(0), Some(250), Some(750))
    );
    silence(&server, other, 60);
    assert_eq!(share(other, 1000, 3), None);
    table.renew(one, NodeState::default(), &[]).unwrap();
    assert_eq!(share(one, 1000, 1), Some(1000), "a dead node has no part");
}

#[test]
fn an_errand_is_performed_once_by_each_other_node_or_by_the_one_that_is_meant() {
    let Some(server) = Postgres::new() else { return };
    let nodes = ["one", "two", "three"].map(|name| node(&server, name).0);
    // Nothing answers for it.
    table(&server).register(&entry("stuck"), None, &[]).unwrap();
    // A machine that is busy takes longer than an administrator waits.
    let told = |errand, only, expected: &[(&str, Option<&str>)]| {
        eventually("the others answer", || {
            let mut answers = nodes[0].ask_others(errand, only).unwrap_or_default();
            answers.sort_by(|one, other| one.name.cmp(&other.name));
            let told: Vec<_> = answers.iter().map(|one| (&*one.name, one.answer.as_deref())).collect();
            told == expected
        });
    };
    told("look", None, &[("stuck", None), ("three", Some("look, done")), ("two", Some("look, done"))]);
    told("go", nodes[2].epoch(), &[("three", Some("go, done"))]);
    told("go", Some(Epoch(999)), &[]);
    eventually("they are forgotten", || server.run("SELECT count(*) FROM millrace_cluster.errand") == "0");
}

#[test]
fn a_ban_at_one_node_holds_at_the_other_within_two_seconds_and_outlives_both() {
    let Some(server) = Postgres::new() else { return };
    let ((one, here), (other, there)) = (node(&server, "one"), node(&server, "other"));
    let address = "192.0.2.1".parse().unwrap();
    let start = Instant::now();
    assert!(here.bans.ban("192.0.2.0/24".parse().unwrap(), Some(start + 60 * SECOND)));
    eventually("it holds there", || there.bans.admit(address, Instant::now()).is_err());
    // And as much for a machine that is busy.
    assert!(start.elapsed() < 4 * SECOND, "{:?}", start.elapsed());
    drop((one, other));
    let (third, late) = node(&server, "third");
    assert!(late.bans.admit(address, Instant::now()).is_err(), "a new node knows it from the start");
    assert!(late.bans.list(Instant::now())[0].left.unwrap() < 61 * SECOND);
    assert!(late.bans.lift("192.0.2.0/24".parse().unwrap()));
    eventually("it is lifted for good", || {
        third.epoch().is_some() && node(&server, "x").1.bans.admit(address, Instant::now()).is_ok()
    });
}
