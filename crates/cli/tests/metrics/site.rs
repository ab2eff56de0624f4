//! A server with an admin address, its clients, and its metrics.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::client::Client;

/// How long something may take that is not in doubt.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) ftp: String,
    pub(crate) http: String,
    pub(crate) admin: String,
}

impl Site {
    /// Starts a server with a control socket and JSON logs, and these keys besides.
    pub(crate) fn start(name: &str, keys: &str) -> Self {
        Self::start_with(name, keys, &[])
    }

    /// The same with these environment variables.
    pub(crate) fn start_with(name: &str, keys: &str, variables: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-metrics-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("files")).unwrap();
        let all = "directory = \"files\"\nftp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ncontrol = \"control\"\n\
                   passive-ports = \"61200-61299\"\nlog-format = \"json\"\naccess-log = \"access\"\n\
                   state = \"state\"\nlogin-delay = \"0\"\n";
        let admin = if keys.contains("admin =") { "" } else { "admin = \"127.0.0.1:0\"\n" };
        let user = format!("[[user]]\nname = \"u\"\npassword = \"{HASH}\"\n");
        fs::write(folder.join("millrace.toml"), format!("{all}{admin}{keys}\n{user}")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--config", "millrace.toml"])
            .current_dir(&folder)
            // Whatever proxy is configured here.
            .env("NO_PROXY", "127.0.0.1")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let [ftp, http, admin] = [const { String::new() }; 3];
        let mut site = Self { folder, child, out, ftp, http, admin };
        site.hear_ready();
        site
    }

    /// Reads where the server, or its successor, says that it is.
    pub(crate) fn hear_ready(&mut self) {
        loop {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended: {}", self.read("log"));
            let host = |scheme: &str| {
                let rest = line.split_once(scheme)?.1.split(['/', '\n', ' ']).next()?;
                Some(rest.rsplit('@').next()?.to_owned())
            };
            if line.starts_with("Ready") {
                return;
            } else if line.contains("/metrics") {
                self.admin = host("http://").unwrap();
            } else if let Some(ftp) = host("ftp://") {
                self.ftp = ftp;
            } else if let Some(http) = host("http://") {
                self.http = http;
            }
        }
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    pub(crate) fn log_in(&self) -> Client {
        let stream = TcpStream::connect(&self.ftp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.expect("220");
        client.say("USER u", "331");
        client.say("PASS password", "230");
        client.say("TYPE I", "200");
        client
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.arg("ctl").arg("--control").arg(self.folder.join("control")).args(arguments).output().unwrap()
    }

    /// Asks the admin address for a page; returns its status and text.
    pub(crate) fn page(&self, path: &str) -> (u16, String) {
        let answer = get(&self.admin, "GET", path, "");
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// Scrapes the metrics: each series with its value.
    pub(crate) fn scrape(&self) -> BTreeMap<String, f64> {
        let (status, text) = self.page("/metrics");
        assert_eq!(status, 200, "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(k, v)| (k.to_owned(), v.parse().unwrap()))
            .collect()
    }

    /// Ends the server, so that its logs are whole.
    pub(crate) fn stop(&mut self) {
        assert!(self.ctl(&["stop"]).status.success());
        self.child.wait().unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Sends a request on a connection of its own; returns all that comes.
#[track_caller]
pub(crate) fn get(host: &str, method: &str, path: &str, rest: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    let rest = if rest.contains("\r\n\r\n") { rest.to_owned() } else { format!("{rest}\r\n") };
    stream.write_all((request + &rest).as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

/// Sums up the series of a metric whose labels have all of these.
pub(crate) fn sum(series: &BTreeMap<String, f64>, name: &str, labels: &[&str]) -> u64 {
    let is_meant =
        |key: &str| key.split('{').next() == Some(name) && labels.iter().all(|label| key.contains(label));
    series.iter().filter(|(key, _)| is_meant(key)).map(|(_, value)| *value as u64).sum()
}
