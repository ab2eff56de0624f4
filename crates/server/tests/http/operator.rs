//! What an operator sees of HTTP, and does to it: as with FTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_server::auth::{
    Chain, Changed, Found, Homes, Password, Profile, Proof, Source, SourceError, User,
};
use millrace_server::limits::{Limit, Limits, Scope};
use millrace_server::{Accounts, Attempt, Config, Permissions, Protocol, SessionReport};
use millrace_storage::LocalOptions;

use crate::kit::http2::{END_HEADERS, END_STREAM, HEADERS, block, frame, request, served_with};
use crate::kit::{HttpClient, Scratch, ServedHttp, eventually, http_config, pattern, serve_http_with};

/// `u:p`, `v:p`.
const U: &str = "Authorization: Basic dTpw\r\n";
const V: &str = "Authorization: Basic djpw\r\n";

fn config(scratch: &Scratch, users: &[&str]) -> Config {
    let accounts = Accounts::new().anonymous(Permissions::READ_ONLY, scratch.storage());
    let accounts = users.iter().fold(accounts, |accounts, user| {
        accounts.user(user, "p", Permissions::READ_WRITE, scratch.storage())
    });
    Config { accounts: Arc::new(accounts), workers: 2, ..http_config(scratch.storage()) }
}

/// A folder with a large file and a small one.
fn serve() -> (ServedHttp, Scratch) {
    let scratch = Scratch::new();
    scratch.write("small", b"content");
    scratch.write("large", &pattern(16 << 20));
    let config = config(&scratch, &["u", "v"]);
    (serve_http_with(config), scratch)
}

fn get(client: &mut HttpClient, path: &str, fields: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    assert_eq!(client.response().body, b"content");
}

