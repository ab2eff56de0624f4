//! Events in a real journal: systemd's, in a mount namespace of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn events_are_in_the_journal_with_priorities_and_fields() {
    let is_there = rustix::process::geteuid().is_root()
        && Path::new("/lib/systemd/systemd-journald").exists()
        && Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !is_there {
        return eprintln!("left out: this needs root, a mount namespace and systemd-journald");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("journal");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journal.sh");
    let output = Command::new("timeout")
        .args(["120", "unshare", "-m"])
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_millrace"))
        .arg(&folder)
        .output()
        .unwrap();
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| {
        let found = entries.iter().find(|entry| entry["MILLRACE_EVENT"] == event);
        found.unwrap_or_else(|| panic!("no {event} in {text}\n{error}"))
    };
    let failed = of("login-failed");
    assert_eq!((&failed["PRIORITY"], &failed["MILLRACE_TRIED"]), (&"5".into(), &"alice".into()));
    assert!(failed["MESSAGE"].as_str().unwrap().starts_with("login-failed from=127.0.0.1:"), "{failed}");
    assert_eq!(of("login")["MILLRACE_USER"], "alice");
    assert_eq!(of("started")["PRIORITY"], "6");
    assert_eq!(of("ended")["_COMM"], "millrace");
}
