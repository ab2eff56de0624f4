//! Bandwidth of a user over three servers.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::postgresql::Postgres;
use super::{HASH, eventually, three};

const RATE: u64 = 4_000_000;

#[test]
fn downloads_of_a_user_over_three_nodes_are_as_fast_as_the_user_may_be_together() {
    let Some(database) = Postgres::new() else { return };
    let user = format!("[[user]]\nname = \"slow\"\npassword = \"{HASH}\"\ndownload = {RATE}\n");
    let nodes = three(&database, &user);
    let (moved, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        // One node has as many as the others together.
        for number in [0, 1, 2, 2] {
            let (node, moved, is_over) = (&nodes[number], &moved, &is_over);
            scope.spawn(move || {
                let mut client = node.log_in("slow").unwrap();
                let mut data = client.download();
                let mut bytes = [0; 16 << 10];
                while !is_over.load(Ordering::Relaxed) {
                    let count = data.read(&mut bytes).unwrap();
                    moved.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
        }
        let parts = || database.run("SELECT count(*), sum(part) FROM millrace_cluster.rate WHERE part > 0");
        eventually("every node has its part", || {
            let parts = parts();
            let (nodes, sum) = parts.split_once('|').unwrap_or_default();
            nodes == "3" && sum.parse().is_ok_and(|sum: u64| sum > RATE * 19 / 20)
        });
        let (before, start) = (moved.load(Ordering::Relaxed), Instant::now());
        eventually("some seconds have passed", || {
            let sum = database.run("SELECT coalesce(max(sum), 0) FROM (SELECT sum(part) FROM millrace_cluster.rate GROUP BY name) AS r");
            assert!(sum.parse::<u64>().unwrap() <= RATE, "{sum}");
            start.elapsed() > Duration::from_secs(4)
        });
        let rate = (moved.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        // And as much for what sockets hold, and a machine that is busy.
        let share = rate / RATE as f64;
        assert!((0.7..1.1).contains(&share), "{share}");
    });
    eventually("the parts are given back", || {
        database.run("SELECT count(*) FROM millrace_cluster.rate") == "0"
    });
}
