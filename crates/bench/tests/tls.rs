//! FTP in TLS, explicit and implicit, against Millrace.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_bench::plan::Plan;
use millrace_bench::report::{CellReport, Report};
use millrace_bench::run::{Silent, run};
use millrace_net::tls::{self, self_signed};
use millrace_server::config::{LogFormat, Resumption, Tls};
use millrace_server::{Accounts, Config, Permissions, Running, Server};
use millrace_storage::MemoryStorage;

/// A server, and a folder with its certificate that goes with it.
struct Secured {
    server: Running,
    folder: PathBuf,
}

impl Secured {
    fn start(name: &str, resumption: Resumption) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-bench-{name}-{}", std::process::id()));
        let pair = self_signed(&folder, &["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let plan = tls::Plan { identities: vec![pair], ..tls::Plan::default() };
        let tls = Tls { login_required: true, data_required: true, resumption, ..Tls::new(plan) };
        let accounts =
            Accounts::new().user("bench", "bench", Permissions::READ_WRITE, Arc::new(MemoryStorage::new()));
        let anywhere = || vec!["127.0.0.1:0".parse().unwrap()];
        let config = Config {
            ftp: anywhere(),
            ftps: anywhere(),
            tls: Some(tls),
            log: LogFormat::Warnings,
            ..Config::new(Arc::new(accounts))
        };
        Self { server: Server::start(config).unwrap(), folder }
    }

    fn url(&self, scheme: &str) -> String {
        let addresses = match scheme {
            "ftps" => self.server.ftps_addresses(),
            _ => self.server.ftp_addresses(),
        };
        format!("{scheme}://bench:bench@{}/", addresses[0])
    }

    fn measure(&self, scheme: &str, flags: &[(&str, &str)]) -> Report {
        let always = [
            ("ops", "login,noop,retr,stor"),
            ("size", "0,1,100k,1m"),
            ("users", "4"),
            ("duration", "100ms"),
            ("warm-up", "0"),
            ("verify", "on"),
        ];
        run(&Plan::new(&self.url(scheme), None, &[&always[..], flags].concat()).unwrap(), &Silent).unwrap()
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn check(cell: &CellReport, suite: &str) {
    assert_eq!(
        cell.faults.count() + cell.login_faults.count(),
        0,
        "{:?} {:?} {:?}",
        cell.measured,
        cell.faults,
        cell.tls
    );
    assert!(cell.ops > 0, "{:?}", cell.measured);
    assert_eq!(cell.bytes, cell.measured.size.unwrap_or(0) * cell.ops, "{:?}", cell.measured);
    assert!(cell.tls.as_ref().unwrap().suite.starts_with(suite), "{:?}", cell.tls);
}

#[test]
fn every_byte_arrives_over_explicit_and_implicit_tls() {
    let server = Secured::start("both", Resumption::Prefer);
    for (scheme, flags, suite) in [
        ("ftpes", &[][..], "TLS 1.3"),
        ("ftps", &[("mode", "port")], "TLS 1.3"),
        ("ftp", &[("tls", "1.3")], "TLS 1.3"),
        // Here the server has the last word of the handshake, and greets in the same breath.
        ("ftps", &[("tls", "1.2"), ("patience", "30s")], "TLS 1.2"),
    ] {
        server.measure(scheme, flags).cells.iter().for_each(|cell| check(cell, suite));
    }
}

/// With TLS 1.3 a ticket is used once, and uploads renew none: with 1.2 a session can be resumed any number of times.
#[test]
fn data_connections_resume_where_the_server_insists() {
    let server = Secured::start("insists", Resumption::Require);
    let newer = server.measure("ftpes", &[("ops", "retr")]);
    let older = server.measure("ftpes", &[("tls", "1.2")]);
    for (report, suite) in [(newer, "TLS 1.3"), (older, "TLS 1.2")] {
        for cell in report.cells {
            check(&cell, suite);
            let tls = cell.tls.unwrap();
            assert_eq!(tls.data_resumed, tls.data_handshakes, "{:?}", cell.measured);
        }
    }
}

#[test]
fn without_resumption_every_handshake_is_a_full_one() {
    let server = Secured::start("full", Resumption::Off);
    let report = server.measure("ftpes", &[("ops", "retr"), ("resume", "off")]);
    let resumed = report.cells.iter().map(|cell| cell.tls.as_ref().unwrap().data_resumed).sum::<u64>();
    assert_eq!(resumed, 0);
    report.cells.iter().for_each(|cell| check(cell, "TLS 1.3"));
}

#[test]
fn a_server_without_tls_is_no_target_for_it() {
    let config =
        Config { ftp: vec!["127.0.0.1:0".parse().unwrap()], ..Config::new(Arc::new(Accounts::new())) };
    let server = Server::start(config).unwrap();
    let url = format!("ftpes://bench:bench@{}/", server.ftp_addresses()[0]);
    let error = run(&Plan::new(&url, None, &[]).unwrap(), &Silent).unwrap_err().to_string();
    assert!(error.contains("AUTH"), "{error}");
    server.shut_down();
}
