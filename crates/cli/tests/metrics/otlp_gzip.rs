//! Posts are compressed as the key and OpenTelemetry's environment variables say.

use std::fs;
use std::process::Command;

use crate::collector::{Collector, GZIP, TAKEN, check};
use crate::otlp::listen;
use crate::site::{Site, eventually};

const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION";

#[test]
fn a_signal_is_compressed_by_the_key_unless_its_variable_says_otherwise() {
    let collector = Collector::start(listen(), |_| Some(TAKEN));
    let endpoint = &collector.address;
    let keys =
        format!("[otlp]\nendpoint = \"http://{endpoint}\"\ninterval = \"1s\"\ncompression = \"gzip\"\n");
    let mut site = Site::start_with("otlp-gzip", &keys, &[(METRICS, "none")]);
    fs::write(site.folder.join("files/f"), "content").unwrap();
    let mut client = site.log_in();
    (0..20).for_each(|_| assert_eq!(client.download("RETR f"), "content"));
    client.say("QUIT", "221");
    eventually("metrics are posted", || !collector.posts("/v1/metrics").is_empty());
    site.stop();
    assert!(collector.posts("/v1/metrics").iter().all(|post| !post.head.contains(GZIP)));
    let traces = collector.posts("/v1/traces");
    for post in &traces {
        assert!(post.head.contains(GZIP), "{}", post.head);
        check("ExportTraceServiceRequest", &post.body);
    }
    assert_eq!(collector.named("FTP download").len(), 20);
}

#[test]
fn a_wrong_compression_is_an_error_that_names_its_variable_where_there_is_a_collector() {
    let folder = std::env::temp_dir().join(format!("millrace-metrics-{}-otlp-wrong", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let check = |otlp: &str| {
        fs::write(folder.join("millrace.toml"), format!("directory = \".\"\n{otlp}")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["check", "millrace.toml"]).current_dir(&folder).env(METRICS, "zstd").output().unwrap()
    };
    let wrong = check("[otlp]\nendpoint = \"http://127.0.0.1:4318\"\n");
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        text.contains(&format!("{METRICS}: \"zstd\" is none of the choices; write none or gzip.")),
        "{text}"
    );
    assert!(!wrong.status.success());
    let unused = check("");
    assert!(unused.status.success(), "{}", String::from_utf8_lossy(&unused.stderr));
    fs::remove_dir_all(folder).unwrap();
}
