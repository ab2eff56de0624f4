//! Events of hooks over three servers that share a folder and a queue: nodes die with all that they had, stall, and lose
//! the database.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::postgresql::Postgres;
use super::quotas::Folder;
use super::receiver::Receiver;
use super::{Node, PATIENCE, eventually, long_form};

const CLIENTS: usize = 6;

/// Uploads that are acknowledged, and nodes that die meanwhile.
const UPLOADS: usize = 1500;
const DEATHS: usize = 5;

fn start(database: &Postgres, folder: &Folder, receiver: &Receiver, name: &str, batch: usize) -> Node {
    let keys = format!(
        "directory = \"{}\"\nhttp = \"127.0.0.1:0\"\nhooks-queue = \"events.db\"\n[[hook]]\non = \"upload\"\n\
         wait = false\nbatch = {batch}\nwebhook = \"http://127.0.0.1:{}/\"\n",
        folder.0.display(),
        receiver.port
    );
    let node = Node::start(database, name, &keys, 3);
    // Before that it refuses uploads, for what it knows of locks.
    eventually("it has joined", || node.ctl(&["cluster"]).contains(&format!("{name}*")));
    node
}

/// Uploads a file by HTTP; returns the status.
fn put(server: &str, path: &str) -> io::Result<u16> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head =
        "Host: h\r\nAuthorization: Basic ZnJlZTpwYXNzd29yZA==\r\nConnection: close\r\nContent-Length: 2\r\n";
    stream.write_all(format!("PUT {path} HTTP/1.1\r\n{head}\r\nhi").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[track_caller]
fn store(node: &Node, path: &str) {
    let status = put(&node.http, path).unwrap();
    assert!(status == 201 || status == 204, "{path}: {status}");
}

fn kept(database: &Postgres) -> String {
    database.run("SELECT count(*) FROM millrace_cluster.event")
}

/// The paths of events in the order in which they came.
fn paths(receiver: &Receiver) -> Vec<String> {
    receiver.arrived().into_iter().map(|(_, (_, _, path))| path).collect()
}

/// Stores files at the nodes in turn, until the end; the paths of those that were acknowledged go to `stored`.
fn upload(
    at: &Mutex<Vec<String>>,
    next: &AtomicUsize,
    stored: &Mutex<BTreeSet<String>>,
    has_ended: &AtomicBool,
) {
    while !has_ended.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let (server, path) = (at.lock().unwrap()[number % 3].clone(), format!("/f{number}"));
        if matches!(put(&server, &path), Ok(201 | 204)) {
            stored.lock().unwrap().insert(path);
        }
    }
}

#[test]
fn nodes_that_die_with_all_that_they_had_leave_their_events_to_the_others() {
    let Some(database) = Postgres::new() else { return };
    let (folder, receiver) = (Folder::new(), Receiver::start());
    let times = long_form().unwrap_or(1);
    let (uploads, deaths) = (UPLOADS * times, DEATHS * times);
    let begin = |number: usize| start(&database, &folder, &receiver, &format!("n{number}"), 50);
    let mut nodes: Vec<Node> = (0..3).map(begin).collect();
    let at = Mutex::new(nodes.iter().map(|node| node.http.clone()).collect::<Vec<_>>());
    let (next, stored, has_ended) = (AtomicUsize::new(0), Mutex::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| upload(&at, &next, &stored, &has_ended));
        }
        let reaches = |goal: usize| {
            let end = Instant::now() + PATIENCE;
            while stored.lock().unwrap().len() < goal && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        };
        for death in 1..=deaths {
            reaches(uploads * death / (deaths + 1));
            // Its folder goes with it: nothing but the database has its events.
            let index = (death * 5 / 3) % 3;
            drop(nodes.remove(index));
            nodes.insert(index, begin(2 + death));
            at.lock().unwrap()[index].clone_from(&nodes[index].http);
        }
        reaches(uploads);
        has_ended.store(true, Ordering::Relaxed);
    });
    let stored = stored.into_inner().unwrap();
    assert!(stored.len() >= uploads, "{} uploads", stored.len());
    let of = |path: &String| ("upload".to_owned(), "free".to_owned(), path.clone());
    eventually("each acknowledged upload has its event", || {
        let counts = receiver.counts();
        stored.iter().all(|path| counts.contains_key(&of(path)))
    });
    eventually("the queue is empty", || kept(&database) == "0");
    let counts = receiver.counts();
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "events of one upload with several ids: {twice:?}");
    let again = receiver.arrived().len() - counts.len();
    println!(
        "{} uploads, {deaths} dead nodes: none lost, {again} events came again by the same id",
        stored.len()
    );
}

#[test]
fn a_stalled_node_tells_nothing_of_events_that_another_has_taken() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    let (answer, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(Some(gate));
    let receiver = Receiver::answering(move |_| {
        // The first post alone waits for its answer.
        let gate = gate.lock().unwrap().take();
        let _ = gate.map(|gate| gate.recv());
        204
    });
    let [a, b] = ["a", "b"].map(|name| start(&database, &folder, &receiver, name, 1));
    store(&a, "/one");
    eventually("it is on its way", || paths(&receiver) == ["/one"]);
    let holder = database.run(
        "SELECT n.name FROM millrace_cluster.event_receiver AS r JOIN millrace_cluster.node AS n USING (epoch)",
    );
    let (stalled, other) = if holder == "a" { (a, b) } else { (b, a) };
    stalled.signal("-STOP");
    store(&other, "/two");
    eventually("the other delivers", || paths(&receiver) == ["/one", "/one", "/two"]);
    eventually("the queue is empty", || kept(&database) == "0");
    drop(answer);
    stalled.signal("-CONT");
    eventually("it is no member", || stalled.log().contains("it registers anew"));
    store(&stalled, "/three");
    eventually("and goes on", || paths(&receiver).last().is_some_and(|path| path == "/three"));
    let arrived = receiver.arrived();
    assert_eq!(paths(&receiver), ["/one", "/one", "/two", "/three"]);
    assert_eq!(arrived[0].0, arrived[1].0, "the same event has the same id");
}

