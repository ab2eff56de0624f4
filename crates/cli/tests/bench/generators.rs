//! A load from several generators: processes of this machine, and others that OpenSSH starts.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Serving, text};

/// Says that the test is skipped, and why; a failure where `./test` has installed what it needs.
fn skip(why: &str) {
    assert!(std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none_or(|value| value == "0"), "{why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// The only figure of a report.
fn figure(report: &[u8], said: &[u8]) -> Value {
    let report: Value =
        serde_json::from_slice(report).unwrap_or_else(|_| panic!("no report: {}", text(said)));
    report["cells"][0].clone()
}

/// From the first start to the last, in milliseconds.
fn spread(figure: &Value) -> f64 {
    let starts = figure["generators"].as_array().unwrap().iter().map(|one| one["start_ms"].as_f64().unwrap());
    starts.clone().fold(f64::MIN, f64::max) - starts.fold(f64::MAX, f64::min)
}

#[test]
fn local_generators_do_the_work_of_one_process() {
    let server = Serving::start("generators-local");
    let load =
        ["--ops", "retr", "--size", "1k", "--users", "7", "--count", "5", "--duration", "5m", "--verify"];
    let from = ["--from", "local:2", "--from", "local:1", "--json", "-"];
    let output = server.bench(&[&load[..], &from].concat());
    let figure = figure(&output.stdout, &output.stderr);
    assert_eq!((&figure["ops"], &figure["latency"]["count"]), (&35.into(), &35.into()), "{figure}");
    let counted: u64 =
        figure["histogram"].as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap()).sum();
    assert_eq!(counted, 35, "every bucket is that of all generators");
    let parts = figure["generators"].as_array().unwrap();
    let parts: Vec<_> = parts
        .iter()
        .map(|part| (part["name"].as_str().unwrap(), part["users"].as_u64(), part["ops"].as_u64()))
        .collect();
    assert_eq!(
        parts,
        [("local 1", Some(3), Some(15)), ("local 2", Some(2), Some(10)), ("local 3", Some(2), Some(10))]
    );
    assert_eq!(figure["thread_choice"]["count"], 3);
    assert_eq!(server.files(), [""; 0], "test files are removed");
}

#[test]
fn what_one_process_must_have_is_refused() {
    let server = Serving::start("generators-refusals");
    let refused = |arguments: &[&str]| {
        let output = server.bench(&[&["--ops", "noop", "--users", "2"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr)
    };
    assert!(refused(&["--from", "local:2", "--chaos", "10%"]).contains("--chaos takes one process"));
    assert!(refused(&["--from", "elsewhere"]).contains("begins with neither ssh:// nor local:"));
    assert!(refused(&["--from", "local:2", "--baseline-server", "x"]).contains("cannot be used with"));
}

/// The processes that this one has started.
fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok());
        of == Some(parent)
    };
    numbers.filter(is_child).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// A load that goes on for long, with three generators whose users are logged in.
fn long_load(server: &Serving) -> (Child, Vec<u32>) {
    let load = [
        "--ops",
        "noop",
        "--users",
        "60",
        "--think",
        "100ms",
        "--duration",
        "10m",
        "--warm-up",
        "0",
        "--from",
        "local:3",
    ];
    let child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["bench", &server.url])
        .args(load)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut generators = Vec::new();
    wait_until("no generators have users", || {
        generators = children(child.id());
        let has_users =
            |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|fds| fds.count() >= 25);
        generators.len() == 3 && generators.iter().all(has_users)
    });
    (child, generators)
}

fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn is_gone(pid: &u32) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    !String::from_utf8_lossy(&command).contains("bench-generator")
}

#[test]
fn the_loss_of_a_generator_makes_the_result_invalid() {
    let server = Serving::start("generators-lost");
    let (child, generators) = long_load(&server);
    kill(generators[1], "-KILL");
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr) + &text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("the result is invalid: the generator local ") && said.contains("was lost: it "),
        "{said}"
    );
    assert!(generators.iter().all(is_gone), "the others have ended");
}

#[test]
fn generators_end_with_the_process_that_leads_them() {
    let server = Serving::start("generators-orphans");
    let (mut child, generators) = long_load(&server);
    kill(child.id(), "-KILL");
    child.wait().unwrap();
    wait_until("generators are left", || generators.iter().all(is_gone));
}

#[test]
fn an_interrupt_ends_all_generators_and_reports_what_there_is() {
    let server = Serving::start("generators-interrupt");
    let (child, generators) = long_load(&server);
    kill(child.id(), "-INT");
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("nterrupted"), "{said}");
    assert!(generators.iter().all(is_gone));
}

