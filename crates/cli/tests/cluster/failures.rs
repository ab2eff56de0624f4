//! Failed logins count on all nodes together.

use std::thread;
use std::time::Duration;

use super::postgresql::Postgres;
use super::{Browser, Client, Node, eventually};

/// Has a client give a wrong password, and returns whether it was let try.
fn guess(node: &Node, user: &str) -> bool {
    let mut client = Client::connect(&node.address);
    assert!(client.line().starts_with("220"));
    client.say(&format!("USER {user}"));
    client.say("PASS wrong").starts_with("530")
}

#[test]
fn a_guesser_who_goes_from_node_to_node_is_banned_after_as_many_guesses_as_at_one() {
    let Some(database) = Postgres::new() else { return };
    let keys = "ban-after = 6\nlogin-delay = \"0s\"\nhttp = \"127.0.0.1:0\"";
    let nodes = ["a", "b"].map(|name| Node::start(&database, name, keys, 6));
    assert!(nodes[0].log_in("free").is_ok());
    for number in 0..5 {
        assert!(guess(&nodes[number % 2], "free"));
    }
    let told = "SELECT round(sum(failures)) FROM millrace_cluster.failure WHERE kind = 0";
    eventually("they are told", || database.run(told) == "5");
    // Each node reads once a second, or later on a machine that is busy. Two of the five came to this node, so that by its own count
    // it bans at the fourth of these.
    let is_banned = || nodes.iter().any(|node| node.log().contains("banned"));
    assert!(!is_banned());
    let more = (1..=3).find(|_| {
        thread::sleep(Duration::from_secs(2));
        guess(&nodes[1], "free") && is_banned()
    });
    assert!(more.is_some(), "{}", nodes[1].log());
    eventually("the other refuses the right password", || nodes[0].log_in("free").is_err());
    assert!(nodes[0].ctl(&["bans"]).contains("free"));
    assert_eq!(Browser::new(&nodes[0]).get(), 200, "another user at the same address");
    nodes[0].ctl(&["unban", "127.0.0.1"]);
    eventually("it is lifted at all", || nodes.iter().all(|node| node.log_in("free").is_ok()));
}
