//! The unit of `packaging/systemd`, as systemd judges it.

use std::path::Path;
use std::process::Command;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd")
}

#[test]
fn systemd_finds_little_exposed() {
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(folder().join("millrace.service"))
        .output()
        .expect("systemd-analyze: ./test installs it");
    let told = String::from_utf8_lossy(&output.stdout);
    let line =
        told.lines().find(|line| line.contains("Overall exposure level")).unwrap_or_else(|| panic!("{told}"));
    let level: f64 = line.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(level < 2.0, "{told}");
}

#[test]
fn the_units_of_sockets_are_understood() {
    for unit in ["millrace-ftp.socket", "millrace-session.socket", "millrace-session@.service"] {
        let path = folder().join(unit);
        let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
        let told = String::from_utf8_lossy(&verified.stderr);
        // The program need not be installed where tests run.
        let wrong: Vec<&str> = told
            .lines()
            .filter(|line| line.contains("millrace-") && !line.contains("/usr/bin/millrace is not exec"))
            .collect();
        assert!(wrong.is_empty(), "{unit}: {wrong:?}");
        assert!(path.is_file());
    }
}

#[test]
fn the_unit_and_its_user_are_understood() {
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg(folder().join("millrace.service"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&verified.stderr);
    // The program need not be installed where tests run.
    let wrong: Vec<&str> =
        told.lines().filter(|line| !line.contains("/usr/bin/millrace is not exec")).collect();
    assert!(!wrong.iter().any(|line| line.contains("millrace.service")), "{wrong:?}");
    let users = Command::new("systemd-sysusers")
        .args(["--dry-run"])
        .arg(folder().join("sysusers.conf").canonicalize().unwrap())
        .output()
        .expect("systemd-sysusers");
    assert!(users.status.success(), "{}", String::from_utf8_lossy(&users.stderr));
}
