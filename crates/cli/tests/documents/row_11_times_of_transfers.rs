//! Row 11: start and end of each transfer in microseconds, as the thesis's server logged them, and the rates that follow.

use std::fs;

use serde_json::Value;

use super::site::{Site, eventually};

/// The times of the only transfer in a log of JSON lines, of the event `download`.
fn times_in_json(log: &str) -> Option<[u64; 2]> {
    let line = log.lines().find(|line| line.contains("\"event\":\"download\""))?;
    let line: Value = serde_json::from_str(line).ok()?;
    Some(["started-us", "ended-us"].map(|key| line[key].as_u64().unwrap()))
}

#[test]
fn both_logs_tell_when_a_transfer_began_and_ended_and_the_rates_follow() {
    let site = Site::start("times", "log-format = \"json\"\nxferlog = \"xferlog\"\nxferlog-times = true\n");
    site.log_in("bob").get("/f");
    let [started, ended] = eventually("the log tells of it", || times_in_json(&site.folder.log()));
    assert!(started > 1_700_000_000_000_000 && ended >= started, "{started} {ended}");
    let xferlog = fs::read_to_string(site.folder.0.join("xferlog")).unwrap();
    assert!(xferlog.ends_with(&format!(" c {started} {ended}\n")), "{xferlog}");

    for log in ["log", "xferlog"] {
        let table = site.folder.tell(&["bench", "--from-log", log, "--json", "rates.json"]);
        assert!(table.contains("download           21       1 same"), "{log}: {table}");
        let rates: Value =
            serde_json::from_slice(&fs::read(site.folder.0.join("rates.json")).unwrap()).unwrap();
        let expected = 21.0 / (ended - started).max(1) as f64;
        assert_eq!(rates["kinds"][0]["overall-mb-per-s"], expected, "{log}: {rates}");
    }
}
