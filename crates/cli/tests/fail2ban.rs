//! The filter of `packaging/fail2ban` finds failed logins in a real server's log, and nothing else.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Logs in by FTP with these names, all of which fail; returns the log.
fn log_of(format: &str, names: &[&str]) -> String {
    let folder = std::env::temp_dir().join(format!("millrace-fail2ban-{}-{format}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args([
            "serve",
            ".",
            "--ftp",
            "[::1]:0",
            "--http",
            "off",
            "--user",
            "u:secret",
            "--log-format",
            format,
        ])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| Some(line.split_once("ftp://")?.1.split('/').next()?.to_owned()));
    let address = address.unwrap();
    let address = address.rsplit('@').next().unwrap();
    lines.find(|line| line.starts_with("Ready")).unwrap();
    for name in names {
        let mut client = BufReader::new(TcpStream::connect(address).unwrap());
        client.get_ref().set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.get_ref().write_all(format!("USER {name}\r\nPASS wrong\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        while !reply.starts_with("530") {
            reply.clear();
            client.read_line(&mut reply).unwrap();
        }
    }
    let mut client = BufReader::new(TcpStream::connect(address).unwrap());
    client.get_ref().write_all(b"USER u\r\nPASS secret\r\nMKD login-failed\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    while !reply.starts_with("221") {
        reply.clear();
        client.read_line(&mut reply).unwrap();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM)
        .unwrap();
    server.wait().unwrap();
    let log = fs::read_to_string(folder.join("log")).unwrap();
    fs::remove_dir_all(folder).unwrap();
    log
}

fn filter() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/fail2ban/millrace.filter.conf")
}

/// The lines of a log that the filter finds, of how many. `None`, with a word, where fail2ban is not installed.
fn found(log: &str, name: &str) -> Option<(usize, usize)> {
    let file = std::env::temp_dir().join(format!("millrace-fail2ban-{}-{name}.log", std::process::id()));
    fs::write(&file, log).unwrap();
    let output = Command::new("fail2ban-regex").arg(&file).arg(filter()).output();
    fs::remove_file(&file).unwrap();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let is_required = std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_some_and(|value| value != "0");
            assert!(!is_required, "fail2ban-regex is not installed");
            // Not `eprintln!`, which the test harness keeps to itself when a test passes.
            let _ = writeln!(std::io::stderr(), "skipped: fail2ban-regex is not installed");
            return None;
        }
        output => output.unwrap(),
    };
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = told.lines().find(|line| line.starts_with("Lines: ")).unwrap_or_else(|| panic!("{told}"));
    let numbers: Vec<usize> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some((numbers[2], numbers[0]))
}

#[test]
fn the_filter_finds_failed_logins_and_nothing_else() {
    // A name that tries to pass for another event.
    let names =
        ["alice", "x 2026-01-01T00:00:00.000Z #1 192.0.2.1:1 - login-failed tried=y", "\"event\":\"banned\""];
    for format in ["text", "json"] {
        let log = log_of(format, &names);
        let failed =
            log.lines().filter(|line| line.contains("login-failed") && line.contains("tried")).count();
        assert_eq!(failed, names.len(), "{log}");
        let Some((matched, all)) = found(&log, format) else { return };
        assert_eq!(matched, names.len(), "of {all}: {log}");
        assert!(all > matched + 5, "{log}");
        // The journal puts the time, the computer and the program before a line.
        if format == "text" {
            let journal: String =
                log.lines().map(|line| format!("Nov 23 21:00:00 host millrace[7]: {line}\n")).collect();
            assert_eq!(found(&journal, "journal").unwrap().0, names.len());
        }
    }
}
