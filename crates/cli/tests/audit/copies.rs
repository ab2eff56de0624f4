//! Copies of audit logs in the database of a cluster: of several servers at one, compared with files that were cut or forged.

use std::fs;

use millrace_log::Sha256;

use crate::postgresql::Postgres;
use crate::site::{Serving, Site, eventually, lines};

/// A server that is a node of the database's cluster.
fn site(database: &Postgres, test: &str, node: &str) -> Site {
    let site = Site::new(&format!("{test}-{node}"));
    site.configure(&format!(
        "[cluster]\ndatabase = \"{}\"\nnode = \"{node}\"\nlease = \"3s\"\nshare-audit = true\n",
        database.connection()
    ));
    site
}

fn copied(database: &Postgres) -> usize {
    database.run("SELECT count(*) FROM millrace_cluster.audit").parse().unwrap()
}

/// Bans some networks.
fn ban(site: &Site, networks: std::ops::Range<u32>) {
    networks.for_each(|number| drop(site.ctl(&["ban", &format!("192.0.2.{number}")])));
}

fn write(site: &Site, lines: &[String]) {
    fs::write(site.log(), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    // What the file alone could tell is gone too.
    let _ = fs::remove_file(site.folder.join("audit/audit.jsonl.head"));
}

/// A chain of the same records, as if it had always been one.
fn chained(lines: &[String]) -> Vec<String> {
    let mut before = "0".repeat(64);
    let again = |(index, line): (usize, &String)| {
        let open = &line[..line.rfind(",\"seq\":").unwrap()];
        let line = format!("{open},\"seq\":{},\"prev\":\"{before}\"}}", index + 1);
        before = Sha256::of(line.as_bytes()).to_string();
        line
    };
    lines.iter().enumerate().map(again).collect()
}

/// A server that has ended, all of whose records were copied.
fn ended(database: &Postgres, test: &str) -> (Site, Vec<String>) {
    let site = site(database, test, "a");
    let serving = site.serve();
    ban(&site, 1..5);
    serving.stop();
    let lines = lines(&site.log());
    assert_eq!(copied(database), lines.len(), "the last ones too");
    (site, lines)
}

#[track_caller]
fn verify(site: &Site, code: i32, told: &str) {
    let (found, text) = site.verify(&["--config", "millrace.toml", "audit/audit.jsonl"]);
    assert!(found == Some(code) && text.contains(told), "{found:?} {text}");
}

/// Starts the server again, which says that the log is another.
fn refuses(site: &Site, told: &str) -> Serving {
    let serving = site.serve();
    says(site, told);
    serving
}

/// Waits until the log of the server says this.
fn says(site: &Site, told: &str) {
    eventually(|| site.events().contains(told), || site.events());
}

#[test]
fn the_records_of_all_nodes_are_read_and_verified_at_each() {
    let Some(database) = Postgres::new() else { return };
    let [a, b] = ["a", "b"].map(|node| site(&database, "all", node));
    let servings = [a.serve(), b.serve()];
    ban(&a, 1..3);
    ban(&b, 3..5);
    servings.into_iter().for_each(Serving::stop);
    let expected = |site: &Site, node: &str| -> Vec<String> {
        lines(&site.log()).iter().map(|line| format!("{{\"node\":\"{node}\",{}", &line[1..])).collect()
    };
    let records = a.done(&["log", "records", "--config", "millrace.toml"]);
    for (site, node) in [(&a, "a"), (&b, "b")] {
        let own: Vec<&str> =
            records.lines().filter(|line| line.contains(&format!("\"node\":\"{node}\""))).collect();
        assert_eq!(own, expected(site, node));
    }
    assert_eq!(b.done(&["log", "records", "--config", "millrace.toml", "--node", "a"]).lines().count(), 5);
    let told = b.done(&["log", "verify", "--config", "millrace.toml"]);
    assert_eq!(told.matches(": records 1 to 5 are as they were written").count(), 2, "{told}");
    verify(&a, 0, "The cluster has the same of 5 of them.");

    database.run(
        "UPDATE millrace_cluster.audit SET line = replace(line, '192.0.2.3', '192.0.2.9') WHERE node = 'b'",
    );
    let (code, told) = a.verify(&["--config", "millrace.toml"]);
    assert!(code == Some(1) && told.contains("b, chain ") && told.contains("record 2 was changed"), "{told}");
    database.run("DELETE FROM millrace_cluster.audit WHERE node = 'a' AND seq = 3");
    verify(&a, 1, "the cluster has no record 3, but later ones");
}

#[test]
fn a_file_that_was_cut_is_found_though_nothing_beside_it_tells() {
    let Some(database) = Postgres::new() else { return };
    let (site, lines) = ended(&database, "cut");
    verify(&site, 0, "The cluster has the same of 7 of them.");
    write(&site, &lines[..5]);
    site.is_whole(&["audit/audit.jsonl"]);
    verify(&site, 1, "records 6 to 7 are missing at the end: the cluster has them");
    let serving = refuses(&site, "it has no record 7, which the cluster has");
    ban(&site, 5..9);
    serving.stop();
    assert_eq!(copied(&database), 7, "nothing comes among the records that were cut off");
    verify(&site, 1, "record 6 is not the one that the cluster has");
}

#[test]
fn a_forged_file_is_found_though_its_chain_is_whole() {
    let Some(database) = Postgres::new() else { return };
    let (site, lines) = ended(&database, "forged");
    let mut forged = lines.clone();
    forged[2] = forged[2].replace("192.0.2.2", "192.0.2.9");
    write(&site, &chained(&forged));
    site.is_whole(&["audit/audit.jsonl"]);
    verify(&site, 1, "record 3 is not the one that the cluster has");
    refuses(&site, "the cluster has another record 7").stop();

    // A longer one is found by what its next record says of the last.
    forged.push(forged[3].clone());
    write(&site, &chained(&forged));
    refuses(&site, "the cluster has another record 7").stop();
    assert_eq!(copied(&database), 7);

    // An administrator has decided that this is the log now.
    fs::remove_file(site.folder.join("audit/audit.jsonl.chain")).unwrap();
    site.serve().stop();
    let told = site.done(&["log", "verify", "--config", "millrace.toml"]);
    assert_eq!(told.lines().count(), 2, "the old chain stays: {told}");
    verify(&site, 0, "The cluster has the same of ");
}

#[test]
fn records_that_were_written_while_the_database_was_away_are_copied_later() {
    let Some(mut database) = Postgres::new() else { return };
    let site = site(&database, "away", "a");
    let serving = site.serve();
    ban(&site, 1..3);
    eventually(|| copied(&database) == 3, || site.events());
    database.daemon.kill();
    ban(&site, 3..5);
    says(&site, "are copied to the cluster when that is possible again");
    fs::rename(site.log(), site.folder.join("audit/audit.jsonl.1")).unwrap();
    ban(&site, 5..7);
    serving.stop();
    fs::rename(site.log(), site.folder.join("audit/audit.jsonl-20261129")).unwrap();
    let serving = site.serve();
    ban(&site, 7..9);
    database.start();
    serving.stop();
    let records = site.records().len();
    let before = ["audit.jsonl.1", "audit.jsonl-20261129"]
        .map(|name| lines(&site.folder.join("audit").join(name)).len());
    assert_eq!(copied(&database), records + before[0] + before[1]);
    let files = ["audit/audit.jsonl.1", "audit/audit.jsonl-20261129", "audit/audit.jsonl"];
    let told = site.done(&[&["log", "verify", "--config", "millrace.toml"][..], &files].concat());
    assert!(told.contains(&format!("The cluster has the same of {} of them.", copied(&database))), "{told}");
}
