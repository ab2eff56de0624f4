//! Logins of browsers that are told to the database, and executed there long after.

use std::process::Command;

use millrace_cluster::{BrowserLogin, LoginEnd, LoginLifetime, LoginUse, TableError};

use super::*;

const LIFETIME: LoginLifetime = LoginLifetime { idle: PATIENT, longest: Duration::from_secs(3600) };
const NAME: &str = "of-the-node-that-waits";

fn login(user: &str) -> BrowserLogin {
    BrowserLogin { user: Some(user.to_owned()), detail: "{}".to_owned(), age: Duration::ZERO }
}

fn is_known(table: &PostgresTable, hash: &str) -> bool {
    let usage = LoginUse { unused: None, is_use: false };
    table.find_login(hash, LIFETIME, usage).unwrap().is_some()
}

/// The process of the database that serves the node that waits, if there is one.
fn backend(server: &Postgres) -> String {
    server.run(&format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{NAME}'"))
}

fn signal(process: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
}

#[test]
fn a_login_that_the_database_keeps_late_does_not_outlive_an_end_meanwhile() {
    let Some(server) = Postgres::new() else { return };
    let other = table(&server);
    other.register(&entry("other"), None, &[]).unwrap();
    for end in [LoginEnd::Hash("cookie".to_owned()), LoginEnd::User("ann".to_owned())] {
        let mut config: Config = server.connection().parse().unwrap();
        config.application_name(NAME);
        let slow = PostgresTable::new(Arc::new(Way(config)), SECOND).unwrap();
        // Its connection is there before the database stops.
        assert!(!is_known(&slow, "cookie"));
        let process = backend(&server);
        signal(&process, "-STOP");
        let told = slow.keep_login("cookie", &login("ann"), LIFETIME);
        other.end_logins(&end, Duration::ZERO, LIFETIME).unwrap();
        signal(&process, "-CONT");
        assert!(matches!(told, Err(TableError::TimedOut(_))), "{told:?}");
        eventually("what was sent is executed", || backend(&server).is_empty());
        assert!(!is_known(&other, "cookie"), "{end:?}");
        server.run("DELETE FROM millrace_cluster.browser_login_end");
    }
}

#[test]
fn what_ends_a_login_goes_by_when_that_began_and_not_by_when_it_is_executed() {
    let Some(server) = Postgres::new() else { return };
    let table = table(&server);
    table.register(&entry("one"), None, &[]).unwrap();
    let keep = |hash: &str, user: &str, begun: &str| {
        server.run(&format!(
            "SELECT millrace_cluster.keep_login_begun('{hash}', '{user}', '{{}}', now() - interval '{begun}', 3600)"
        ))
    };
    let ended = |kind: &str, value: &str, until: &str| {
        server.run(&format!(
            "SELECT millrace_cluster.end_logins_begun('{kind}', '{value}', now() - interval '{until}', 3600)"
        ))
    };
    ended("user", "ann", "10 s");
    assert_eq!(keep("before", "ann", "20 s"), "f", "as if it had waited for 20 seconds");
    assert_eq!(keep("behind", "ann", "5 s"), "t");
    assert_eq!(keep("old", "bob", "2 h"), "f", "its end may be forgotten");
    // An end that is executed late leaves out what has begun behind it.
    ended("user", "ann", "10 s");
    assert!(is_known(&table, "behind") && !is_known(&table, "before"));
    ended("user", "ann", "1 s");
    assert!(!is_known(&table, "behind"));
    // A cookie is never used again, whatever the times say.
    ended("hash", "gone", "10 s");
    assert_eq!(keep("gone", "ann", "0 s"), "f");
    // As an older program tells it.
    let old = "SELECT millrace_cluster.keep_login('gone', 'ann', '{}', 0, 3600)";
    assert_eq!(server.run(old), "f");
    server.run("SELECT millrace_cluster.end_logins('user', 'carl', 0, 3600)");
    assert_eq!(server.run("SELECT millrace_cluster.keep_login('new', 'carl', '{}', 10, 3600)"), "f");
    assert_eq!(server.run("SELECT millrace_cluster.keep_login('new', 'dora', '{}', 10, 3600)"), "t");
}
