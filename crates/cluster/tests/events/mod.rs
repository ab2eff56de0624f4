//! Events that nodes deliver together: who has a receiver, in which order, and whose word counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;

use millrace_cluster::{
    Epoch, EventTable, Failure, MeantEvents, PostgresEvents, Settlement, SharedEvent, Table,
};

use super::{PATIENT, Postgres, Way, end_grace, entry, eventually, silence, table};

fn events(server: &Postgres) -> PostgresEvents {
    let config = server.connection().parse().unwrap();
    PostgresEvents::new(Arc::new(Way(config)), PATIENT).unwrap()
}

fn register(server: &Postgres, name: &str) -> Epoch {
    table(server).register(&entry(name), None, &[]).unwrap()
}

fn event(id: &str, receiver: &str) -> SharedEvent {
    SharedEvent {
        id: id.to_owned(),
        receiver: receiver.to_owned(),
        body: format!("{{\"of\":\"{id}\"}}"),
        words: vec![1],
        variables: Vec::new(),
        parked: None,
    }
}

fn ids(events: &[SharedEvent]) -> Vec<&str> {
    events.iter().map(|event| &*event.id).collect()
}

fn delivered(ids: &[&str]) -> Settlement {
    let delivered = ids.iter().map(|id| (*id).to_owned()).collect();
    Settlement { delivered, keeps: true, ..Settlement::default() }
}

#[test]
fn a_receiver_is_one_nodes_until_its_lease_is_over_and_what_it_says_later_is_refused() {
    let Some(server) = Postgres::new() else { return };
    let (one, other) = (register(&server, "one"), register(&server, "other"));
    let events = events(&server);
    events.put(&[event("a-1", "r"), event("a-2", "r")]).unwrap();
    assert_eq!(events.take(one, &[]).unwrap().unwrap().receiver, "r");
    assert_eq!(events.take(other, &[]).unwrap(), None);
    assert_eq!(events.take(one, &["r".to_owned()]).unwrap(), None, "it has it in hand");
    assert_eq!(events.take(one, &[]).unwrap().unwrap().receiver, "r", "its thread has ended without a word");

    silence(&server, one, 60);
    assert_eq!(events.take(one, &[]).unwrap(), None, "its lease is over");
    assert_eq!(events.take(other, &[]).unwrap().unwrap().receiver, "r");
    assert!(!events.settle(one, "r", &delivered(&["a-1"])).unwrap());
    assert_eq!(ids(&events.read("r", false, 10).unwrap()), ["a-1", "a-2"], "nothing was written");
    assert!(events.settle(other, "r", &delivered(&["a-1"])).unwrap());
    assert_eq!(ids(&events.read("r", false, 10).unwrap()), ["a-2"]);
}

#[test]
fn a_node_that_was_not_replaced_may_say_what_it_has_delivered() {
    let Some(server) = Postgres::new() else { return };
    let (one, other) = (register(&server, "one"), register(&server, "other"));
    let events = events(&server);
    events.put(&[event("a-1", "r")]).unwrap();
    events.take(one, &[]).unwrap().unwrap();
    end_grace(&server);
    silence(&server, one, 60);
    // Its registration ends, and no node has taken the receiver.
    table(&server).renew(other, millrace_cluster::NodeState::default(), &[]).unwrap();
    assert!(events.settle(one, "r", &delivered(&["a-1"])).unwrap());
    assert_eq!(events.take(other, &[]).unwrap(), None, "nothing is left");
}

#[test]
fn an_event_is_kept_once_and_another_one_of_its_id_is_refused() {
    let Some(server) = Postgres::new() else { return };
    register(&server, "one");
    let events = events(&server);
    let again = [event("a-1", "r"), event("a-2", "r")];
    events.put(&again[..1]).unwrap();
    events.put(&again).unwrap();
    assert_eq!(events.read("r", false, 10).unwrap(), again);
    let other = SharedEvent { body: "{}".to_owned(), ..event("a-2", "r") };
    let error = events.put(&[event("a-3", "r"), other]).unwrap_err().to_string();
    assert!(error.contains("the id a-2 is that of another event"), "{error}");
    assert_eq!(ids(&events.read("r", false, 10).unwrap()), ["a-1", "a-2"], "all of them or none");
}

