//! Every command of `docs/documents.md`, in its short form, against the server that the page starts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::site::{Folder, program};

const PAGE: &str = include_str!("../../../../docs/documents.md");

/// Returns the commands of a section, or of what stands before the first: lines of blocks, and phrases in tables.
fn commands(section: &str) -> Vec<&'static str> {
    let is_command = |text: &&str| text.starts_with("millrace ") || text.starts_with("bench-runs/");
    let text = PAGE.split("\n## ").find(|text| text.starts_with(section));
    let lines = text.unwrap_or_else(|| panic!("there is no section {section}")).lines();
    let found = lines.flat_map(|line| match line.strip_prefix("    ") {
        Some(command) => vec![command],
        None if line.starts_with('|') => line.split('`').skip(1).step_by(2).collect(),
        None => Vec::new(),
    });
    found.filter(is_command).collect()
}

/// The list of what each command printed in its whole form.
const RECORD: &str = include_str!("../../../../bench-runs/documents/README.md");

/// The server of the page, with a log of its transfers beside it.
struct Served {
    folder: Folder,
    child: Child,
    ready: Value,
}

impl Served {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        fs::create_dir(folder.0.join("files/cgi-bin")).unwrap();
        fs::write(folder.0.join("files/index.html"), [b'x'; 1666]).unwrap();
        let cgi = folder.0.join("files/cgi-bin/program");
        fs::write(&cgi, "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%01876d' 0\n").unwrap();
        fs::set_permissions(cgi, fs::Permissions::from_mode(0o755)).unwrap();
        let [serve] = commands("# The five")[..] else { panic!("one command starts the server") };
        let words = serve.split(' ').skip(1).map(|word| match word {
            "DIR" => "files",
            "SOCKET" => "control",
            word if word.starts_with("127.0.0.1:") => "127.0.0.1:0",
            word => word,
        });
        let mut child = folder
            .command(&words.collect::<Vec<_>>())
            .args(["--users", "off", "--state", "state", "--xferlog", "log", "--ready-json"])
            .env("MILLRACE_XFERLOG_TIMES", "on")
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.0.join("told")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told = || fs::read_to_string(folder.0.join("told"));
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{serve}: {:?}", told()));
        Self { folder, child, ready }
    }

    /// Returns a word of a command with what it stands for here.
    fn replace(&self, word: &str) -> String {
        let scheme = word.split(':').next().unwrap_or_default();
        let host = format!("127.0.0.1:{}", self.ready[scheme][0]["port"]);
        match word {
            "PID" => self.child.id().to_string(),
            "SOCKET" => "control".to_owned(),
            "FILE" => "log".to_owned(),
            "MILLRACE" => env!("CARGO_BIN_EXE_millrace").to_owned(),
            // A file of 10 KiB would take ten seconds.
            "1000" => "100k".to_owned(),
            _ => word.replace("HOST", &host),
        }
    }

    /// Runs a command in its short form; `None` where this machine lacks what it needs.
    fn run(&self, command: &str) -> Option<Output> {
        let mut words: Vec<String> = command.split(' ').map(|word| self.replace(word)).collect();
        let first = words.remove(0);
        words.extend(short_form(&first, &words).into_iter().map(str::to_owned));
        if first != "millrace" {
            return self.run_script(&first, &words);
        }
        if words[0] == "race" {
            self.replace_absent_servers(&mut words);
        }
        Some(self.folder.run(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    /// Runs a script of the record, which takes root, and programs that other systems may lack.
    fn run_script(&self, script: &str, words: &[String]) -> Option<Output> {
        let tool = if script.ends_with("/run") { "ip" } else { "strace" };
        program(tool, true)?;
        if words.iter().any(|word| word == "cgi") {
            program("cc", false)?;
        }
        let may_try = match tool {
            "ip" => Command::new("unshare").args(["--net", "true"]).status().unwrap().success(),
            _ => rustix::process::geteuid().is_root(),
        };
        if !may_try {
            eprintln!("not tried: only root can run {script}");
            return None;
        }
        let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(script);
        let mut command = Command::new(script);
        Some(command.args(words).current_dir(&self.folder.0).stdin(Stdio::null()).output().unwrap())
    }

    /// Has Millrace race in the place of servers that are not installed.
    fn replace_absent_servers(&self, words: &mut [String]) {
        let list = self.folder.tell(&["race", "--list"]);
        let is_absent = |word: &&mut String| {
            list.lines()
                .any(|line| line.split(' ').next() == Some(word.as_str()) && line.contains("not installed"))
        };
        // The presets have names of servers.
        let of_servers = words.split_mut(|word| word == "--preset").next().unwrap_or_default();
        for word in of_servers.iter_mut().filter(is_absent) {
            "millrace".clone_into(word);
        }
    }

    #[track_caller]
    fn run_section(&self, section: &str, count: usize) {
        let commands = commands(section);
        assert_eq!(commands.len(), count, "{commands:?}");
        for command in commands {
            assert!(RECORD.contains(&format!("| `{command}` |")), "{command} is not on the record");
            let Some(output) = self.run(command) else { continue };
            assert!(is_well(command, &output), "{command}: {}\n{}", output.status, text(&output));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns what shortens a command.
fn short_form(first: &str, words: &[String]) -> Vec<&'static str> {
    let has = |word: &str| words.iter().any(|own| own == word);
    match words[0].as_str() {
        _ if first.ends_with("/run") => vec!["--quick"],
        "bench" if has("--from-log") => vec![],
        "bench" if has("--search") => vec!["--users", "2", "--duration", "300ms"],
        "bench" if has("dkftp-2001-09-14") => vec!["--quick", "--quiet", "500ms"],
        "bench" => vec!["--quick"],
        "race" if has("pyftpdlib") => vec!["--quick", "--blocks", "2", "--duration", "100ms"],
        "race" => vec!["--quick", "--blocks", "2"],
        "poller-bench" => vec!["--sockets", "100", "--active", "1", "--time", "0.05"],
        _ => vec![],
    }
}

/// Returns whether a command did what it is for: 3 says that the machine is too busy for the figure to tell, and 1 of a
/// race that operations of some server failed.
fn is_well(command: &str, output: &Output) -> bool {
    let code = output.status.code();
    let is_well = matches!(code, Some(0 | 3)) || (command.contains(" race ") && code == Some(1));
    is_well && !output.stdout.is_empty()
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn the_commands_about_dkftpbench_run() {
    Served::start("page-dkftp").run_section("dkftpbench", 8);
}

#[test]
fn the_commands_about_pyftpdlib_run() {
    Served::start("page-pyftpdlib").run_section("pyftpdlib", 2);
}

#[test]
fn the_commands_about_the_thesis_run() {
    Served::start("page-thesis").run_section("The thesis", 5);
}

#[test]
fn the_commands_about_waarp_run() {
    Served::start("page-waarp").run_section("Waarp", 8);
}

#[test]
fn the_commands_about_tux_run() {
    Served::start("page-tux").run_section("TUX", 8);
}

#[test]
fn a_wrong_command_is_noticed() {
    let served = Served::start("page-wrong");
    for wrong in [
        "millrace bench ftp://bench:bench@HOST/ waarp-conn --usres 1",
        "millrace bench ftp://bench:bench@HOST/ waarp-con",
        "millrace bench http://HOST/no-such-document zb-tux",
        "millrace race millrace millrace --preset waarp",
        "millrace limit",
    ] {
        let output = served.run(wrong).unwrap();
        assert!(!is_well(wrong, &output), "{wrong}: {}", text(&output));
    }
}
