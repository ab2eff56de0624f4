//! HTTP in TLS: the same answers, and what only encrypted connections may ask.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use millrace_server::auth::DataSecurity;
use millrace_server::config::Tls;
use millrace_server::limits::{Limit, Limits, ServerLimits};
use millrace_server::web::{HttpsRedirect, Web};
use millrace_server::{Account, Attempt, Authenticator, Config, Decision, Permissions};

use crate::kit::{PATIENCE, Scratch, eventually, https_config, pattern, policy, serve_http_with};

/// `u:p`.
const RIGHT: &str = "Authorization: Basic dTpw\r\n";

#[test]
fn files_of_every_size_come_whole_on_one_connection() {
    let scratch = Scratch::new();
    let served = serve_http_with(https_config(&scratch));
    let mut client = served.connect_securely();
    for length in [0, 1, 1_666, 16_384, 16_385, 65_536, 3_000_000] {
        let contents = pattern(length);
        scratch.write("f", &contents);
        let whole = client.get("/f");
        assert_eq!((whole.status, whole.body.len()), (200, length));
        assert!(whole.body == contents, "{length}");
        if length > 20 {
            client.send("GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes=5-14,-3\r\n\r\n");
            assert_eq!(client.response().status, 206);
        }
    }
}

#[test]
fn a_head_does_not_wait_for_a_body_that_a_limit_holds_back() {
    let scratch = Scratch::new();
    scratch.write("f", &pattern(600_000));
    let session = Limits { download: Some(Limit::of(1)), ..Limits::default() };
    let limits = ServerLimits { session, ..ServerLimits::default() };
    let served = serve_http_with(Config { limits, ..https_config(&scratch) });
    let mut client = served.connect_securely();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response_to(true).status, 200);
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let scratch = Scratch::new();
    for name in ["a", "b", "c"] {
        scratch.write(name, name.as_bytes());
    }
    let served = serve_http_with(https_config(&scratch));
    let mut client = served.connect_securely();
    let all = ["a", "b", "c", "a"].map(|name| format!("GET /{name} HTTP/1.1\r\nHost: h\r\n\r\n")).concat();
    let (first, second) = all.split_at(all.len() / 2 + 3);
    client.send(first);
    client.send(second);
    let got: Vec<_> = (0..4).map(|_| client.response().text()).collect();
    assert_eq!(got, ["a", "b", "c", "a"]);
}

#[test]
fn a_body_goes_up_whole_or_not_at_all() {
    let scratch = Scratch::new();
    let served = serve_http_with(https_config(&scratch));
    let contents = pattern(2_000_000);
    let mut client = served.connect_securely();
    client.send(format!("PUT /up HTTP/1.1\r\nHost: h\r\n{RIGHT}Content-Length: {}\r\n\r\n", contents.len()));
    client.send(&contents);
    assert_eq!(client.response().status, 201);
    assert!(scratch.read("up") == Some(contents));

    client.send(format!("PUT /cut HTTP/1.1\r\nHost: h\r\n{RIGHT}Content-Length: 100\r\n\r\nhalf"));
    drop(client);
    let mut client = served.connect_securely();
    assert_eq!(client.get("/cut").status, 404);
}

#[test]
fn bytes_that_are_not_tls_end_one_connection_only() {
    let scratch = Scratch::new();
    scratch.write("a", b"here");
    let served = serve_http_with(https_config(&scratch));
    let mut stranger = TcpStream::connect(served.running.https_addresses()[0]).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = stranger.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP"), "{}", said.escape_ascii());
    assert_eq!(served.connect_securely().get("/a").body, b"here");
}

#[test]
fn a_client_that_says_nothing_is_not_waited_for_long() {
    let scratch = Scratch::new();
    let config = Config { http_head_timeout: std::time::Duration::from_millis(50), ..https_config(&scratch) };
    let served = serve_http_with(config);
    let mut silent = TcpStream::connect(served.running.https_addresses()[0]).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap_or(0), 0);
}

#[test]
fn the_answer_that_closes_is_whole_and_the_end_is_told() {
    let scratch = Scratch::new();
    scratch.write("f", &pattern(500_000));
    let served = serve_http_with(https_config(&scratch));
    let mut client = served.connect_securely();
    client.send("GET /f HTTP/1.0\r\n\r\n");
    assert!(client.response().body == pattern(500_000));
    let mut secured = client.secured.take().unwrap();
    assert_eq!(secured.read_to_end().unwrap(), (millrace_net::tls::Heard::End, Vec::new()));
}

#[test]
fn the_end_that_a_client_tells_is_answered_by_tls() {
    let scratch = Scratch::new();
    scratch.write("f", b"here");
    let served = serve_http_with(https_config(&scratch));
    let mut client = served.connect_securely();
    assert_eq!(client.get("/f").body, b"here");
    let mut secured = client.secured.take().unwrap();
    secured.channel.close(&secured.socket).unwrap();
    assert_eq!(secured.read_to_end().unwrap(), (millrace_net::tls::Heard::End, Vec::new()));
}

