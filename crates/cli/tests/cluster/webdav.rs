//! Locks and properties of WebDAV that hold at all nodes.

use std::fs;
use std::time::{Duration, Instant};

use super::http::{Answer, Folder, ask};
use super::postgresql::Postgres;
use super::{Node, eventually};

const EXCLUSIVE: &str = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
                         <D:locktype><D:write/></D:locktype><D:owner>me</D:owner></D:lockinfo>";
const DISCOVERY: &str = "<D:propfind xmlns:D=\"DAV:\"><D:prop><D:lockdiscovery/></D:prop></D:propfind>";

/// Locks a path, and returns the token.
#[track_caller]
fn lock(node: &Node, path: &str, lines: &[&str]) -> String {
    let given = ask(node, &format!("LOCK {path}"), lines, EXCLUSIVE);
    assert!(given.status / 100 == 2, "{given:?}");
    let token = given.field("Lock-Token").unwrap();
    token.trim_matches(['<', '>']).to_owned()
}

fn put(node: &Node, path: &str, token: Option<&str>) -> u16 {
    let shown = token.map(|token| format!("If: (<{token}>)"));
    ask(node, &format!("PUT {path}"), &shown.iter().map(String::as_str).collect::<Vec<_>>(), "new").status
}

fn status(node: &Node, request: &str, lines: &[&str]) -> u16 {
    ask(node, request, lines, "").status
}

fn discover(node: &Node, path: &str) -> Answer {
    ask(node, &format!("PROPFIND {path}"), &["Depth: 1"], DISCOVERY)
}

#[test]
fn a_lock_at_one_node_is_a_lock_at_all_of_them() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    fs::write(folder.path("f"), "old").unwrap();
    fs::write(folder.path("g"), "old").unwrap();
    let [one, other, third] = folder.nodes(&database, ["a", "b", "c"], 6);
    let token = lock(&one, "/f", &["Timeout: Second-600"]);
    let shown = format!("If: (<{token}>)");
    assert_eq!(put(&other, "/f", None), 423);
    assert_eq!(status(&other, "DELETE /f", &[]), 423);
    assert_eq!(status(&other, "MOVE /f", &["Destination: /h"]), 423);
    assert_eq!(status(&other, "MOVE /g", &["Destination: /f"]), 423);
    assert_eq!(status(&other, "COPY /g", &["Destination: /f"]), 423);
    assert_eq!(ask(&other, "LOCK /f", &[], EXCLUSIVE).status, 423);
    assert_eq!(folder.read("f"), "old");
    assert_eq!(put(&other, "/g", None), 204, "another file is free");
    assert_eq!(put(&other, "/f", Some(&token)), 204);
    assert_eq!(put(&other, "/g", Some(&token)), 412, "the lock is not there");
    for path in ["/f", "/"] {
        let found = discover(&third, path);
        assert!(found.status == 207 && found.body.contains(&token), "{path}: {found:?}");
    }
    let longer = ask(&third, "LOCK /f", &[&shown, "Timeout: Second-3000"], "");
    assert!(longer.status == 200 && longer.body.contains("Second-29"), "{longer:?}");
    assert_eq!(put(&other, "/f", None), 423);
    assert_eq!(status(&third, "UNLOCK /g", &[&format!("Lock-Token: <{token}>")]), 409);
    assert_eq!(status(&third, "UNLOCK /f", &[&format!("Lock-Token: <{token}>")]), 204);
    assert_eq!(put(&other, "/f", None), 204);
    assert!(!discover(&one, "/f").body.contains(&token));
    let token = lock(&other, "/f", &["Timeout: Second-2"]);
    assert_eq!(put(&one, "/f", None), 423);
    eventually("it ends with its time", || put(&one, "/f", None) == 204);
    assert_eq!(put(&one, "/f", Some(&token)), 412);
}

#[test]
fn what_is_beneath_a_lock_and_what_is_not_there_yet_is_locked_at_all_nodes() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/e")).unwrap();
    let [one, other] = folder.nodes(&database, ["a", "b"], 6);
    let deep = lock(&one, "/d/", &["Depth: infinity"]);
    for request in ["PUT /d/e/f", "MKCOL /d/x", "DELETE /d/e/", "DELETE /d/"] {
        assert_eq!(status(&other, request, &[]), 423, "{request}");
    }
    assert_eq!(ask(&other, "LOCK /d/e/f", &[], EXCLUSIVE).status, 423);
    assert_eq!(put(&other, "/d/e/f", Some(&deep)), 201);
    assert!(discover(&other, "/d/e/").body.matches(&deep).count() > 1, "members tell of it");
    assert_eq!(status(&other, "UNLOCK /d/", &[&format!("Lock-Token: <{deep}>")]), 204);

    let file = lock(&other, "/d/e/f", &[]);
    assert_eq!(ask(&one, "LOCK /d/", &["Depth: infinity"], EXCLUSIVE).status, 423);
    assert_eq!(status(&one, "DELETE /d/", &[]), 423, "it goes with a file that is locked");
    let new = lock(&one, "/new", &[]);
    assert_eq!(folder.read("new"), "", "a name that is locked is a file");
    assert_eq!((put(&other, "/new", None), put(&other, "/new", Some(&new))), (423, 204));
    // What is gone has no locks.
    let shown = format!("If: </d/e/f> (<{file}>)");
    assert_eq!(status(&one, "MOVE /d/e/f", &["Destination: /moved", &shown]), 201);
    assert_eq!((put(&other, "/d/e/f", None), put(&other, "/moved", None)), (201, 204));
}

