//! The secrets that all nodes derive keys from.

use std::thread;

use millrace_cluster::{Epoch, PostgresTable, Table};

use super::{Postgres, SECOND, entry, eventually, node, table};

fn registered(server: &Postgres, name: &str) -> (PostgresTable, Epoch) {
    let table = table(server);
    let epoch = table.register(&entry(name), None, &[]).unwrap();
    (table, epoch)
}

/// Lets all secrets be older by so many minutes.
fn age(server: &Postgres, minutes: u32) {
    server.run(&format!("UPDATE millrace_cluster.secret SET made = made - interval '{minutes} min'"));
}

#[test]
fn one_node_makes_a_secret_and_another_the_next_and_old_ones_are_forgotten() {
    let Some(server) = Postgres::new() else { return };
    let nodes: Vec<_> = (0..8u8).map(|number| (number, registered(&server, "one"))).collect();
    let ask = |number: usize, fresh: u8| {
        let (table, epoch) = &nodes[number].1;
        let secrets = table.secrets(*epoch, Some(&[fresh; 32])).unwrap();
        secrets.into_iter().map(|(bytes, _)| bytes[0]).collect::<Vec<u8>>()
    };
    let first: Vec<Vec<u8>> = thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|number| scope.spawn(move || ask(number, number as u8))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert!(first.iter().all(|secrets| secrets.len() == 1 && *secrets == first[0]), "{first:?}");
    age(&server, 359);
    assert_eq!(ask(1, 101), first[0], "it is good for six hours");
    age(&server, 2);
    assert_eq!(ask(1, 101), [101, first[0][0]]);
    assert_eq!(ask(2, 102), [101, first[0][0]]);
    age(&server, 361);
    assert_eq!(ask(2, 102), [102, 101, first[0][0]]);
    age(&server, 60);
    assert_eq!(ask(3, 103), [102, 101], "the first is thirteen hours old");
    let (table, epoch) = &nodes[4].1;
    let (bytes, old) = table.secrets(*epoch, None).unwrap()[1];
    assert!(bytes == [101; 32] && old > 420 * 60 * SECOND && old < 430 * 60 * SECOND, "{old:?}");
    table.leave(*epoch).unwrap();
    assert!(table.secrets(*epoch, None).unwrap().is_empty(), "it is no node any more");
}

#[test]
fn all_nodes_have_the_same_secret_from_the_start_and_another_after_a_crash_of_the_database() {
    let Some(mut server) = Postgres::new() else { return };
    let ((one, here), (other, there)) = (node(&server, "one"), node(&server, "other"));
    let secrets = here.secrets.lock().unwrap().clone();
    assert!(secrets.len() == 1 && *there.secrets.lock().unwrap() == secrets);
    assert_eq!(one.secrets()[0].bytes, secrets[0]);
    assert_eq!(other.secrets().len(), 1);
    assert!(!format!("{:?}", one.secrets()).contains("bytes"), "a secret is not shown");
    server.daemon.kill();
    server.start();
    eventually("it registers anew", || one.epoch().is_some());
    let (_third, late) = node(&server, "third");
    eventually("there is another", || {
        late.secrets.lock().unwrap().iter().any(|secret| *secret != secrets[0])
    });
}