/// Begins a download that the client does not take.
fn begin(served: &ServedHttp, fields: &str) -> HttpClient {
    let mut client = served.connect();
    client.send(format!("GET /large HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    let peer = address(&client);
    eventually("it is sent", || {
        let sessions = served.running.sessions();
        sessions.iter().any(|one| one.peer == peer && one.transfer.as_ref().is_some_and(|it| it.bytes > 0))
    });
    client
}

fn address(client: &HttpClient) -> SocketAddr {
    client.stream.local_addr().unwrap()
}

fn user(report: &SessionReport) -> String {
    String::from_utf8_lossy(report.user.as_deref().unwrap_or(b"-")).into_owned()
}

#[test]
fn connections_with_a_user_or_an_answer_are_listed_and_no_others() {
    let (served, _scratch) = serve();
    let mut idle: Vec<HttpClient> = (0..20).map(|_| served.connect()).collect();
    idle.iter_mut().for_each(|client| get(client, "/small", ""));
    let mut known = served.connect();
    get(&mut known, "/small", U);
    let reader = begin(&served, "");
    let sessions = served.running.sessions();
    let seen: Vec<_> = sessions.iter().map(|one| (one.peer, user(one), one.protocol)).collect();
    let expected = [
        (address(&known), "u".to_owned(), Protocol::Http),
        (address(&reader), "-".to_owned(), Protocol::Http),
    ];
    assert_eq!(seen, expected);
    let transfer = sessions[1].transfer.as_ref().unwrap();
    assert_eq!((transfer.kind, &transfer.path[..]), ("download", &b"/large"[..]));
    get(&mut idle[0], "/small", "");
}

#[test]
fn a_kick_ends_one_client_and_others_continue() {
    let (served, _scratch) = serve();
    let (mut gone, mut busy) = (served.connect(), begin(&served, U));
    get(&mut gone, "/small", U);
    let mut other = served.connect();
    get(&mut other, "/small", V);
    assert_eq!(served.running.kick(|one| one.user.as_deref() == Some(b"u")), 2);
    assert!(gone.rest().is_empty());
    assert!(busy.rest().len() < 16 << 20, "the download was cut");
    get(&mut other, "/small", V);
}

#[test]
fn a_session_that_is_limited_is_held_back_at_once() {
    let (served, _scratch) = serve();
    let mut client = begin(&served, U);
    let number = served.running.sessions()[0].number;
    let limits = Limits { download: Some(Limit::of(1)), ..Limits::default() };
    assert!(served.running.set_limits(&Scope::Session(number), &limits));
    let is_held = || served.running.sessions()[0].transfer.as_ref().is_some_and(|it| it.held_back);
    let reader = std::thread::spawn(move || client.response().body.len());
    eventually("it waits", is_held);
    let unlimited = Limits { download: Some(Limit::of(0)), ..limits };
    assert!(served.running.set_limits(&Scope::Session(number), &unlimited));
    assert_eq!(reader.join().unwrap(), 16 << 20);
}

/// `alice`, password `p`, until she is disabled.
#[derive(Debug, Clone, Default)]
struct Alice {
    disabled: Arc<AtomicBool>,
    told: Arc<AtomicBool>,
}

impl Source for Alice {
    fn name(&self) -> &str {
        "the test"
    }

    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        if attempt.user != b"alice" {
            return Ok(Found::Unknown);
        }
        let disabled = Some(self.disabled.load(Ordering::SeqCst));
        let profile = Profile { disabled, ..Profile::default() };
        let user = User { name: "alice".to_owned(), groups: vec![], profile };
        Ok(Found::User(Box::new(user), Proof::Password(Password::from("p"))))
    }

    fn changed(&self, _: &dyn Fn() -> Vec<Vec<u8>>) -> Changed {
        match self.disabled.load(Ordering::SeqCst) && !self.told.swap(true, Ordering::SeqCst) {
            true => Changed::Users(vec![b"alice".to_vec()]),
            false => Changed::Nothing,
        }
    }
}

#[test]
fn the_connections_of_a_disabled_user_end_also_in_the_middle_of_a_download() {
    let scratch = Scratch::new();
    scratch.write("small", b"content");
    scratch.write("large", &pattern(16 << 20));
    let alice = Alice::default();
    let homes = Homes::new(scratch.path().canonicalize().unwrap(), LocalOptions::default());
    let chain = Chain::new(Arc::new(homes)).source(alice.clone());
    let served = serve_http_with(Config { accounts: Arc::new(chain), ..config(&scratch, &[]) });
    let fields = "Authorization: Basic YWxpY2U6cA==\r\n";
    let (mut gone, mut busy) = (served.connect(), begin(&served, fields));
    get(&mut gone, "/small", fields);
    alice.disabled.store(true, Ordering::SeqCst);
    assert!(gone.rest().is_empty());
    assert!(busy.rest().len() < 16 << 20, "the download was cut");
    assert_eq!(served.get("/small", fields).status, 401);
}

#[test]
fn a_connection_of_http2_ends_when_its_user_is_kicked_or_disabled() {
    let scratch = Scratch::new();
    let alice = Alice::default();
    let homes = Homes::new(scratch.path().canonicalize().unwrap(), LocalOptions::default());
    let chain = Chain::new(Arc::new(homes)).source(alice.clone());
    let served = served_with(&scratch, |config| config.accounts = Arc::new(chain));
    let ways: [&dyn Fn(); 2] =
        [&|| assert_eq!(served.running.kick(|one| one.user.as_deref() == Some(b"alice")), 1), &|| {
            alice.disabled.store(true, Ordering::SeqCst)
        }];
    for way in ways {
        let mut gone = served.connect_http2(&[]);
        let fields = request("GET", "/small", &[("authorization", "Basic YWxpY2U6cA==")]);
        gone.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(&fields)));
        assert_eq!(gone.answer(1), (200, b"here".to_vec()));
        way();
        gone.end();
        assert_eq!(gone.told_off, Some(0), "it is told that it ends, and that it did nothing wrong");
    }
}
