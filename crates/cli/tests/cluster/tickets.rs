//! TLS sessions that a client resumes at another node than it began at, by `openssl s_client`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use millrace_server::config::self_signed;

use super::postgresql::Postgres;
use super::{Node, eventually};

const HTTPS: &str = "https = \"127.0.0.1:0\"\nhttp = \"off\"";

/// A folder with a certificate that all nodes have.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-tickets-{name}-{}", std::process::id()));
        let made = self_signed(&folder, &["localhost".to_owned()]).unwrap();
        fs::copy(&made.certificate, folder.join("cert.pem")).unwrap();
        fs::copy(&made.key, folder.join("key.pem")).unwrap();
        Self(folder)
    }

    fn node(&self, database: &Postgres, name: &str, keys: &str) -> Node {
        let folder = self.0.display();
        let keys = format!("tls-cert = \"{folder}/cert.pem\"\ntls-key = \"{folder}/key.pem\"\n{keys}");
        Node::start(database, name, &keys, 6)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `openssl s_client` to an address.
fn s_client(place: &str, version: &str, more: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", "openssl", "s_client", "-connect", place, version]).args(more);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Asks for a page by HTTPS, and returns all that `s_client` says of it.
fn ask(place: &str, version: &str, more: &[&str]) -> String {
    let mut client = s_client(place, version, &[&["-ign_eof"], more].concat());
    let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let head = "HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    child.stdin.take().unwrap().write_all(head.as_bytes()).unwrap();
    let said = String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned();
    assert!(said.contains("HTTP/1.1 "), "{said}");
    said
}

/// Returns whether a session that begins at one place is resumed at the other.
fn is_resumed(from: &str, to: &str, version: &str, file: &Path) -> bool {
    let file = file.to_str().unwrap();
    assert!(ask(from, version, &["-sess_out", file]).contains("\nNew, TLSv1."));
    let said = ask(to, version, &["-sess_in", file]);
    assert!(said.contains("\nReused, TLSv1.") || said.contains("\nNew, TLSv1."), "{said}");
    said.contains("\nReused, TLSv1.")
}

#[test]
fn a_session_of_https_that_begins_at_one_node_is_resumed_at_another_and_at_no_other_server() {
    let Some(database) = Postgres::new() else { return };
    let Some(other) = Postgres::new() else { return };
    let site = Site::new("https");
    let nodes = ["a", "b"].map(|name| site.node(&database, name, HTTPS));
    let stranger = site.node(&other, "c", HTTPS);
    for version in ["-tls1_2", "-tls1_3"] {
        let file = site.0.join(version);
        assert!(is_resumed(&nodes[0].https, &nodes[1].https, version, &file), "{version}");
        assert!(is_resumed(&nodes[1].https, &nodes[0].https, version, &file), "{version}");
        assert!(!is_resumed(&nodes[0].https, &stranger.https, version, &file), "{version}");
    }
    // The next secret is made, and tickets of the one before it are accepted.
    let files = ["-tls1_2", "-tls1_3"].map(|version| (version, site.0.join(format!("late{version}"))));
    for (version, file) in &files {
        assert!(ask(&nodes[0].https, version, &["-sess_out", file.to_str().unwrap()]).contains("\nNew, "));
    }
    database.run("UPDATE millrace_cluster.secret SET made = made - interval '370 minutes'");
    let late = site.node(&database, "late", HTTPS);
    assert_eq!(database.run("SELECT count(*) FROM millrace_cluster.secret"), "2");
    for (version, file) in &files {
        assert!(ask(&late.https, version, &["-sess_in", file.to_str().unwrap()]).contains("\nReused, "));
    }
}

/// A control connection of FTPS.
struct Control {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Control {
    /// Logs in.
    fn log_in(node: &Node, version: &str, more: &[&str]) -> Self {
        let options = ["-quiet", "-crlf", "-starttls", "ftp"];
        let mut client = s_client(&node.address, version, &[&options, more].concat());
        let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut control = Self { child, lines };
        for (line, reply) in
            [("USER free", "331 "), ("PASS password", "230 "), ("PBSZ 0", "200 "), ("PROT P", "200 ")]
        {
            control.say(line);
            control.hear(reply);
        }
        control
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next reply, which has to begin with one of these.
    #[track_caller]
    fn hear(&mut self, replies: &str) -> String {
        let mut line = String::new();
        while line.as_bytes().get(3) != Some(&b' ') {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "no {replies:?}");
        }
        assert!(replies.split('|').any(|reply| line.starts_with(reply)), "{line:?}, not {replies:?}");
        line
    }

    /// Lists the folder by a data connection that shows the session of this file. Returns the last reply, and the list.
    fn list(&mut self, version: &str, file: &Path) -> (String, String) {
        self.say("EPSV");
        let place = format!("127.0.0.1:{}", self.hear("229 ").split('|').nth(3).unwrap());
        self.say("NLST");
        let data = ["-quiet", "-sess_in", file.to_str().unwrap()];
        let listing = s_client(&place, version, &data).output().unwrap().stdout;
        let mut reply = self.hear("150 |522 |425 ");
        if reply.starts_with("150") {
            reply = self.hear("226 |522 |425 |426 ");
        }
        (reply, String::from_utf8(listing).unwrap())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_data_connection_resumes_the_session_of_its_control_connection_and_none_of_another_node() {
    let Some(database) = Postgres::new() else { return };
    let site = Site::new("ftps");
    let nodes = ["a", "b"].map(|name| site.node(&database, name, "tls-resumption = \"require\""));
    for version in ["-tls1_2", "-tls1_3"] {
        let files = [0, 1, 2].map(|number| site.0.join(format!("session{version}-{number}")));
        let path = |number: usize| files[number].to_str().unwrap();
        let is_kept = |file: &Path| fs::metadata(file).is_ok_and(|file| file.len() > 0);
        // Both are the first control connections of their nodes.
        let mut here = Control::log_in(&nodes[0], version, &["-sess_out", path(0)]);
        let mut there = Control::log_in(&nodes[1], version, &["-sess_out", path(1)]);
        for (control, file) in [(&mut here, &files[0]), (&mut there, &files[1])] {
            eventually("the session is kept", || is_kept(file));
            let (reply, listing) = control.list(version, file);
            assert!(reply.starts_with("226 "), "{version}: {reply}");
            assert!(listing.lines().any(|name| name == "f"), "{listing:?}");
        }
        let (reply, listing) = there.list(version, &files[0]);
        assert!(reply.starts_with("522 ") && listing.is_empty(), "{version}: {reply}");
        // A client that shows the session of another node begins one of its own.
        let shown = ["-sess_in", path(0), "-sess_out", path(2)];
        let mut again = Control::log_in(&nodes[1], version, &shown);
        eventually("the session is kept", || is_kept(&files[2]));
        assert!(again.list(version, &files[2]).0.starts_with("226 "), "{version}");
    }
}
