//! Failed logins and familiar networks over several nodes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_cluster::{Epoch, FailureEditions, PostgresTable, PulledFailures, Renewal, Table};
use millrace_limits::{FailureTally, FamiliarNetwork, LoginBlock, TallyOf};

use super::{Postgres, SECOND, Server, entry, eventually, node, silence, table};

/// The default, after which a user is banned at an address.
const BAN_AFTER: usize = 20;

fn account(name: &[u8], failures: f64) -> FailureTally {
    FailureTally { of: TallyOf::Account(name.into()), failures, is_forgiven: false }
}

fn registered(server: &Postgres, name: &str) -> (PostgresTable, Epoch) {
    let table = table(server);
    let epoch = table.register(&entry(name), None, &[]).unwrap();
    (table, epoch)
}

/// What another process than this one reads from the beginning.
fn all(table: &PostgresTable, origin: Epoch) -> PulledFailures {
    table.pull_failures(origin, FailureEditions::default()).unwrap()
}

#[test]
fn tallies_are_read_by_the_other_processes_once_and_fade_on_the_way() {
    let Some(server) = Postgres::new() else { return };
    let ((one, mine), (other, others)) = (registered(&server, "one"), registered(&server, "other"));
    let network = "192.0.2.0/24".parse().unwrap();
    let tallies = [
        FailureTally {
            of: TallyOf::User("192.0.2.1".parse().unwrap(), (*b"a\xffb").into()),
            failures: 3.0,
            is_forgiven: true,
        },
        FailureTally { of: TallyOf::Network(network), failures: 8.0, is_forgiven: false },
    ];
    let familiar = FamiliarNetwork { network, user: b"ann".to_vec(), left: 3600 * SECOND };
    assert_eq!(one.push_failures(mine, mine, &tallies, &[familiar]).unwrap(), Renewal::Kept);
    let pulled = all(&other, others);
    assert_eq!(pulled.tallies.len(), 2);
    for (told, read) in tallies.iter().zip(&pulled.tallies) {
        assert_eq!((&told.of, told.is_forgiven), (&read.of, read.is_forgiven));
        assert!(read.failures <= told.failures && read.failures > told.failures * 0.9, "{read:?}");
    }
    assert_eq!(pulled.familiar[0].user, b"ann");
    assert!(pulled.familiar[0].left > 3500 * SECOND);
    assert!(all(&one, mine).tallies.is_empty(), "its own do not come back");
    let next = other.pull_failures(others, pulled.editions).unwrap();
    assert_eq!(next, PulledFailures { editions: pulled.editions, ..PulledFailures::default() });

    server.run("UPDATE millrace_cluster.failure SET made = made - interval '5 minutes'");
    assert!(all(&other, others).tallies.iter().all(|tally| tally.failures < 8.0 * 0.71));
    server.run("UPDATE millrace_cluster.failure SET made = made - interval '5 minutes'");
    assert!(all(&other, others).tallies.is_empty());
    silence(&server, mine, 60);
    server.run("UPDATE millrace_cluster.pulse SET spare_until = '-infinity'");
    other.renew(others, Default::default(), &[]).unwrap();
    assert_eq!(one.push_failures(mine, mine, &tallies, &[]).unwrap(), Renewal::Fenced);
}

#[test]
fn the_tables_stay_small_whatever_is_told() {
    let Some(server) = Postgres::new() else { return };
    let (table, epoch) = registered(&server, "one");
    let familiar = |number: u32| FamiliarNetwork {
        network: "10.0.0.0/24".parse().unwrap(),
        user: number.to_be_bytes().to_vec(),
        left: 24 * 3600 * SECOND,
    };
    let count = |of: &str| -> u32 {
        server.run(&format!("SELECT count(*) FROM millrace_cluster.{of}")).parse().unwrap()
    };
    for round in 0..9u32 {
        let tallies: Vec<_> = (0..1000).map(|number| account(&u32::to_be_bytes(number), 1.0)).collect();
        let networks: Vec<_> = (0..4000).map(|number| familiar(round * 4000 + number)).collect();
        table.push_failures(epoch, epoch, &tallies, &networks).unwrap();
    }
    assert_eq!((count("failure"), count("familiar")), (8192, 32768));
    // It is known already, and takes no place anew.
    table.push_failures(epoch, epoch, &[], &[familiar(35_999)]).unwrap();
    let newest = || server.run("SELECT max(edition) FROM millrace_cluster.familiar");
    assert_eq!(newest(), "36000");
    server.run("UPDATE millrace_cluster.familiar SET until = now() - interval '1 s' WHERE edition < 35900");
    server.run("UPDATE millrace_cluster.failure SET made = made - interval '1 h'");
    table.push_failures(epoch, epoch, &[account(b"ann", 1.0)], &[familiar(1)]).unwrap();
    assert_eq!((count("failure"), count("familiar")), (1, 102));
}

