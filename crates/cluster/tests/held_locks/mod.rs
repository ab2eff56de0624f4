//! Another client of the database that holds a lock and does not end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use millrace_cluster::TableError;

use super::*;

/// The lock of bans, and that of a node which makes the tables.
const BANS: &str = "1835625472, 0";
const MIGRATION: &str = "7883951835653825637";

/// A client in a transaction that holds a lock.
struct Stuck(Child);

impl Stuck {
    fn new(server: &Postgres, lock: &str) -> Self {
        let mut psql = server.daemon.command(&server.psql);
        psql.args(server.to_reach()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.spawn().unwrap();
        let statements = format!("BEGIN; SELECT pg_advisory_xact_lock({lock}); SELECT 'held';\n");
        child.stdin.as_mut().unwrap().write_all(statements.as_bytes()).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "held"));
        Self(child)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_lock_that_another_client_holds_costs_only_what_needs_it_and_no_connections() {
    let Some(server) = Postgres::new() else { return };
    let one = table(&server);
    let epoch = one.register(&entry("one"), None, &[]).unwrap();
    let stuck = Stuck::new(&server, BANS);
    let ban = SharedBan { network: "192.0.2.7/32".parse().unwrap(), user: None };
    let begun = Instant::now();
    let pushed = one.push_bans(epoch, &[BanChange::Banned(ban.clone(), None)]);
    assert!(matches!(pushed, Err(TableError::Locked(_))), "{pushed:?}");
    assert!(begun.elapsed() < PATIENT / 2);
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    assert_eq!(server.run(waiting), "0");
    assert_eq!(one.take(epoch, &[claim(SharedScope::server(), 7)]).unwrap(), Taking::Taken);
    assert_eq!(one.renew(epoch, NodeState::default(), &[]).unwrap(), Renewal::Kept);
    drop(stuck);
    eventually("the lock is free", || one.push_bans(epoch, &[BanChange::Banned(ban.clone(), None)]).is_ok());
}

#[test]
fn making_the_tables_may_take_longer_than_another_question() {
    const TIME: Duration = Duration::from_secs(2);
    let Some(server) = Postgres::new() else { return };
    let config = server.connection().parse().unwrap();
    let one = PostgresTable::new(Arc::new(Way(config)), TIME).unwrap();
    let (stuck, begun) = (Stuck::new(&server, MIGRATION), Instant::now());
    thread::scope(|scope| {
        let registered = scope.spawn(|| one.register(&entry("one"), None, &[]));
        eventually("a question would be given up", || begun.elapsed() > TIME * 3 / 2);
        assert_eq!(server.run("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"), "1");
        drop(stuck);
        registered.join().unwrap().unwrap();
    });
}
