//! Each system call with which a server keeps a certificate fails in turn (`strace`): the server says so, leaves nothing
//! half behind, and starts with a certificate the next time.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::has;

/// The calls that keep a file, and what goes wrong in them.
const CALLS: [(&str, &str); 6] = [
    ("mkdir", "ENOSPC"),
    ("openat", "ENOSPC"),
    ("write", "ENOSPC"),
    ("fsync", "EIO"),
    ("rename", "EIO"),
    ("statx", "EIO"),
];

/// The call of a thread with this number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    name: String,
    number: usize,
}

/// What a start came to.
#[derive(Debug)]
struct Start {
    is_ready: bool,
    errors: String,
}

/// A folder for a server that keeps a certificate.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-tls-faults-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("served")).unwrap();
        Self(folder)
    }

    /// Starts a server under `strace` with these options, and stops it once it serves.
    fn start(&self, flags: &[&str], strace: &[&str]) -> Start {
        let mut child = Command::new("strace")
            .args(["-f", "-y", "-o"])
            .arg(self.0.join("trace"))
            .args(strace)
            .arg(env!("CARGO_BIN_EXE_millrace"))
            .arg("serve")
            .arg(self.0.join("served"))
            .args(["--ftp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--sandbox", "off", "--state"])
            .arg(self.0.join("state"))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line.starts_with("Ready"));
        let group = format!("-{}", child.id());
        // Those that have ended by themselves cannot be ended.
        let _ = Command::new("kill").args(["-TERM", "--", &group]).stderr(Stdio::null()).status();
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        child.wait().unwrap();
        Start { is_ready, errors }
    }

    /// The calls about what is kept, in the order of the trace.
    fn calls(&self) -> Vec<Call> {
        let kept = self.0.join("state").display().to_string();
        let mut numbers: HashMap<(String, String), usize> = HashMap::new();
        let mut calls = Vec::new();
        for line in fs::read_to_string(self.0.join("trace")).unwrap().lines() {
            let Some((thread, rest)) = line.split_once(' ') else { continue };
            let Some((name, arguments)) = rest.trim_start().split_once('(') else { continue };
            let number = numbers.entry((thread.to_owned(), name.to_owned())).or_default();
            *number += 1;
            if arguments.contains(&kept) {
                calls.push(Call { name: name.to_owned(), number: *number });
            }
        }
        calls
    }

    /// The files that are kept, by their paths beneath the folder `state`.
    fn kept(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.join("state")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path.clone());
                }
                found.push(path.strip_prefix(self.0.join("state")).unwrap().display().to_string());
            }
        }
        found.sort();
        found
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Fails each call of a start that keeps a certificate, whose files are these.
fn fail_each_call(name: &str, flags: &[&str], certificate: &str) {
    let names: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    let trace = format!("trace={}", names.join(","));
    let first = Site::new(name);
    let whole = first.start(flags, &["-e", &trace]);
    assert!(whole.is_ready, "{whole:?}");
    let (calls, expected) = (first.calls(), first.kept());
    assert!(calls.iter().any(|call| call.name == "fsync"), "{calls:?}");
    assert!(expected.iter().any(|path| path == certificate), "{expected:?}");
    for Call { name: call, number } in &calls {
        let error = CALLS.iter().find(|(name, _)| name == call).unwrap().1;
        let site = Site::new(name);
        let inject = format!("inject={call}:error={error}:when={number}");
        let failed = site.start(flags, &["-e", &format!("trace={call}"), "-e", &inject]);
        let what = format!("{call} {number}: {failed:?}");
        assert!(failed.is_ready || !failed.errors.is_empty(), "{what}");
        let left = site.kept();
        assert!(left.iter().all(|path| expected.contains(path)), "{left:?}: {what}");
        let again = site.start(flags, &["-e", "trace=none"]);
        assert!(again.is_ready, "{what}, then {again:?}");
        assert_eq!(site.kept(), expected, "{what}");
        assert!(is_certificate(&site.0.join("state").join(certificate)), "{what}");
    }
}

fn is_certificate(path: &Path) -> bool {
    let check = Command::new("openssl").args(["x509", "-noout", "-in"]).arg(path).output().unwrap();
    check.status.success()
}

#[test]
fn a_failed_call_leaves_no_half_self_signed_certificate() {
    if has("strace", "-V") && has("openssl", "version") {
        fail_each_call("self-signed", &["--tls-self-signed"], "tls/self-signed/certificate.pem");
    }
}

#[test]
fn a_failed_call_leaves_no_half_certificate_where_a_ca_is_to_issue_one() {
    if has("strace", "-V") && has("openssl", "version") {
        // There is no CA: the certificate is the one that stands in for its.
        let site = Site::new("acme-settings");
        let file = site.0.join("millrace.toml");
        let settings =
            "acme = \"files.test\"\nacme-agree = true\nacme-directory = \"https://127.0.0.1:1/directory\"\n";
        fs::write(&file, settings).unwrap();
        let flags = ["--config", file.to_str().unwrap()];
        fail_each_call("acme", &flags, "acme/127.0.0.1-1-directory/certificate.pem");
    }
}
