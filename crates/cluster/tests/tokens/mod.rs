//! The tokens of the admin API, as the database keeps them.

use std::process::Command;

use millrace_cluster::{Asker, SharedToken, TokenEdition, TokenKeeping, TokenTable};

use super::*;

const NAME: &str = "of-the-node-that-waits";

fn token(name: &str, sha256: &str) -> SharedToken {
    let (name, sha256) = (name.to_owned(), sha256.to_owned());
    SharedToken { name, role: "viewer".to_owned(), sha256, created: 1, expires: Some(u64::MAX) }
}

fn pull(table: &PostgresTable) -> (TokenEdition, Vec<SharedToken>) {
    table.pull_tokens(Asker::Order, None).unwrap().unwrap()
}

#[test]
fn a_token_is_kept_once_and_its_removal_is_for_good() {
    let Some(server) = Postgres::new() else { return };
    let table = table(&server);
    table.register(&entry("one"), None, &[]).unwrap();
    let (none, tokens) = pull(&table);
    assert!(tokens.is_empty() && !none.tables.is_empty());
    assert!(table.pull_tokens(Asker::Order, Some(&none)).unwrap().is_none(), "it is known");

    assert_eq!(table.keep_token(Asker::Order, &token("ann", "a1")).unwrap(), TokenKeeping::Kept);
    let (first, tokens) = pull(&table);
    // The database has no number as large.
    let expires = Some(i64::MAX as u64);
    assert_eq!(tokens, [SharedToken { expires, ..token("ann", "a1") }]);
    assert!(first.revision > none.revision && first.tables == none.tables);
    assert_eq!(table.keep_token(Asker::Order, &token("ann", "a1")).unwrap(), TokenKeeping::Kept);
    assert_eq!(table.keep_token(Asker::Order, &token("ann", "a2")).unwrap(), TokenKeeping::Taken);
    assert_eq!(pull(&table).0, first, "nothing has changed");

    table.remove_token("a1").unwrap();
    table.remove_token("a1").unwrap();
    assert!(pull(&table).1.is_empty() && pull(&table).0.revision > first.revision);
    assert_eq!(table.keep_token(Asker::Order, &token("ann", "a1")).unwrap(), TokenKeeping::Removed);
    // Of what was removed before it was told, too.
    table.remove_token("b1").unwrap();
    assert_eq!(table.keep_token(Asker::Order, &token("bob", "b1")).unwrap(), TokenKeeping::Removed);
    assert_eq!(table.keep_token(Asker::Order, &token("ann", "a2")).unwrap(), TokenKeeping::Kept);

    server.run(
        "INSERT INTO millrace_cluster.token SELECT 't' || n, 'viewer', 't' || n, 1, NULL FROM generate_series(1, 254) n;
         INSERT INTO millrace_cluster.token_removal SELECT 'r' || n, now() FROM generate_series(1, 5000) n",
    );
    assert_eq!(table.keep_token(Asker::Order, &token("bob", "b2")).unwrap(), TokenKeeping::Kept);
    assert_eq!(table.keep_token(Asker::Order, &token("eve", "e1")).unwrap(), TokenKeeping::Full);
    table.remove_token("t1").unwrap();
    assert_eq!(server.run("SELECT count(*) FROM millrace_cluster.token_removal"), "4096");
    assert_eq!(
        table.keep_token(Asker::Order, &token("t1", "t1")).unwrap(),
        TokenKeeping::Removed,
        "the newest are kept"
    );
}

#[test]
fn of_nodes_that_make_a_name_at_once_one_gets_it() {
    let Some(server) = Postgres::new() else { return };
    let tables: Vec<_> = (0..6).map(|_| table(&server)).collect();
    tables[0].register(&entry("one"), None, &[]).unwrap();
    for round in 0..10 {
        let kept = thread::scope(|scope| {
            let keep = |(number, table)| {
                let token = token(&format!("name {round}"), &format!("{round} {number}"));
                scope.spawn(move || PostgresTable::keep_token(table, Asker::Order, &token).unwrap())
            };
            let threads: Vec<_> = tables.iter().enumerate().map(keep).collect();
            let kept = threads.into_iter().map(|thread| thread.join().unwrap());
            kept.filter(|kept| *kept == TokenKeeping::Kept).count()
        });
        assert_eq!(kept, 1, "round {round}");
    }
    assert_eq!(pull(&tables[0]).1.len(), 10);
}

#[test]
fn a_token_that_the_database_keeps_late_does_not_come_back_behind_its_removal() {
    let Some(server) = Postgres::new() else { return };
    let other = table(&server);
    other.register(&entry("other"), None, &[]).unwrap();
    let mut config: Config = server.connection().parse().unwrap();
    config.application_name(NAME);
    let slow = PostgresTable::new(Arc::new(Way(config)), SECOND).unwrap();
    // Its connection is there before the database stops.
    pull(&slow);
    let backend =
        || server.run(&format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{NAME}'"));
    let process = backend();
    let signal =
        |signal: &str| assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    signal("-STOP");
    let told = slow.keep_token(Asker::Order, &token("ann", "a1"));
    assert_eq!(
        other.keep_token(Asker::Order, &token("ann", "a1")).unwrap(),
        TokenKeeping::Kept,
        "told once more"
    );
    other.remove_token("a1").unwrap();
    signal("-CONT");
    assert!(matches!(told, Err(TableError::TimedOut(_))), "{told:?}");
    eventually("what was sent is executed", || backend().is_empty());
    assert!(pull(&other).1.is_empty());
}
