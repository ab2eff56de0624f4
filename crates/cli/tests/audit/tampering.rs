//! Five ways to change what was recorded.

use std::fs;

use crate::site::{HASH, Site, eventually, is, lines};

/// A log of seven records, by a server that has ended.
fn site(name: &str) -> (Site, Vec<String>) {
    let site = Site::new(name);
    let serving = site.serve();
    for network in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"] {
        site.ctl(&["ban", network]);
    }
    serving.stop();
    let lines = lines(&site.log());
    assert_eq!(lines.len(), 7, "{lines:#?}");
    (site, lines)
}

/// Writes these lines in place of the log; verify has to find the fault.
#[track_caller]
fn finds(site: &Site, lines: &[String], told: &str) {
    fs::write(site.log(), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let (code, text) = site.verify(&["audit/audit.jsonl"]);
    assert_eq!((code, text.trim_end()), (Some(1), &*format!("millrace: audit/audit.jsonl:{told}.")));
}

#[test]
fn a_record_that_is_removed_changed_moved_or_inserted_is_found() {
    let (site, whole) = site("ways");
    site.is_whole(&["audit/audit.jsonl"]);

    let mut removed = whole.clone();
    removed.remove(2);
    finds(&site, &removed, "3: record 3 is missing before record 4");

    let mut changed = whole.clone();
    changed[2] = changed[2].replace("192.0.2.2", "192.0.2.9");
    finds(&site, &changed, "3: record 3 was changed: record 4 carries another SHA-256 of it");

    let mut moved = whole.clone();
    moved.swap(2, 3);
    finds(&site, &moved, "3: record 3 is missing before record 4");

    let mut inserted = whole.clone();
    inserted.insert(3, whole[2].clone());
    finds(&site, &inserted, "4: there are two records 3: one of them was inserted");
    inserted[3] = "{\"event\":\"administered\"}".to_owned();
    finds(&site, &inserted, "4: this is no record of an audit log");

    let cut = &whole[..5];
    finds(
        &site,
        cut,
        "5: records 6 to 7 are missing at the end: the head file says that record 7 was written",
    );
}

#[test]
fn a_cut_end_is_found_by_the_sha_256_that_was_noted_and_told_by_the_next_start() {
    let (site, whole) = site("noted");
    let verified = site.is_whole(&["audit/audit.jsonl"]);
    let noted = verified.trim_end().trim_end_matches('.').rsplit(' ').next().unwrap().to_owned();
    site.is_whole(&["--last", &noted, "audit/audit.jsonl"]);
    let head = site.folder.join("audit/audit.jsonl.head");
    let kept = fs::read(&head).unwrap();
    fs::remove_file(&head).unwrap();
    fs::write(site.log(), format!("{}\n{}\n", whole[0], whole[1])).unwrap();
    site.is_whole(&["audit/audit.jsonl"]);
    let (code, text) = site.verify(&["--last", &noted, "audit/audit.jsonl"]);
    assert_eq!(code, Some(1));
    assert!(text.contains(&format!(":2: no record has the SHA-256 {noted}")), "{text}");

    fs::write(&head, kept).unwrap();
    site.serve().stop();
    let records = site.records();
    let missing = records.iter().find(|record| is("records-missing")(record)).unwrap();
    assert_eq!((&missing["first"], &missing["last"], &missing["seq"]), (&3.into(), &7.into(), &8.into()));
    assert!(site.events().contains("was cut or changed: records 3 to 7 were written"), "{}", site.events());
    let (code, text) = site.verify(&["audit/audit.jsonl"]);
    assert!(code == Some(1) && text.contains(":3: records 3 to 7 are missing before record 8"), "{text}");
}

#[test]
fn a_request_that_makes_no_sense_is_told_apart_from_a_broken_log() {
    let (site, _) = site("sense");
    assert_eq!(site.verify(&["audit/none"]).0, Some(2));
    assert_eq!(site.verify(&["--last", "abc", "audit/audit.jsonl"]).0, Some(2));
    assert_eq!(site.verify(&[]).0, Some(2));
}

/// By whom and whenever they are moved away: the chain goes on in the next file.
#[test]
fn files_that_were_moved_away_are_one_chain() {
    let (site, first) = site("moved");
    let old = |number: u32| format!("audit/audit.jsonl.{number}");
    // While no server runs, and an account is changed in between.
    fs::rename(site.log(), site.folder.join(old(2))).unwrap();
    site.user(&["passwd", "alice", "--hash", HASH]);
    let serving = site.serve();
    // While one does, which is not told.
    site.records_up_to(is("started"));
    fs::rename(site.log(), site.folder.join(old(1))).unwrap();
    site.ctl(&["ban", "192.0.2.5"]);
    eventually(|| site.log().exists(), || site.events());
    serving.stop();
    let text = site.is_whole(&[&old(2), &old(1), "audit/audit.jsonl"]);
    assert!(text.starts_with("Records 1 to 12 are as they were written"), "{text}");
    let newer = site.is_whole(&[&old(1), "audit/audit.jsonl"]);
    assert!(newer.starts_with("Records 1 to 7 are not in these files."), "{newer}");
    let (code, text) = site.verify(&[&old(2), "audit/audit.jsonl"]);
    assert!(code == Some(1) && text.contains("records 8 to 9 are missing before record 10"), "{text}");
    assert_eq!(lines(&site.folder.join(old(2))), first);
}
