//! Rates of logins hold for all nodes together.

use std::thread;
use std::time::Duration;

use super::postgresql::Postgres;
use super::{Browser, Node, eventually};

#[test]
fn a_client_that_goes_from_node_to_node_may_log_in_as_often_as_at_one() {
    let Some(database) = Postgres::new() else { return };
    let keys = "logins-per-address = \"6/hour\"\nhttp = \"127.0.0.1:0\"";
    let nodes = ["a", "b", "c"].map(|name| Node::start(&database, name, keys, 6));
    for number in 0..6 {
        assert!(nodes[number % 2].log_in("free").is_ok());
    }
    let told = "SELECT count(*) FROM millrace_cluster.login WHERE ends > now() + interval '50 min'";
    eventually("they are told", || database.run(told) == "1");
    // Each node reads once a second, or later on a machine that is busy.
    thread::sleep(Duration::from_secs(3));
    for node in &nodes {
        let refused = node.log_in("free").err().unwrap();
        assert!(refused.starts_with("421 Too many logins from your address"), "{refused}");
        assert_eq!(Browser::new(node).get(), 429);
    }
    eventually("the log says why", || nodes[2].log().contains("logins-per-address"));
}
