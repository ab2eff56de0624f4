//! Sessions of classes and listeners are counted on all nodes together.

use super::postgresql::Postgres;
use super::{Browser, Client, Node, eventually, rounds, three};

#[test]
fn of_300_logins_at_once_over_three_nodes_seven_get_in_where_a_class_may_have_seven_sessions() {
    let Some(database) = Postgres::new() else { return };
    let keys = "[[class]]\nname = \"local\"\nfrom = \"127.0.0.0/8\"\nsessions = 7\n";
    rounds(&three(&database, keys), &database, "free");
}

#[test]
fn a_class_by_the_name_of_a_host_that_is_full_at_another_node_shows_its_message() {
    let Some(database) = Postgres::new() else { return };
    let message = std::env::temp_dir().join(format!("millrace-class-{}", std::process::id()));
    std::fs::write(&message, "One of you at a time.\n").unwrap();
    let keys = format!(
        "[[class]]\nname = \"named\"\nhosts = \"localhost\"\nsessions = 1\nlimit-file = \"{}\"\n",
        message.display()
    );
    let [one, other, third] = three(&database, &keys);
    std::fs::remove_file(message).unwrap();
    let first = one.log_in("free").unwrap();
    let mut second = Client::connect(&other.address);
    assert!(second.line().starts_with("220"));
    second.expect("USER ann", "331");
    second.expect("PASS password", "421-One of you at a time.");
    assert!(second.line().starts_with("421 Too many sessions of your group"));
    eventually("the log names the class", || other.log().contains("of=\"group class named\""));
    drop(first);
    eventually("the place is free", || third.log_in("ann").is_ok());
}

/// The other node is a row of the database: two servers on one machine cannot have the same address.
#[test]
fn sessions_of_a_listener_count_with_those_of_the_same_address_at_another_node() {
    let Some(database) = Postgres::new() else { return };
    let keys = "http = \"127.0.0.2:0\"\n\
                [[listener]]\naddress = \"127.0.0.1:0\"\nsessions = 3\n\
                [[listener]]\naddress = \"127.0.0.2:0\"\nsessions = 2\n";
    let node = Node::start(&database, "a", keys, 6);
    let scope = |address: &str| format!("'\\x06'::bytea || convert_to('{address}', 'UTF8')");
    let other = database.run(&format!(
        "SELECT millrace_cluster.register(NULL, 'b', '0', 600, ARRAY[{}, {}], ARRAY[2, 2]::bigint[])",
        scope(&node.address),
        scope(&node.http)
    ));
    let _third = node.log_in("free").unwrap();
    let refused = node.log_in("ann").err().unwrap();
    assert!(refused.starts_with("421 Too many sessions on this address of the server"), "{refused}");
    assert_eq!(Browser::new(&node).get(), 503);
    database.run(&format!("DELETE FROM millrace_cluster.node WHERE epoch = {other}"));
    let _fourth = node.log_in("ann").unwrap();
    assert_eq!(Browser::new(&node).get(), 200);
}
