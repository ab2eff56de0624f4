//! The server under test: the real binary over a folder that outlives it, with three users, quotas and hooks.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::clients::Ftp;
use crate::writer::Addresses;

pub(crate) const USERS: [&str; 3] = ["alice", "bob", "carol"];

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// Operations until the ledger is right, after a start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder of the test's own, which goes with it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-crashes-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A folder with `served`, `state` and `millrace.toml`.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
}

impl Site {
    /// Writes the configuration, with further keys and tables, and the folders of this many writers.
    pub(crate) fn make(folder: &Path, keys: &str, tables: &str, writers: usize) -> Self {
        let here = folder.display();
        let users = USERS.map(|name| {
            format!("[[user]]\nname = \"{name}\"\npassword = \"{HASH}\"\ndirectory = \"{name}\"\ngroups = \"all\"\n")
        });
        let text = format!(
            "directory = \"{here}/served\"\nstate = \"{here}/state\"\n{keys}{}{tables}",
            users.concat()
        );
        for number in 0..writers.max(USERS.len()) {
            fs::create_dir_all(folder.join(format!("served/{}/w{number}", USERS[number % 3]))).unwrap();
        }
        fs::create_dir_all(folder.join("state")).unwrap();
        fs::write(folder.join("millrace.toml"), text).unwrap();
        Self { folder: folder.to_owned() }
    }

    pub(crate) fn home(&self, user: &str) -> PathBuf {
        self.folder.join("served").join(user)
    }

    /// Waits until the ledger in its file says so about a user's files.
    pub(crate) fn wait_for_ledger(&self, user: &str, files: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let told = Command::new(env!("CARGO_BIN_EXE_millrace"))
                .args(["explain", user, "--config"])
                .arg(self.folder.join("millrace.toml"))
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&told.stdout).into_owned();
            if told.split("Used,").nth(1).is_some_and(|used| used.contains(files)) {
                return;
            }
            assert!(Instant::now() < end, "{user}'s ledger does not say {files}: {told}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the server; how long it took until connections are accepted.
    pub(crate) fn start(&self) -> (Server, Duration) {
        self.start_by(&mut Command::new(env!("CARGO_BIN_EXE_millrace")))
    }

    /// Starts the server as after a power cut, when the kernel has another boot id.
    pub(crate) fn start_in_boot(&self, number: usize) -> Server {
        let boot_id = self.folder.join("boot_id");
        fs::write(&boot_id, format!("{number:08x}-0000-4000-8000-000000000001\n")).unwrap();
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(boot_id).arg(env!("CARGO_BIN_EXE_millrace"));
        self.start_by(&mut command).0
    }

    fn start_by(&self, command: &mut Command) -> (Server, Duration) {
        let begun = Instant::now();
        let mut child = command
            .args(["serve", "--ftp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-json", "--quiet"])
            .arg("--config")
            .arg(self.folder.join("millrace.toml"))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let took = begun.elapsed();
        let addresses = addresses(&line);
        let mut server = Server { child, addresses: None };
        // The guard ends the process where there is no address.
        server.addresses = Some(addresses.unwrap_or_else(|| panic!("no addresses: {line:?}")));
        (server, took)
    }
}

/// Reads the line that `--ready-json` prints.
pub(crate) fn addresses(line: &str) -> Option<Addresses> {
    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
    let address = |key: &str| {
        let first = ready.get(key)?.get(0)?;
        format!("{}:{}", first["host"].as_str()?, first["port"]).parse().ok()
    };
    Some(Addresses { ftp: address("ftp")?, http: address("http")? })
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    addresses: Option<Addresses>,
}

impl Server {
    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses.expect("it is set by the start")
    }

    /// With `kill -9`.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asserts that each user's ledger says what lies in the user's folder.
    pub(crate) fn check_ledgers(&self, site: &Site) -> Result<(), String> {
        for user in USERS {
            let (bytes, files) = usage(&site.home(user));
            let expected = [format!("Bytes: {bytes} of "), format!("Files: {files} of ")];
            let mut ftp = Ftp::log_in(self.addresses().ftp, user).map_err(|error| error.to_string())?;
            let end = Instant::now() + PATIENCE;
            loop {
                let (_, told) = ftp.command("SITE QUOTA").map_err(|error| error.to_string())?;
                if expected.iter().all(|text| told.contains(text)) {
                    break;
                }
                if told.contains("Bytes:") || Instant::now() > end {
                    return Err(format!("{user} has {bytes} bytes in {files} files, and is told: {told}"));
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The bytes and the number of files beneath a folder. Uploads that wait to go on have hidden names, and do not count.
fn usage(folder: &Path) -> (u64, u64) {
    let mut sum = (0, 0);
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_name().as_encoded_bytes().starts_with(b".millrace-") {
            continue;
        }
        let metadata = entry.metadata().unwrap();
        let (bytes, files) = match metadata.is_dir() {
            true => usage(&entry.path()),
            false => (metadata.len(), 1),
        };
        sum = (sum.0 + bytes, sum.1 + files);
    }
    sum
}
