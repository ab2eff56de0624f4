//! FTP in TLS, explicit and implicit, and HTTP in TLS, against Millrace; what it does not do, against a toy.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use millrace_lab::report::Report;
use millrace_lab::run::run;
use millrace_load::fault::Fault;
use millrace_load::figure::CellReport;
use millrace_load::plan::Plan;
use millrace_load::progress::Silent;
use millrace_load::selector::SELECTORS;
use millrace_net::tls::{self, Acceptor, Channel, Heard, self_signed};
use millrace_server::config::{LogFormat, Resumption, Tls};
use millrace_server::{Accounts, Config, Permissions, Running, Server};
use millrace_storage::MemoryStorage;

/// Documents over HTTP: their names are their sizes.
const DOCUMENTS: [usize; 2] = [1666, 1_000_000];

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
        let tree = Arc::new(MemoryStorage::new());
        for size in DOCUMENTS {
            tree.insert(&format!("/{size}"), vec![b'x'; size]);
        }
        let accounts = Accounts::new().user("bench", "bench", Permissions::READ_WRITE, tree);
        let anywhere = || vec!["127.0.0.1:0".parse().unwrap()];
        let config = Config {
            ftp: anywhere(),
            ftps: anywhere(),
            https: anywhere(),
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

impl Secured {
    /// Ten requests of each of four users for one of the [`DOCUMENTS`].
    fn ask(&self, document: usize, flags: &[(&str, &str)]) -> CellReport {
        let url = format!("https://bench:bench@{}/{document}", self.server.https_addresses()[0]);
        let always = [("ops", "get"), ("users", "4"), ("count", "10"), ("duration", "5m"), ("warm-up", "0")];
        let report = run(&Plan::new(&url, None, &[&always[..], flags].concat()).unwrap(), &Silent).unwrap();
        let [cell] = <[CellReport; 1]>::try_from(report.cells).unwrap();
        assert_eq!((cell.ops, cell.faults.count()), (40, 0), "{flags:?}: {:?}", cell.faults);
        assert_eq!(cell.bytes, 40 * document as u64, "{flags:?}");
        cell
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
        ("ftps", &[("tls", "1.2"), ("timeout", "30s")], "TLS 1.2"),
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

/// How many handshakes there were, and how many of them resumed.
fn handshakes(cell: &CellReport) -> (u64, u64) {
    let tls = cell.tls.as_ref().unwrap();
    (tls.data_handshakes, tls.data_resumed)
}

#[test]
fn every_document_comes_over_https_on_kept_and_on_new_connections() {
    let server = Secured::start("https", Resumption::Prefer);
    for (name, selector) in SELECTORS {
        if selector.permitted().is_err() {
            continue;
        }
        for document in DOCUMENTS {
            for http in ["1.0", "1.1", "2"] {
                let how = [("selector", name), ("http", http)];
                let kept = server.ask(document, &how);
                assert_eq!(handshakes(&kept), (4, 0), "{how:?}");
                assert_eq!(kept.http.unwrap().kept_alive, 40, "{how:?}");
                let anew = server.ask(document, &[&how[..], &[("keep-alive", "off")]].concat());
                assert_eq!(handshakes(&anew), (40, 36), "a user's first is a full one: {how:?}");
                assert_eq!(anew.http.unwrap().connect.count, 40, "{how:?}");
            }
        }
    }
}

#[test]
fn https_is_spoken_in_the_version_that_was_asked_for_and_resumes_only_where_it_may() {
    let server = Secured::start("https-versions", Resumption::Prefer);
    for (version, suite) in [("on", "TLS 1.3"), ("1.2", "TLS 1.2"), ("1.3", "TLS 1.3")] {
        for (resume, resumed) in [("on", 36), ("off", 0)] {
            let cell = server.ask(1666, &[("keep-alive", "off"), ("tls", version), ("resume", resume)]);
            assert_eq!(handshakes(&cell), (40, resumed), "{version} {resume}");
            assert!(cell.tls.unwrap().suite.starts_with(suite), "{version}");
        }
    }
}

#[test]
fn a_server_that_agrees_on_nothing_is_not_for_http2() {
    let url = format!("https://{}/", endless_toy("no-alpn", true));
    let error = run(&Plan::new(&url, None, &[("http2", "on")]).unwrap(), &Silent).unwrap_err().to_string();
    assert!(error.contains("does not agree on HTTP/2") && error.contains("--http 1.1"), "{error}");
}

#[test]
fn a_server_in_the_clear_is_not_for_https() {
    let http = vec!["127.0.0.1:0".parse().unwrap()];
    let server = Server::start(Config { http, ..Config::new(Arc::new(Accounts::new())) }).unwrap();
    let url = format!("https://{}/", server.http_addresses()[0]);
    let error = run(&Plan::new(&url, None, &[]).unwrap(), &Silent).unwrap_err().to_string();
    assert!(error.contains("does not begin with TLS") && error.contains("http:// does without"), "{error}");
    server.shut_down();
}

/// Sends documents whose end only the end of the connection tells, until its process ends.
fn endless_toy(name: &str, says_farewell: bool) -> SocketAddr {
    let folder = std::env::temp_dir().join(format!("millrace-bench-{name}-{}", std::process::id()));
    let identities = vec![self_signed(&folder, &["127.0.0.1".to_owned()]).unwrap()];
    let acceptor = Acceptor::new(&tls::Plan { identities, ..tls::Plan::default() }).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let mut channel = Channel::new(acceptor.accept(&[], None).unwrap());
            let _ = answer(&socket, &mut channel, says_farewell);
        }
    });
    address
}

fn answer(socket: &TcpStream, channel: &mut Channel, says_farewell: bool) -> std::io::Result<()> {
    let (mut buffer, mut asked) = (vec![0; tls::BUFFER], Vec::new());
    while !channel.handshake(socket, &mut buffer)? {}
    while !asked.ends_with(b"\r\n\r\n") {
        let heard = channel.read(socket, &mut buffer, &mut |plain| asked.extend_from_slice(plain))?;
        if !matches!(heard, Heard::Bytes { .. }) {
            return Ok(());
        }
    }
    channel.write(socket, b"HTTP/1.0 200 OK\r\n\r\nas much as there is")?;
    if says_farewell { channel.close(socket) } else { Ok(()) }
}

/// RFC 9112 section 9.8: where the connection ends without a close_notify, an attacker may have cut it.
#[test]
fn a_response_that_ends_with_its_connection_needs_a_close_notify() {
    for (says_farewell, whole) in [(true, 8), (false, 0)] {
        let url = format!("https://{}/", endless_toy("cut", says_farewell));
        let flags = [("ops", "get"), ("users", "2"), ("count", "4"), ("duration", "5m"), ("warm-up", "0")];
        let report = run(&Plan::new(&url, None, &flags).unwrap(), &Silent).unwrap();
        let cell = &report.cells[0];
        assert_eq!((cell.ops, cell.faults.of(Fault::Truncated)), (whole, 8 - whole), "{:?}", cell.faults);
    }
}
