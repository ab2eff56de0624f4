//! Every example of `docs/tls.md`; and curl, which logs in by its certificate.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use millrace_server::config::self_signed;

const TEXT: &str = include_str!("../../../docs/tls.md");

/// A folder with the files that the examples name; it goes with the test.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-tls-{name}-{}", std::process::id()));
        let made = self_signed(&folder, &["localhost".to_owned()]).unwrap();
        for name in ["cert.pem", "other.pem", "ca.pem"] {
            fs::copy(&made.certificate, folder.join(name)).unwrap();
        }
        for name in ["key.pem", "other.key"] {
            fs::copy(&made.key, folder.join(name)).unwrap();
        }
        Self(folder)
    }

    fn check(&self, arguments: &[&str]) {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .arg("check")
            .args(arguments)
            .current_dir(&self.0)
            .env("HOME", &self.0)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn blocks(kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    TEXT.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn every_example_is_a_configuration() {
    let site = Site::new("document");
    let examples = blocks("toml");
    assert!(examples.len() >= 5, "{examples:?}");
    for example in examples {
        fs::write(site.0.join("example.toml"), example).unwrap();
        site.check(&["example.toml"]);
    }
}

#[test]
fn every_key_about_tls_is_explained() {
    let keys = include_str!("../../../docs/configuration.md").lines();
    let keys = keys.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let keys = keys.filter(|key| key.starts_with("tls-") || key.starts_with("acme"));
    let missing: Vec<&str> = keys.filter(|key| !TEXT.contains(key)).collect();
    assert!(missing.is_empty(), "docs/tls.md lacks {missing:?}");
}

/// A server; it ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn curl_logs_in_by_its_certificate() {
    let is_there = Command::new("curl").arg("--version").output().is_ok();
    let required = std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_some_and(|value| value != "0");
    assert!(is_there || !required, "curl is not installed");
    if !is_there {
        return;
    }
    let site = Site::new("curl");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "press");
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    fs::write(site.0.join("ca.pem"), authority.pem()).unwrap();
    fs::write(site.0.join("client.pem"), certificate.pem() + &key.serialize_pem()).unwrap();
    fs::create_dir(site.0.join("served")).unwrap();
    fs::write(site.0.join("served/f"), "content").unwrap();
    // An address of its own: all of its passive ports are there.
    let configuration = "directory = \"served\"\nftp = \"127.4.0.1:0\"\nhttp = \"off\"\ntls-cert = \"cert.pem\"\n\
        tls-key = \"key.pem\"\ntls-client-ca = \"ca.pem\"\ntls-required = \"data\"\n\
        [[user]]\nname = \"press\"\ntls-client-login = \"alone\"\n";
    fs::write(site.0.join("m.toml"), configuration).unwrap();
    let mut serving = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--config", "m.toml", "--quiet"])
        .current_dir(&site.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines().map(Result::unwrap);
    let _serving = Serving(serving);
    let line = lines.find(|line| line.contains("ftp://")).unwrap();
    let port = line.rsplit("127.4.0.1:").next().unwrap().split('/').next().unwrap().to_owned();
    assert!(lines.any(|line| line.starts_with("Ready")));
    let url = format!("ftp://press:@127.4.0.1:{port}/f");
    let curl = |more: &[&str]| {
        let common =
            ["--silent", "--show-error", "--disable", "--ssl-reqd", "--insecure", "--max-time", "60"];
        Command::new("curl").args(common).args(more).arg(&url).current_dir(&site.0).output().unwrap()
    };
    let output = curl(&["--cert", "client.pem"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "content", "{output:?}");
    let output = curl(&[]);
    assert_eq!(output.status.code(), Some(67), "{output:?}");
}