/// An SSH server of this test, on a free port of loopback, with its own keys and a home of its own for who logs in.
struct Sshd {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Sshd {
    fn start(folder: PathBuf) -> Self {
        fs::create_dir_all(folder.join("home")).unwrap();
        let key = |name: &str| {
            let path = folder.join(name);
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
            assert!(made.unwrap().success());
        };
        key("host");
        key("key");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let place = folder.display();
        let server = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {place}/host\nAuthorizedKeysFile {place}/key.pub\nPermitRootLogin yes\n\
             StrictModes no\nUsePAM no\nPidFile none\nSetEnv HOME={place}/home\n"
        );
        let client = format!(
            "IdentityFile {place}/key\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n\
             LogLevel ERROR\n"
        );
        fs::write(folder.join("sshd.conf"), server).unwrap();
        fs::write(folder.join("ssh.conf"), client).unwrap();
        let _ = fs::create_dir("/run/sshd"); // where it gives up its rights, if it has them
        let mut child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(folder.join("sshd.conf"))
            .stderr(fs::File::create(folder.join("sshd.log")).unwrap())
            .spawn()
            .unwrap();
        let log = folder.join("sshd.log");
        wait_until("sshd does not listen", || {
            let said = fs::read_to_string(&log).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "{said}");
            said.contains("Server listening")
        });
        Self { child, folder, port }
    }

    fn client(&self) -> String {
        format!("ssh -F {}/ssh.conf", self.folder.display())
    }

    fn copies(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.join("home/.cache/millrace"));
        entries.map_or_else(|_| Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()))
}

#[test]
fn openssh_starts_generators_and_copies_the_program_once() {
    if !Path::new("/usr/sbin/sshd").exists() {
        return skip("there is no sshd");
    }
    let server = Serving::start("generators-ssh");
    let sshd = Sshd::start(scratch("sshd"));
    let (client, place) = (sshd.client(), format!("ssh://127.0.0.1:{}", sshd.port));
    let measure = || {
        let load = ["--ops", "noop", "--users", "4", "--count", "5", "--duration", "5m", "--json", "-"];
        let from = ["--from", &place, "--from", &place, "--threads", "1", "--ssh", &client];
        let output = server.bench(&[&load[..], &from].concat());
        let log = fs::read_to_string(sshd.folder.join("sshd.log")).unwrap();
        figure(&output.stdout, &[&output.stderr[..], log.as_bytes()].concat())
    };
    let first = measure();
    assert_eq!(first["ops"], 20, "{first}");
    let parts = first["generators"].as_array().unwrap();
    assert!(
        parts.len() == 2 && parts.iter().all(|part| part["name"] == place && part["ops"] == 10),
        "{first}"
    );
    let [copy] = &sshd.copies()[..] else { panic!("{:?}", sshd.copies()) };
    let made = fs::metadata(copy).unwrap().modified().unwrap();
    assert_eq!(measure()["ops"], 20);
    assert_eq!(fs::metadata(copy).unwrap().modified().unwrap(), made, "it was there");
    // Of another build, or cut short.
    fs::File::options().write(true).open(copy).unwrap().set_len(1000).unwrap();
    assert_eq!(measure()["ops"], 20);
    let own = fs::metadata(env!("CARGO_BIN_EXE_millrace")).unwrap().len();
    assert_eq!(fs::metadata(copy).unwrap().len(), own, "it was copied anew");
}

#[test]
fn three_namespaces_do_the_work_of_one_process() {
    let unshare = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let is_root =
        Command::new("unshare").args(unshare).arg("true").status().is_ok_and(|status| status.success());
    if !is_root || !Path::new("/usr/sbin/sshd").exists() {
        let _ = writeln!(std::io::stderr(), "skipped: namespaces and sshd take root");
        return;
    }
    // On a machine that others load a start may be late, or the one process not keep its rate.
    let tries = (0..3).any(|number| namespaces_keep_step(number, &unshare));
    assert!(tries, "the generators never began within 10 ms of one another, and did the work of one process");
}

/// Loads a server from three namespaces and by one process; returns whether the three began at one moment, and did as much.
fn namespaces_keep_step(number: u32, unshare: &[&str]) -> bool {
    let folder = scratch(&format!("namespaces-{number}"));
    fs::create_dir_all(&folder).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/namespaces.sh");
    let output = Command::new("unshare")
        .args(unshare)
        .args(["sh", script, env!("CARGO_BIN_EXE_millrace"), folder.to_str().unwrap()])
        .args([
            "--ops",
            "retr",
            "--size",
            "1k",
            "--users",
            "30",
            "--rate",
            "150",
            "--duration",
            "4s",
            "--warm-up",
            "500ms",
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let read = |name: &str| figure(&fs::read(folder.join(name)).unwrap_or_default(), &output.stderr);
    let (three, one) = (read("three.json"), read("one.json"));
    fs::remove_dir_all(&folder).unwrap();
    let ops = |figure: &Value| figure["ops"].as_f64().unwrap();
    let is_same_work = (ops(&three) / ops(&one) - 1.0).abs() <= 0.03;
    assert_eq!(three["generators"].as_array().unwrap().len(), 3);
    let starts = three["generators"].as_array().unwrap().iter().map(|one| one["start_ms"].as_f64().unwrap());
    assert!(starts.clone().all(|start| start.abs() < 60_000.0), "clocks are compared: {three}");
    is_same_work && spread(&three) <= 10.0
}
