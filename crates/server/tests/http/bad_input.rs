//! What no honest client sends, and what networks do.

use std::sync::Arc;
use std::time::Duration;

use millrace_server::{Attempt, Authenticator, Config, Decision};

use crate::kit::{
    Random, Scratch, descriptors, eventually, http_config, pattern, reset, resident, serve_http,
    serve_http_with,
};

#[test]
fn no_way_leads_out() {
    let scratch = Scratch::new();
    scratch.write("a", b"inside");
    std::os::unix::fs::symlink("/etc/passwd", scratch.file("link")).unwrap();
    std::os::unix::fs::symlink("/etc", scratch.file("etc")).unwrap();
    std::os::unix::fs::symlink("a", scratch.file("within")).unwrap();
    let served = serve_http(scratch.storage());
    for target in [
        "/../etc/passwd",
        "/..%2fetc/passwd",
        "/%2e%2e/etc/passwd",
        "/%2e%2e%2fetc%2fpasswd",
        "/.%2e/.%2e/etc/passwd",
        "/%252e%252e/etc/passwd",
        "/..\\..\\etc\\passwd",
        "/..%5c..%5cetc%5cpasswd",
        "/%c0%ae%c0%ae/etc/passwd",
        "/%c0%ae%c0%ae%c0%afetc/passwd",
        "/%e0%80%ae%e0%80%ae/etc/passwd",
        "/%uff0e%uff0e/etc/passwd",
        "/a/../../etc/passwd",
        "/a%00.txt",
        "/link",
        "/etc/passwd",
        "/etc/",
        "//etc/passwd",
        "/./../etc/passwd",
        "/;/../../etc/passwd",
        "http://h/../etc/passwd",
        "/CON",
        "/aux.txt",
        "/COM1",
        "/lpt9.log",
        "/NUL",
        "/nul.txt/x",
        "/CONIN$",
        "/a.%20",
        "/a::$DATA",
        "/.millrace-staging/x",
        "/.millrace-staging/",
    ] {
        let response = served.get(target, "");
        assert!(matches!(response.status, 400 | 403 | 404), "{target}: {}", response.status);
        assert!(!response.text().contains("root:"), "{target}");
    }
    assert_eq!(served.get("/within", "").body, b"inside");
}

#[test]
fn an_error_closes_the_connection_and_what_follows_is_not_taken() {
    let scratch = Scratch::new();
    scratch.write("a", b"x");
    let served = serve_http(scratch.storage());
    for request in [
        "GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "GET /a HTTP/1.1\nHost: h\n\n",
        "GET /a HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "USER alice\r\n",
    ] {
        let mut client = served.connect();
        client.send(format!("{request}GET /a HTTP/1.1\r\nHost: h\r\n\r\n"));
        client.end_writing();
        let response = client.response();
        assert_eq!((response.status, response.field("connection")), (400, Some("close")), "{request:?}");
        client.expect_end();
    }
}

/// A body that `GET` has no use for is not taken for the next request.
#[test]
fn an_ignored_body_is_not_a_request() {
    let scratch = Scratch::new();
    scratch.write("a", b"x");
    let served = serve_http(scratch.storage());
    let mut client = served.connect();
    let smuggled = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    client
        .send(format!("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{smuggled}", smuggled.len()));
    client.end_writing();
    assert_eq!(client.response().field("connection"), Some("close"));
    client.expect_end();
}

#[test]
fn heads_without_end_are_refused_while_they_come() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    for (beginning, filling, status) in [
        ("GET /", "a", 414),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: ", "a", 431),
        ("GET / HTTP/1.1\r\nHost: h\r\n", "X: y\r\n", 431),
    ] {
        let mut client = served.connect();
        client.send(beginning);
        client.send(filling.repeat((16 << 20) / filling.len()));
        assert_eq!(client.response().status, status, "{beginning}");
    }
}

#[test]
fn a_head_may_come_in_pieces_but_not_for_ever() {
    let scratch = Scratch::new();
    scratch.write("a", b"x");
    let config = Config {
        http_head_timeout: Duration::from_secs(2),
        http_idle_timeout: Duration::from_secs(2),
        ..http_config(scratch.storage())
    };
    let served = serve_http_with(config);
    let mut client = served.connect();
    for byte in b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.response().status, 200);
    client.send("GET /a HT");
    assert_eq!(client.response().status, 408);
    client.expect_end();
    // Silence is no request that failed: the connection just ends.
    served.connect().expect_end();
    let mut idle = served.connect();
    assert_eq!(idle.get("/a").status, 200);
    idle.expect_end();
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection() {
    let scratch = Scratch::new();
    let size = 64 << 20;
    std::fs::File::create(scratch.file("a")).unwrap().set_len(size).unwrap();
    let served = serve_http(scratch.storage());
    let mut client = served.connect();
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    // The first bytes come, and the socket is full long before the last.
    let mut first = [0; 1000];
    std::io::Read::read_exact(&mut client.stream, &mut first).unwrap();
    std::fs::File::options().write(true).open(scratch.file("a")).unwrap().set_len(1000).unwrap();
    let rest = client.rest().len() as u64;
    assert!(rest < size, "it was padded");
    // The next request gets the new content.
    assert_eq!(served.get("/a", "").body.len(), 1000);
}

