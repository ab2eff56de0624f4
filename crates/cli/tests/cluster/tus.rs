//! Resumable uploads that go on at another node.

use std::io::Write;
use std::time::{Duration, Instant};

use super::http::{Folder, answer, ask, begin, names};
use super::postgresql::Postgres;
use super::{Node, eventually};

const TUS: &str = "Tus-Resumable: 1.0.0";
const PIECE: &str = "Content-Type: application/offset+octet-stream";
/// `filename big`.
const NAMED: &str = "Upload-Metadata: filename Ymln";

/// Begins an upload, and returns its address.
#[track_caller]
fn create(node: &Node, length: &str) -> String {
    let created = ask(node, "POST /", &[TUS, NAMED, length, "Content-Length: 0"], "");
    assert_eq!(created.status, 201, "{created:?}");
    created.field("Location").unwrap().to_owned()
}

/// Where an upload goes on, or the status that says why it does not.
fn offset(node: &Node, address: &str) -> Result<u64, u16> {
    let told = ask(node, &format!("HEAD {address}"), &[TUS], "");
    match told.field("Upload-Offset") {
        Some(offset) if told.status == 200 => Ok(offset.parse().unwrap()),
        _ => Err(told.status),
    }
}

fn patch(node: &Node, address: &str, offset: u64, body: &str) -> u16 {
    let offset = format!("Upload-Offset: {offset}");
    ask(node, &format!("PATCH {address}"), &[TUS, PIECE, &offset], body).status
}

fn left(folder: &Folder) -> Vec<String> {
    names(&folder.path(".millrace-staging"))
}

#[test]
fn an_upload_goes_on_at_any_node_and_becomes_a_file_once() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    let [one, other, third] = folder.nodes(&database, ["a", "b", "c"], 6);
    let address = create(&one, "Upload-Length: 12");
    assert_eq!(offset(&other, &address), Ok(0));
    assert_eq!(patch(&other, &address, 0, "from b"), 204);
    assert_eq!((offset(&one, &address), offset(&third, &address)), (Ok(6), Ok(6)));
    assert_eq!(patch(&one, &address, 0, "again!"), 409);
    // At once at the next one: the lock was given back before the answer.
    assert_eq!(patch(&third, &address, 6, " to c,"), 204);
    assert_eq!(folder.read("big"), "from b to c,");
    // A client that has not heard of it asks anywhere, and is told the same.
    assert_eq!((offset(&one, &address), offset(&other, &address)), (Ok(12), Ok(12)));
    assert_eq!(patch(&other, &address, 12, ""), 204);
    assert_eq!(left(&folder), [""; 0]);
    eventually("no lock is left", || database.run("SELECT count(*) FROM millrace_cluster.name_lock") == "0");
    // The length that is said late, and the end, at other nodes than the beginning.
    let late = create(&one, "Upload-Defer-Length: 1");
    let said = ["Upload-Length: 6", TUS, PIECE, "Upload-Offset: 0"];
    assert_eq!(ask(&other, &format!("PATCH {late}"), &said, "abc").status, 204);
    assert_eq!(patch(&third, &late, 3, "defg"), 413);
    assert_eq!(ask(&third, &format!("DELETE {late}"), &[TUS], "").status, 204);
    assert_eq!((offset(&one, &late), patch(&other, &late, 3, "d")), (Err(410), 410));
    assert_eq!(left(&folder), [""; 0]);
}

#[test]
fn two_nodes_never_write_one_upload_at_a_time() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    let [one, other] = folder.nodes(&database, ["a", "b"], 6);
    let address = create(&one, "Upload-Length: 12");
    let lines = [TUS, PIECE, "Upload-Offset: 0"];
    let mut first = begin(&one, &format!("PATCH {address}"), &lines, 6, "abc");
    let is_locked = || database.run("SELECT count(*) FROM millrace_cluster.name_lock") == "1";
    eventually("the first one has it", is_locked);
    assert_eq!(patch(&other, &address, 0, "ABCDEF"), 423);
    assert_eq!(patch(&one, &address, 0, "ABCDEF"), 423, "nor one node twice");
    assert!(is_locked(), "the second has not given the lock of the first back");
    assert_eq!(ask(&other, &format!("DELETE {address}"), &[TUS], "").status, 423);
    first.write_all(b"def").unwrap();
    assert_eq!(answer(first).status, 204);
    assert_eq!(patch(&other, &address, 6, "ghijkl"), 204);
    assert_eq!(folder.read("big"), "abcdefghijkl");
}

