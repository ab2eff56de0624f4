//! A CA that does not do what it should, played by a thread.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use millrace_net::tls::{Acceptor, BUFFER, Channel, Heard, KeyPair, Plan, self_signed};

use super::challenges::Tokens;
use super::directory::Directory;
use super::order::{Order, Trouble};
use super::settings::{Acme, Clock};

/// What it does with a connection.
#[derive(Debug, Clone)]
enum Manner {
    /// Closes it.
    Away,
    /// Takes it, and says nothing.
    Silent,
    /// Says this, in TLS, and closes.
    Says(String),
    /// Is a CA that has had enough, and says so with these fields.
    Refuses(&'static str),
    /// Is one that is never done with an order, and says so with these fields.
    Dawdles(&'static str),
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("millrace-acme-bad-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Hears a request, and says what there is to say to its first line.
fn say(socket: &TcpStream, acceptor: &Acceptor, text: impl FnOnce(&str) -> String) -> io::Result<()> {
    let mut channel = Channel::new(acceptor.accept(&[]).unwrap());
    let (mut buffer, mut asked) = (vec![0; BUFFER], Vec::new());
    while !channel.handshake(socket, &mut buffer)? {}
    while !is_whole(&asked) {
        match channel.read(socket, &mut buffer, &mut |bytes| asked.extend_from_slice(bytes))? {
            Heard::Bytes { .. } => {}
            Heard::End | Heard::Cut { .. } => return Ok(()),
        }
    }
    let text = text(String::from_utf8_lossy(&asked).lines().next().unwrap_or_default());
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let count = channel.write(socket, rest)?;
        rest = &rest[count..];
    }
    channel.flush(socket)?;
    channel.close(socket)
}

/// A head, and as many bytes behind it as it says.
fn is_whole(asked: &[u8]) -> bool {
    let asked = String::from_utf8_lossy(asked).to_ascii_lowercase();
    let Some((head, body)) = asked.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.map_or(0, |length| length.parse().unwrap()) <= body.len()
}

const PROBLEM: &str = r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many\r\norders"}"#;

/// What a CA that has had enough answers to the first line of a request.
fn refusal(line: &str, port: u16, fields: &str) -> String {
    let url = |name: &str| format!("\"https://localhost:{port}/{name}\"");
    match line.split(' ').nth(1) {
        Some("/directory") => whole(
            "200 OK",
            "",
            &format!(
                r#"{{"newNonce": {}, "newAccount": {}, "newOrder": {}}}"#,
                url("nonce"),
                url("account"),
                url("order")
            ),
        ),
        Some("/nonce") => whole("200 OK", "Replay-Nonce: bm9uY2U\r\n", ""),
        _ => whole("429 Too Many Requests", fields, PROBLEM),
    }
}

/// What a CA that is never done with an order answers to the first line of a request.
fn delay(line: &str, port: u16, fields: &str) -> String {
    let place =
        |name: &str| format!("Location: https://localhost:{port}/{name}\r\nReplay-Nonce: bm9uY2U\r\n");
    let order = format!(
        r#"{{"status": "pending", "identifiers": [], "authorizations": [], "finalize": "https://localhost:{port}/"}}"#
    );
    match line.split(' ').nth(1) {
        Some("/account") => whole("201 Created", &place("account/1"), r#"{"status": "valid"}"#),
        Some("/order") => whole("201 Created", &place("order/1"), &order),
        Some("/order/1") => whole("200 OK", &format!("Replay-Nonce: bm9uY2U\r\n{fields}"), &order),
        _ => refusal(line, port, ""),
    }
}

/// What comes of an order at a CA with these manners.
fn trouble_with(manner: Manner, change: impl FnOnce(&mut Acme)) -> Trouble {
    let folder = Folder::new();
    let pair = self_signed(&folder.0, &["localhost".to_owned()]).unwrap();
    let plan = Plan { identities: vec![pair.clone()], ..Plan::default() };
    let acceptor = Acceptor::new(&plan).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the process: nobody can wake it from an accept.
    thread::spawn(move || {
        let mut held = Vec::new();
        for socket in listener.incoming().filter_map(Result::ok) {
            match &manner {
                Manner::Away => drop(socket),
                Manner::Silent => held.push(socket),
                Manner::Says(text) => _ = say(&socket, &acceptor, |_| text.clone()),
                Manner::Refuses(fields) => {
                    _ = say(&socket, &acceptor, |line| refusal(line, port, fields));
                }
                Manner::Dawdles(fields) => {
                    _ = say(&socket, &acceptor, |line| delay(line, port, fields));
                }
            }
        }
    });
    let own = Acceptor::new(&plan).unwrap();
    let mut settings = Acme::new(vec!["a.example".to_owned()], folder.0.join("acme"));
    settings.directory = format!("https://localhost:{port}/directory");
    settings.authorities = Some(pair.certificate);
    change(&mut settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    settings.prepare().unwrap();
    let settings = Arc::new(settings);
    let directory = Directory::new(&settings).unwrap();
    let order = Order { settings: &settings, directory, tokens: &Tokens::default(), acceptor: &own };
    runtime.block_on(order.fulfil()).err().expect("nothing can come of it")
}

fn whole(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

fn answer(status: &str, fields: &str, body: &str) -> Manner {
    Manner::Says(whole(status, fields, body))
}

#[test]
fn a_ca_that_is_not_there_or_says_nothing_is_asked_again_soon() {
    for manner in [Manner::Away, Manner::Silent] {
        let trouble = trouble_with(manner, |settings| settings.patience = Duration::from_millis(300));
        assert!(!trouble.is_refusal && trouble.retry_after.is_none(), "{trouble:?}");
    }
    let trouble = trouble_with(Manner::Silent, |settings| settings.patience = Duration::from_millis(1));
    assert_eq!(trouble.to_string(), "it takes too long to answer");
}

#[test]
fn what_makes_no_sense_is_said_with_its_status() {
    let html = "<html>It works!</html>";
    for (manner, expected) in [
        (answer("200 OK", "", html), "what it answers, with status 200, is not understood: "),
        (
            answer("503 Service Unavailable", "", html),
            "what it answers, with status 503, is not understood: ",
        ),
        (answer("200 OK", "", "{}"), "what it answers, with status 200, is not understood: "),
        (answer("200 OK", "", &" ".repeat(300_000)), "its answer is too long"),
        (Manner::Says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_owned()), ""),
        (Manner::Says("220 Millrace ready.\r\n".to_owned()), ""),
    ] {
        let trouble = trouble_with(manner.clone(), |_| {});
        assert!(!trouble.is_refusal && trouble.to_string().starts_with(expected), "{manner:?}: {trouble:?}");
    }
}

#[test]
fn nobody_is_asked_whose_certificate_is_not_good() {
    let trouble = trouble_with(answer("200 OK", "", "{}"), |settings| {
        let other = settings.folder.join("other");
        let pair: KeyPair = self_signed(&other, &["localhost".to_owned()]).unwrap();
        settings.authorities = Some(pair.certificate);
    });
    assert!(!trouble.is_refusal && trouble.to_string().contains("certificate"), "{trouble:?}");
    let trouble = trouble_with(answer("200 OK", "", "{}"), |settings| {
        settings.directory = settings.directory.replace("https", "http");
    });
    assert_eq!(trouble.to_string(), "its URL does not begin with https://");
}

#[test]
fn what_the_ca_says_is_told_in_one_line() {
    let trouble = trouble_with(Manner::Refuses(""), |_| {});
    assert!(trouble.is_refusal);
    assert_eq!(trouble.to_string(), "too many  orders (rateLimited)");
}

#[test]
fn when_a_ca_wants_to_be_asked_again_is_read_in_both_forms() {
    for (fields, expected) in [
        ("", None),
        ("Retry-After: 7200\r\n", Some(7200)),
        ("Retry-After: Sun, 06 Nov 1994 09:49:37 GMT\r\n", Some(3600)),
        ("Retry-After: Sun, 06 Nov 1994 07:49:37 GMT\r\n", Some(0)),
        ("Retry-After: soon\r\n", None),
        ("Retry-After: 604801\r\n", Some(604_800)),
        ("Retry-After: 18446744073709551615\r\n", Some(604_800)),
        ("Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n", Some(604_800)),
    ] {
        let trouble = trouble_with(Manner::Refuses(fields), |settings| {
            settings.clock = Clock::new(|| SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        });
        assert_eq!(trouble.retry_after, expected.map(Duration::from_secs), "{fields}");
    }
}

#[test]
fn a_ca_that_wants_to_be_asked_for_an_order_in_an_eternity_is_left() {
    for fields in ["Retry-After: 18446744073709551615\r\n", "Retry-After: 86400\r\n"] {
        let trouble = trouble_with(Manner::Dawdles(fields), |_| {});
        assert!(!trouble.is_refusal, "{trouble:?}");
        assert!(trouble.to_string().contains("timed out"), "{trouble:?}");
    }
}
