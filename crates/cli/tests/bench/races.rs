//! Searches and races: a load for each trial, a server for each entrant.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::{Serving, millrace, text};

#[test]
fn a_race_in_which_operations_fail_exits_with_1() {
    let servers = [Serving::start("race-good"), Serving::start_with("race-full", "sessions = 4\n")];
    let urls = servers.each_ref().map(|server| &server.url[..]);
    let load = ["--ops", "noop", "--users", "8", "--count", "3", "--warm-up", "0", "--blocks", "2"];
    let output = millrace(&[&["race"], &urls[..], &load, &["--duration", "300ms"]].concat());
    let page = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{page}");
    assert!(page.contains("OPERATIONS FAILED, and the race with them: "), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
}

#[test]
fn a_search_asks_for_no_more_than_it_may() {
    let serving = Serving::start("search");
    let arguments = ["--search", "users", "--ops", "noop", "--think", "50ms", "--users", "2"];
    let [page, csv] = ["html", "csv"].map(|kind| serving.folder.with_extension(kind));
    let reports = ["--html", page.to_str().unwrap(), "--csv", csv.to_str().unwrap()];
    let length = ["--duration", "1s", "--warm-up", "0"];
    let find = || {
        let output = serving.bench(&[&arguments[..], &length, &reports].concat());
        // 3 where this machine, and not the server, is what two users are too many for.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
        text(&output.stdout)
    };
    // Where the machine stalls for a quarter of a second, even one user is too slow, and no answer is left to soak.
    let answer = (0..5).map(|_| find()).find(|answer| answer.contains("for long"));
    let answer = answer.expect("of five searches one found users");
    let [page, csv] = [page, csv].map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        text
    });
    assert!(
        page.contains(": the most users</h1>") && page.contains("<svg") && page.contains("for long"),
        "{page}"
    );
    assert!(
        csv.starts_with("purpose,users,ops_per_s,objection,bound,latency_ms\r\n,1,")
            && csv.contains("\r\nfor long,"),
        "{csv}"
    );
    assert!(answer.contains("the most users of noop") && !answer.contains("  4 users"), "{answer}");
    let rated = serving.bench(&["--search", "users", "--ops", "noop", "--rate", "100"]);
    assert!(text(&rated.stderr).contains("a search takes --think"), "{rated:?}");
}

#[test]
fn a_race_starts_its_servers_and_leaves_nothing_behind() {
    let place = std::env::temp_dir().join(format!("millrace-race-test-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let page = place.join("race.html");
    let [place_text, page_text] = [&place, &page].map(|path| path.to_str().unwrap());
    let load = ["--ops", "noop", "--users", "2", "--duration", "50ms", "--warm-up", "0", "--blocks", "2"];
    let whom = ["race", "millrace", "millrace", "--dir", place_text, "--html", page_text];
    let output = millrace(&[&whom[..], &load].concat());
    // 3 where the figures vary too much, as on a busy machine they may.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let table = text(&output.stdout);
    assert!(table.contains("  millrace #2 ") && table.contains("noop, 2 users"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let document = std::fs::read_to_string(&page).unwrap();
    assert!(document.starts_with("<!doctype html>") && document.contains("Who took part"));
    let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["race.html"]);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn ctrl_c_ends_a_race_with_what_it_has_and_leaves_nothing_behind() {
    let place = std::env::temp_dir().join(format!("millrace-race-stop-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let json = place.join("race.json");
    let [place_text, json_text] = [&place, &json].map(|path| path.to_str().unwrap());
    let load = ["--ops", "noop", "--users", "2", "--duration", "50ms", "--warm-up", "0", "--blocks", "900"];
    let mut race = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["race", "millrace", "millrace", "--dir", place_text, "--json", json_text])
        .args(load)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(race.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line == "block 3/900"));
    let interrupted = Command::new("kill").args(["-INT", &race.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let output = race.wait_with_output().unwrap();
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{table}");
    assert!(table.contains("noop, 2 users") && table.contains("It was interrupted: "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let report = std::fs::read_to_string(&json).unwrap();
    assert!(report.contains("\"ending\": \"interrupted\""), "{report}");
    let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["race.json"]);
    std::fs::remove_dir_all(&place).unwrap();
}