/// Required encryption, and requests in clear with and without a password.
#[test]
fn unencrypted_requests_are_refused_where_encryption_is_required() {
    for (login, data, with_password, without) in
        [(false, false, 200, 200), (true, false, 403, 200), (true, true, 403, 403)]
    {
        let scratch = Scratch::new();
        scratch.write("a", b"text");
        let tls = Tls { login_required: login, data_required: data, ..policy(&scratch) };
        let served = serve_http_with(Config { tls: Some(tls), ..https_config(&scratch) });
        assert_eq!(served.get("/a", RIGHT).status, with_password, "{login} {data}");
        assert_eq!(served.get("/a", "").status, without, "{login} {data}");
        for fields in [RIGHT, ""] {
            let mut client = served.connect_securely();
            client.send(format!("GET /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
            assert_eq!(client.response().status, 200, "{login} {data}");
        }
    }
}

/// Grants all users the same account, whose files have to be encrypted.
#[derive(Debug)]
struct Careful(Account);

impl Authenticator for Careful {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        match attempt.encrypted || attempt.user == b"anonymous" {
            true => Decision::Granted(self.0.clone()),
            false => Decision::Refused("in clear".to_owned()),
        }
    }
}

#[test]
fn an_account_may_want_its_files_encrypted() {
    let scratch = Scratch::new();
    scratch.write("a", b"text");
    let data = DataSecurity { encrypted: true, ..DataSecurity::default() };
    let account = Account { data, ..Account::new(scratch.storage(), Permissions::READ_ONLY) };
    let served = serve_http_with(Config { accounts: Arc::new(Careful(account)), ..https_config(&scratch) });
    assert_eq!(served.get("/a", "").status, 403);
    assert_eq!(served.get("/a", RIGHT).status, 401);
    assert_eq!(served.connect_securely().get("/a").status, 200);
}

#[test]
fn new_certificates_hold_for_new_connections() {
    let scratch = Scratch::new();
    scratch.write("a", b"text");
    let served = serve_http_with(https_config(&scratch));
    let mut old = served.connect_securely();
    let before = served.running.fingerprints();
    crate::kit::replace(&crate::kit::pair(&scratch), &scratch.path().join("other"));
    served.running.reload_certificates().unwrap();
    assert_ne!(served.running.fingerprints(), before);
    assert_eq!(old.get("/a").status, 200);
    assert_eq!(served.connect_securely().get("/a").status, 200);
}

#[test]
fn connections_end_with_the_server() {
    let scratch = Scratch::new();
    let served = serve_http_with(https_config(&scratch));
    let idle = served.connect_securely();
    served.running.request_shutdown();
    let mut secured = idle.secured.unwrap();
    eventually("the connection ends", || {
        !matches!(secured.read(&mut Vec::new()), Ok(millrace_net::tls::Heard::Bytes { .. }))
    });
}

#[test]
fn requests_in_clear_are_sent_on_with_all_that_they_are() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.file(".well-known/acme-challenge")).unwrap();
    scratch.write(".well-known/acme-challenge/token", b"another's");
    scratch.write("f", b"content");
    let redirecting = |redirect| {
        let web = Web { https_redirect: redirect, ..Web::default() };
        serve_http_with(Config { web, ..https_config(&scratch) })
    };
    let served = redirecting(HttpsRedirect::ToOwn);
    let port = served.running.https_addresses()[0].port();
    let location = |request: &str| {
        let answer = served.ask(request);
        assert_eq!(answer.status, 308, "{request}");
        answer.field("location").unwrap().to_owned()
    };
    for (request, expected) in [
        ("GET /a%20b?c=d&e HTTP/1.1\r\nHost: Files.test\r\n\r\n", format!("Files.test:{port}/a%20b?c=d&e")),
        ("GET /f HTTP/1.1\r\nHost: files.test:8080\r\n\r\n", format!("files.test:{port}/f")),
        ("GET /f HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", format!("[::1]:{port}/f")),
        ("GET http://other.test/f?x HTTP/1.1\r\nHost: h\r\n\r\n", format!("other.test:{port}/f?x")),
        ("GET /f HTTP/1.0\r\n\r\n", format!("127.0.0.1:{port}/f")),
        ("HEAD //h/f HTTP/1.1\r\nHost: h\r\n\r\n", format!("h:{port}//h/f")),
        ("DELETE /f HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n\r\n", format!("h:{port}/f")),
    ] {
        assert_eq!(location(request), format!("https://{expected}"), "{request}");
    }
    let put = format!("PUT /new HTTP/1.1\r\nHost: h\r\n{RIGHT}Content-Length: 3\r\n\r\nnew");
    assert_eq!(location(&put), format!("https://h:{port}/new"));
    assert_eq!((scratch.read("f").is_some(), scratch.read("new")), (true, None));
    assert_eq!(served.get("/.well-known/acme-challenge/token", "").body, b"another's");
    assert_eq!(served.ask("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").status, 204);
    assert_eq!(served.connect_securely().get("/f").body, b"content");
    let served = redirecting(HttpsRedirect::To(443));
    assert_eq!(served.get("/f", "").field("location"), Some("https://h/f"));
}
