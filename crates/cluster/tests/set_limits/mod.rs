//! Limits that are set for all nodes.

use millrace_cluster::LimitTable;
use millrace_limits::Limits;

use super::*;

/// Limits on downloads and sessions; an empty text for none.
fn limits(download: &str, sessions: &str) -> Limits {
    let limit = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    Limits { download: limit(download), sessions: limit(sessions), ..Limits::default() }
}

#[test]
fn limits_that_are_set_at_one_node_are_of_all_until_they_are_restored() {
    let Some(mut server) = Postgres::new() else { return };
    let ((one, here), (_other, there)) = (node(&server, "one"), node(&server, "other"));
    let user: Scope = "user ann, of Paris".parse().unwrap();
    let set = |scope: &Scope, limits: &Limits, restores| {
        one.set_limits(scope, limits, restores, |set| here.use_limits(set))
    };
    let of = |member: &Server| member.limits.lock().unwrap().clone();
    assert!(set(&user, &limits("10k; sat,sun 08:00-18:00 UTC none", ""), false).unwrap());
    assert!(set(&user, &limits("", "3"), false).unwrap());
    assert!(set(&Scope::Server, &limits("5M", ""), false).unwrap());
    let all = ["server 5000000 - -", "user ann, of Paris 10000; sat,sun 08:00-18:00 UTC none - 3"];
    assert_eq!(of(&here), all, "at once");
    assert!(one.has_limits(&user) && !one.has_limits(&"user bob".parse().unwrap()));
    eventually("the other has them", || of(&there) == all);
    let (_late, joined) = node(&server, "late");
    assert_eq!(of(&joined), all, "before it lets clients in");

    server.daemon.kill();
    eventually("the node notices", || {
        matches!(set(&user, &limits("1", ""), false), Err(TableError::Away(_)))
    });
    server.start();
    eventually("it is back", || set(&user, &limits("1", ""), true).is_ok());
    assert_eq!(of(&here), ["server 5000000 - -", "user ann, of Paris 1 - -"], "a crash forgets none");
    assert!(set(&Scope::Server, &Limits::default(), true).unwrap());
    assert!(set(&user, &Limits::default(), true).unwrap());
    eventually("none is left", || of(&here).is_empty() && of(&there).is_empty() && of(&joined).is_empty());
}

#[test]
fn limits_of_which_there_are_enough_or_that_cannot_be_read_are_told_of() {
    let Some(server) = Postgres::new() else { return };
    let (_node, member) = node(&server, "one");
    let table = table(&server);
    let group = |number: u32| Scope::Group(format!("g{number}").into());
    let bounds = limits("1M", "");
    assert!((0..256).all(|number| table.set_limits(&group(number), &bounds, false).unwrap()));
    assert!(!table.set_limits(&group(256), &bounds, false).unwrap());
    assert!(table.set_limits(&group(255), &limits("2M", ""), false).unwrap(), "it has some");
    assert!(table.set_limits(&group(0), &Limits::default(), true).unwrap());
    assert!(table.set_limits(&group(256), &bounds, true).unwrap());
    server.run("DELETE FROM millrace_cluster.set_limit WHERE scope <> 'group g255'");
    server.run("INSERT INTO millrace_cluster.set_limit (scope, upload) VALUES ('server', '9Q')");
    eventually("the node has what it can read", || {
        let limits = member.limits.lock().unwrap();
        limits.len() == 2
            && limits[0] == "group g255 2000000 - -"
            && limits[1].contains("limits of server that are set")
    });
}
