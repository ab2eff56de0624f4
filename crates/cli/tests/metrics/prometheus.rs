//! What Prometheus's own program says of the metrics and the rules.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::site::{Site, eventually, get};

/// Starts a program of Prometheus. Where it is missing, says so and answers `None`; a failure where clients are required.
fn start(program: &str, arguments: &[&str]) -> Option<Child> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match child {
        Ok(child) => Some(child),
        Err(error) => {
            let is_required = std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_some_and(|value| value != "0");
            assert!(!is_required, "{program}: {error}");
            let _ = writeln!(std::io::stderr(), "skipped: {program}: {error}");
            None
        }
    }
}

/// Runs `promtool`; returns whether it finds no fault, and what it says.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let mut child = start("promtool", arguments)?;
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

/// A Prometheus that runs, and ends with this.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    /// Has it scrape a server each second, and evaluate the rules.
    fn start(site: &Site) -> Option<Self> {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/alerts.yml");
        let file = site.folder.join("prometheus.yml");
        let targets = format!("    static_configs: [{{targets: [\"{}\"]}}]\n", site.admin);
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n\
             \x20 - job_name: millrace\n{targets}",
            rules.display()
        );
        fs::write(&file, text).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = format!("--config.file={}", file.display());
        let storage = format!("--storage.tsdb.path={}", site.folder.join("prometheus").display());
        let listen = format!("--web.listen-address={address}");
        let mut child = start("prometheus", &[&config, &storage, &listen, "--log.level=error"])?;
        // Nothing reads them: it would wait when they are full.
        drop((child.stdout.take(), child.stderr.take()));
        Some(Self { child, address })
    }

    /// Returns how many series an expression has.
    fn count(&self, expression: &str) -> Result<usize, String> {
        // One number: a longer answer would come in chunks.
        let query = format!("count({expression})");
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = get(&self.address, "GET", &format!("/api/v1/query?query={encoded}"), "");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let object = body.find('{').zip(body.rfind('}')).map(|(first, last)| &body[first..=last]);
        let object: Value = serde_json::from_str(object.unwrap_or_default()).map_err(|_| answer.clone())?;
        let result = object["data"]["result"].as_array().ok_or(answer)?;
        let count = result.first().and_then(|one| one["value"][1].as_str()?.parse().ok());
        Ok(count.unwrap_or(0))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_expression_of_the_dashboard_has_data() {
    let hook = "[[hook]]\non = [\"upload\"]\nwebhook = \"http://127.0.0.1:1/\"\nwait = false\n";
    let site = Site::start("board", &format!("hooks-queue = \"queue\"\ntls-self-signed = true\n{hook}"));
    let Some(prometheus) = Prometheus::start(&site) else { return };
    eventually("Prometheus listens", || std::net::TcpStream::connect(&prometheus.address).is_ok());
    eventually("it has scraped", || {
        prometheus.count("count_over_time(millrace_ready[1m]) > 1").is_ok_and(|count| count > 0)
    });
    // A request and a transfer, so that quantiles are numbers.
    site.log_in().download("LIST");
    get(&site.http, "GET", "/", "");
    let board =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana.json")).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 30);
    for expression in expressions {
        let said = expression
            .replace("$__rate_interval", "1m")
            .replace("$instance", ".*")
            .replace("$job", "millrace");
        eventually(expression, || {
            prometheus.count(&said).unwrap_or_else(|error| panic!("{said}: {error}")) > 0
        });
    }
    assert_eq!(prometheus.count("ALERTS{alertstate=\"firing\"}"), Ok(0));
    assert!(prometheus.count("no_such_metric").is_ok_and(|count| count == 0));
}
