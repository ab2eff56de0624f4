//! A server of a test's own, and its clients.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) use crate::ports::free_port;

/// The hash of `password`: cheap.
pub(crate) const HASH: &str =
    "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// How long something may take that is not in doubt.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of a test's own, with a folder `files` that has a file `f`.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-documents-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("files")).unwrap();
        fs::write(folder.join("files/f"), "the content of a file").unwrap();
        Self(folder)
    }

    /// Writes `millrace.toml`, with the folder, `eve`, who administers, and `bob`.
    pub(crate) fn configure(&self, keys: &str) {
        let text = format!(
            "directory = \"files\"\nstate = \"state\"\nanonymous = \"ro\"\n{keys}\n\
             [[user]]\nname = \"eve\"\npassword = \"{HASH}\"\naccess = [\"list\", \"read\", \"write\", \"admin\"]\n\
             [[user]]\nname = \"bob\"\npassword = \"{HASH}\"\n"
        );
        fs::write(self.0.join("millrace.toml"), text).unwrap();
    }

    /// The program, which runs here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    /// What the program answers.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it prints, where all goes well.
    #[track_caller]
    pub(crate) fn tell(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.0.join("log")).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that runs, with a control socket.
pub(crate) struct Site {
    pub(crate) folder: Folder,
    child: Child,
    /// Where it serves FTP.
    pub(crate) ftp: String,
    /// Where it serves HTTP, if its keys say so.
    pub(crate) http: String,
}

impl Site {
    pub(crate) fn start(name: &str, keys: &str) -> Self {
        Self::start_in(Folder::new(name), keys)
    }

    pub(crate) fn start_in(folder: Folder, keys: &str) -> Self {
        let http = if keys.contains("http = ") { "" } else { "http = \"off\"\n" };
        let ftp = if keys.contains("ftp = ") { "" } else { "ftp = \"127.0.0.1:0\"\n" };
        folder.configure(&format!("{ftp}{http}control = \"control\"\n{keys}"));
        let mut child = folder
            .command(&["serve", "--ready-json", "--config", "millrace.toml"])
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.0.join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("it is not ready: {}", folder.log()));
        let [ftp, http] = ["ftp", "http"].map(|door| format!("127.0.0.1:{}", ready[door][0]["port"]));
        Self { child, ftp, http, folder }
    }

    /// The most memory that the server has had at a time, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> Output {
        self.folder.run(&[&["ctl", "--control", "control"], arguments].concat())
    }

    /// What it says, as JSON.
    #[track_caller]
    pub(crate) fn ask(&self, arguments: &[&str]) -> Value {
        let text = self.folder.tell(&[&["ctl", "--control", "control", "--json"], arguments].concat());
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn log_in(&self, user: &str) -> Client {
        let mut client = Client::connect(&self.ftp);
        client.log_in(user);
        client
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The last server owns the socket; earlier ones end with their sessions.
        let _ = self.ctl(&["stop"]);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of FTP.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    #[track_caller]
    pub(crate) fn connect(address: &str) -> Self {
        Self::try_connect(address).unwrap_or_else(|| panic!("there is no greeting at {address}"))
    }

    /// `None` where no server answers yet.
    pub(crate) fn try_connect(address: &str) -> Option<Self> {
        let mut client = Self::open(address)?;
        let mut greeting = String::new();
        let read = client.0.read_line(&mut greeting);
        while read.is_ok()
            && greeting.ends_with("\r\n")
            && !greeting.lines().any(|line| line.starts_with("220 "))
        {
            if !matches!(client.0.read_line(&mut greeting), Ok(1..)) {
                break;
            }
        }
        (read.is_ok() && greeting.starts_with("220")).then_some(client)
    }

    /// A connection on which nothing was read.
    pub(crate) fn open(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Self(BufReader::new(stream)))
    }

    pub(crate) fn log_in(&mut self, user: &str) {
        self.say(&format!("USER {user}"), "331");
        self.say("PASS password", "230");
        self.say("TYPE I", "200");
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// Sends a line; returns all lines of the reply.
    #[track_caller]
    pub(crate) fn say(&mut self, line: &str, code: &str) -> String {
        self.send(line);
        let reply = self.reply();
        assert!(reply.starts_with(code), "{line}: expected {code}: {reply:?}");
        reply
    }

    /// Reads a reply.
    #[track_caller]
    pub(crate) fn expect(&mut self, code: &str) {
        let reply = self.reply();
        assert!(reply.starts_with(code), "expected {code}: {reply:?}");
    }

    /// All lines of the next reply.
    pub(crate) fn reply(&mut self) -> String {
        let mut reply = String::new();
        loop {
            let begin = reply.len();
            assert!(self.0.read_line(&mut reply).unwrap() > 0, "the server has closed: {reply:?}");
            let line = &reply[begin..];
            if line.len() > 3
                && line.as_bytes()[..3].iter().all(u8::is_ascii_digit)
                && line.as_bytes()[3] == b' '
            {
                return reply;
            }
        }
    }

    /// A passive data connection.
    pub(crate) fn data(&mut self) -> TcpStream {
        let reply = self.say("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        let address: SocketAddr = self.0.get_ref().peer_addr().unwrap();
        let stream = TcpStream::connect((address.ip(), port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The content of a file.
    pub(crate) fn get(&mut self, path: &str) -> Vec<u8> {
        let mut data = self.data();
        self.say(&format!("RETR {path}"), "150");
        let mut content = Vec::new();
        data.read_to_end(&mut content).unwrap();
        assert!(self.reply().starts_with("226"));
        content
    }

    pub(crate) fn put(&mut self, path: &str, content: &[u8]) {
        let mut data = self.data();
        self.say(&format!("STOR {path}"), "150");
        data.write_all(content).unwrap();
        drop(data);
        assert!(self.reply().starts_with("226"));
    }

    /// Waits for the end of the connection.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 100]), Ok(0) | Err(_))
    }
}

/// Waits for what a busy machine may take its time for.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Finds a program of the system. Where it is missing, says so; a failure where clients are required.
pub(crate) fn program(name: &str, is_required: bool) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([Path::new("/usr/sbin").to_owned()]);
    let found = folders.map(|folder| folder.join(name)).find(|program| program.is_file());
    if found.is_none() {
        let may_skip =
            !is_required || std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none_or(|value| value == "0");
        assert!(may_skip, "{name} is not installed");
        // Not `eprintln!`, which the test harness keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "skipped: {name} is not installed");
    }
    found
}
