//! Users of several processes, as more than the descriptors of one are asked for.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Serving, text};

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
    let server = Serving::start("workers");
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
    let server = Serving::start_with("workers-grows", "sessions = 100\n");
    let users = ["--ops", "retr", "--size", "1000", "--read-rate", "500", "--login-concurrency", "1"];
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
    assert_eq!(cell["faults"][0]["count"], 1, "no other user failed: {cell}");
}

#[test]
fn users_of_several_processes_are_served_amid_bad_ones() {
    let server = Serving::start("workers-chaos");
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
    let server = Serving::start("workers-replay");
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
    let servers = [Serving::start("workers-race-a"), Serving::start("workers-race-b")];
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

/// The process that started another.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[test]
fn the_death_of_a_worker_process_is_reported_at_once() {
    let server = Serving::start("workers-dies");
    let mut run =
        crowded(&server, &["--ops", "noop", "--users", "200", "--duration", "10m"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let worker = loop {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let mut numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        if let Some(worker) = numbers.find(|&pid| parent(pid) == Some(run.id())) {
            break worker.to_string();
        }
        assert!(Instant::now() < deadline, "no process was started");
        std::thread::yield_now();
    };
    assert!(Command::new("kill").args(["-KILL", &worker]).status().unwrap().success());
    let status = run.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut run.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("a worker process: it ended without a word"), "{said}");
}
