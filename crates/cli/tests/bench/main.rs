//! `millrace bench` as a user meets it: what it prints, and its exit codes.

mod generators;
mod races;
mod reports;
mod worker_processes;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Few operations: which limit they show on a busy machine is open, so 0 and 3 are both right.
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
    // The process that listens there is found where none is named.
    let found = text(&serving.bench(&[&SHORT[..], &["--ops", "noop"]].concat()).stdout);
    assert!(found.contains("\nserver: ") && !found.contains("--server-pid"), "{found}");
    let again = found.split_once("\nThe same again:\nmillrace bench ").expect("the command").1;
    assert!(again.contains("--ops noop") && again.contains(":***@") && !again.contains("pw@"), "{found}");
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
fn invalid_arguments_exit_with_2_and_a_remedy() {
    for (arguments, advice) in [
        (&["bench"][..], "<TARGET>"),
        (&["bench", "localhost:21"], "ftp://user:pass@host:port/path"),
        (&["bench", "ftp://127.0.0.1:1/", "waarp"], "--list"),
        (&["bench", "ftp://127.0.0.1:1/", "--users", "0"], "--users: "),
        (&["bench", "ftp://127.0.0.1:1/", "--users", "abc"], "\"abc\" is no number of users"),
        (&["bench", "ftp://127.0.0.1:1/", "--search", "sessions"], "users"),
        (&["bench", "ftp://127.0.0.1:1/", "--compat", "zb"], "over HTTP"),
        (&["bench", "ftp://127.0.0.1:1/", "--json", "/nowhere/at/all"], "cannot be written"),
        (&["bench", "ftp://127.0.0.1:1/", "--fail-if", "retr.p98 > 1ms"], "\n         ^"),
        (&["bench", "ftp://127.0.0.1:1/", "--fail-if", "mlsd.p99 > 1ms"], "no figure of this run"),
        (
            &["bench", "ftp://127.0.0.1:1/", "--fail-if", "ops < 0.97x"],
            "it takes --baseline or --baseline-server",
        ),
        (&["bench", "ftp://127.0.0.1:1/", "--fail-if", "ops < 1.5x"], "two equal servers would fail"),
        (&["bench", "ftp://127.0.0.1:1/", "--search", "rate"], "--slo p99=10ms"),
        (
            &["bench", "ftp://127.0.0.1:1/", "--search", "rate", "--slo", "p98=1ms"],
            "not of the form p99=10ms",
        ),
        (
            &[
                "bench",
                "ftp://127.0.0.1:1/",
                "--baseline-server",
                "ftp://127.0.0.1:1/",
                "--fail-if",
                "p99 > 1s",
            ],
            "ends in x",
        ),
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
            .args(["bench", &url, "--ops", "noop", "--timeout", "10m"])
            .args(search)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It can be interrupted from here on: signal handlers are installed before any user connects.
        let (_silent, _) = server.accept().unwrap();
        assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("interrupted, before anything was measured"), "{said}");
    }
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
