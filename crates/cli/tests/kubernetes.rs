//! `packaging/kubernetes`: by the schemas of Kubernetes, and as HAProxy reads its part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/millrace.yaml")
}

/// Runs a program that has to be there when `./test` runs this.
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Err(error) if std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none() => {
            eprintln!("left out: {command:?}: {error}");
            None
        }
        output => Some(output.unwrap()),
    }
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn each_part_is_what_kubernetes_expects() {
    let Some(output) = run(Command::new("kubernetes-validate").arg("--strict").arg(manifest())) else {
        return;
    };
    assert!(output.status.success(), "{}", told(&output));
    let text = fs::read_to_string(manifest()).unwrap();
    let parts = text.split("\n---\n").count();
    assert_eq!(told(&output).matches(" passed for resource ").count(), parts);
    let wrong = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.yaml");
    fs::write(&wrong, text.replace("maxUnavailable", "maxUnavailible")).unwrap();
    let output = run(Command::new("kubernetes-validate").arg("--strict").arg(wrong)).unwrap();
    assert!(!output.status.success(), "a wrong name is noticed");
}

#[test]
fn haproxy_reads_its_part() {
    let text = fs::read_to_string(manifest()).unwrap();
    let (_, part) = text.split_once("  haproxy.cfg: |\n").unwrap();
    let (part, _) = part.split_once("\n---\n").unwrap();
    let lines: String =
        part.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("haproxy.cfg");
    fs::write(&file, lines).unwrap();
    let Some(output) = run(Command::new("/usr/sbin/haproxy").arg("-c").arg("-f").arg(&file)) else { return };
    assert!(output.status.success(), "{}", told(&output));
}
