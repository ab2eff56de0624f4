//! What OpenSSL's own tools find: a session by hand, and the weaknesses that sslscan looks for.

use super::{DOORS, PREFER, REQUIRE};
use crate::server::{PASSWORD, Server, USER};
use crate::tool::{Tool, tool};

/// `openssl s_client` to one of the doors.
fn s_client(openssl: &Tool, server: &Server, door: &str, more: &[&str]) -> std::process::Output {
    let (authority, place) = (server.authority(), format!("127.0.0.1:{}", server.port_of(door)));
    let ca = authority.to_str().unwrap();
    let common = ["s_client", "-quiet", "-crlf", "-verify_return_error", "-CAfile", ca, "-connect", &place];
    let explicit: &[&str] = if door == "explicit" { &["-starttls", "ftp"] } else { &[] };
    let input = format!("USER {USER}\nPASS {PASSWORD}\nPBSZ 0\nPROT P\nNOOP\nQUIT\n");
    openssl.attempt(server, &[&common[..], explicit, more].concat(), &input)
}

#[test]
fn a_session_by_hand_with_s_client() {
    let Some(openssl) = tool("openssl") else { return };
    let server = Server::secure(REQUIRE);
    for door in DOORS {
        for version in ["-tls1_2", "-tls1_3"] {
            let output = s_client(&openssl, &server, door, &[version]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            for reply in ["331 ", "230 ", "200 PBSZ=0", "221 "] {
                assert!(
                    said.lines().any(|line| line.starts_with(reply)),
                    "{door} {version} {reply}: {output:?}"
                );
            }
        }
    }
}

#[test]
fn what_is_too_old_is_refused_and_the_log_says_what_it_was() {
    let Some(openssl) = tool("openssl") else { return };
    let server = Server::secure(PREFER);
    for door in DOORS {
        let output = s_client(&openssl, &server, door, &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"]);
        assert!(!String::from_utf8_lossy(&output.stdout).contains("331 "), "{output:?}");
    }
    server.log_with("the client offered TLS 1.1", 2);
}

/// Old versions, weak ciphers and groups, renegotiation, compression, Heartbleed, falling back.
#[test]
fn sslscan_finds_nothing_weak() {
    let Some(sslscan) = tool("sslscan") else { return };
    let server = Server::secure(REQUIRE);
    let (explicit, implicit) = (server.address.to_string(), server.ftps.unwrap().to_string());
    let https = server.https.unwrap().to_string();
    let scan = |arguments: &[&str]| judge(&sslscan.run(&server, &[&["--no-colour"], arguments].concat()));
    std::thread::scope(|scope| {
        // It waits for seconds on what does not answer.
        scope.spawn(|| scan(&["--starttls-ftp", &explicit]));
        scope.spawn(|| scan(&[&implicit]));
        scope.spawn(|| scan(&[&https]));
    });
}

fn judge(said: &str) {
    let says =
        |line: &str| assert!(said.lines().any(|found| found.trim_end() == line), "no {line:?} in:\n{said}");
    for old in ["SSLv2     disabled", "SSLv3     disabled", "TLSv1.0   disabled", "TLSv1.1   disabled"] {
        says(old);
    }
    says("TLSv1.2   enabled");
    says("TLSv1.3   enabled");
    says("Server supports TLS Fallback SCSV");
    says("Session renegotiation not supported");
    says("TLSv1.2 not vulnerable to heartbleed");
    says("TLSv1.3 not vulnerable to heartbleed");
    let is_cipher = |line: &&str| line.starts_with("Preferred") || line.starts_with("Accepted");
    let ciphers: Vec<&str> = said.lines().filter(is_cipher).collect();
    assert_eq!(ciphers.len(), 6, "{said}");
    for cipher in ciphers {
        let is_forward_secret = cipher.contains("TLSv1.3") || cipher.contains("ECDHE");
        let is_authenticated = cipher.contains("GCM") || cipher.contains("CHACHA20");
        assert!(is_forward_secret && is_authenticated, "{cipher}");
    }
    for group in said.lines().filter(|line| line.starts_with("TLSv1.") && line.contains(" bits  ")) {
        assert!(["secp256r1", "secp384r1", "x25519"].iter().any(|good| group.contains(good)), "{group}");
    }
}