#[test]
fn when_a_node_is_killed_another_goes_on_from_what_was_acknowledged() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    let [mut dies, lives] = folder.nodes(&database, ["dies", "lives"], 3);
    let address = create(&dies, "Upload-Length: 9");
    assert_eq!(patch(&dies, &address, 0, "one"), 204);
    let lines = [TUS, PIECE, "Upload-Offset: 3"];
    let _cut = begin(&dies, &format!("PATCH {address}"), &lines, 6, "");
    eventually("it has the lock", || database.run("SELECT count(*) FROM millrace_cluster.name_lock") == "1");
    dies.child.kill().unwrap();
    let death = Instant::now();
    assert_eq!(offset(&lives, &address), Ok(3));
    eventually("its lock is gone", || patch(&lives, &address, 3, "two") == 204);
    assert!(death.elapsed() < Duration::from_secs(10), "{:?}", death.elapsed());
    assert_eq!(patch(&lives, &address, 6, "end"), 204);
    assert_eq!(folder.read("big"), "onetwoend");
    assert_eq!(left(&folder), [""; 0]);
}

#[test]
fn a_node_that_has_stalled_does_not_finish_what_another_may_have_gone_on_with() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    let [stalls, lives] = folder.nodes(&database, ["stalls", "lives"], 3);
    let address = create(&stalls, "Upload-Length: 6");
    let lines = [TUS, PIECE, "Upload-Offset: 0"];
    let mut piece = begin(&stalls, &format!("PATCH {address}"), &lines, 6, "abc");
    let locks = || database.run("SELECT count(*) FROM millrace_cluster.name_lock");
    eventually("it has the lock", || locks() == "1");
    stalls.signal("-STOP");
    eventually("its lock is gone", || locks() == "0");
    stalls.signal("-CONT");
    eventually("it learns of it", || stalls.log().contains("has ended: it was silent"));
    piece.write_all(b"def").unwrap();
    // 503: it has not registered anew yet.
    let status = answer(piece).status;
    assert!([423, 503].contains(&status), "{status}");
    assert!(!folder.path("big").exists());
    // All of it is there, and nothing in its way any more.
    let (mut told, end) = (offset(&lives, &address), Instant::now() + super::PATIENCE);
    while told == Err(423) && Instant::now() < end {
        told = offset(&lives, &address);
    }
    assert_eq!(told, Ok(6));
    assert_eq!(folder.read("big"), "abcdef");
}

#[test]
fn shares_of_uploads_count_over_all_nodes_and_without_the_database_none_begins() {
    let Some(mut database) = Postgres::new() else { return };
    let folder = Folder::new();
    let [one, other] = folder.nodes(&database, ["a", "b"], 3);
    database.run(
        "INSERT INTO millrace_cluster.upload (key, \"user\", until) SELECT decode(md5('k' || n), 'hex'), 'free', \
         clock_timestamp() + interval '1 hour' FROM generate_series(1, 249) AS n",
    );
    let last = create(&one, "Upload-Length: 6");
    let begin =
        |node: &Node| ask(node, "POST /", &[TUS, NAMED, "Upload-Length: 6", "Content-Length: 0"], "").status;
    assert_eq!((begin(&one), begin(&other)), (507, 507));
    assert_eq!(ask(&other, &format!("DELETE {last}"), &[TUS], "").status, 204);
    let next = create(&one, "Upload-Length: 6");
    assert_eq!(patch(&one, &next, 0, "abc"), 204);
    database.daemon.kill();
    assert_eq!((begin(&other), patch(&other, &next, 3, "def")), (503, 503));
    assert_eq!(offset(&other, &next), Ok(3), "what came is told");
    database.start();
    eventually("it goes on", || patch(&other, &next, 3, "def") == 204);
    assert_eq!(folder.read("big"), "abcdef");
}

#[test]
fn parts_that_came_to_different_nodes_are_one_file() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    let nodes = folder.nodes(&database, ["a", "b", "c"], 6);
    let parts: Vec<String> = ["left ", "right"]
        .iter()
        .zip(&nodes)
        .map(|(content, node)| {
            let lines = [TUS, "Upload-Concat: partial", "Upload-Length: 5", "Content-Length: 0"];
            let created = ask(node, "POST /", &lines, "");
            let address = created.field("Location").unwrap().to_owned();
            assert_eq!(patch(&nodes[2], &address, 0, content), 204);
            address
        })
        .collect();
    let concat = format!("Upload-Concat: final;{}", parts.join(" "));
    let joined = ask(&nodes[1], "POST /", &[TUS, NAMED, &concat, "Content-Length: 0"], "");
    assert_eq!(joined.status, 201, "{joined:?}");
    assert_eq!(folder.read("big"), "left right");
    let again = ask(&nodes[0], "POST /", &[TUS, NAMED, &concat, "Content-Length: 0"], "");
    assert_eq!(again.status, 201, "who did not hear the answer is told the same: {again:?}");
    assert_eq!(left(&folder), [""; 0]);
}
