//! h2spec: what the RFCs of HTTP/2 and of its compression of fields (7540, 7541) ask of a server, case by case.

use std::fs;

use crate::server::{Server, read};
use crate::tool::tool;
use crate::tree::noise;

/// How many seconds it waits for what a server has to say. Generous: a case whose answer has come waits no longer.
const PATIENCE: &str = "60";

#[test]
fn h2spec_finds_no_fault() {
    let configuration =
        "tls-self-signed = true\nstate = \"state\"\nhttps = \"127.0.0.1:0\"\nanonymous = \"ro\"\n";
    let server = Server::configured_with(configuration, &[]);
    let Some(tool) = tool("h2spec") else { return };
    fs::write(server.served().join("f"), noise(1, 100_000)).unwrap();
    let address = server.https.expect("it was asked for");
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let options = ["--tls", "--insecure", "--timeout", PATIENCE, "--junit-report", "report.xml"];
    let whom = ["--host", &host, "--port", &port, "--path", "/f"];
    let output = tool.attempt(&server, &[&options[..], &whom].concat(), "");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{said}", output.status);
    // Success is also to have looked at nothing.
    let report = String::from_utf8_lossy(&read(server.local().join("report.xml"))).into_owned();
    let cases = report.matches("<testcase").count();
    assert!(cases > 140 && report.matches("<skipped").count() == 0, "{cases} cases\n{said}");
}
