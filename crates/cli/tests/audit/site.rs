//! A server with an audit log, and its clients.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The hash of `password`: cheap.
pub(crate) const HASH: &str =
    "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with `files`, a database with the user `alice`, and an audit log in `audit`.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
}

/// A server that runs.
pub(crate) struct Serving {
    pub(crate) child: Child,
    /// What it prints, and its successors.
    out: BufReader<ChildStdout>,
    pub(crate) ftp: String,
    pub(crate) http: String,
}

impl Site {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-audit-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("files")).unwrap();
        fs::create_dir_all(folder.join("audit")).unwrap();
        let site = Self { folder };
        site.configure("");
        site.done(&["user", "--users", "users.db", "add", "alice", "--hash", HASH, "access=rw"]);
        site
    }

    pub(crate) fn configure(&self, keys: &str) {
        let text = format!(
            "directory = \"files\"\nftp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nstate = \"state\"\n\
             users = \"users.db\"\ncontrol = \"control\"\naudit-log = \"audit/audit.jsonl\"\n{keys}"
        );
        fs::write(self.folder.join("millrace.toml"), text).unwrap();
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("audit/audit.jsonl")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command prints that does well.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        self.done(&[&["ctl", "--control", "control"], arguments].concat())
    }

    pub(crate) fn user(&self, arguments: &[&str]) -> String {
        self.done(&[&["user", "--users", "users.db"], arguments].concat())
    }

    pub(crate) fn serve(&self) -> Serving {
        let command = self.command(&["serve", "--config", "millrace.toml"]);
        self.serve_by(command)
    }

    /// Starts a server; its log is the file `log`.
    pub(crate) fn serve_by(&self, mut command: Command) -> Serving {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut serving = Serving { child, out, ftp: String::new(), http: String::new() };
        let lines = serving.lines_up_to_ready();
        let of = |scheme: &str| {
            let line = lines.iter().find_map(|line| line.split_once(scheme)).unwrap().1;
            line.split('/').next().unwrap().rsplit('@').next().unwrap().to_owned()
        };
        (serving.ftp, serving.http) = (of("ftp://"), of("http://"));
        serving
    }

    pub(crate) fn events(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// The records of the audit log.
    pub(crate) fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for a record like this, and returns all.
    pub(crate) fn records_up_to(&self, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
        eventually(
            || self.records().iter().any(&is_it),
            || format!("{:#?}\n{}", self.records(), self.events()),
        );
        self.records()
    }

    /// What `log verify` says, and its exit code.
    pub(crate) fn verify(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(&[&["log", "verify"], arguments].concat());
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    #[track_caller]
    pub(crate) fn is_whole(&self, files: &[&str]) -> String {
        let (code, text) = self.verify(files);
        assert_eq!(code, Some(0), "{text}");
        text
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Serving {
    pub(crate) fn lines_up_to_ready(&mut self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| !line.starts_with("Ready")) {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended before it was ready");
            lines.push(line);
        }
        lines
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Stops it, and waits for its end.
    pub(crate) fn stop(mut self) {
        self.signal("-TERM");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    pub(crate) fn log_in(&self) -> Ftp {
        let mut client = self.connect();
        client.say("USER alice", "331");
        client.say("PASS password", "230");
        client.say("TYPE I", "200");
        client
    }

    pub(crate) fn connect(&self) -> Ftp {
        let stream = TcpStream::connect(&self.ftp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Ftp(BufReader::new(stream));
        client.expect("220");
        client
    }

    /// The answer to a request of `alice`.
    pub(crate) fn request(&self, line: &str, fields: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\nConnection: close\r\n\
             Content-Length: {}\r\n{fields}\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Ftp(BufReader<TcpStream>);

impl Ftp {
    #[track_caller]
    pub(crate) fn expect(&mut self, code: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection ended");
            if line.as_bytes().get(3) != Some(&b'-') {
                break;
            }
        }
        assert!(line.starts_with(code), "expected {code}: {line:?}");
        line
    }

    #[track_caller]
    pub(crate) fn say(&mut self, line: &str, code: &str) -> String {
        write!(self.0.get_mut(), "{line}\r\n").unwrap();
        self.expect(code)
    }

    pub(crate) fn store(&mut self, name: &str, content: &[u8]) {
        let reply = self.say("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        let mut data = TcpStream::connect(("127.0.0.1", port)).unwrap();
        self.say(&format!("STOR {name}"), "150");
        data.write_all(content).unwrap();
        drop(data);
        self.expect("226");
    }
}

/// Waits until `claim` holds, and says `what` there is where it does not.
pub(crate) fn eventually(mut claim: impl FnMut() -> bool, what: impl Fn() -> String) {
    let begin = Instant::now();
    while !claim() {
        assert!(begin.elapsed() < PATIENCE, "{}", what());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a record is this event.
pub(crate) fn is(event: &'static str) -> impl Fn(&Value) -> bool {
    move |record| record["event"] == event
}

/// A file's lines.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}