#[test]
fn a_receiver_that_fails_is_left_alone_for_its_pause_unless_an_administrator_hurries() {
    let Some(server) = Postgres::new() else { return };
    let node = register(&server, "one");
    let events = events(&server);
    events.put(&[event("a-1", "r"), event("a-2", "r"), event("a-3", "r")]).unwrap();
    events.take(node, &[]).unwrap().unwrap();
    let failure = Some(Failure { trouble: "down".to_owned(), tries: 3, pause: 3600.0 });
    let parked = vec![("a-1".to_owned(), "never".to_owned())];
    let settlement = Settlement { parked, failure, ..Settlement::default() };
    assert!(events.settle(node, "r", &settlement).unwrap());
    assert_eq!(events.take(node, &[]).unwrap(), None);
    let counts = events.counts().unwrap();
    let told: Vec<_> = counts.iter().map(|of| (of.is_parked, of.count, of.trouble.as_deref())).collect();
    assert_eq!(told, [(false, 2, Some("down")), (true, 1, Some("down"))]);
    assert_eq!(events.read("r", true, 10).unwrap()[0].parked.as_deref(), Some("never"));

    events.hurry().unwrap();
    assert_eq!(events.take(node, &[]).unwrap().unwrap().tries, 3, "the next node knows of the tries");
    let of = |is_parked| MeantEvents::Of { receiver: "r", is_parked };
    assert_eq!(events.put_back(&of(true)).unwrap(), 1);
    assert_eq!(ids(&events.read("r", false, 10).unwrap()), ["a-1", "a-2", "a-3"], "in its old place");
    let some = ["a-2".to_owned(), "a-9".to_owned()];
    assert_eq!(events.missing(&some).unwrap().as_deref(), Some("a-9"));
    assert_eq!(events.forget(&MeantEvents::These(&some[..1])).unwrap(), 1);
    assert_eq!(events.forget(&of(false)).unwrap(), 2);
    assert!(events.counts().unwrap().is_empty());
}

#[test]
fn nodes_that_deliver_at_once_keep_the_order_of_each_receiver_and_deliver_each_event_once() {
    let Some(server) = Postgres::new() else { return };
    let (receivers, each) = (4, 100);
    let all = events(&server);
    let nodes: Vec<Epoch> = ["a", "b", "c"].map(|name| register(&server, name)).into();
    for number in 0..each {
        let of_all = (0..receivers).map(|to| event(&format!("e-{to}-{number}"), &format!("r{to}")));
        all.put(&of_all.collect::<Vec<_>>()).unwrap();
    }
    let seen: Mutex<BTreeMap<String, Vec<String>>> = Mutex::default();
    thread::scope(|scope| {
        for &node in &nodes {
            let (seen, events) = (&seen, events(&server));
            scope.spawn(move || {
                eventually("all are delivered", || {
                    let Some(taken) = events.take(node, &[]).unwrap() else {
                        return events.counts().unwrap().is_empty();
                    };
                    let some = events.read(&taken.receiver, false, 7).unwrap();
                    let told: Vec<String> = some.into_iter().map(|event| event.id).collect();
                    seen.lock().unwrap().entry(taken.receiver.clone()).or_default().extend(told.clone());
                    let settlement = Settlement { delivered: told, ..Settlement::default() };
                    assert!(events.settle(node, &taken.receiver, &settlement).unwrap());
                    false
                });
            });
        }
    });
    for (to, told) in seen.into_inner().unwrap().into_values().enumerate() {
        let expected: Vec<String> = (0..each).map(|number| format!("e-{to}-{number}")).collect();
        assert_eq!(told, expected);
    }
}

#[test]
fn no_receiver_is_taken_while_a_crash_of_the_database_hides_who_delivers() {
    let Some(server) = Postgres::new() else { return };
    let node = register(&server, "one");
    let events = events(&server);
    events.put(&[event("a-1", "r")]).unwrap();
    server.run("UPDATE millrace_cluster.pulse SET closed_until = clock_timestamp() + interval '1 hour'");
    assert_eq!(events.take(node, &[]).unwrap(), None);
    server.run("UPDATE millrace_cluster.pulse SET closed_until = clock_timestamp()");
    assert_eq!(events.take(node, &[]).unwrap().unwrap().receiver, "r");
}

#[test]
fn a_node_that_leaves_a_receiver_before_it_has_told_anything_leaves_the_count_of_tries() {
    let Some(server) = Postgres::new() else { return };
    let node = register(&server, "one");
    let events = events(&server);
    events.put(&[event("a-1", "r"), event("a-2", "r")]).unwrap();
    events.take(node, &[]).unwrap().unwrap();
    let failure = Some(Failure { trouble: "down".to_owned(), tries: 4, pause: 0.0 });
    assert!(events.settle(node, "r", &Settlement { failure, ..Settlement::default() }).unwrap());
    assert_eq!(events.take(node, &[]).unwrap().unwrap().tries, 4);
    assert!(events.settle(node, "r", &Settlement::default()).unwrap());
    assert_eq!(events.take(node, &[]).unwrap().unwrap().tries, 4, "nothing was told");
    assert_eq!(events.counts().unwrap()[0].trouble.as_deref(), Some("down"));
    assert!(events.settle(node, "r", &delivered(&["a-1"])).unwrap());
    assert_eq!(events.take(node, &[]).unwrap().unwrap().tries, 0, "the next one is another");
}
