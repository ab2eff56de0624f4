//! Certificates that the server fetches itself, as an administrator asks for them, and what curl makes of them.

use std::fs;
use std::net::SocketAddr;

use crate::pebble::{Mood, Pebble, REFUSED};
use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, tool};
use crate::tree::noise;

const GOOD: Mood = Mood { bad_nonces: 0 };

/// A server that fetches a certificate for a name; FTP is at an address of its own, where all passive ports are there.
fn serve(pebble: &Pebble, own: &str, name: &str) -> Server {
    let (url, authority) = (pebble.url(), pebble.authority());
    let configuration = format!(
        "http = \"127.0.0.1:0\"\nhttps = \"127.0.0.1:0\"\npassive-ports = \"20200-20231\"\ntls-required = \"data\"\n\
         acme = \"{name}\"\nacme-agree = true\nacme-contact = \"admin@example.org\"\nacme-directory = \"{url}\"\n\
         acme-ca = \"{}\"\n",
        authority.display()
    );
    Server::configured_on(&format!("{own}:0"), &configuration, &[])
}

/// Uploads and downloads, and trusts the CA only.
fn moves_a_file(curl: &Tool, server: &Server, root: &str) {
    let content = noise(7, 100_000);
    fs::write(server.local().join("f"), &content).unwrap();
    let SocketAddr::V4(address) = server.address else { panic!("it is an address of 127.0.0.0/8") };
    let (port, user) = (address.port(), format!("{USER}:{PASSWORD}"));
    let (url, resolve) = (format!("ftp://localhost:{port}/f"), format!("localhost:{port}:{}", address.ip()));
    let common =
        ["--silent", "--show-error", "--fail", "--ssl-reqd", "--cacert", root, "--resolve", &resolve];
    let common = [&common[..], &["--user", &user, &url]].concat();
    curl.run(server, &[&common[..], &["-T", "f"]].concat());
    curl.run(server, &[&common[..], &["-o", "back"]].concat());
    assert!(read(server.local().join("back")) == content);
}

#[test]
fn curl_trusts_a_certificate_that_was_fetched_and_is_kept() {
    let (Some(curl), Some(mut pebble)) = (tool("curl"), Pebble::new()) else { return };
    let mut server = serve(&pebble, "127.5.0.1", "localhost");
    pebble.start(server.http.unwrap().port(), server.https.unwrap().port(), GOOD);
    server.log_with("has issued a certificate for localhost, good until ", 1);
    let root = pebble.root().display().to_string();
    moves_a_file(&curl, &server, &root);
    // No CA is there for an order.
    pebble.go_away();
    server.is_killed_and_started_again();
    moves_a_file(&curl, &server, &root);
    assert!(!server.log().contains("has issued no certificate"), "{}", server.log());
}

#[test]
fn the_log_says_what_the_ca_has_said() {
    let Some(mut pebble) = Pebble::new() else { return };
    let server = serve(&pebble, "127.5.0.2", "localhost");
    let other = serve(&pebble, "127.5.0.3", REFUSED);
    // It connects where no HTTP server listens.
    let wrong = server.https.unwrap().port();
    pebble.start(wrong, wrong, GOOD);
    let url = pebble.url();
    let log =
        server.log_with(&format!("ACME: {url} has issued no certificate for localhost: localhost: "), 1);
    let line = log.lines().find(|line| line.contains("ACME: ")).unwrap();
    assert!(line.contains("; the next try is in ") && line.contains("a self-signed one"), "{line}");
    other.log_with("(rejectedIdentifier); the next try is in ", 1);
}
