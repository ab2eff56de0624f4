//! `millrace bench` as a user meets it: what it prints, and its exit codes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn millrace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// `millrace serve` with an account that may write, in a folder of its own; both are gone when dropped.
struct Serving {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Serving {
    fn start(name: &str) -> Self {
        Self::start_with(name, "")
    }

    /// With more that is configured.
    fn start_with(name: &str, configuration: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.with_extension("conf.toml");
        std::fs::write(&file, configuration).unwrap();
        // An address of its own: all of its passive ports are there.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, server) = (std::process::id() % 250, NEXT.fetch_add(1, Ordering::Relaxed) % 250);
        let listen = format!("127.5.{process}.{}:0", 1 + server);
        let [place, file] = [&folder, &file].map(|path| path.to_str().unwrap());
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", place, "--config", file, "--ftp", &listen, "--user", "me:pw", "--quiet"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let url = lines.find_map(|line| Some(line.trim_start().split_once("ftp://me@")?.1.to_owned()));
        assert!(lines.any(|line| line.starts_with("Ready")));
        let url = format!("ftp://me:pw@{}", url.unwrap().split(' ').next().unwrap());
        Self { child, folder, url }
    }

    /// `127.5.1.1:4711`.
    fn address(&self) -> &str {
        let (_, place) = self.url.split_once('@').unwrap();
        place.trim_end_matches('/')
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        millrace(&[&["bench", &self.url], arguments].concat())
    }

    /// Without the server's own, which are hidden.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.')).collect()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(self.folder.with_extension("conf.toml"));
    }
}

/// Few operations: whose limit they show on a busy machine is nobody's claim, so 0 and 3 are both right.
const SHORT: [&str; 8] = ["--users", "3", "--count", "5", "--warm-up", "0", "--duration", "5m"];

#[test]
fn a_load_is_measured_and_leaves_nothing_behind() {
    let serving = Serving::start("table");
    let output = serving.bench(&[&SHORT[..], &["--ops", "retr,stor", "--size", "10k", "--verify"]].concat());
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let table = text(&output.stdout);
    assert!(table.contains("retr 10k pasv") && table.contains("stor 10k pasv"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100) && !table.contains('\x1b'), "{table}");
    assert!(text(&output.stderr).contains("stor, 3 users: 15 operations, 0 errors"), "{output:?}");
    assert_eq!(serving.files(), [""; 0], "{table}");
}

