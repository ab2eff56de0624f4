//! Limits that an administrator sets at one node, and all hold to.

use super::postgresql::Postgres;
use super::{Client, Node, eventually, three};

/// What a node tells of the limits of a user: how many sessions there may be, and how much goes down and up.
fn limits_of(node: &Node, user: &str) -> Vec<String> {
    let list = node.ctl(&["limits", "user", user]);
    let line = list.lines().find(|line| line.starts_with("user ")).unwrap_or_default();
    line.split("  ").map(str::trim).filter(|word| !word.is_empty()).skip(2).map(str::to_owned).collect()
}

#[test]
fn limits_that_are_set_at_one_node_hold_on_all_those_that_start_later_as_well_until_they_are_restored() {
    let Some(mut database) = Postgres::new() else { return };
    let [one, mut other, third] = three(&database, "");
    let said = one.ctl(&["limits", "user", "free", "--sessions", "2", "--download", "1M"]);
    assert!(said.starts_with("no session of free is logged in"), "{said}");
    one.ctl(&["limits", "user", "free", "--download", "2M"]);
    let set = ["2", "2 MB/s", "none"];
    assert_eq!(limits_of(&one, "free"), set, "at once");
    for node in [&other, &third] {
        eventually("the others have heard", || limits_of(node, "free") == set);
    }
    let clients = [&one, &other].map(|node| node.log_in("free").unwrap());
    let refused = third.log_in("free").err().unwrap();
    assert!(refused.starts_with("421 Too many sessions of this user"), "{refused}");

    let late = Node::start(&database, "d", "", 6);
    assert_eq!(limits_of(&late, "free"), set, "before it lets clients in");
    assert!(late.ctl(&["limits"]).contains("\nSet, until restored: user free.\n"));
    drop(clients);
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    other = Node::start(&database, "b", "", 6);
    assert_eq!(limits_of(&other, "free"), set, "a restart forgets none");

    assert!(
        late.ctl(&["limits", "user", "mallory", "--download", "1M"])
            .contains("no account has the name mallory")
    );
    assert!(
        late.ctl(&["limits", "listener", "192.0.2.1:21", "--download", "1M"])
            .contains("there is no listener")
    );
    let long = "x".repeat(2048);
    assert!(
        late.ctl(&["limits", "group", &long, "--download", "1M"]).contains("have 2056 bytes, and no more")
    );

    database.daemon.kill();
    eventually("an order is refused, and changes nothing", || {
        let refused = third.ctl(&["limits", "user", "free", "--restore"]);
        refused.contains("the database of the cluster") && limits_of(&third, "free") == set
    });
    database.start();
    eventually("the database is back", || {
        third.ctl(&["limits", "user", "free", "--restore"]).starts_with("no session of free")
    });
    for node in [&one, &other, &third, &late] {
        eventually("the configured limits hold", || limits_of(node, "free") == ["none"; 3]);
        assert!(!node.ctl(&["limits"]).contains("Set, until"));
    }
}

#[test]
fn the_sessions_that_an_administrator_lets_the_server_have_are_those_of_all_nodes() {
    let Some(database) = Postgres::new() else { return };
    let [one, other] = ["a", "b"].map(|name| Node::start(&database, name, "", 6));
    assert_eq!(one.ctl(&["limits", "server", "--sessions", "2"]), "Limits updated.\n");
    eventually("the other has heard", || {
        other.ctl(&["limits", "server"]).contains("Set, until restored: server.")
    });
    let _clients = [&one, &other].map(|node| node.log_in("free").unwrap());
    let refused = other.log_in("free").err().unwrap();
    assert!(refused.starts_with("421 "), "{refused}");
    one.ctl(&["limits", "server", "--restore"]);
    eventually("it is let in", || other.log_in("free").is_ok());
}

#[test]
fn limits_of_a_session_are_set_at_its_node_by_its_number() {
    let Some(database) = Postgres::new() else { return };
    let [one, other, _] = three(&database, "");
    let mut client: Client = other.log_in("ann").unwrap();
    let list = one.ctl(&["sessions"]);
    let number =
        list.lines().find(|line| line.contains(" ann ")).unwrap().split(' ').next().unwrap().to_owned();
    let told = |node: &Node| node.ctl(&["limits", "session", &number]);
    assert!(told(&one).starts_with("nothing is set for session"), "{}", told(&one));
    assert_eq!(one.ctl(&["limits", "session", &number, "--download", "1k"]), "Limits updated.\n");
    for node in [&one, &other] {
        assert!(told(node).contains(" 1 kB/s "), "{}", told(node));
    }
    assert!(!one.ctl(&["limits"]).contains("session "), "it is of its node");
    assert!(other.log().contains("download=1k of=a"), "{}", other.log());
    let wrong = one.ctl(&["limits", "session", &number, "--download", "fast"]);
    assert!(wrong.contains("\"fast\" is not a number"), "{wrong}");
    assert!(one.ctl(&["limits", "session", &number, "--restore"]).starts_with("nothing is set"));
    client.expect("QUIT", "221");
    let missing = format!("there is no session {number}");
    eventually("it has ended", || {
        told(&one).contains(&missing) && told(&other).contains("there is no session")
    });
}