#[test]
fn a_client_that_said_its_last_still_gets_its_answers() {
    let scratch = Scratch::new();
    scratch.write("a", &pattern(3_000_000));
    let served = serve_http(scratch.storage());
    let mut client = served.connect();
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /a");
    client.end_writing();
    assert!(client.response().body == pattern(3_000_000));
    assert!(client.response().body == pattern(3_000_000));
    client.expect_end();
}

#[test]
fn resets_leave_nothing_behind() {
    let scratch = Scratch::new();
    scratch.write("a", &pattern(3_000_000));
    scratch.write("b", b"small");
    scratch.crowd("many", 3000, "a-rather-long-name-");
    let served = serve_http_with(Config { sort_entries: 10, ..http_config(scratch.storage()) });
    served.get("/b", "");
    served.get("/many/", "");
    let before = descriptors();
    for target in ["/a", "/b", "/many/", "/nothing"] {
        for cut in [1, 10, 24, 100] {
            let mut client = served.connect();
            let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").repeat(3);
            client.send(&request[..cut.min(request.len())]);
            reset(client.stream);
            let mut client = served.connect();
            client.send(&request);
            let mut some = vec![0; cut];
            let _ = std::io::Read::read_exact(&mut client.stream, &mut some);
            reset(client.stream);
        }
    }
    // The file that was asked for last may be kept open.
    eventually("all descriptors are back", || descriptors() <= before + 2);
    assert_eq!(served.get("/b", "").body, b"small");
}

#[test]
fn a_client_that_reads_nothing_is_let_go() {
    let scratch = Scratch::new();
    scratch.write("a", &pattern(40_000_000));
    let config = Config { stall_timeout: Duration::from_millis(500), ..http_config(scratch.storage()) };
    let served = serve_http_with(config);
    let mut client = served.connect();
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut other = served.connect();
    let before = resident();
    eventually("the connection is gone", || {
        let request = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n".repeat(100);
        std::io::Write::write_all(&mut client.stream, request.as_bytes()).is_err()
    });
    assert!(resident() < before + (32 << 20), "answers piled up");
    assert_eq!(other.get("/nothing").status, 404);
}

#[test]
fn noise_gets_an_answer_or_an_end() {
    let scratch = Scratch::new();
    scratch.write("a", b"x");
    let served = serve_http(scratch.storage());
    let words: [&[u8]; 16] = [
        b"GET ",
        b"HEAD ",
        b"/a",
        b"/",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b"\r\n",
        b"\r\n\r\n",
        b"Host: h",
        b"Range: bytes=0-0,1-",
        b"Content-Length: 3",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
        b"\n",
        b"\0\xff",
        b"Expect: 100-continue",
    ];
    let mut random = Random(7);
    for _ in 0..300 {
        let mut client = served.connect();
        let noise: Vec<u8> =
            (0..random.below(24)).flat_map(|_| words[random.below(words.len())].iter().copied()).collect();
        client.send(&noise);
        client.end_writing();
        let answer = client.rest();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{}", noise.escape_ascii());
    }
    assert_eq!(served.get("/a", "").body, b"x");
}

/// Accounts with a mistake in what they do on the reactor.
#[derive(Debug)]
struct Faulty(Arc<dyn Authenticator>);

impl Authenticator for Faulty {
    fn quick(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        assert_ne!(attempt.user, b"u", "on purpose");
        self.0.quick(attempt)
    }

    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        self.0.authenticate(attempt)
    }
}

#[test]
fn a_mistake_of_ours_costs_the_connection_that_it_befalls_and_no_other() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    scratch.write("large", &pattern(3_000_000));
    let config = http_config(scratch.storage());
    let served = serve_http_with(Config { accounts: Arc::new(Faulty(config.accounts.clone())), ..config });
    let mut other = served.connect();
    assert_eq!(other.get("/f").body, b"content");
    let mut under_way = served.connect();
    under_way.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    for _ in 0..3 {
        let mut client = served.connect();
        client.send("GET /f HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n\r\n");
        client.expect_end();
    }
    assert_eq!(other.get("/f").body, b"content");
    assert!(under_way.response().body == pattern(3_000_000));
    assert_eq!(served.get("/f", "").body, b"content", "a new client is served as well");
}
