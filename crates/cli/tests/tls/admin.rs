//! The admin address with TLS: by certificate, by password from elsewhere, and in clear.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::{Site, has};

/// Settings of an admin address at which `press` is an operator by certificate, and `other` has none of the names.
const DOORS: &str = "ftp = \"127.4.0.3:0\"\nhttp = \"off\"\nadmin = \"127.4.0.3:0\"\nadmin-tls = true\n\
                     admin-operators = [\"certificate press\"]\n";

/// A site, and what asks its admin address for a path, with further arguments of curl: the answer, and the status behind it.
fn ask(site: &Site, port: &str, path: &str, more: &[&str]) -> String {
    let url = format!("https://127.4.0.3:{port}{path}");
    let told = ["--write-out", " %{http_code}"];
    let output = site.curl(&url, &[&told[..], more].concat());
    assert!(output.status.success(), "{path} {more:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_certificate_shows_who_calls_at_the_admin_address() {
    if !has("curl", "--version") {
        return;
    }
    let site = Site::with_certificates("admin");
    let (_serving, port) = site.serve("https", "127.4.0.3", DOORS);
    let ask = |path: &str, more: &[&str]| ask(&site, &port, path, more);
    assert_eq!(ask("/healthz", &[]), "ok\n 200");
    let certified = ["--cert", "press.pem"];
    let me = ask("/api/v1/me", &certified);
    assert!(me.contains(r#""by":"certificate""#) && me.contains(r#""role":"operator""#), "{me}");
    assert!(me.contains(r#""name":"press""#) && me.ends_with(" 200"), "{me}");
    for other in [&[][..], &["--cert", "other.pem"]] {
        assert!(ask("/api/v1/me", other).ends_with(" 401"), "{other:?}");
    }
    let ban = ["--json", r#"{"network":"192.0.2.0/24","seconds":60}"#];
    assert!(ask("/api/v1/bans", &[&certified[..], &ban].concat()).ends_with(" 200"));
    let of_a_page = ["--header", "Origin: https://evil.example"];
    assert!(ask("/api/v1/bans", &[&certified[..], &ban, &of_a_page].concat()).ends_with(" 403"));
    assert!(ask("/api/v1/tokens", &certified).ends_with(" 403"), "an operator makes no tokens");
    // What no authority of ours has signed ends the handshake.
    let stranger =
        site.curl(&format!("https://127.4.0.3:{port}/healthz"), &["--cert", "cert.pem", "--key", "key.pem"]);
    assert!(!stranger.status.success());
}

#[test]
fn what_speaks_no_tls_is_told_so_and_load_balancers_ask_in_clear() {
    let site = Site::with_certificates("admin-clear");
    let (_serving, port) = site.serve("https", "127.4.0.3", DOORS);
    let say = |said: &str| {
        let mut stream = TcpStream::connect(format!("127.4.0.3:{port}")).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let refused = say("GET /metrics HTTP/1.1\r\nHost: 127.4.0.3\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains("https://"), "{refused}");
    assert_eq!(say("agent\n"), "ready up\n");
}
