//! Copies of audit logs: which chains there are.

use std::sync::Arc;

use millrace_cluster::{AuditCopy, AuditTable, PostgresAudit, Table};

use super::{PATIENT, Postgres, Way, entry, table};

fn copies(numbers: std::ops::RangeInclusive<u64>) -> Vec<AuditCopy> {
    let copy = |seq| AuditCopy { seq, sha256: format!("hash of {seq}"), line: format!("line {seq}") };
    numbers.map(copy).collect()
}

#[test]
fn chains_are_listed_with_their_ends_and_the_node_that_wrote_last() {
    let Some(server) = Postgres::new() else { return };
    table(&server).register(&entry("one"), None, &[]).unwrap();
    let audit = PostgresAudit::new(Arc::new(Way(server.connection().parse().unwrap())), PATIENT).unwrap();
    assert_eq!(audit.chains().unwrap(), []);
    audit.put("x", "old-name", &copies(3..=5)).unwrap();
    audit.put("x", "b", &copies(6..=6)).unwrap();
    audit.put("k", "c", &copies(1..=1)).unwrap();
    audit.put("z", "a", &copies(7..=9)).unwrap();
    let chains = audit.chains().unwrap();
    let told: Vec<_> = chains.iter().map(|of| (&*of.node, &*of.chain, of.first, of.last)).collect();
    assert_eq!(told, [("a", "z", 7, 9), ("b", "x", 3, 6), ("c", "k", 1, 1)]);
}
