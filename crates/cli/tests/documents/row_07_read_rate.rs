//! Row 7: users that read at a pace, as dkftpbench's.

use serde_json::Value;

use super::site::Site;

/// Runs the benchmark against the server, and returns its JSON.
fn bench(site: &Site, arguments: &[&str]) -> Value {
    let url = format!("ftp://bob:password@{}/", site.ftp);
    let file = site.folder.0.join("bench.json");
    let arguments = [&["bench", &url], arguments, &["--json", "bench.json"]].concat();
    let output = site.folder.run(&arguments);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{output:?}"));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_search_tells_how_many_users_are_held_at_a_read_rate() {
    // Each session gets half of what its user wants to read.
    let site = Site::start("search-slow", "session-download-limit = \"40k\"");
    let load = ["--search", "users", "--users", "2", "--ops", "retr", "--size", "20k", "--duration", "1s"];
    let none = bench(&site, &[&load[..], &["--read-rate", "80k"]].concat());
    assert_eq!(none["users"], 0, "{none}");
    let objection = none["trials"][0]["objection"].as_str().unwrap();
    assert!(objection.contains("% of the read rate"), "{objection}");
    // And all of what it wants.
    let all = bench(&site, &[&load[..], &["--read-rate", "32k"]].concat());
    assert_eq!((&all["users"], &all["is_open"]), (&2.into(), &true.into()), "{all}");
}

#[test]
fn the_quick_form_of_dkftp_2001_transfers_something() {
    let site = Site::start("dkftp-2001", "");
    let report = bench(&site, &["dkftp-2001-09-14", "--quick", "--users", "10", "--duration", "4s"]);
    let cells = report["cells"].as_array().unwrap();
    assert!(cells.len() >= 3, "{report}");
    for cell in cells {
        assert!(cell["ops"].as_u64().unwrap() > 0, "{cell}");
    }
}
