//! Rates of logins over several nodes.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_cluster::{NodeState, Renewal, Table};
use millrace_limits::{LoginTally, LoginsOf, wall_seconds};

use super::{Postgres, SECOND, Server, end_grace, entry, eventually, node, silence, table};

const HERE: &str = "192.0.2.1";

fn attempt(member: &Arc<Server>) -> bool {
    member.logins.attempt(HERE.parse().unwrap(), Instant::now(), wall_seconds()).is_ok()
}

fn log_in(member: &Arc<Server>, user: &[u8]) -> bool {
    member.logins.log_in(user, Instant::now(), wall_seconds()).is_ok()
}

#[test]
fn logins_at_three_nodes_count_together() {
    let Some(server) = Postgres::new() else { return };
    let nodes = ["one", "two", "three"].map(|name| node(&server, name));
    let members = nodes.each_ref().map(|(_, member)| member);
    // All that there may be from the address, and of the user.
    assert!((0..6).all(|number| attempt(members[number % 3])));
    assert!((0..3).all(|number| log_in(members[number], b"ann")));
    // An hour's 6 at one address, and 3 of a user: not yet over.
    let told = "SELECT count(*) FROM millrace_cluster.login WHERE ends > now() + interval '50 min'";
    eventually("all is told", || server.run(told) == "2");
    // Each node reads once a second, or later on a machine that is busy.
    thread::sleep(3 * SECOND);
    assert!(members.iter().all(|member| !attempt(member) && !log_in(member, b"ann")));
    assert!(members.iter().all(|member| log_in(member, b"bob")), "another user");
    let (_late, there) = node(&server, "late");
    assert!(!attempt(&there) && !log_in(&there, b"ann"), "a node that joins knows it from the start");
}

#[test]
fn what_is_told_is_a_bucket_that_empties_and_a_bounded_number_of_them() {
    let Some(server) = Postgres::new() else { return };
    let [one, other] = ["one", "other"].map(|name| {
        let table = table(&server);
        let epoch = table.register(&entry(name), None, &[]).unwrap();
        (table, epoch)
    });
    end_grace(&server);
    let address: IpAddr = HERE.parse().unwrap();
    let all = [
        LoginsOf::Server,
        LoginsOf::Address(address),
        LoginsOf::Network("192.0.2.0/24".parse().unwrap()),
        LoginsOf::User((*b"a\xffb").into()),
    ];
    let tallies = all.clone().map(|of| LoginTally { of, time: 60 * SECOND });
    for (table, epoch) in [&one, &other] {
        assert_eq!(table.push_logins(*epoch, &tallies).unwrap(), Renewal::Kept);
    }
    let (told, edition) = one.0.pull_logins(0).unwrap();
    assert_eq!(told.iter().map(|tally| tally.of.clone()).collect::<Vec<_>>(), all);
    assert!(told.iter().all(|tally| tally.time > 100 * SECOND && tally.time <= 120 * SECOND), "{told:?}");
    assert_eq!(one.0.pull_logins(edition).unwrap(), (Vec::new(), edition));
    // Over, and not yet removed: nothing is told of it, and the next begins anew.
    server.run("UPDATE millrace_cluster.login SET ends = now() - interval '1 h'");
    assert_eq!(one.0.pull_logins(0).unwrap().0, []);
    other.0.push_logins(other.1, &tallies[..1]).unwrap();
    let (told, _) = one.0.pull_logins(0).unwrap();
    assert!(told.len() == 1 && told[0].time <= 60 * SECOND && told[0].time > 40 * SECOND, "{told:?}");

    let many = |round: u32| {
        let of = |number: u32| LoginsOf::User((round * 10_000 + number).to_be_bytes().into());
        (0..10_000).map(|number| LoginTally { of: of(number), time: 3600 * SECOND }).collect::<Vec<_>>()
    };
    for round in 0..4 {
        assert_eq!(other.0.push_logins(other.1, &many(round)).unwrap(), Renewal::Kept);
    }
    assert_eq!(server.run("SELECT count(*) FROM millrace_cluster.login"), "32768");

    silence(&server, one.1, 60);
    other.0.renew(other.1, NodeState::default(), &[]).unwrap();
    assert_eq!(one.0.push_logins(one.1, &tallies).unwrap(), Renewal::Fenced);
}

#[test]
fn while_the_database_is_away_each_node_counts_and_tells_later() {
    let Some(mut server) = Postgres::new() else { return };
    let (_one, here) = node(&server, "one");
    server.daemon.kill();
    // What is told in the moment in which it goes is told once, and may be lost.
    eventually("it is noticed", || here.told.lock().unwrap().iter().any(|text| text.contains("refused")));
    let start = Instant::now();
    assert_eq!((0..10).filter(|_| attempt(&here)).count(), 6);
    assert!(start.elapsed() < Duration::from_millis(500), "no login waits");
    server.start();
    let (_other, there) = node(&server, "other");
    eventually("it is told", || {
        server.run("SELECT count(*) FROM millrace_cluster.login WHERE ends > now() + interval '50 min'")
            == "1"
    });
    thread::sleep(3 * SECOND);
    assert!(!attempt(&there));
}
