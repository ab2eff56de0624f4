//! A folder with a configuration, its server, and those who talk to that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TEXT: &str = include_str!("../../../../docs/hooks.md");

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// The hashes of `all is well` and of `an EICAR file`.
pub(crate) const SUMS: [&[u8]; 2] = [
    b"f70579cce37a17bd1c4c4061b0beff0fbf58853a2f0c72a14f93c8f30c6b7cec",
    b"d35ffd89682b26c067e8cd1d03d22540d010c29a7d1d5b9e61ea551c55c131c8",
];

/// What posts are signed with.
pub(crate) const SECRET: &str = "a secret of some 30 characters\n";

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a configuration, and the server that serves it while there is one.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    pub(crate) child: Option<Child>,
    address: String,
}

impl Site {
    pub(crate) fn new(name: &str, keys: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-hooks-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("in")).unwrap();
        let keys = keys.replace("HERE", folder.to_str().unwrap());
        let user = format!("\n[[user]]\nname = \"alice\"\npassword = \"{HASH}\"\n");
        fs::write(folder.join("millrace.toml"), format!("{keys}{user}")).unwrap();
        Self { folder, child: None, address: String::new() }
    }

    pub(crate) fn script(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn start(&mut self) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            // From a folder that is none of the configuration's.
            .args(["serve", "--ftp", "127.0.0.1:0", "--quiet", "--config"])
            .arg(self.folder.join("millrace.toml"))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        self.child = Some(child);
        for line in BufReader::new(out).lines().map(Result::unwrap) {
            if let Some((_, rest)) = line.split_once("ftp://") {
                self.address = rest.split('/').next().unwrap().rsplit('@').next().unwrap().to_owned();
            }
            if line.starts_with("Ready") {
                return;
            }
        }
        panic!("it ended before it was ready");
    }

    /// With `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn log_in(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(BufReader::new(stream));
        assert!(client.reply().starts_with("220"));
        client.say("USER alice");
        assert!(client.say("PASS password").starts_with("230"));
        client.say("TYPE I");
        client
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn reply(&mut self) -> String {
        self.next_reply().expect("a reply")
    }

    pub(crate) fn next_reply(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).ok()?;
        (read > 0 && line.ends_with('\n')).then_some(line)
    }

    pub(crate) fn say(&mut self, line: &str) -> String {
        write!(self.0.get_mut(), "{line}\r\n").unwrap();
        self.reply()
    }

    /// The reply, if there is one.
    pub(crate) fn try_say(&mut self, line: &str) -> Option<String> {
        write!(self.0.get_mut(), "{line}\r\n").ok()?;
        self.next_reply()
    }

    /// Uploads; the last reply, if there is one.
    pub(crate) fn try_store(&mut self, name: &str, content: &[u8]) -> Option<String> {
        write!(self.0.get_mut(), "EPSV\r\n").ok()?;
        let port: u16 = self.next_reply()?.split('|').nth(3)?.parse().ok()?;
        let mut data = TcpStream::connect(("127.0.0.1", port)).ok()?;
        write!(self.0.get_mut(), "STOR {name}\r\n").ok()?;
        let first = self.next_reply()?;
        if !first.starts_with("150") {
            return Some(first);
        }
        data.write_all(content).ok()?;
        drop(data);
        self.next_reply()
    }

    pub(crate) fn store(&mut self, name: &str, content: &[u8]) -> String {
        self.try_store(name, content).expect("a reply")
    }
}

/// A receiver of webhooks.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) port: u16,
    pub(crate) bodies: Arc<Mutex<Vec<serde_json::Value>>>,
    /// Answers 503 while set.
    pub(crate) busy: Arc<AtomicBool>,
    /// Answers 422 while set.
    pub(crate) picky: Arc<AtomicBool>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let flag = || Arc::new(AtomicBool::new(false));
        let receiver = Self { port, bodies: Arc::default(), busy: flag(), picky: flag() };
        let its = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let its = its.clone();
                std::thread::spawn(move || its.answer(stream));
            }
        });
        receiver
    }

    /// Every event that came, by id.
    pub(crate) fn events(&self) -> BTreeMap<String, serde_json::Value> {
        let bodies = self.bodies.lock().unwrap();
        let events = bodies.iter().flat_map(|body| match body {
            serde_json::Value::Array(events) => events.clone(),
            event => vec![event.clone()],
        });
        events.map(|event| (event["id"].as_str().unwrap().to_owned(), event)).collect()
    }

    /// The paths of the events of a kind.
    pub(crate) fn paths(&self, kind: &str) -> BTreeSet<String> {
        let events = self.events().into_values().filter(|event| event["event"] == kind);
        events.map(|event| event["path"].as_str().unwrap().to_owned()).collect()
    }

    /// Requests of one connection, until it ends.
    fn answer(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut length, mut line) = (0, String::new());
            loop {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            let answer = match () {
                () if is(&self.busy) => "503 Busy",
                () if is(&self.picky) => "422 No",
                () => {
                    self.bodies.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                    "204 Taken"
                }
            };
            if write!(reader.get_mut(), "HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    }
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut claim: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !claim() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The code blocks of the document in this language.
pub(crate) fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let rests = TEXT.split(&fence).skip(1);
    rests.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The names in a folder.
pub(crate) fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}
