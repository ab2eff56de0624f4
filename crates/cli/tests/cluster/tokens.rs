//! Tokens of the admin API are good at all nodes.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;

use super::http::{Answer, answer};
use super::postgresql::Postgres;
use super::{Node, PATIENCE, eventually};

const KEYS: &str = "admin = \"127.0.0.1:0\"";

/// A token that a test shows without having made it.
const OWN: &str = "of-this-node";

/// Asks the admin API.
fn call(node: &Node, request: &str, token: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(&node.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        node.http,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    answer(stream)
}

fn takes(node: &Node, token: &str) -> bool {
    match call(node, "GET /api/v1/status", token, "").status {
        200 => true,
        401 => false,
        other => panic!("{other}"),
    }
}

/// Makes one by the control socket, and waits until these take it.
#[track_caller]
fn add(node: &Node, words: &[&str], all: &[&Node]) -> String {
    let token = node.ctl(&[&["token", "add"], words].concat()).trim().to_owned();
    assert!(token.starts_with("millrace_"), "{token}");
    assert!(takes(node, &token), "at once");
    eventually("the others take it", || all.iter().all(|node| takes(node, &token)));
    token
}

/// The file of a node that has its copy.
fn file(node: &Node) -> PathBuf {
    let files = fs::read_dir(node.folder.join("state/admin")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    files.find(|path| path.extension().is_some_and(|ending| ending == "json")).unwrap()
}

/// Has a new process do what a node does, which knows what the files have.
fn restart(node: &Node) {
    let said = node.ctl(&["--json", "upgrade"]);
    assert!(said.contains("\"pid\""), "{said}{}", node.log());
}

/// Ends a node whose process another one has replaced.
struct Ended<'a>(&'a Node);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ctl(&["stop"]);
    }
}

#[test]
fn a_token_that_is_made_at_one_node_is_good_at_all_until_it_is_removed_at_any() {
    let Some(database) = Postgres::new() else { return };
    let [a, b, c] = ["a", "b", "c"].map(|name| Node::start(&database, name, KEYS, 6));
    let root = add(&a, &["root", "--role", "administrator"], &[&b, &c]);
    let viewer = add(&b, &["deploy", "--role", "viewer"], &[&a, &c]);
    assert_eq!(call(&c, "POST /api/v1/reload", &viewer, "").status, 403, "the role holds");
    for node in [&a, &b, &c] {
        let list = node.ctl(&["token", "list"]);
        assert!(list.contains("root") && list.contains("deploy"), "{list}");
    }
    let rows = database.run("SELECT t::text FROM millrace_cluster.token AS t");
    assert!(!rows.contains(&root) && !rows.contains("millrace_"), "{rows}");

    let taken = call(&c, "POST /api/v1/tokens", &root, "{\"name\": \"deploy\", \"role\": \"viewer\"}");
    assert_eq!(taken.status, 409, "{}", taken.body);
    let short = add(&c, &["short", "--role", "viewer", "--for", "6s"], &[]);
    eventually("it expires where it was not made", || {
        a.ctl(&["token", "list"]).lines().any(|line| line.starts_with("short") && line.ends_with("expired"))
    });
    assert!(!takes(&a, &short));

    assert_eq!(call(&c, "DELETE /api/v1/tokens/deploy", &root, "").status, 200);
    assert!(!takes(&c, &viewer), "at once");
    eventually("it ends at the others", || !takes(&a, &viewer) && !takes(&b, &viewer));
    assert_eq!(call(&b, "DELETE /api/v1/tokens/deploy", &root, "").status, 404);
    assert!(takes(&a, &root));
}

#[test]
fn tokens_hold_while_the_database_is_away_and_behind_a_restart_and_none_is_made_or_removed() {
    let Some(mut database) = Postgres::new() else { return };
    let [a, b] = ["a", "b"].map(|name| Node::start(&database, name, KEYS, 6));
    let root = add(&a, &["root", "--role", "administrator"], &[&b]);
    database.daemon.kill();
    let asked = |node, request, body| call(node, request, &root, body);
    let made = asked(&a, "POST /api/v1/tokens", "{\"name\": \"late\", \"role\": \"viewer\"}");
    assert_eq!(made.status, 503, "{}", made.body);
    assert!(made.body.contains("tokens are not changed: the database of the cluster: "), "{}", made.body);
    assert_eq!(asked(&b, "DELETE /api/v1/tokens/root", "").status, 503);
    restart(&b);
    let _ended = Ended(&b);
    assert!(takes(&a, &root) && takes(&b, &root));
    database.start();
    eventually("it is removed when the database is back", || {
        asked(&b, "DELETE /api/v1/tokens/root", "").status == 200
    });
    eventually("it has ended", || !takes(&a, &root) && !takes(&b, &root));
}

#[test]
fn a_node_that_joins_tells_its_own_tokens_unless_their_names_are_taken() {
    let Some(database) = Postgres::new() else { return };
    let [a, b] = ["a", "b"].map(|name| Node::start(&database, name, KEYS, 6));
    let deploy = add(&a, &["deploy", "--role", "viewer"], &[&b]);
    eventually("it has a copy", || fs::read_to_string(file(&b)).is_ok_and(|text| text.contains("deploy")));
    // As a single server has made them.
    let hash = |text| database.run(&format!("SELECT encode(sha256('{text}'), 'hex')"));
    let row = |name, text| {
        let sha256 = hash(text);
        format!(
            "{{\"name\": \"{name}\", \"role\": \"viewer\", \"sha256\": \"{sha256}\", \"created\": 1, \"expires\": null}}"
        )
    };
    fs::write(file(&b), format!("[{}, {}]", row("own", OWN), row("deploy", "another"))).unwrap();
    restart(&b);
    let _ended = Ended(&b);
    eventually("the other node takes it", || takes(&a, OWN) && takes(&b, OWN));
    eventually("the log says what has ended", || {
        b.log().contains(
            "the token deploy of the admin API, which this node alone had, has ended: another token",
        )
    });
    assert!(takes(&a, &deploy) && takes(&b, &deploy) && !takes(&b, "another"));
}

#[test]
fn tables_that_were_made_anew_have_the_tokens_of_before() {
    let Some(database) = Postgres::new() else { return };
    let node = Node::start(&database, "a", KEYS, 3);
    let root = add(&node, &["root", "--role", "administrator"], &[]);
    database.run("DROP SCHEMA millrace_cluster CASCADE");
    eventually("they have it", || {
        let known = database.run("SELECT to_regclass('millrace_cluster.token') IS NOT NULL");
        known == "t" && database.run("SELECT count(*) FROM millrace_cluster.token") == "1"
    });
    assert!(takes(&node, &root));
}
