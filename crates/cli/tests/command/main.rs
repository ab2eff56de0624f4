//! The binary as a user meets it: what it prints, and its exit codes.

mod announcing;
mod certificates;
mod checking;
mod dotfiles;
mod ending;
mod links;
mod manual;
mod passwords;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

fn millrace(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    millrace(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A server in a child process, killed when dropped.
struct Serving {
    child: Child,
    out: BufReader<ChildStdout>,
    announced: Vec<String>,
}

impl Serving {
    /// Starts one, and waits for the line that scripts wait for.
    fn start(arguments: &[&str]) -> Self {
        Self::start_in(GOLDEN, arguments)
    }

    fn start_in(folder: &str, arguments: &[&str]) -> Self {
        let mut command = millrace(&["serve", folder, "--ftp", "127.0.0.1:0"]);
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut serving = Self { child, out, announced: Vec::new() };
        loop {
            let mut line = String::new();
            assert_ne!(serving.out.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
            serving.announced.push(line.trim_end().to_owned());
            if line.starts_with("Ready") {
                return serving;
            }
        }
    }

    fn address(&self) -> String {
        let url = self.announced[1].split_whitespace().next().unwrap();
        url.trim_start_matches("ftp://").trim_end_matches('/').rsplit('@').next().unwrap().to_owned()
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut client = BufReader::new(stream);
        assert_eq!(reply(&mut client), "220 Millrace ready.");
        client
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.code(),
                None if Instant::now() > end => panic!("it does not end"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn logged(&mut self) -> String {
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reply(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn help_and_version_go_to_stdout() {
    for (arguments, expected) in [
        (&["--version"][..], concat!("millrace ", env!("CARGO_PKG_VERSION"))),
        (&["--help"], "millrace serve ./somewhere"),
        (&["serve", "--help"], "--ftp 0.0.0.0:2121"),
        (&["serve", "-h"], "[default: 127.0.0.1:2121]"),
        (&["check", "--help"], "configuration file"),
        (&["hash-password", "--help"], "standard input"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(text(&output.stdout).contains(expected), "{arguments:?} lacks {expected:?}");
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn init_writes_a_file_that_can_be_used_and_replaces_none() {
    let folder = Scratch::new("init");
    let path = folder.path("m.toml");
    let made = run(&["init", path.to_str().unwrap()]);
    assert!(made.status.success() && text(&made.stdout).contains("serve --config"), "{made:?}");
    assert_eq!(fs::read(&path).unwrap(), run(&["config", "example"]).stdout);
    let checked = run(&["check", path.to_str().unwrap()]);
    assert!(checked.status.success(), "{checked:?}");
    fs::write(&path, "mine").unwrap();
    let refused = run(&["init", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("is there already"), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn invalid_arguments_exit_with_2() {
    for arguments in [
        &[][..],
        &["serf"],
        &["serve", "/nowhere/at/all"],
        &["serve", "--passive-ports", "2-1"],
        &["serve", "--config", "/nowhere.toml"],
        &["serve", "--user", "alice"],
        &["check", "/nowhere.toml"],
        &["check"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

/// Compares with a golden file; `MILLRACE_GOLDEN=write` writes it instead.
fn compare(golden: &Path, told: &str) {
    match std::env::var_os("MILLRACE_GOLDEN") {
        Some(_) => fs::write(golden, told).unwrap(),
        None => assert_eq!(told, fs::read_to_string(golden).unwrap_or_default(), "{}", golden.display()),
    }
}

/// The hash of `password`, from the tests of the reference implementation in C.
const CHEAP: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// A folder that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-tls-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `millrace check FILE | head`: who reads no further has seen enough.
#[test]
fn a_reader_that_goes_is_no_failure() {
    let folder = std::env::temp_dir().join(format!("millrace-reader-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("m.toml");
    fs::write(&file, "ftp = \"127.0.0.1:2121\"\n").unwrap();
    for arguments in [&["check", file.to_str().unwrap()][..], &["limits"], &["bench", "--list"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = millrace(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", text(&output.stderr));
    }
    fs::remove_dir_all(&folder).unwrap();
}

fn text_of_both(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// Without the warning that a server of root's begins with.
fn without_word_of_root(told: &str) -> String {
    let Some(at) = told.find("warning: this server runs as root") else { return told.to_owned() };
    let (before, rest) = told.split_at(at);
    let (_, behind) = rest.split_once('\n').unwrap_or_default();
    // `check` writes an empty line before each warning.
    let before = if before.ends_with("\n\n") { &before[..before.len() - 1] } else { before };
    format!("{before}{behind}")
}

/// What the sandbox is made of depends on the kernel.
fn on_any_kernel(told: &str) -> String {
    let line = |line: &str| match line.strip_prefix("Sandbox       ").map(|held| held.split_once(';')) {
        Some(Some((_, rest))) => format!("Sandbox       HELD;{rest}\n"),
        Some(None) => "Sandbox       HELD\n".to_owned(),
        None => format!("{line}\n"),
    };
    told.lines().map(line).collect()
}
