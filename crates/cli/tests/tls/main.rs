//! Every example of `docs/tls.md`; files of certificates that cannot be used; and curl, which logs in by its certificate.

mod admin;
mod faults;
mod files;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use millrace_server::config::self_signed;

const TEXT: &str = include_str!("../../../../docs/tls.md");

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
    fs::create_dir(site.0.join("files")).unwrap();
    let examples = blocks("toml");
    assert!(examples.len() >= 5, "{examples:?}");
    for example in examples {
        fs::write(site.0.join("example.toml"), example).unwrap();
        site.check(&["example.toml"]);
    }
}

#[test]
fn every_key_about_tls_is_explained() {
    let keys = include_str!("../../../../docs/configuration.md").lines();
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

/// Returns true if a program is there, which it has to be where clients are required.
fn has(program: &str, asked: &str) -> bool {
    let is_there = Command::new(program).arg(asked).output().is_ok();
    let required = std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_some_and(|value| value != "0");
    assert!(is_there || !required, "{program} is not installed");
    is_there
}

impl Site {
    /// A site whose clients show certificates of one authority: `press.pem` and `other.pem` are of users of that name.
    fn with_certificates(name: &str) -> Self {
        let site = Self::new(name);
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority =
            rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
        for user in ["press", "other"] {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::CommonName, user);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            fs::write(site.0.join(format!("{user}.pem")), certificate.pem() + &key.serialize_pem()).unwrap();
        }
        fs::write(site.0.join("ca.pem"), authority.pem()).unwrap();
        fs::create_dir(site.0.join("served")).unwrap();
        fs::write(site.0.join("served/f"), "content").unwrap();
        site
    }

    /// Serves to `press`, whose certificate is all there is to a login; answers the port of a scheme at this address.
    fn serve(&self, scheme: &str, address: &str, doors: &str) -> (Serving, String) {
        let configuration = format!(
            "directory = \"served\"\n{doors}tls-cert = \"cert.pem\"\ntls-key = \"key.pem\"\n\
             tls-client-ca = \"ca.pem\"\ntls-required = \"data\"\n\
             [[user]]\nname = \"press\"\naccess = \"rw\"\ntls-client-login = \"alone\"\n"
        );
        fs::write(self.0.join("m.toml"), configuration).unwrap();
        let mut serving = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--config", "m.toml", "--quiet"])
            .env("HOME", &self.0)
            .current_dir(&self.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines().map(Result::unwrap);
        let serving = Serving(serving);
        let line = lines.find(|line| line.contains(&format!("{scheme}://"))).unwrap();
        let port = line.rsplit(&format!("{address}:")).next().unwrap().split('/').next().unwrap().to_owned();
        assert!(lines.any(|line| line.starts_with("Ready")));
        (serving, port)
    }

    fn curl(&self, url: &str, more: &[&str]) -> Output {
        let common = ["--silent", "--show-error", "--disable", "--insecure", "--max-time", "60"];
        Command::new("curl").args(common).args(more).arg(url).current_dir(&self.0).output().unwrap()
    }
}

#[test]
fn curl_logs_in_by_its_certificate() {
    if !has("curl", "--version") {
        return;
    }
    let site = Site::with_certificates("curl");
    // An address of its own: all of its passive ports are there.
    let (_serving, port) = site.serve("ftp", "127.4.0.1", "ftp = \"127.4.0.1:0\"\nhttp = \"off\"\n");
    let url = format!("ftp://press:@127.4.0.1:{port}/f");
    let output = site.curl(&url, &["--ssl-reqd", "--cert", "press.pem"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "content", "{output:?}");
    for certificate in [&[][..], &["--cert", "other.pem"]] {
        let output = site.curl(&url, &[&["--ssl-reqd"], certificate].concat());
        assert_eq!(output.status.code(), Some(67), "{output:?}");
    }
}

/// The certificate is shown to the side runtime, and the files are a worker's.
#[test]
fn over_http_2_curl_logs_in_by_its_certificate_too() {
    if !has("curl", "--version") {
        return;
    }
    let site = Site::with_certificates("http2");
    let doors = "ftp = \"off\"\nhttp = \"off\"\nhttps = \"127.4.0.2:0\"\n";
    let (_serving, port) = site.serve("https", "127.4.0.2", doors);
    let url = format!("https://127.4.0.2:{port}/f");
    let ask = |more: &[&str]| {
        let told = ["--http2", "--write-out", " %{http_code} by %{http_version}\n"];
        let output = site.curl(&url, &[&told[..], more].concat());
        assert!(output.status.success(), "{more:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(&["--cert", "press.pem"]), "content 200 by 2\n");
    assert_eq!(ask(&["--cert", "press.pem", "--user", "press:"]), "content 200 by 2\n");
    // Several streams of one connection, of which the last one writes.
    let streams = ask(&["--cert", "press.pem", &url, &url]);
    assert_eq!(streams, "content 200 by 2\n".repeat(3));
    assert!(ask(&["--cert", "press.pem", "--upload-file", "press.pem"]).ends_with(" 204 by 2\n"));
    assert_eq!(fs::read(site.0.join("served/f")).unwrap(), fs::read(site.0.join("press.pem")).unwrap());
    for refused in [
        &[][..],
        &["--cert", "other.pem"],
        &["--cert", "other.pem", "--user", "press:"],
        &["--user", "press:secret"],
    ] {
        let answer = ask(&[&["--output", "nothing"], refused].concat());
        assert_eq!(answer, " 401 by 2\n", "{refused:?}");
    }
}
