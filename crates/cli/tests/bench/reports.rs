//! Reports: where they go, what they are held against, and that an older one is shown again.

use crate::{SHORT, Serving, millrace, text};

#[test]
fn reports_go_to_files_or_to_standard_output() {
    let serving = Serving::start("files");
    let [csv, page] = ["csv", "md"].map(|kind| serving.folder.with_extension(kind));
    let files = ["--csv", csv.to_str().unwrap(), "--markdown", page.to_str().unwrap()];
    let output = serving.bench(&[&SHORT[..], &["--ops", "noop", "--json", "-"], &files].concat());
    let json = text(&output.stdout);
    assert!(json.starts_with('{') && json.contains("\"ops\": 15"), "{json}");
    assert!(!json.contains("pw@"), "a report must not hold the password");
    let table = std::fs::read_to_string(&csv).unwrap();
    std::fs::remove_file(&csv).unwrap();
    assert!(table.starts_with("op,size,") && table.lines().count() == 2, "{table}");
    let table = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    assert!(table.contains("| what | users |"), "{table}");
}

#[test]
fn a_report_takes_the_place_of_an_older_one_only_when_it_is_there() {
    let serving = Serving::start("replaced");
    let place = serving.folder.with_extension("reports");
    std::fs::create_dir(&place).unwrap();
    let old = place.join("old.json");
    std::fs::write(&old, "what it was").unwrap();
    let json = old.to_str().unwrap();
    let refused = millrace(&["bench", "ftp://127.0.0.1:1/", "--json", json]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "what it was");
    for twice in [["--json", json, "--html", json], ["--json", "-", "--csv", "-"]] {
        let output = serving.bench(&twice);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            text(&output.stderr).contains("only one of --json, --html, --csv and --markdown"),
            "{output:?}"
        );
    }
    let noop = [&SHORT[..], &["--ops", "noop", "--json", json]].concat();
    assert!(matches!(serving.bench(&noop).status.code(), Some(0 | 3)));
    assert!(std::fs::read_to_string(&old).unwrap().starts_with('{'));
    let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["old.json"]);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn thresholds_decide_the_exit_status() {
    let serving = Serving::start("gate");
    let noop = [&SHORT[..], &["--ops", "noop"]].concat();
    for (expression, status, words) in [
        ("noop.errors > 0", 0, "passed   noop.errors > 0: no; errors of noop, 3 users is 0"),
        ("errors < 1", 1, "FAILED   errors < 1: yes"),
        ("server-us > 3600s", 0, "passed   server-us > 3600s: no"),
    ] {
        let output = serving.bench(&[&noop[..], &["--fail-if", expression]].concat());
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(text(&output.stdout).contains(words), "{output:?}");
    }
    // Of several the worst counts.
    let output =
        serving.bench(&[&noop[..], &["--fail-if", "errors > 0", "--fail-if", "errors >= 0"]].concat());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_baseline_is_compared_and_must_be_a_report() {
    let serving = Serving::start("baseline");
    let json = serving.folder.with_extension("json");
    let noop = [&SHORT[..], &["--ops", "noop"]].concat();
    serving.bench(&[&noop[..], &["--json", json.to_str().unwrap()]].concat());
    let output = serving.bench(&[&noop[..], &["--baseline", json.to_str().unwrap()]].concat());
    // Five operations tell nothing, and that is what must be said.
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let table = text(&output.stdout);
    assert!(table.contains("noop, 3 users                   p99 "), "{table}");
    assert!(table.contains("\ncannot tell: "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let relative = ["--baseline", json.to_str().unwrap(), "--fail-if", "ops < 0.5x"];
    let output = serving.bench(&[&noop[..], &relative].concat());
    assert_eq!(output.status.code(), Some(5), "a multiple has exit codes of its own: {output:?}");
    std::fs::write(&json, "{}").unwrap();
    let output = serving.bench(&["--baseline", json.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it is no report"), "{output:?}");
    std::fs::remove_file(&json).unwrap();
}

#[test]
fn a_run_is_shown_again_as_it_was() {
    let serving = Serving::start("read");
    let json = serving.folder.with_extension("json");
    let path = json.to_str().unwrap();
    let first = serving.bench(&[&SHORT[..], &["--ops", "noop", "--json", path]].concat());
    let again = millrace(&["bench", "--read", path]);
    assert_eq!(text(&again.stdout), text(&first.stdout));
    assert_eq!(again.status.code(), first.status.code());
    let page = text(&millrace(&["bench", "--read", path, "--html", "-"]).stdout);
    assert!(page.starts_with("<!doctype html>") && page.contains("Every figure"), "{page}");
    for (arguments, words) in [
        (&["--users", "5"][..], "--users comes too late"),
        (&["--compat", "zb"], "over HTTP"),
        (&["--baseline", path], "cannot be used with"),
        (&["ftp://127.0.0.1:1/"], "cannot be used with"),
    ] {
        let late = millrace(&[&["bench", "--read", path], arguments].concat());
        assert_eq!(late.status.code(), Some(2), "{late:?}");
        assert!(text(&late.stderr).contains(words), "{late:?}");
    }
    std::fs::write(&json, "{}").unwrap();
    let none = millrace(&["bench", "--read", path]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("is no report of a load"), "{none:?}");
    assert_eq!(millrace(&["race", "--read", path, "--users", "5"]).status.code(), Some(2));
    std::fs::write(&json, r#"{"format": 1, "kind": "race", "scenarios": []}"#).unwrap();
    let race = text(&millrace(&["bench", "--read", path]).stderr);
    assert!(race.contains("is the report of a race, which \"millrace race --read\" shows."), "{race}");
    let baseline = text(&millrace(&["bench", &serving.url, "--baseline", path]).stderr);
    assert!(baseline.contains("it is the report of a race"), "{baseline}");
    std::fs::write(&json, r#"{"format": 1, "cells": []}"#).unwrap();
    let load = text(&millrace(&["race", "--read", path]).stderr);
    assert!(load.contains("is the report of a load, which \"millrace bench --read\" shows."), "{load}");
    std::fs::remove_file(&json).unwrap();
}