#[test]
fn properties_set_at_one_node_are_told_by_all_and_go_with_their_file() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    fs::write(folder.path("f"), "x").unwrap();
    let [one, other] = folder.nodes(&database, ["a", "b"], 6);
    let set = |value: &str| {
        format!(
            "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><n:colour xmlns:n=\"urn:n\">{value}</n:colour>\
             </D:prop></D:set></D:propertyupdate>"
        )
    };
    let has = |node: &Node, path: &str, value: &str| {
        ask(node, &format!("PROPFIND {path}"), &["Depth: 0"], "").body.contains(&format!(">{value}</"))
    };
    let changed = ask(&one, "PROPPATCH /f", &[], &set("blue"));
    assert!(changed.status == 207 && changed.body.contains(" 200 OK"), "{changed:?}");
    assert!(has(&other, "/f", "blue"));
    assert!(ask(&other, "PROPFIND /", &["Depth: 1"], "").body.contains(">blue</"));
    ask(&other, "PROPPATCH /f", &[], &set("red"));
    assert!(has(&one, "/f", "red"));
    eventually("the nodes have heard that there are some", || {
        ask(&other, "COPY /f", &["Destination: /g"], "").status / 100 == 2 && has(&one, "/g", "red")
    });
    assert_eq!(status(&other, "MOVE /f", &["Destination: /h"]), 201);
    assert!(has(&one, "/h", "red"));
    assert_eq!(status(&one, "DELETE /h", &[]), 204);
    assert_eq!(put(&other, "/h", None), 201);
    assert!(!has(&one, "/h", "red"), "what was deleted has none");
}

#[test]
fn shares_of_locks_count_over_all_nodes_and_looking_for_locks_scans_nothing() {
    let Some(database) = Postgres::new() else { return };
    let folder = Folder::new();
    let [one, other] = folder.nodes(&database, ["a", "b"], 6);
    let rows = |user: &str, count: u32| {
        database.run(&format!(
            "INSERT INTO millrace_cluster.dav_lock (token, place, above, root, is_exclusive, is_deep, \"user\", bytes, \
             until, edition) SELECT '{user}' || n, decode(md5('{user}' || n), 'hex'), ARRAY[decode(md5('r'), 'hex')], '/', \
             true, false, '{user}', 300, clock_timestamp() + interval '1 hour', nextval('millrace_cluster.dav_edition') \
             FROM generate_series(1, {count}) AS n"
        ))
    };
    rows("free", 2499);
    let last = lock(&one, "/f", &[]);
    assert_eq!(ask(&other, "LOCK /g", &[], EXCLUSIVE).status, 507, "the user has a whole share");
    assert_eq!(status(&one, "UNLOCK /f", &[&format!("Lock-Token: <{last}>")]), 204);
    lock(&other, "/g", &[]);
    rows("ann", 2500);
    database.run("ANALYZE millrace_cluster.dav_lock");
    let plan = database.run(
        "EXPLAIN SELECT * FROM millrace_cluster.dav_lock AS l WHERE (l.place = ANY (ARRAY[decode(md5('free7'), 'hex')]) \
         OR l.above && ARRAY[decode(md5('free7'), 'hex')]) AND l.until > clock_timestamp()",
    );
    assert!(plan.contains("dav_lock_place") && !plan.contains("Seq Scan"), "{plan}");
}

#[test]
fn while_the_database_is_away_nothing_is_locked_and_what_was_locked_is_not_written() {
    let Some(mut database) = Postgres::new() else { return };
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let [one, other] = folder.nodes(&database, ["a", "b"], 3);
    assert_eq!((put(&one, "/d/f", None), put(&one, "/g", None)), (201, 201));
    let token = lock(&one, "/d/f", &["Timeout: Second-600"]);
    // A node hears of it within a second.
    std::thread::sleep(Duration::from_millis(2500));
    database.daemon.kill();
    for path in ["/g", "/new", "/d/g"] {
        assert_eq!(put(&other, path, None) / 100, 2, "{path}: writing goes on");
    }
    assert_eq!((put(&other, "/d/f", None), put(&other, "/d/f", Some(&token))), (503, 503));
    assert_eq!(status(&other, "DELETE /d/", &[]), 503, "nor removed with the folder that it is in");
    assert_eq!(ask(&other, "LOCK /g", &[], EXCLUSIVE).status, 503);
    assert_eq!(status(&one, "UNLOCK /d/f", &[&format!("Lock-Token: <{token}>")]), 503);
    assert_eq!(discover(&other, "/d/f").status, 207, "reading goes on");
    let begin = Instant::now();
    assert_eq!(put(&other, "/g", None), 204);
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    database.start();
    eventually("the lock holds as before", || put(&other, "/d/f", None) == 423);
    eventually("for its holder, too", || put(&other, "/d/f", Some(&token)) == 204);
}
