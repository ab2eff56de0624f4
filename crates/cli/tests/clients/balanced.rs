//! Two servers behind HAProxy, as docs/load-balancer.md has it, which are restarted one after another under load.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millrace_server::config::self_signed;

use crate::server::{PASSWORD, USER, read};
use crate::tool::{Tool, find, skip, tool};
use crate::tree::noise;

/// What an administrator reads.
const TEXT: &str = include_str!("../../../../docs/load-balancer.md");

/// How long a server or HAProxy may take to become what it is to be.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many restarts there are, unless `ROLLING_RESTARTS` says otherwise.
const RESTARTS: usize = 4;

/// Clients that go on all the time.
const CLIENTS: usize = 4;

/// The names that HAProxy has for the servers.
const NAMES: [&str; 2] = ["a", "b"];

/// A part of the documentation: the block of this kind.
fn block(kind: &str) -> &'static str {
    let begin = format!("```{kind}\n");
    TEXT.split_once(&begin).and_then(|(_, rest)| rest.split_once("```")).unwrap().0
}

/// The text with addresses of the test in place of those of the documentation, and ports that need no rights.
fn placed(text: &str, [front, a, b]: [Ipv4Addr; 3]) -> String {
    let places = [
        (":21\n", ":2121\n"),
        (":443\n", ":4430\n"),
        (":443 ", ":4430 "),
        (":21\"", ":2121\""),
        (":443\"", ":4430\""),
        ("192.0.2.1", &front.to_string()),
        ("10.0.0.21", &a.to_string()),
        ("10.0.0.22", &b.to_string()),
        ("50000-50499", "20200-20219"),
        ("50500-50999", "20220-20239"),
    ];
    places.iter().fold(text.to_owned(), |text, (there, here)| text.replace(there, here))
}