#[test]
fn while_the_database_is_away_uploads_go_on_and_their_events_come_later_in_their_order() {
    let Some(mut database) = Postgres::new() else { return };
    let (folder, receiver) = (Folder::new(), Receiver::start());
    let node = start(&database, &folder, &receiver, "a", 1);
    let path = |number: usize| format!("/f{number:02}");
    (0..5).for_each(|number| store(&node, &path(number)));
    eventually("they are told", || paths(&receiver).len() == 5);
    database.daemon.kill();
    let began = Instant::now();
    (5..40).for_each(|number| store(&node, &path(number)));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "uploads wait for the database: {:?}",
        began.elapsed()
    );
    let list = node.ctl(&["events"]);
    assert!(list.contains("/f39") && list.contains("the database of the cluster"), "{list}");
    assert!(node.log().contains("events wait in the queue file of this node"), "{}", node.log());
    database.start();
    eventually("all are told", || paths(&receiver).len() == 40);
    assert_eq!(paths(&receiver), (0..40).map(path).collect::<Vec<_>>());
    eventually("it says so", || {
        node.log().contains("no event waits in the queue file of this node any more")
    });
    assert!(receiver.counts().values().all(|count| *count == 1));
}

#[test]
fn events_that_were_put_aside_are_seen_and_steered_at_any_node() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    let is_good = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&is_good);
    let receiver = Receiver::answering(move |events| {
        let is_bad = events.iter().any(|(_, _, path)| path == "/bad") && !its.load(Ordering::Relaxed);
        if is_bad { 400 } else { 204 }
    });
    let [a, b] = ["a", "b"].map(|name| start(&database, &folder, &receiver, name, 50));
    ["/one", "/bad", "/two"].iter().for_each(|path| store(&a, path));
    let has = |node: &Node, text: &str| node.ctl(&["events"]).contains(text);
    for node in [&a, &b] {
        eventually("it is seen", || has(node, "/bad") && has(node, "400"));
    }
    eventually("the others came", || {
        ["/one", "/two"].iter().all(|path| paths(&receiver).contains(&(*path).to_owned()))
    });
    is_good.store(true, Ordering::Relaxed);
    let before = receiver.arrived().len();
    let told = b.ctl(&["events", "retry", "--all"]);
    assert!(told.starts_with("1 "), "{told}");
    eventually("it comes again", || receiver.arrived().len() > before);
    eventually("it is gone", || kept(&database) == "0");
    let ids: BTreeSet<String> =
        receiver.arrived().into_iter().filter(|(_, (.., path))| path == "/bad").map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 1, "the same event has the same id");

    is_good.store(false, Ordering::Relaxed);
    store(&b, "/bad");
    eventually("it is seen", || has(&a, "/bad"));
    let unknown = a.ctl(&["events", "drop", "17"]);
    assert!(unknown.contains("there is no event 17"), "{unknown}");
    a.ctl(&["events", "drop", "--all"]);
    assert!(!has(&b, "/bad"));
}

#[test]
fn of_a_batch_that_is_refused_slowly_only_the_bad_event_is_put_aside() {
    let Some(database) = Postgres::new() else { return };
    let (folder, is_open) = (Folder::new(), Arc::new(AtomicBool::new(false)));
    let its = Arc::clone(&is_open);
    let receiver = Receiver::answering(move |events| {
        if !its.load(Ordering::Relaxed) {
            return 503;
        }
        // Longer than a node delivers without a word.
        thread::sleep(Duration::from_millis(600));
        if events.iter().any(|(_, _, path)| path == "/bad") { 400 } else { 204 }
    });
    let node = start(&database, &folder, &receiver, "a", 50);
    ["/one", "/bad", "/two"].iter().for_each(|path| store(&node, path));
    is_open.store(true, Ordering::Relaxed);
    eventually("one is left", || {
        let kept = "SELECT string_agg((parked IS NOT NULL)::text || body, '') FROM millrace_cluster.event";
        let kept = database.run(kept);
        kept.starts_with("true") && kept.contains("/bad") && !kept.contains("/one") && !kept.contains("/two")
    });
}

#[test]
fn a_program_that_no_hook_names_is_not_run_though_the_database_says_so() {
    let Some(database) = Postgres::new() else { return };
    let (folder, receiver) = (Folder::new(), Receiver::start());
    let node = start(&database, &folder, &receiver, "a", 1);
    let made = folder.0.join("made");
    database.run(&format!(
        "SELECT millrace_cluster.put_events(ARRAY['x-1'],
            ARRAY['{{\"program\":{{\"name\":\"/bin/touch\",\"milliseconds\":1000}}}}'], ARRAY['{{}}'],
            ARRAY[convert_to('/bin/touch', 'UTF8') || '\\x00' || convert_to('{}', 'UTF8') || '\\x00'], ARRAY[''::bytea],
            ARRAY[NULL]::text[])",
        made.display()
    ));
    eventually("it says why", || {
        node.ctl(&["events"]).contains("node a has no hook that tells this receiver")
    });
    store(&node, "/one");
    eventually("it goes on with others", || paths(&receiver) == ["/one"]);
    assert!(!made.exists() && kept(&database) == "1");
}
