//! What OpenSSL's own tools find: sessions by hand, and the weaknesses that sslscan looks for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{DOORS, FILES, PREFER, REQUIRE};
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

/// A session in which each data connection is an `openssl s_client` of its own.
struct ByHand<'a> {
    openssl: &'a Tool,
    server: &'a Server,
    version: &'a str,
    encrypts: bool,
    /// The TLS session that was given last.
    given: PathBuf,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl<'a> ByHand<'a> {
    fn new(openssl: &'a Tool, server: &'a Server, door: &str, version: &'a str, level: &str) -> Self {
        let given = server.local().join(format!("{door}{version}{level}"));
        let place = format!("127.0.0.1:{}", server.port_of(door));
        let mut control = s_client_to(openssl, server, version, &place);
        control.arg("-crlf").arg("-sess_out").arg(&given);
        if door == "explicit" {
            control.args(["-starttls", "ftp"]);
        }
        let mut child = control.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let encrypts = level == "P";
        let mut session = Self { openssl, server, version, encrypts, given, child, input, output };
        if door == "implicit" {
            session.hear("220 ");
        }
        for (line, reply) in [
            (&*format!("USER {USER}"), "331 "),
            (&format!("PASS {PASSWORD}"), "230 "),
            ("PBSZ 0", "200 "),
            (&format!("PROT {level}"), "200 "),
            ("TYPE I", "200 "),
        ] {
            session.say(line);
            session.hear(reply);
        }
        session
    }

    fn say(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next reply, which has to be this one.
    #[track_caller]
    fn hear(&mut self, reply: &str) -> String {
        let mut line = String::new();
        while line.as_bytes().get(3) != Some(&b' ') {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "no {reply:?}");
        }
        assert!(line.starts_with(reply), "{line:?}, not {reply:?}");
        line
    }

    /// Where the next data connection goes to.
    fn port(&mut self) -> String {
        self.say("EPSV");
        let reply = self.hear("229 ");
        format!("127.0.0.1:{}", reply.split('|').nth(3).unwrap())
    }

    fn data(&self, place: &str) -> Command {
        let mut data = s_client_to(self.openssl, self.server, self.version, place);
        data.arg("-sess_in").arg(&self.given);
        data
    }

    fn store(&mut self, name: &str, content: &str) {
        let place = self.port();
        self.say(&format!("STOR {name}"));
        if self.encrypts {
            // What it ends with, it says so.
            let mut data = self.data(&place).arg("-no_ign_eof").stdin(Stdio::piped()).spawn().unwrap();
            data.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
            assert!(data.wait().unwrap().success());
        } else {
            TcpStream::connect(place).unwrap().write_all(content.as_bytes()).unwrap();
        }
        self.hear("150 ");
        self.hear("226 ");
    }

    fn fetch(&mut self, name: &str) -> String {
        let place = self.port();
        self.say(&format!("RETR {name}"));
        let mut content = Vec::new();
        if self.encrypts {
            content = self.data(&place).stdin(Stdio::null()).output().unwrap().stdout;
        } else {
            TcpStream::connect(place).unwrap().read_to_end(&mut content).unwrap();
        }
        self.hear("150 ");
        self.hear("226 ");
        String::from_utf8(content).unwrap()
    }

    fn quit(mut self) {
        self.say("QUIT");
        self.hear("221 ");
        assert!(self.child.wait().unwrap().success());
    }
}

/// `openssl s_client` to an address, which says nothing of its own.
fn s_client_to(openssl: &Tool, server: &Server, version: &str, place: &str) -> Command {
    let mut command = Command::new("timeout");
    command.arg("300").arg(openssl.program()).args(["s_client", "-quiet", "-verify_return_error"]);
    command.arg("-CAfile").arg(server.authority()).args(["-connect", place, version]);
    command.stderr(Stdio::null());
    command
}

#[test]
fn s_client_resumes_for_a_hundred_transfers() {
    let Some(openssl) = &tool("openssl") else { return };
    for policy in [REQUIRE, PREFER] {
        let server = &Server::secure(policy);
        std::thread::scope(|scope| {
            for door in DOORS {
                for (version, level) in
                    [("-tls1_2", "P"), ("-tls1_2", "C"), ("-tls1_3", "P"), ("-tls1_3", "C")]
                {
                    scope.spawn(move || {
                        let mut session = ByHand::new(openssl, server, door, version, level);
                        let name = format!("of-{door}{version}{level}");
                        for number in 0..FILES {
                            let content = format!("content of transfer {number}\n").repeat(100);
                            session.store(&name, &content);
                            assert!(session.fetch(&name) == content, "{name} {number}");
                        }
                        session.quit();
                    });
                }
            }
        });
        server.assert_all_resumed();
    }
}

#[test]
fn outdated_tls_is_refused_and_logged_with_its_version() {
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
