//! Transfer quotas and ratios hold for all nodes together.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::postgresql::Postgres;
use super::{Client, HASH, Node, PATIENCE, eventually};

const MOST: u64 = 100_000_000;

/// A transfer that is cut may leave so much in sockets, which the client does not get.
const SOCKETS: u64 = 8 << 20;

/// Three nodes with a user who is held to this.
fn start(database: &Postgres, quota: &str) -> [Node; 3] {
    let user = format!("[[user]]\nname = \"mover\"\npassword = \"{HASH}\"\n{quota}\n");
    ["a", "b", "c"].map(|name| Node::start(database, name, &user, 3))
}

fn log_in(node: &Node) -> Client {
    let mut client = node.log_in("mover").unwrap();
    client.expect("TYPE I", "200");
    client
}

fn passive(client: &mut Client) -> TcpStream {
    let reply = client.expect("EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    let data = TcpStream::connect(("127.0.0.1", port)).unwrap();
    data.set_read_timeout(Some(PATIENCE)).unwrap();
    data
}

/// Downloads the file of 64 MiB; `came` is told of its bytes. Returns the last reply.
fn download(client: &mut Client, mut came: impl FnMut(u64)) -> String {
    let mut data = passive(client);
    let first = client.say("RETR f");
    if !first.starts_with("150") {
        return first;
    }
    let mut bytes = vec![0; 64 << 10];
    loop {
        match data.read(&mut bytes) {
            Ok(0) | Err(_) => return client.line(),
            Ok(count) => came(count as u64),
        }
    }
}

fn store(client: &mut Client, name: &str, size: usize) -> String {
    let mut data = passive(client);
    client.expect(&format!("STOR {name}"), "150");
    // A server that has enough may hang up.
    let _ = data.write_all(&vec![b'x'; size]);
    let _ = data.shutdown(Shutdown::Write);
    let _ = io::copy(&mut data, &mut io::sink());
    client.line()
}

/// What the database has of the downloads of this day.
fn recorded(database: &Postgres) -> u64 {
    database.run("SELECT coalesce(sum(moved[2]), 0) FROM millrace_cluster.traffic").parse().unwrap()
}

#[test]
fn downloads_at_three_nodes_end_together_at_the_last_byte_of_a_quota() {
    let Some(database) = Postgres::new() else { return };
    let nodes = start(&database, &format!("quota-download = \"{MOST}/day\""));
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in [0, 1, 2, 2] {
            let (node, sum) = (&nodes[number], &sum);
            scope.spawn(move || {
                let mut client = log_in(node);
                loop {
                    let reply = download(&mut client, |count| {
                        sum.fetch_add(count, Ordering::Relaxed);
                    });
                    if !reply.starts_with("226") {
                        assert!(
                            reply.starts_with("552") && reply.contains("may download no more"),
                            "{reply}"
                        );
                        return;
                    }
                }
            });
        }
    });
    let sum = sum.into_inner();
    assert!(sum <= MOST && sum > MOST - 4 * SOCKETS, "{sum}");
    eventually("it is told, and to the last byte", || recorded(&database) == MOST);
    let [late, ..] = start(&database, &format!("quota-download = \"{MOST}/day\""));
    let mut came = 0;
    let reply = download(&mut log_in(&late), |count| came += count);
    assert!(reply.starts_with("552") && came == 0, "{reply} {came}");
}

#[test]
fn uploads_at_one_node_are_credit_at_the_others() {
    let Some(database) = Postgres::new() else { return };
    let nodes = start(&database, "ratio = \"1:3\"");
    let mut other = log_in(&nodes[1]);
    let mut came = 0;
    let reply = download(&mut other, |count| came += count);
    assert!(reply.starts_with("552") && came == 0, "{reply} {came}");
    let stored = store(&mut log_in(&nodes[0]), "up", 1_000_000);
    assert!(stored.starts_with("226"), "{stored}");
    eventually("it is told", || {
        database.run("SELECT coalesce(sum(moved[7]), 0) FROM millrace_cluster.traffic") == "1000000"
    });
    for node in [1, 2] {
        // The answer that refused it holds for two seconds.
        eventually("it has the credit", || {
            let mut client = log_in(&nodes[node]);
            let reply = download(&mut client, |count| came += count);
            assert!(reply.starts_with("552") && reply.contains("has to upload"), "{reply}");
            came > 0
        });
    }
    assert!(came <= 3_000_000, "{came}");
    eventually("all of it is used", || recorded(&database) == 3_000_000);
}

#[test]
fn a_node_that_dies_has_told_all_but_its_last_second() {
    let Some(database) = Postgres::new() else { return };
    let mut nodes = start(&database, &format!("quota-download = \"{MOST}/day\"\nsession-download = \"20M\""));
    let sum = AtomicU64::new(0);
    let [dies, lives, _] = &mut nodes;
    thread::scope(|scope| {
        let (address, sum) = (dies.address.clone(), &sum);
        scope.spawn(move || {
            let mut client = Client::log_in(&address, "mover").unwrap();
            let mut data = client.download();
            let mut bytes = vec![0; 64 << 10];
            while let Ok(count @ 1..) = data.read(&mut bytes) {
                sum.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        eventually("much has moved", || sum.load(Ordering::Relaxed) > 30_000_000);
        dies.child.kill().unwrap();
    });
    let before = sum.load(Ordering::Relaxed);
    // An eighth of what was left at first.
    let portion = MOST / 8;
    let told = recorded(&database);
    assert!(told + portion >= before && told > 10_000_000, "{told} of {before}");
    let mut came = 0;
    let mut client = log_in(lives);
    while download(&mut client, |count| came += count).starts_with("226") {}
    // Its room is free when its lease is over.
    assert!(came <= MOST - told && came > MOST - told - SOCKETS, "{came} after {told}");
    eventually("all of it is used", || recorded(&database) == MOST);
}

#[test]
fn while_the_database_is_away_transfers_go_on_and_are_told_later() {
    let Some(mut database) = Postgres::new() else { return };
    let nodes = start(&database, &format!("quota-download = \"{MOST}/day\""));
    let mut client = log_in(&nodes[0]);
    client.expect("NOOP", "200");
    eventually("its counts are known", || {
        database.run("SELECT count(*) FROM millrace_cluster.traffic") == "1"
    });
    database.daemon.kill();
    let mut came = 0;
    let reply = download(&mut client, |count| came += count);
    assert!(reply.starts_with("226") && came == 64 << 20, "{reply} {came}");
    let over = download(&mut client, |count| came += count);
    assert!(over.starts_with("552") && came <= MOST && came > MOST - SOCKETS, "{over} {came}");
    database.start();
    eventually("it is told", || recorded(&database) == MOST);
    eventually("all are back", || database.run("SELECT count(*) FROM millrace_cluster.node") == "3");
    thread::sleep(Duration::from_secs(2));
    let mut more = 0;
    let reply = download(&mut log_in(&nodes[1]), |count| more += count);
    assert!(reply.starts_with("552") && more == 0, "{reply} {more}");
}
