//! Notices reach a real mail server and a webhook, and a dead receiver keeps no other from its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::site::{PATIENCE, Site, eventually};

/// Every disk has less than all of itself free.
const EVERY_DISK: &str = "on = \"disk\"\ndisk-free = 100\n";

const SECRET: &str = "a-secret-of-many-characters";

/// A web server that takes one post, and answers it.
fn take_post(listener: &TcpListener) -> (String, Value) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        head += &line.to_lowercase();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

/// A mail server with a certificate of its own, and what it prints.
struct MailServer {
    child: Child,
    letters: BufReader<ChildStdout>,
    port: u16,
    folder: PathBuf,
}

impl MailServer {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-mail-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        fs::write(folder.join("password"), "open sesame\n").unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics/smtp_server.py");
        // Debian's, whose library the script uses.
        let mut child = Command::new("/usr/bin/python3")
            .arg(script)
            .args(["cert.pem", "key.pem", "millrace", "open sesame"])
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut letters = BufReader::new(child.stdout.take().unwrap());
        let mut port = String::new();
        letters.read_line(&mut port).unwrap();
        let port = port.trim().parse().expect("the mail server starts: python3-aiosmtpd");
        Self { child, letters, port, folder }
    }

    /// The keys of a table that sends mail there.
    fn keys(&self) -> String {
        let (port, folder) = (self.port, self.folder.display());
        format!(
            "mail-to = \"Ops <ops@example.net>\"\nmail-from = \"millrace@example.net\"\n\
             smtp = \"localhost:{port}\"\nsmtp-ca = \"{folder}/cert.pem\"\n\
             smtp-user = \"millrace\"\nsmtp-password-file = \"{folder}/password\"\n"
        )
    }

    fn letter(&mut self) -> Value {
        let mut line = String::new();
        self.letters.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_disk_that_is_nearly_full_is_told_of_by_webhook_and_mail() {
    let (listener, mut mail) = (TcpListener::bind("127.0.0.1:0").unwrap(), MailServer::start("disk"));
    let webhook = format!("webhook = \"http://{}/notices\"\n", listener.local_addr().unwrap());
    let keys = format!("[[notice]]\n{EVERY_DISK}{webhook}secret = \"{SECRET}\"\n{}", mail.keys());
    let site = Site::start("notices", &keys);
    let (head, body) = take_post(&listener);
    assert!(head.starts_with("post /notices ") && head.contains("\nwebhook-signature: v1,"), "{head}");
    assert!(!head.contains(SECRET));
    assert_eq!((&body["event"], body["notices"].as_array().unwrap().len()), (&"notice".into(), 1), "{body}");
    let notice = &body["notices"][0];
    assert_eq!((&notice["notice"], &notice["state"]), (&"disk".into(), &"bad".into()));
    let folder = site.folder.canonicalize().unwrap();
    assert!(notice["subject"].as_str().unwrap().starts_with(folder.to_str().unwrap()), "{notice}");
    let letter = mail.letter();
    assert_eq!(
        (&letter["from"], &letter["to"][0]),
        (&"millrace@example.net".into(), &"ops@example.net".into())
    );
    // A long field is folded (RFC 5322, 2.2.3), where depends on the folder's name.
    let subject = letter["heads"]["subject"].as_str().unwrap().replace("\r\n", "");
    let text = notice["text"].as_str().unwrap();
    assert!(subject.contains("% free"), "{letter}");
    assert!(
        letter["text"].as_str().unwrap().replace("\r\n", "\n").starts_with(&format!("{text}.\n  at ")),
        "{letter}"
    );
}

#[test]
fn a_trial_says_which_receivers_took_it() {
    let (dead, mut mail) = (TcpListener::bind("127.0.0.1:0").unwrap(), MailServer::start("trial"));
    let dead_address = dead.local_addr().unwrap();
    drop(dead);
    let dead = format!("[[notice]]\non = \"bans\"\nwebhook = \"http://{dead_address}/\"\n");
    let site = Site::start("notice-trial", &format!("{dead}\n[[notice]]\non = \"bans\"\n{}", mail.keys()));
    let tried = site.ctl(&["notice", "test"]);
    let (out, err) = (String::from_utf8(tried.stdout).unwrap(), String::from_utf8(tried.stderr).unwrap());
    assert!(!tried.status.success() && err.contains("a receiver did not take the trial"), "{err}");
    assert!(out.contains(&format!("smtp://localhost:{}: delivered\n", mail.port)), "{out}");
    assert!(
        out.contains(&format!("http://{dead_address}/: ")) && out.matches("delivered").count() == 1,
        "{out}"
    );
    assert!(mail.letter()["heads"]["subject"].as_str().unwrap().contains("this is a trial"));
}

#[test]
fn a_receiver_that_is_out_of_reach_is_warned_of_once_and_serving_goes_on() {
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead_address = dead.local_addr().unwrap();
    drop(dead);
    let site = Site::start(
        "notice-dead",
        &format!("[[notice]]\n{EVERY_DISK}webhook = \"http://{dead_address}/\"\n"),
    );
    let warnings = || site.read("log").matches("a notice does not reach").count();
    eventually("there is no warning", || warnings() > 0);
    assert_eq!(warnings(), 1);
    fs::write(site.folder.join("files/f"), "content").unwrap();
    site.log_in().download("RETR f");
}