/// Two servers over one folder, and HAProxy in front.
struct Site {
    folder: PathBuf,
    front: Ipv4Addr,
    servers: [Child; 2],
    haproxy: Child,
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.servers.iter_mut().chain([&mut self.haproxy]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            for name in NAMES {
                eprintln!(
                    "--- {name}:\n{}",
                    fs::read_to_string(self.folder.join(name).join("log")).unwrap_or_default()
                );
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts a server of the site, and waits until it serves.
fn serve(folder: &Path, name: &str) -> Child {
    let own = folder.join(name);
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args([
            "serve",
            "--config",
            "millrace.toml",
            "--control",
            "control",
            "--state",
            "state",
            "--http",
            "off",
        ])
        .args(["--user", &format!("{USER}:{PASSWORD}:rw")])
        .current_dir(&own)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::options().create(true).append(true).open(own.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("Ready")), "{}", fs::read_to_string(own.join("log")).unwrap());
    child
}

impl Site {
    /// `None` where there is no HAProxy.
    fn start() -> Option<Self> {
        let Some(program) = find("haproxy").or_else(|| Tool::at("/usr/sbin/haproxy")) else {
            skip("haproxy is not installed");
            return None;
        };
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let places = [32, 33, 34].map(|part| Ipv4Addr::new(127, part, high, low));
        let folder = std::env::temp_dir().join(format!("millrace-balanced-{}", std::process::id()));
        let files = folder.join("files");
        fs::create_dir_all(&files).unwrap();
        let made = self_signed(&folder, &["files.example".to_owned()]).unwrap();
        fs::rename(made.certificate, folder.join("cert.pem")).unwrap();
        fs::rename(made.key, folder.join("key.pem")).unwrap();
        let settings = block("toml")
            .replace("/mnt/files", files.to_str().unwrap())
            .replace("/etc/millrace", folder.to_str().unwrap())
            .replace("10.0.0.5", &places[0].to_string());
        let second = settings.replace("10.0.0.21", "10.0.0.22").replace("50000-50499", "50500-50999");
        for (name, settings) in NAMES.iter().zip([settings, second]) {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("millrace.toml"), placed(&settings, places)).unwrap();
        }
        let servers = NAMES.map(|name| serve(&folder, name));
        let times = "timeout connect 30s\n    timeout client 60s\n    timeout server 60s";
        let from = format!("source {}", places[0]);
        let text = format!(
            "global\n    maxconn 500\n    stats socket {}\ndefaults\n    {times}\n    {from}\n{}",
            folder.join("stats").display(),
            placed(block("haproxy"), places)
        );
        fs::write(folder.join("haproxy.cfg"), text).unwrap();
        let log = fs::File::create(folder.join("haproxy.log")).unwrap();
        let haproxy = Command::new(program.program())
            .args(["-db", "-f", "haproxy.cfg"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let site = Self { folder, front: places[0], servers, haproxy };
        NAMES.iter().for_each(|name| site.waits_until(name, "UP"));
        Some(site)
    }

    /// Waits until HAProxy has this state of a server, for FTP and HTTPS.
    fn waits_until(&self, name: &str, state: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut last = String::new();
        while Instant::now() < deadline {
            last = self.statistics();
            let of = |listen: &str| {
                let begin = format!("{listen},{name},");
                let row = last.lines().find(|line| line.starts_with(&begin))?;
                row.split(',').nth(17).map(|found| found.starts_with(state))
            };
            if of("ftp") == Some(true) && of("https") == Some(true) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.folder.join("haproxy.log")).unwrap();
        panic!("{name} is not {state}: {last}{log}");
    }

    /// What HAProxy tells of its servers, empty before it serves.
    fn statistics(&self) -> String {
        let mut told = String::new();
        if let Ok(mut stream) = UnixStream::connect(self.folder.join("stats")) {
            let _ = stream.write_all(b"show stat\n");
            let _ = stream.read_to_string(&mut told);
        }
        told
    }

    /// Drains a server as the documentation says, waits for its end, and starts it again.
    fn restart(&mut self, number: usize) {
        let name = NAMES[number];
        let own = self.folder.join(name);
        let drained = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["ctl", "--control", "control", "drain", "--after", "4s"])
            .current_dir(&own)
            .output()
            .unwrap();
        assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
        self.waits_until(name, "DRAIN");
        let code = self.servers[number].wait().unwrap();
        assert!(code.success(), "{name} has ended with {code}");
        self.servers[number] = serve(&self.folder, name);
        self.waits_until(name, "UP");
    }
}

/// Clients that come through HAProxy.
struct Clients {
    curl: PathBuf,
    front: Ipv4Addr,
    folder: PathBuf,
}

impl Clients {
    /// Uploads and downloads a file by curl, and compares.
    fn go_round(&self, scheme: &str, number: u32) {
        let content = noise(u64::from(number), 40_000);
        let (name, port) = (format!("f{number}"), if scheme == "ftp" { 2121 } else { 4430 });
        let (local, back) = (self.folder.join(&name), self.folder.join(format!("{name}.back")));
        fs::write(&local, &content).unwrap();
        let url = format!("{scheme}://{}:{port}/{name}", self.front);
        for way in [["--upload-file", local.to_str().unwrap()], ["--output", back.to_str().unwrap()]] {
            let output = Command::new(&self.curl)
                .args([
                    "--silent",
                    "--show-error",
                    "--fail",
                    "--insecure",
                    "--disable-epsv",
                    "--no-ftp-skip-pasv-ip",
                ])
                .args(["--user", &format!("{USER}:{PASSWORD}"), "--max-time", "60"])
                .args(way)
                .arg(&url)
                .output()
                .unwrap();
            assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
        }
        assert!(read(&back) == content, "{url} is another file");
        fs::remove_file(local).unwrap();
        fs::remove_file(back).unwrap();
    }

    /// Returns how many went round until the end.
    fn go_on(&self, numbers: &AtomicU32, is_over: &AtomicBool) -> u32 {
        let mut rounds = 0;
        while !is_over.load(Ordering::Acquire) {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            self.go_round(if number.is_multiple_of(2) { "ftp" } else { "https" }, number);
            rounds += 1;
        }
        rounds
    }
}

/// Ends the clients, also where a restart fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn servers_are_restarted_one_after_another_and_no_client_is_refused() {
    let (Some(curl), Some(mut site)) = (tool("curl"), Site::start()) else { return };
    let restarts = std::env::var("ROLLING_RESTARTS").map_or(RESTARTS, |number| number.parse().unwrap());
    let clients = Clients { curl: curl.program().to_owned(), front: site.front, folder: site.folder.clone() };
    let (numbers, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let rounds: u32 = thread::scope(|scope| {
        let _over = Over(&is_over);
        let going = [(); CLIENTS].map(|()| scope.spawn(|| clients.go_on(&numbers, &is_over)));
        (0..restarts).for_each(|number| site.restart(number % NAMES.len()));
        drop(Over(&is_over));
        going.map(|client| client.join().unwrap()).iter().sum()
    });
    println!("{restarts} restarts, {rounds} files up and down, none refused");
    for name in NAMES {
        let log = fs::read_to_string(site.folder.join(name).join("log")).unwrap();
        assert!(log.contains(" upload ") && !log.contains("proxy-refused"), "{name}:\n{log}");
    }
}