#[test]
fn reports_go_to_files_or_to_standard_output() {
    let serving = Serving::start("files");
    let csv = serving.folder.with_extension("csv");
    let output = serving
        .bench(&[&SHORT[..], &["--ops", "noop", "--json", "-", "--csv", csv.to_str().unwrap()]].concat());
    let json = text(&output.stdout);
    assert!(json.starts_with('{') && json.contains("\"ops\": 15"), "{json}");
    assert!(!json.contains("pw@"), "a report must not hold the password");
    let table = std::fs::read_to_string(&csv).unwrap();
    std::fs::remove_file(&csv).unwrap();
    assert!(table.starts_with("op,size,") && table.lines().count() == 2, "{table}");
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
        assert!(text(&output.stderr).contains("only one of --json, --html and --csv"), "{output:?}");
    }
    let noop = [&SHORT[..], &["--ops", "noop", "--json", json]].concat();
    assert!(matches!(serving.bench(&noop).status.code(), Some(0 | 3)));
    assert!(std::fs::read_to_string(&old).unwrap().starts_with('{'));
    let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["old.json"]);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn operations_that_fail_fail_the_run_unless_a_threshold_allows_them() {
    let serving = Serving::start("half");
    // Of four users two have a file.
    for number in 0..2 {
        std::fs::write(serving.folder.join(format!("f{number}")), "bytes").unwrap();
    }
    let load = ["--ops", "retr", "--file", "f%d", "--users", "4", "--count", "3", "--warm-up", "0"];
    let load = [&load[..], &["--duration", "5m"]].concat();
    let output = serving.bench(&load);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("6 of 12 operations failed"), "{output:?}");
    for (threshold, status) in [("errors > 6", 0), ("error-share > 0.4", 1), ("noop.errors > 6", 2)] {
        let output = serving.bench(&[&load[..], &["--fail-if", threshold]].concat());
        assert_eq!(output.status.code(), Some(status), "{threshold}: {output:?}");
    }
    let output = serving.bench(&[&load[..], &["--fail-if", "p99 > 3600s"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_server_pid_that_has_nothing_to_do_with_the_server_is_said() {
    let serving = Serving::start("stranger");
    let mut other = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let noop = [&SHORT[..], &["--ops", "noop", "--server-pid"]].concat();
    let measured = |pid: u32| serving.bench(&[&noop[..], &[&pid.to_string()]].concat());
    let right = measured(serving.child.id());
    assert!(!text(&right.stdout).contains("listens at") && right.stderr.starts_with(b"noop"), "{right:?}");
    let wrong = measured(other.id());
    let said = format!("neither it nor a process that it has started listens at {}", serving.address());
    assert!(
        text(&wrong.stderr).starts_with(&format!("warning: --server-pid {}: {said}", other.id())),
        "{wrong:?}"
    );
    let page = text(&wrong.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(&format!("{said}, but {} (millrace) does", serving.child.id())), "{page}");
    drop(other.stdin.take());
    other.wait().unwrap();
}

#[test]
fn presets_are_listed_and_may_be_files() {
    let list = text(&millrace(&["bench", "--list"]).stdout);
    assert!(list.contains("\nwaarp-1k ") && list.lines().all(|line| line.len() <= 100), "{list}");

    let serving = Serving::start("preset");
    let file = serving.folder.with_extension("toml");
    std::fs::write(&file, "summary = 'ours'\nops = 'login'\nusers = 2\ncount = 3\nduration = '9s'\n")
        .unwrap();
    let output = serving.bench(&[file.to_str().unwrap(), "--warm-up", "0"]);
    assert!(text(&output.stdout).contains("login                   2"), "{output:?}");
    std::fs::write(&file, "ops = 'login'\nuser = 2\n").unwrap();
    let output = serving.bench(&[file.to_str().unwrap()]);
    assert!(text(&output.stderr).contains(".toml:2: user: "), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_makes_no_sense_exits_with_2_and_says_what_to_do() {
    for (arguments, advice) in [
        (&["bench"][..], "<TARGET>"),
        (&["bench", "localhost:21"], "ftp://user:pass@host:port/path"),
        (&["bench", "ftp://127.0.0.1:1/", "waarp"], "--list"),
        (&["bench", "ftp://127.0.0.1:1/", "--users", "0"], "--users: "),
        (&["bench", "ftp://127.0.0.1:1/", "--users", "abc"], "\"abc\" is no number of users"),
        (&["bench", "ftp://127.0.0.1:1/", "--search", "rate"], "users"),
        (&["bench", "ftp://127.0.0.1:1/", "--compat", "zb"], "over HTTP"),
        (&["bench", "ftp://127.0.0.1:1/", "--json", "/nowhere/at/all"], "cannot be written"),
        (&["bench", "ftp://127.0.0.1:1/", "--fail-if", "retr.p98 > 1ms"], "\n         ^"),
        (&["bench", "ftp://127.0.0.1:1/", "--fail-if", "mlsd.p99 > 1ms"], "no figure of this run"),
        (&["bench", "ftp://127.0.0.1:1/", "--replay", "/nowhere/xferlog"], "--replay: /nowhere/xferlog"),
        (&["bench", "ftp://127.0.0.1:1/", "--chaos", "10%:worse"], "slow-login"),
        (&["bench", "ftp://192.0.2.1/"], "--allow 192.0.2.1"),
        (&["bench", "ftp://127.0.0.1:1/", "--cache", "cold"], "--server-root DIRECTORY"),
        (&["bench", "ftp://127.0.0.1:1/", "--duration", "0"], "no time at all"),
        (&["bench", "ftp://127.0.0.1:1/", "--duration", "1000h"], "between 0 and 24h"),
        (&["bench", "ftp://127.0.0.1:1/", "--think", "-1s"], "--think: \"-1s\""),
        (&["bench", "ftp://127.0.0.1:1/", "--speed", "10"], "--speed: "),
        (&["bench", "ftp://127.0.0.1:1/", "--keep-alive", "off"], "http:// only"),
        (&["bench", "http://127.0.0.1:1/", "--tls"], "https://"),
        (&["bench", "ftp://127.0.0.1:1/", "--tls", "--chaos", "--think", "x"], "--think: "),
        (&["bench", "--tls", "ftp://127.0.0.1:1/"], "the target goes before it"),
        (&["race", "ftp://127.0.0.1:1/", "ftp://192.0.2.9/"], "--allow 192.0.2.9"),
        (&["race", "millrace", "/nonexist"], "there is no program /nonexist."),
        (
            &["race", "millrace", "millrace", "--server-pid", "1"],
            "--server-pid: a race finds that out itself",
        ),
        (&["bench", "ftp://127.0.0.1:1/", "--file", "/f", "--verify"], "cannot be verified"),
        (&["race", "http://127.0.0.1:1/", "http://127.0.0.1:2/", "--ops", "noop"], "cannot be measured"),
        (&["poller-bench", "--sockets", "100", "--active", "200"], "--active 200"),
    ] {
        let output = millrace(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(advice), "{arguments:?} {output:?}");
    }
}

#[test]
fn a_dataset_is_as_large_as_memory_was_said_to_be_and_fits_or_is_refused() {
    let serving = Serving::start("dataset");
    let load =
        ["--ops", "retr", "--users", "2", "--count", "4", "--warm-up", "0", "--duration", "5m", "--verify"];
    let measured = |times: &str, size: &str| {
        let more = ["--dataset-vs-ram", times, "--size", size, "--json", "-"];
        let output = serving.bench(&[&load[..], &more].concat());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("no report: {}", text(&output.stderr)));
        report["cells"][0].clone()
    };
    // Three and a half files of 64 KiB are four.
    let memory = measured("0.000001", "1m")["dataset"]["memory"].as_u64().unwrap();
    let times = 3.5 * 65536.0 / memory as f64;
    if times >= 1e-6 {
        let cell = measured(&times.to_string(), "64k");
        assert_eq!(
            (&cell["files"], &cell["ops"], &cell["bytes"]),
            (&4.into(), &8.into(), &(8 * 65536).into())
        );
        assert_eq!(cell["faults"].as_array().map(Vec::len), Some(0), "{cell}");
    }
    assert_eq!(serving.files(), [""; 0]);
    for (more, words) in [
        (&["100", "--size", "1"][..], "1000000 are possible"),
        (&["0.001", "--size", "1m", "--server-root", "/proc"], "do not fit into the 0 MiB"),
        (&["x"], "--dataset-vs-ram: \"x\" is no share"),
    ] {
        let output = serving.bench(&[&load[..], &["--dataset-vs-ram"], more].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(words), "{output:?}");
    }
}

#[test]
fn thresholds_decide_the_exit_status() {
    let serving = Serving::start("gate");
    let noop = [&SHORT[..], &["--ops", "noop"]].concat();
    for (expression, status, words) in [
        ("noop.errors > 0", 0, "passed   noop.errors > 0: no; errors of noop, 3 users is 0"),
        ("errors < 1", 1, "FAILED   errors < 1: yes"),
        ("server-us > 1us", 3, "unclear  server-us > 1us: does not tell"),
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

#[test]
fn a_server_that_is_not_there_is_said_at_once() {
    let output = millrace(&["bench", "ftp://127.0.0.1:1/"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("127.0.0.1:1: Connection refused"), "{output:?}");
    let serving = Serving::start("wrong");
    let output = millrace(&["bench", &serving.url.replace(":pw@", ":pv@")]);
    assert!(text(&output.stderr).contains("refused the login: 530"), "{output:?}");
    let output = millrace(&["bench", &format!("{}/nowhere", serving.url.trim_end_matches('/'))]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no folder \"nowhere\" for test files"), "{output:?}");
    let mut arguments = vec!["bench", &serving.url, "--ops", "noop,retr", "--count", "1", "--users", "1"];
    // Every test file is as large as that, and the server takes none of them.
    arguments.extend(["--warm-up", "0"]);
    std::fs::create_dir(serving.folder.join("millrace-bench-1024-0")).unwrap();
    let output = millrace(&arguments);
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("with --ops retr --file NAME).") && !said.contains(".."), "{said}");
}

#[test]
fn ctrl_c_ends_the_wait_for_a_server_that_says_nothing() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ftp://{}/", server.local_addr().unwrap());
    for search in [&[][..], &["--search", "users"]] {
        let run = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["bench", &url, "--ops", "noop", "--patience", "10m"])
            .args(search)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It can be interrupted from here on: what receives signals is there before anybody connects.
        let (_silent, _) = server.accept().unwrap();
        assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("interrupted, before anything was measured"), "{said}");
    }
}

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
    // Where the machine stands still for a quarter of a second, even one user is too slow, and no answer is left to soak.
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
        csv.starts_with("purpose,users,ops_per_s,objection,bound\r\n,1,") && csv.contains("\r\nfor long,"),
        "{csv}"
    );
    assert!(answer.contains("the most users of noop") && !answer.contains("  4 users"), "{answer}");
    let rated = serving.bench(&["--search", "users", "--ops", "noop", "--rate", "100"]);
    assert!(text(&rated.stderr).contains("a search takes --think"), "{rated:?}");
}

