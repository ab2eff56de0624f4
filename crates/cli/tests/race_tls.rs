//! Races in TLS, with the servers that `peers/install` gets: those that are not there are left out.

use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

fn millrace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Those of them that are installed and may be started here. Daemons of FTP begin as root.
fn installed(names: &[&'static str]) -> Vec<&'static str> {
    let list = String::from_utf8(millrace(&["race", "--list"]).stdout).unwrap();
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let is_there = |name: &&str| {
        let line = list.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        !line.contains("not installed") && (is_root || *name == "millrace")
    };
    let (there, missing): (Vec<_>, Vec<_>) = names.iter().copied().partition(is_there);
    if !missing.is_empty() {
        eprintln!("not here, and left out: {missing:?}");
    }
    there
}

/// Every user does so much, whatever the machine is busy with, and every byte is looked at.
fn race(servers: &[&str], load: &[&str]) -> Value {
    // A port is chosen before its server has it: two races at once may choose the same.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let count = ["--count", "2", "--users", "3", "--duration", "5m", "--warm-up", "0", "--blocks", "2"];
    let flags = ["--tls", "1.2", "--json", "-"];
    let output = millrace(&[&["race"], servers, &count, load, &flags].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no report: {output:?}"))
}

/// Holds that all of them were measured, that nothing failed, and that everything was encrypted; answers what each figure
/// has of TLS.
fn figures(report: &Value, servers: &[&str], encrypted: &str) -> Vec<Value> {
    let scenarios = report["scenarios"].as_array().unwrap();
    let standings: Vec<&Value> =
        scenarios.iter().flat_map(|scenario| scenario["standings"].as_array().unwrap()).collect();
    assert_eq!(standings.len(), scenarios.len() * servers.len());
    let of_standing = |standing: &&Value| {
        assert_eq!(standing["failures"], Value::Array(Vec::new()), "{standing}");
        let cells = standing["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2, "{standing}");
        cells.iter().map(|cell| cell["tls"].clone()).collect::<Vec<_>>()
    };
    let all: Vec<Value> = standings.iter().flat_map(of_standing).collect();
    let is_encrypted = |tls: &Value| tls["suite"].as_str().is_some_and(|suite| suite.starts_with(encrypted));
    assert!(all.iter().all(is_encrypted), "{all:?}");
    all
}

#[test]
fn servers_of_ftp_are_raced_in_tls() {
    let others = installed(&["vsftpd", "pure-ftpd", "proftpd", "pyftpdlib"]);
    let servers = [&["millrace", "millrace"], &others[..]].concat();
    let report = race(&servers, &["--ops", "retr,stor", "--size", "4k", "--verify"]);
    let tls = figures(&report, &servers, "TLS 1.2");
    // Two transfers of each of three users, each by a data connection of its own.
    assert!(tls.iter().all(|tls| tls["data_handshakes"].as_u64() >= Some(6)), "{tls:?}");
}

#[test]
fn servers_of_http_are_raced_in_tls() {
    let servers = [&["millrace"], &installed(&["nginx", "lighttpd"])[..]].concat();
    if servers.len() > 1 {
        figures(&race(&servers, &["--ops", "get"]), &servers, "TLS 1.2");
    }
}

#[test]
fn a_server_that_cannot_be_started_with_tls_is_named() {
    if installed(&["floor"]).is_empty() {
        return;
    }
    let output = millrace(&["race", "millrace", "floor", "--tls"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("floor cannot be started with TLS"), "{said}");
}
