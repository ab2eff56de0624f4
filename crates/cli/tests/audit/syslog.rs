//! Records at a collector: rsyslog, as Debian has it.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::site::{Site, eventually, is};

/// Where Debian has the server, and its drivers.
const SERVER: &str = "/usr/sbin/rsyslogd";

/// A collector that asks for a certificate of its own authority.
struct Rsyslog(Child);

impl Rsyslog {
    fn start(site: &Site, port: u16) -> Self {
        let folder = site.folder.display();
        let text = format!(
            "global(workDirectory=\"{folder}\" DefaultNetstreamDriver=\"gtls\" \
             DefaultNetstreamDriverCAFile=\"{folder}/ca.pem\" \
             DefaultNetstreamDriverCertFile=\"{folder}/collector.pem\" \
             DefaultNetstreamDriverKeyFile=\"{folder}/collector.key\")\n\
             module(load=\"imtcp\" StreamDriver.Name=\"gtls\" StreamDriver.Mode=\"1\" \
             StreamDriver.AuthMode=\"x509/name\" PermittedPeer=[\"server.example\"])\n\
             input(type=\"imtcp\" port=\"{port}\" address=\"127.0.0.1\")\n\
             template(name=\"t\" type=\"string\" string=\"%syslogfacility% %msgid% %app-name% %msg%\\n\")\n\
             action(type=\"omfile\" file=\"{folder}/collected\" template=\"t\")\n"
        );
        fs::write(site.folder.join("rsyslog.conf"), text).unwrap();
        let log = fs::OpenOptions::new().create(true).append(true).open(site.folder.join("rsyslog")).unwrap();
        let child = Command::new(SERVER)
            .args(["-n", "-f"])
            .arg(site.folder.join("rsyslog.conf"))
            .arg("-i")
            .arg(site.folder.join("rsyslog.pid"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Says that the test is skipped, and why; a failure where `./test` has installed what it needs.
fn skip(why: &str) {
    assert!(std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none_or(|value| value == "0"), "{why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// An authority, and what it has signed for the collector and for this server.
fn certify(folder: &Path) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    for (name, subject) in [("collector", "127.0.0.1"), ("server", "server.example")] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[test]
fn rsyslog_gets_what_is_recorded_also_what_waited_while_it_was_away() {
    let has_driver = fs::read_dir("/usr/lib")
        .unwrap()
        .any(|entry| entry.is_ok_and(|entry| entry.path().join("rsyslog/lmnsd_gtls.so").exists()));
    if !Path::new(SERVER).exists() || !has_driver {
        return skip("rsyslog and rsyslog-gnutls are not installed");
    }
    let site = Site::new("rsyslog");
    certify(&site.folder);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    site.configure(&format!(
        "syslog = \"127.0.0.1:{port}\"\nsyslog-ca = \"ca.pem\"\nsyslog-cert = \"server.pem\"\n\
         syslog-key = \"server.key\"\nsyslog-events = true\n"
    ));
    let collected = || fs::read_to_string(site.folder.join("collected")).unwrap_or_default();
    let has = |words: &str| {
        eventually(
            || collected().contains(words),
            || {
                let collector = fs::read_to_string(site.folder.join("rsyslog")).unwrap_or_default();
                format!("no {words:?} in {}\n{collector}\n{}", collected(), site.events())
            },
        )
    };
    // Nothing listens there yet.
    let serving = site.serve();
    site.ctl(&["ban", "192.0.2.1"]);
    eventually(|| site.events().contains("cannot be reached"), || site.events());
    let first = Rsyslog::start(&site, port);
    has("ban network=192.0.2.1");
    drop(first);
    site.ctl(&["ban", "192.0.2.2"]);
    site.records_up_to(|record| record["what"] == "ban network=192.0.2.2");
    let _second = Rsyslog::start(&site, port);
    has("ban network=192.0.2.2");
    serving.log_in().say("QUIT", "221");
    serving.stop();
    has("\"event\":\"ended\"");
    has(" login protocol=\"ftp\"");
    let collected = collected();
    for record in site.records().iter().filter(|record| !is("audit-log")(record)) {
        // `prev` of each record is in the file alone once.
        let line = collected.lines().find(|line| line.contains(record["prev"].as_str().unwrap()));
        assert!(line.is_some_and(|line| line.starts_with("13 audit millrace {")), "{record}\n{collected}");
    }
    assert!(collected.lines().any(|line| line.starts_with("3 event millrace 20")), "{collected}");
}
