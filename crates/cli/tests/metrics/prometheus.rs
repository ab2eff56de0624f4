//! What Prometheus's own program says of the metrics and the rules.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::site::Site;

/// Runs `promtool`. Where it is missing, says so and answers `None`; a failure where clients are required.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let is_required = std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_some_and(|value| value != "0");
            assert!(!is_required, "promtool: {error}");
            let _ = writeln!(std::io::stderr(), "skipped: promtool: {error}");
            return None;
        }
    };
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8(told).unwrap()))
}

#[test]
fn promtool_finds_no_fault_with_the_metrics() {
    let site = Site::start("promtool", "");
    site.log_in().download("LIST");
    let text = site.page("/metrics").1;
    if let Some((is_good, told)) = promtool(&["check", "metrics"], &text) {
        assert!(is_good && told.is_empty(), "{told}");
    }
}

#[test]
fn promtool_finds_no_fault_with_the_rules() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/alerts.yml");
    if let Some((is_good, told)) = promtool(&["check", "rules", rules.to_str().unwrap()], "") {
        assert!(is_good, "{told}");
    }
}
