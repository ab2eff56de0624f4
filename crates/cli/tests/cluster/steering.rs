//! Sessions of all nodes, seen and ended from any of them.

use super::postgresql::Postgres;
use super::{Client, Node, eventually, three};

/// The sessions that a node lists: number, node and user.
fn listed(node: &Node) -> Vec<[String; 3]> {
    let words = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    let list = node.ctl(&["sessions"]);
    list.lines().skip(1).filter_map(|line| words(line).try_into().ok()).collect()
}

fn has_ended(client: &mut Client) -> bool {
    client.say("NOOP").starts_with("421")
}

#[test]
fn every_node_lists_the_sessions_of_all_and_ends_any_of_them() {
    let Some(database) = Postgres::new() else { return };
    let [one, other, third] = three(&database, "");
    let (mut ann, mut bob) = (one.log_in("ann").unwrap(), other.log_in("bob").unwrap());
    let mut free: Vec<Client> = [&one, &other, &third].map(|node| node.log_in("free").unwrap()).into();
    let list = listed(&third);
    let mut seen: Vec<_> = list.iter().map(|[_, node, user]| format!("{user}@{node}")).collect();
    seen.sort();
    assert_eq!(seen, ["ann@a", "bob@b", "free@a", "free@b", "free@c"]);
    let number = |user: &str| list.iter().find(|session| session[2] == user).unwrap()[0].clone();
    assert_eq!(listed(&one).iter().find(|session| session[2] == "bob").unwrap()[0], number("bob"));

    assert_eq!(third.ctl(&["kick", "--session", &number("bob")]), "1 session ended.\n");
    assert!(has_ended(&mut bob));
    eventually("its node says who asked", || other.log().contains("kick of=c session="));
    let own = list.iter().find(|session| session[1] == "c").unwrap();
    assert_eq!(third.ctl(&["kick", "--session", &own[0]]), "1 session ended.\n");
    assert!(free.pop().is_some_and(|mut client| has_ended(&mut client)));
    eventually("it is gone", || listed(&third).iter().all(|session| session[1] != "c"));
    assert_eq!(third.ctl(&["kick", "--user", "free"]), "2 sessions ended.\n");
    assert!(free.iter_mut().all(has_ended));
    assert!(ann.say("NOOP").starts_with("200"));

    drop(free);
    eventually("the sessions are gone", || listed(&third).iter().all(|session| session[2] != "free"));
    let mut pair: Vec<Client> = [&one, &other].map(|node| node.log_in("free").unwrap()).into();
    assert_eq!(third.ctl(&["kick", "--user", "free", "--node", "b"]), "1 session ended.\n");
    assert!(has_ended(&mut pair[1]) && pair[0].say("NOOP").starts_with("200"));
    assert!(third.ctl(&["kick", "--node", "d"]).contains("the cluster has no node d that serves"));
    assert!(third.ctl(&["kick", "--session", &own[0], "--node", "a"]).contains("no session matches"));
    assert_eq!(one.ctl(&["kick", "--node", "a", "--user", "free"]), "1 session ended.\n");
    assert!(has_ended(&mut pair[0]) && ann.say("NOOP").starts_with("200"));
    drop(bob);
    eventually("the session is gone", || {
        third.ctl(&["kick", "--session", &number("bob")]).contains("no session matches")
    });

    other.signal("-STOP");
    let list = third.ctl(&["sessions"]);
    assert!(list.contains(" ann ") && list.contains("No answer of: b."), "{list}");
    other.signal("-CONT");
}

/// No other test has them.
const OWN_PORTS: &str = "passive-ports = '20550-20559'";

/// How many registrations there are.
fn registrations(node: &Node) -> usize {
    node.ctl(&["cluster"]).lines().filter(|line| line.starts_with("a ") || line.starts_with("a* ")).count()
}

#[test]
fn two_nodes_that_serve_under_one_name_are_told_of_and_an_order_to_that_name_ends_no_session() {
    let Some(database) = Postgres::new() else { return };
    let [one, third] = ["a", "c"].map(|name| Node::start(&database, name, "", 6));
    let other = Node::start(&database, "a", "", 6);
    let mut clients: Vec<Client> = [&one, &other].map(|node| node.log_in("free").unwrap()).into();
    eventually("the second says so", || other.log().contains("another node that serves is called a, too"));
    for node in [&one, &other, &third] {
        let list = node.ctl(&["cluster"]);
        assert!(list.contains("Several nodes that serve are called a: give each a name"), "{list}");
        let refused = node.ctl(&["kick", "--user", "free", "--node", "a"]);
        assert!(refused.contains("2 nodes that serve are called a: end sessions by"), "{refused}");
    }
    assert!(clients.iter_mut().all(|client| client.say("NOOP").starts_with("200")));
    assert!(!one.log().contains("is called") && !third.log().contains("is called"));

    other.signal("-TERM");
    eventually("the other has left", || registrations(&third) == 1);
    assert!(!third.ctl(&["cluster"]).contains("Several nodes"));
    assert_eq!(third.ctl(&["kick", "--user", "free", "--node", "a"]), "1 session ended.\n");
}

#[test]
fn a_node_that_takes_its_own_name_again_is_no_other_node_of_that_name() {
    let Some(database) = Postgres::new() else { return };
    let third = Node::start(&database, "c", "", 6);
    let mut crashes = Node::start(&database, "a", "", 6);
    crashes.child.kill().unwrap();
    crashes.child.wait().unwrap();
    // With these a successor takes clients two seconds after it has joined: meanwhile its predecessor renews its lease.
    let keys = [OWN_PORTS, "data-address = '127.0.0.1'"];
    let node = Node::start_at(&database, "a", "127.0.0.1:0", keys, 3);
    let mut client = node.log_in("free").unwrap();
    let kicked = third.ctl(&["kick", "--user", "free", "--node", "a"]);
    assert_eq!(
        (registrations(&third), &*kicked),
        (2, "1 session ended.\n"),
        "one is of the process that died"
    );
    assert!(has_ended(&mut client) && !third.ctl(&["cluster"]).contains("Several nodes"));
    eventually("its lease is over", || registrations(&third) == 1);

    let mut client = node.log_in("free").unwrap();
    let said = node.ctl(&["--json", "upgrade"]);
    assert!(said.contains("\"pid\""), "{said}{}", node.log());
    assert_eq!(registrations(&third), 2);
    let newer = node.log_in("free").unwrap();
    eventually("the old process drains", || third.ctl(&["cluster"]).contains("draining"));
    assert!(!third.ctl(&["cluster"]).contains("Several nodes"));
    assert_eq!(third.ctl(&["kick", "--user", "free", "--node", "a"]), "1 session ended.\n");
    client.expect("NOOP", "200");
    drop((client, newer));
    eventually("the old process has ended", || registrations(&third) == 1);
    assert!(!node.log().contains("is called"), "{}", node.log());
    node.ctl(&["stop"]);
}

#[test]
fn a_node_lists_its_own_sessions_while_the_database_is_away() {
    let Some(mut database) = Postgres::new() else { return };
    let node = Node::start(&database, "a", "", 6);
    let _client = node.log_in("ann").unwrap();
    database.daemon.kill();
    eventually("it says so", || {
        let list = node.ctl(&["sessions"]);
        list.contains(" ann ") && list.contains("No answer of: the database of the cluster")
    });
}
