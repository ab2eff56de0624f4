//! A CA that does not do what it should, played by a thread.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use millrace_net::tls::{Acceptor, BUFFER, Channel, Heard, KeyPair, Plan, self_signed};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod, KeyPair as Key,
    SerialNumber,
};
use tokio::runtime::Runtime;

use super::advice::{self, Advice};
use super::challenges::Tokens;
use super::directory::Directory;
use super::order::{Order, Trouble};
use super::settings::{Acme, Clock};

/// Its behaviour on a connection.
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
    /// The same, but says this, with these fields, about when a certificate is to be renewed.
    Advises(&'static str, &'static str),
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

/// Hears a request, and says what there is to say to it.
fn say(socket: &TcpStream, acceptor: &Acceptor, text: impl FnOnce(&str) -> String) -> io::Result<()> {
    let mut channel = Channel::new(acceptor.accept(&[], None).unwrap());
    let (mut buffer, mut asked) = (vec![0; BUFFER], Vec::new());
    while !channel.handshake(socket, &mut buffer)? {}
    while !is_whole(&asked) {
        match channel.read(socket, &mut buffer, &mut |bytes| asked.extend_from_slice(bytes))? {
            Heard::Bytes { .. } => {}
            Heard::End | Heard::Cut { .. } => return Ok(()),
        }
    }
    let text = text(&String::from_utf8_lossy(&asked));
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let count = channel.write(socket, rest)?;
        rest = &rest[count..];
    }
    channel.flush(socket)?;
    channel.close(socket)
}

/// Returns true if a head and its announced body are complete.
fn is_whole(asked: &[u8]) -> bool {
    let asked = String::from_utf8_lossy(asked).to_ascii_lowercase();
    let Some((head, body)) = asked.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.map_or(0, |length| length.parse().unwrap()) <= body.len()
}

const PROBLEM: &str = r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many\r\norders"}"#;

/// The certificate that a CA is asked about, as it knows that: the example of RFC 9773 section 4.1.
const KNOWN: &str = "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE";

/// The path of a request.
fn path(request: &str) -> Option<&str> {
    request.split(' ').nth(1)
}

/// The payload of a signed request.
fn payload(request: &str) -> String {
    let text =
        request.split("\"payload\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    String::from_utf8(millrace_http::base64::decode(text.as_bytes()).unwrap()).unwrap()
}

/// The answer of a CA with a rate limit.
fn refusal(request: &str, port: u16, fields: &str) -> String {
    let url = |name: &str| format!("\"{name}\": \"https://localhost:{port}/{name}\"");
    let urls = ["newNonce", "newAccount", "newOrder", "renewalInfo"].map(url);
    match path(request) {
        Some("/directory") => whole("200 OK", "", &format!("{{{}}}", urls.join(", "))),
        Some("/newNonce") => whole("200 OK", "Replay-Nonce: bm9uY2U\r\n", ""),
        _ => whole("429 Too Many Requests", fields, PROBLEM),
    }
}

/// The answer of a CA that never finishes an order.
fn delay(request: &str, port: u16, fields: &str) -> String {
    const NONCE: &str = "Replay-Nonce: bm9uY2U\r\n";
    const REPLACED: &str = r#"{"type": "urn:ietf:params:acme:error:alreadyReplaced"}"#;
    let place = |name: &str| format!("Location: https://localhost:{port}/{name}\r\n{NONCE}");
    let order = format!(
        r#"{{"status": "pending", "identifiers": [], "authorizations": [], "finalize": "https://localhost:{port}/"}}"#
    );
    match path(request) {
        Some("/newAccount") => whole("201 Created", &place("account/1"), r#"{"status": "valid"}"#),
        Some("/newOrder") if payload(request).contains(KNOWN) => whole("409 Conflict", NONCE, REPLACED),
        Some("/newOrder") => whole("201 Created", &place("order/1"), &order),
        Some("/order/1") => whole("200 OK", &format!("{NONCE}{fields}"), &order),
        _ => refusal(request, port, ""),
    }
}

/// The answer of a CA that gives advice.
fn counsel(request: &str, port: u16, fields: &str, body: &str) -> String {
    match path(request).and_then(|path| path.strip_prefix("/renewalInfo/")) {
        Some(KNOWN) => whole("200 OK", fields, body),
        Some(_) => whole("404 Not Found", "", ""),
        None => delay(request, port, "Retry-After: 86400\r\n"),
    }
}

/// A server whose CA has these manners.
struct Site {
    settings: Arc<Acme>,
    acceptor: Acceptor,
    runtime: Runtime,
    /// Orders as the CA was asked for them.
    orders: Arc<Mutex<Vec<String>>>,
    _folder: Folder,
}

impl Site {
    fn new(manner: Manner, change: impl FnOnce(&mut Acme)) -> Self {
        let folder = Folder::new();
        let pair = self_signed(&folder.0, &["localhost".to_owned()]).unwrap();
        let plan = Plan { identities: vec![pair.clone()], ..Plan::default() };
        let of_ca = Acceptor::new(&plan).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let orders: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&orders);
        // It ends with the process, because an accept cannot be interrupted.
        thread::spawn(move || {
            let mut held = Vec::new();
            for socket in listener.incoming().filter_map(Result::ok) {
                let answer = |request: &str| {
                    if path(request) == Some("/newOrder") {
                        seen.lock().unwrap().push(payload(request));
                    }
                    match &manner {
                        Manner::Says(text) => text.clone(),
                        Manner::Refuses(fields) => refusal(request, port, fields),
                        Manner::Dawdles(fields) => delay(request, port, fields),
                        Manner::Advises(fields, body) => counsel(request, port, fields, body),
                        Manner::Away | Manner::Silent => String::new(),
                    }
                };
                match &manner {
                    Manner::Away => drop(socket),
                    Manner::Silent => held.push(socket),
                    _ => _ = say(&socket, &of_ca, answer),
                }
            }
        });
        let mut settings = Acme::new(vec!["a.example".to_owned()], folder.0.join("acme"));
        settings.directory = format!("https://localhost:{port}/directory");
        settings.authorities = Some(pair.certificate);
        change(&mut settings);
        settings.prepare().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (settings, acceptor) = (Arc::new(settings), Acceptor::new(&plan).unwrap());
        Self { settings, acceptor, runtime, orders, _folder: folder }
    }

    /// The error of an order.
    fn trouble(&self, replaces: Option<CertificateIdentifier<'static>>) -> Trouble {
        let (directory, tokens) = (Directory::new(&self.settings).unwrap(), Tokens::default());
        let Self { settings, acceptor, .. } = self;
        let order = Order { settings, directory, tokens: &tokens, acceptor, replaces };
        self.runtime.block_on(order.fulfil()).err().expect("nothing can come of it")
    }

    fn advice(&self) -> Advice {
        let directory = Directory::new(&self.settings).unwrap();
        self.runtime.block_on(advice::ask(&self.settings, directory))
    }

    /// Stores the certificate that the CA is asked about.
    fn keep_known(&self) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let bytes = [
            0x69, 0x88, 0x5b, 0x6b, 0x87, 0x46, 0x40, 0x41, 0xe1, 0xb3, 0x7b, 0x84, 0x7b, 0xa0, 0xae, 0x2c,
            0xde, 0x01, 0xc8, 0xd4,
        ];
        params.key_identifier_method = KeyIdMethod::PreSpecified(bytes.to_vec());
        let authority = CertifiedIssuer::self_signed(params, Key::generate().unwrap()).unwrap();
        let mut params = CertificateParams::new(self.settings.domains.clone()).unwrap();
        params.serial_number = Some(SerialNumber::from(vec![0x87, 0x65, 0x43, 0x21]));
        params.use_authority_key_identifier_extension = true;
        let key = Key::generate().unwrap();
        let chain = params.signed_by(&key, &authority).unwrap().pem();
        self.settings.keep_certificate(&chain, &key.serialize_pem()).unwrap();
    }
}