/// Has a client fail at a node, once.
fn fail(member: &Arc<Server>, address: IpAddr, user: &[u8]) {
    member.bans.failed(address, user, Instant::now());
}

/// How often a user has failed at an address, as this node has it, with one failure more.
fn count(member: &Arc<Server>, address: IpAddr, user: &[u8]) -> u32 {
    member.bans.failed(address, user, Instant::now()).count
}

#[test]
fn a_guesser_is_banned_after_as_many_guesses_at_three_nodes_as_at_one() {
    let Some(server) = Postgres::new() else { return };
    let nodes = ["one", "two", "three"].map(|name| node(&server, name));
    let (address, user): (IpAddr, _) = ("192.0.2.1".parse().unwrap(), b"ann");
    let is_banned = |member: &Arc<Server>| member.bans.is_banned(address, user, Instant::now());
    // All that each of them counts alone.
    for guess in 0..BAN_AFTER - 1 {
        fail(&nodes[guess % 3].1, address, user);
    }
    let told = "SELECT round(sum(failures)) FROM millrace_cluster.failure WHERE kind = 0";
    eventually("all is told", || server.run(told) == (BAN_AFTER - 1).to_string());
    assert!(nodes.iter().all(|(_, member)| !is_banned(member)));
    // It is read within a second, or somewhat later on a machine that is busy.
    let mut guesses = BAN_AFTER - 1;
    eventually("one guess more bans it", || {
        std::thread::sleep(Duration::from_millis(2500));
        fail(&nodes[0].1, address, user);
        guesses += 1;
        is_banned(&nodes[0].1)
    });
    assert!(guesses <= BAN_AFTER + 1, "{guesses}");
    let start = Instant::now();
    eventually("at all nodes", || nodes.iter().all(|(_, member)| is_banned(member)));
    // And as much for a machine that is busy.
    assert!(start.elapsed() < 4 * SECOND, "{:?}", start.elapsed());
}

#[test]
fn a_node_that_joins_knows_the_counts_and_the_familiar_networks() {
    let Some(server) = Postgres::new() else { return };
    let (_one, here) = node(&server, "one");
    let home: IpAddr = "198.51.100.7".parse().unwrap();
    here.bans.succeeded(home, b"ann", Instant::now());
    for number in 0..BAN_AFTER as u8 * 3 {
        fail(&here, IpAddr::from([10, number, 0, 1]), b"ann");
    }
    eventually("it is told", || {
        server.run("SELECT count(*) FROM millrace_cluster.familiar") == "1"
            && server.run("SELECT round(max(failures)) FROM millrace_cluster.failure WHERE kind = 2") == "60"
    });
    let (_late, there) = node(&server, "late");
    let block = |from: &str| there.bans.login_block(from.parse().unwrap(), b"ann", Instant::now());
    assert_eq!(block("203.0.113.1"), Some(LoginBlock::AccountGuessed), "from the start");
    assert_eq!(block("198.51.100.200"), None, "where the user has logged in before");
}

#[test]
fn while_the_database_is_away_each_node_counts_and_nothing_waits() {
    let Some(mut server) = Postgres::new() else { return };
    let ((one, here), (_other, there)) = (node(&server, "one"), node(&server, "other"));
    let (address, user): (IpAddr, _) = ("192.0.2.1".parse().unwrap(), b"ann");
    server.daemon.kill();
    eventually("it is noticed", || here.told.lock().unwrap().iter().any(|text| text.contains("refused")));
    let start = Instant::now();
    (1..=5).for_each(|number| assert_eq!(count(&here, address, user), number));
    assert!(start.elapsed() < SECOND);
    assert_eq!(count(&there, address, user), 1);
    server.start();
    eventually("it is back", || one.epoch().is_some());
    // At that time, or later: the first attempt may be lost.
    let mut own = 0;
    eventually("the other hears of it", || {
        fail(&here, address, b"bob");
        std::thread::sleep(Duration::from_millis(100));
        // To count is to fail once more, there as well.
        own += 1;
        count(&there, address, b"bob") > own
    });
}
