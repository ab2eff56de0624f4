//! Locks of resumable uploads, and what is known of them, in a real PostgreSQL.

use millrace_cluster::{KnownUpload, Locking, UploadTable, UploadVerdict};

use super::*;

const KEY: [u8; 16] = [7; 16];
const AGE: Duration = Duration::from_secs(60);

fn whole(length: u64) -> KnownUpload {
    KnownUpload { length: Some(length), is_finished: true, ..KnownUpload::default() }
}

#[test]
fn a_node_that_registers_anew_keeps_its_uploads_and_only_who_has_the_lock_ends_one() {
    let Some(server) = Postgres::new() else { return };
    let (one, other) = (table(&server), table(&server));
    let first = one.register(&entry("one"), None, &[]).unwrap();
    assert_eq!(one.lock_name(first, "tus", &KEY, 11).unwrap(), Locking::Locked);
    let second = one.register(&entry("one"), Some(first), &[]).unwrap();
    assert!(one.holds_lock(&KEY, 11).unwrap());
    let node = other.register(&entry("other"), None, &[]).unwrap();
    assert_eq!(other.lock_name(node, "tus", &KEY, 22).unwrap(), Locking::Busy);
    assert!(one.finish_upload(&KEY, Some(11), &whole(5), AGE).unwrap());

    // The first node is silent for too long, and the upload goes on at the other.
    one.leave(second).unwrap();
    assert!(!one.holds_lock(&KEY, 11).unwrap());
    assert_eq!(other.lock_name(node, "tus", &KEY, 22).unwrap(), Locking::Locked);
    assert!(!one.finish_upload(&KEY, Some(11), &whole(6), AGE).unwrap());
    assert!(other.finish_upload(&KEY, Some(22), &whole(7), AGE).unwrap());
    one.settle_upload(&KEY, UploadVerdict::Unfinished { lock: 11, age: AGE }).unwrap();
    assert_eq!(other.find_upload(&KEY, AGE).unwrap(), Some(whole(7)));
    one.release_upload(&KEY, 11).unwrap();
    assert!(other.holds_lock(&KEY, 22).unwrap());

    // Its own record a node takes back.
    other.settle_upload(&KEY, UploadVerdict::Unfinished { lock: 22, age: AGE }).unwrap();
    assert!(!other.find_upload(&KEY, AGE).unwrap().unwrap().is_finished);
    assert!(other.finish_upload(&KEY, None, &whole(8), AGE).unwrap());
    assert!(!other.finish_upload(&KEY, None, &whole(9), AGE).unwrap(), "it is known already");

    // After a crash of the database, locks are gone that nodes may take to be theirs.
    server.run("UPDATE millrace_cluster.pulse SET closed_until = clock_timestamp() + interval '1 hour'");
    assert_eq!(other.lock_name(node, "tus", &[8; 16], 23).unwrap(), Locking::Busy);
}