#[test]
fn limits_are_read_tried_and_said_in_users() {
    let output = millrace(&["limits"]);
    assert_eq!(output.status.code(), Some(0));
    let page = text(&output.stdout);
    for part in ["fs.nr_open", "\n  io_uring ", "\n  this client, transferring "] {
        assert!(page.contains(part), "{page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
}

#[test]
fn selectors_are_compared_within_the_descriptors() {
    let few = ["poller-bench", "--sockets", "8,20", "--active", "3,10", "--time", "0.01"];
    let table = text(&millrace(&few).stdout);
    assert_eq!(table.matches("\nepoll-et ").count(), 2, "{table}");
    let json = text(&millrace(&[&few[..], &["--json"]].concat()).stdout);
    // Ten of eight cannot be active.
    assert_eq!(json.lines().count(), 3, "{json}");
    let output = millrace(&["poller-bench", "--sockets", "2000000000"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("descriptors"), "{output:?}");
}

#[test]
fn every_setting_stands_in_the_guide() {
    for command in ["bench", "race"] {
        let page = text(&millrace(&[command, "--help"]).stdout);
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
        // A line that is too long is folded, and leaves a word alone.
        let lonely = page.lines().find(|line| !line.is_empty() && !line.starts_with(' ') && line.len() < 6);
        assert_eq!(lonely, None, "{page}");
    }
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let help = text(&millrace(&["bench", "-h"]).stdout);
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next());
    let missing: Vec<&str> = flags.filter(|flag| !guide.contains(&format!("`--{flag}`"))).collect();
    assert!(missing.is_empty(), "docs/benchmarks.md lacks {missing:?}");
}

#[test]
fn a_race_starts_its_servers_and_leaves_nothing_behind() {
    let place = std::env::temp_dir().join(format!("millrace-race-test-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let page = place.join("race.html");
    let [place_text, page_text] = [&place, &page].map(|path| path.to_str().unwrap());
    let load = ["--ops", "noop", "--users", "2", "--duration", "50ms", "--warm-up", "0", "--blocks", "2"];
    let whom = ["race", "millrace", "millrace", "--place", place_text, "--html", page_text];
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
        .args(["race", "millrace", "millrace", "--place", place_text, "--json", json_text])
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

/// A load under a limit of 200 descriptors a process, of which 136 are for users.
fn crowded(server: &Serving, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 200; exec \"$0\" bench \"$@\"", env!("CARGO_BIN_EXE_millrace")])
        .arg(&server.url)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn more_users_than_descriptors_are_spread_over_processes() {
    let server = Serving::start("crew");
    let load = [
        "--ops",
        "noop,retr",
        "--users",
        "300",
        "--count",
        "2",
        "--files",
        "3",
        "--duration",
        "5m",
        "--verify",
    ];
    let output = crowded(&server, &[&load[..], &["--json", "-"]].concat()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    for cell in report["cells"].as_array().unwrap() {
        assert_eq!(
            (cell["ops"].as_u64(), cell["faults"].as_array().map(Vec::len)),
            (Some(600), Some(0)),
            "{cell}"
        );
        assert_eq!(cell["latency"]["count"], 600, "histograms are merged");
        assert!(cell["fairness"]["goodput"]["min"].as_f64().unwrap() > 0.0, "everyone was there: {cell}");
        let workers = if cell["op"] == "noop" { 3 } else { 5 };
        assert_eq!(cell["audit"]["client"]["threads"].as_array().unwrap().len(), workers, "{cell}");
        assert!(cell["seconds"].as_f64().unwrap() < 300.0, "moments pass from process to process: {cell}");
    }
    assert_eq!(server.files(), [""; 0], "test files are removed");
}

/// The figures of a load under that limit.
fn crowded_figures(server: &Serving, arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = crowded(server, &[arguments, &["--json", "-"]].concat()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no report: {}", text(&output.stderr)));
    report["cells"].as_array().unwrap().clone()
}

#[test]
fn a_death_rule_holds_for_users_of_several_processes() {
    let server = Serving::start_with("crew-grows", "sessions = 100\n");
    let users = ["--ops", "retr", "--size", "1000", "--read-rate", "500", "--connecting", "1"];
    let rule = ["--on-death", "stop-growth", "--quiet", "10s", "--duration", "10m", "--users", "190"];
    let [cell] = &crowded_figures(&server, &[users, rule].concat())[..] else { panic!() };
    let standing = &cell["standing"];
    let [started, left] = ["started", "left"].map(|name| standing[name].as_u64().unwrap());
    // 68 of the first process, and as many of the second as the server lets in; the session that made the files may
    // not yet have gone when the last one comes.
    assert!((99..=100).contains(&left) && started == left + 1, "{standing}");
    let death = &standing["first_death"];
    assert_eq!((&death["alive"], &standing["is_settled"]), (&started.into(), &true.into()), "{standing}");
    assert_eq!(cell["audit"]["client"]["threads"].as_array().unwrap().len(), 3, "{cell}");
    assert_eq!(cell["faults"][0]["count"], 1, "nobody else failed: {cell}");
}

#[test]
fn users_of_several_processes_are_served_amid_bad_ones() {
    let server = Serving::start("crew-chaos");
    let load =
        ["--ops", "noop", "--users", "150", "--count", "2", "--duration", "5m", "--chaos", "1%:slow-login"];
    let figures = crowded_figures(&server, &load);
    assert_eq!(figures.len(), 2);
    for figure in &figures {
        assert_eq!(
            (figure["ops"].as_u64(), &figure["latency"]["count"]),
            (Some(300), &300.into()),
            "{figure}"
        );
        assert_eq!(figure["audit"]["client"]["threads"].as_array().unwrap().len(), 2, "{figure}");
    }
    assert_eq!(figures[1]["chaos"]["users"], 1, "{}", figures[1]);
}

#[test]
fn a_log_is_replayed_by_several_processes() {
    let server = Serving::start("crew-replay");
    let log = server.folder.with_extension("xferlog");
    let line = |client: u32, way: char| {
        format!(
            "Sun Sep  9 01:46:{} 2001 9 10.0.0.{client} 5000 /f b _ {way} r a ftp 0 * c\n",
            40 + client / 8
        )
    };
    let lines: String =
        (0..100).map(|client| line(client, if client % 2 == 0 { 'o' } else { 'i' })).collect();
    std::fs::write(&log, lines).unwrap();
    let load = ["--replay", log.to_str().unwrap(), "--speed", "100x", "--verify"];
    let [replay] = &crowded_figures(&server, &load)[..] else { panic!() };
    std::fs::remove_file(&log).unwrap();
    assert_eq!((&replay["users"], &replay["ops"]), (&100.into(), &100.into()), "{replay}");
    assert_eq!((&replay["replay"]["transfers"], &replay["replay"]["bytes"]), (&100.into(), &500_000.into()));
    assert_eq!(replay["upload_check"]["by_hash"], 50, "{replay}");
    assert_eq!(replay["audit"]["client"]["threads"].as_array().unwrap().len(), 2, "{replay}");
    assert_eq!(server.files(), [""; 0]);
}

#[test]
fn servers_are_raced_by_users_of_several_processes() {
    let servers = [Serving::start("crew-race-a"), Serving::start("crew-race-b")];
    let load = [
        "--ops",
        "noop",
        "--users",
        "150",
        "--count",
        "2",
        "--duration",
        "5m",
        "--blocks",
        "2",
        "--json",
        "-",
    ];
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 200; exec \"$0\" race \"$@\"", env!("CARGO_BIN_EXE_millrace")])
        .args(servers.each_ref().map(|server| &server.url))
        .args(load)
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no report: {}", text(&output.stderr)));
    let standings = report["scenarios"][0]["standings"].as_array().unwrap();
    assert_eq!(standings.len(), 2);
    for cell in standings.iter().flat_map(|standing| standing["cells"].as_array().unwrap()) {
        assert_eq!(cell["ops"], 300, "{cell}");
        assert_eq!(cell["audit"]["client"]["threads"].as_array().unwrap().len(), 2, "{cell}");
    }
}

#[test]
fn a_log_that_was_not_followed_tells_nothing() {
    let server = Serving::start("replay-late");
    let log = server.folder.with_extension("xferlog");
    // Two thousand downloads of one client in one second, and that in a hundredth of it.
    let line = "Sun Sep  9 01:46:40 2001 0 10.0.0.1 100 /f b _ o r a ftp 0 * c\n";
    std::fs::write(&log, line.repeat(2000)).unwrap();
    let output = server.bench(&["--replay", log.to_str().unwrap(), "--speed", "100x"]);
    std::fs::remove_file(&log).unwrap();
    let page = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{page}");
    assert!(page.contains("THE LOG WAS NOT FOLLOWED: ") && !page.contains("may get more"), "{page}");
}

/// The process that started another.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[test]
fn a_worker_process_that_dies_is_said_and_nobody_waits_for_it() {
    let server = Serving::start("crew-dies");
    let mut run =
        crowded(&server, &["--ops", "noop", "--users", "200", "--duration", "10m"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let hand = loop {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let mut numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        if let Some(hand) = numbers.find(|&pid| parent(pid) == Some(run.id())) {
            break hand.to_string();
        }
        assert!(Instant::now() < deadline, "no process was started");
        std::thread::yield_now();
    };
    assert!(Command::new("kill").args(["-KILL", &hand]).status().unwrap().success());
    let status = run.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut run.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("a worker process: it ended without a word"), "{said}");
}
