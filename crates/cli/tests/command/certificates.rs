//! Certificates: one that it makes, and others that it is told to read again.

use std::fs;
use std::io::{BufRead, BufReader, Write};

use crate::{Scratch, Serving, reply};

/// The lines about TLS that are printed at the start.
fn encrypted_doors(serving: &Serving) -> (Option<&String>, Option<&String>) {
    let url = serving.announced.iter().find(|line| line.trim_start().starts_with("ftps://"));
    let at = serving.announced.iter().position(|line| line.contains("SHA-256 fingerprint"));
    (url, at.map(|at| &serving.announced[at + 1]))
}

#[test]
fn a_self_signed_certificate_is_kept_and_its_fingerprint_printed() {
    let scratch = Scratch::new("kept");
    let state = scratch.path("state");
    let flags = ["--tls-self-signed", "--state", state.to_str().unwrap(), "--ftps", "127.0.0.1:0"];
    let fingerprints: Vec<String> = (0..2)
        .map(|_| {
            let serving = Serving::start(&flags);
            let (url, fingerprint) = encrypted_doors(&serving);
            assert!(url.is_some(), "{:?}", serving.announced);
            let mut client = serving.connect();
            client.get_mut().write_all(b"AUTH TLS\r\n").unwrap();
            assert!(reply(&mut client).starts_with("234 "));
            fingerprint.expect("it is printed").clone()
        })
        .collect();
    assert_eq!(fingerprints[0], fingerprints[1]);
    assert_eq!(fingerprints[0].trim().len(), 32 * 3 - 1);
}

#[test]
fn sighup_takes_over_new_certificates_or_leaves_all_as_it_was() {
    let scratch = Scratch::new("renewed");
    let (certificate, key) = (scratch.path("cert.pem"), scratch.path("key.pem"));
    let make = |name: &str| {
        let state = scratch.path(name);
        let serving = Serving::start(&["--tls-self-signed", "--state", state.to_str().unwrap()]);
        fs::copy(state.join("tls/self-signed/certificate.pem"), &certificate).unwrap();
        fs::copy(state.join("tls/self-signed/key.pem"), &key).unwrap();
        drop(serving);
    };
    make("first");
    let flags = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let mut serving = Serving::start(&flags);
    let mut log = BufReader::new(serving.child.stderr.take().unwrap()).lines();
    let mut wait_for = |text: &str| log.any(|line| line.unwrap().contains(text));
    make("second");
    serving.signal("-HUP");
    assert!(wait_for(" - - - reloaded"));
    fs::write(&key, "no key").unwrap();
    serving.signal("-HUP");
    assert!(wait_for("the old configuration stays in force"));
    assert!(serving.connect().get_mut().write_all(b"AUTH TLS\r\n").is_ok());
}