/// The error of an order at a CA with this behaviour.
fn trouble_with(manner: Manner, change: impl FnOnce(&mut Acme)) -> Trouble {
    Site::new(manner, change).trouble(None)
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
fn invalid_answers_are_reported_with_their_status() {
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
fn a_server_with_a_bad_certificate_is_not_asked() {
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
fn the_cas_error_is_reported_in_one_line() {
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

const WINDOW: &str = r#"{
    "suggestedWindow": {"start": "2030-01-02T04:00:00Z", "end": "2030-01-03T04:00:00.5+01:00"},
    "explanationURL": "https://ca.example/why"
}"#;

#[test]
fn a_ca_is_asked_when_it_would_have_a_certificate_renewed() {
    let from = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_556_800);
    let until = from + Duration::from_millis(23 * 3_600_000 + 500);
    let day = Duration::from_secs(86_400);
    for (fields, body, window, again) in [
        ("Retry-After: 21600\r\n", WINDOW, Some((from, until)), day / 4),
        ("Retry-After: 1\r\n", WINDOW, Some((from, until)), Duration::from_secs(60)),
        ("Retry-After: 18446744073709551615\r\n", WINDOW, Some((from, until)), day),
        ("", WINDOW, None, day / 4),
        ("Retry-After: 21600\r\n", "{}", None, day / 4),
        ("Retry-After: 21600\r\n", "nonsense", None, day / 4),
        (
            "Retry-After: 21600\r\n",
            r#"{"suggestedWindow": {"start": "2030-01-03T00:00:00Z", "end": "2030-01-02T00:00:00Z"}}"#,
            None,
            day / 4,
        ),
    ] {
        let site = Site::new(Manner::Advises(fields, body), |_| {});
        assert_eq!(site.advice(), Advice::none(), "there is neither account nor certificate");
        site.keep_known();
        // The account is made with the first order.
        site.trouble(None);
        let advice = site.advice();
        assert_eq!(advice.window, window, "{fields} {body}");
        // Its `Retry-After` is returned as a time, of which some has passed.
        let passed = again.checked_sub(advice.again).expect("no more than it said");
        assert!(passed < Duration::from_secs(60), "{fields} {body}: {passed:?}");
        if window.is_some() {
            assert_eq!(advice.reason.as_deref(), Some("https://ca.example/why"));
            assert_eq!(advice.certificate.unwrap().to_string(), KNOWN);
        }
    }
}

#[test]
fn an_order_says_what_it_replaces_and_is_made_without_that_where_the_ca_minds() {
    let site = Site::new(Manner::Advises("Retry-After: 60\r\n", WINDOW), |_| {});
    site.keep_known();
    site.trouble(None);
    let known = site.advice().certificate;
    let trouble = site.trouble(known);
    assert!(trouble.to_string().contains("timed out"), "{trouble:?}");
    let orders = site.orders.lock().unwrap();
    let replacing: Vec<bool> = orders.iter().map(|order| order.contains(KNOWN)).collect();
    assert_eq!(replacing, [false, true, false], "{orders:?}");
}

#[test]
fn the_first_pause_is_told_as_the_minute_that_it_is() {
    for (seconds, minutes) in [(1, 1), (60, 1), (75, 1), (15 * 60, 15), (1125, 19), (3600, 60)] {
        assert_eq!(super::renewing::in_minutes(Duration::from_secs(seconds)), minutes, "{seconds}");
    }
}
