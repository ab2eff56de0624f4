//! Other servers, by HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use millrace_server::Config;
use millrace_server::config::{Peer, ProxyRoute, Upstream};
use millrace_server::hooks::PathPattern;
use millrace_server::web::{Cors, Grant, Origin, Web};

use super::{beneath, http_at, read_head, site};
use crate::kit::{Scratch, http_config, pattern, serve_http_with};

#[test]
fn another_server_answers_as_if_it_were_this_one_by_connections_that_are_kept() {
    let connections = Arc::new(AtomicUsize::new(0));
    let (_scratch, served) = site(vec![beneath("/app", http_at(echo(Arc::clone(&connections))))]);
    let mut client = served.connect();
    for _ in 0..3 {
        client.send("GET /app/x?y HTTP/1.1\r\nHost: h:1\r\nX-Forwarded-For: 9.9.9.9\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
        let told = client.response();
        assert_eq!((told.status, told.field("x-two"), told.field("x-hop")), (203, Some("a"), None));
        assert_eq!(told.field("server"), Some("Millrace"));
        let cookies: Vec<_> = told.fields.iter().filter(|(name, _)| name == "set-cookie").collect();
        assert_eq!(cookies.len(), 2);
        let text = told.text();
        assert!(text.starts_with("GET /app/x?y HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("host: h:1\r\n") && text.contains("x-forwarded-for: 127.0.0.1\r\n"), "{text}");
        assert!(!text.contains("9.9.9.9") && !text.to_lowercase().contains("upgrade"), "{text}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    // Only the head, and no length of a body that does not come.
    let told = served.ask("HEAD /app HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(told.status, 203);
    assert!(told.field("content-length").is_some());
    // Bodies of known length and in chunks, which are written anew.
    let big = pattern(2_000_000);
    let mut sender = client.stream.try_clone().unwrap();
    let body = big.clone();
    let sending = thread::spawn(move || {
        sender.write_all(b"PUT /app HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n").unwrap();
        sender.write_all(&body).unwrap();
    });
    let told = client.response();
    sending.join().unwrap();
    assert_eq!(told.status, 203, "{}", told.text());
    let common = told.body.iter().rev().zip(big.iter().rev()).take_while(|(one, other)| one == other).count();
    assert_eq!(common, big.len(), "of {}", told.body.len());
    client.send(
        "POST /app HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;evil=\"\r\"\r\nab\r\n0\r\nX-Trailer: a\r\n\r\n",
    );
    let refused = client.response().status;
    assert!(refused == 400 || refused == 502, "{refused}");
    let mut client = served.connect();
    client.send("POST /app HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nX-T: a\r\n\r\n");
    let text = client.response().text();
    assert!(
        text.contains("transfer-encoding: chunked") && !text.contains("x=y") && !text.contains("X-T"),
        "{text}"
    );
    let both =
        "POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(served.ask(both).status, 400);
}

#[test]
fn a_server_that_is_down_is_502_and_is_asked_again_when_it_is_back() {
    let scratch = Scratch::new();
    let path = scratch.file("socket");
    let hanging = http_at(|mut socket| {
        let _ = read_head(&mut socket);
        let _ = socket.read(&mut [0]);
    });
    let (_site, served) = site(vec![
        beneath("/app", Upstream::Http(Peer::Unix(path.clone()))),
        ProxyRoute { silence: Duration::from_millis(100), ..beneath("/hangs", hanging) },
        beneath(
            "/babbles",
            http_at(|mut socket| {
                let _ = read_head(&mut socket);
                let _ = socket.write_all(b"220 ready\r\n");
            }),
        ),
    ]);
    assert_eq!(served.get("/app", "").status, 502);
    let listener = UnixListener::bind(&path).unwrap();
    let serve = |listener: UnixListener| {
        let (mut socket, _) = listener.accept().unwrap();
        let mut bytes = [0; 4096];
        assert!(socket.read(&mut bytes).unwrap() > 0);
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup").unwrap();
    };
    let serving = thread::spawn(move || serve(listener));
    assert_eq!(served.get("/app", "").text(), "up");
    serving.join().unwrap();
    // Its connection was kept, and is closed now: the next request does not fall for that.
    std::fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let serving = thread::spawn(move || serve(listener));
    assert_eq!(served.get("/app", "").text(), "up");
    serving.join().unwrap();
    assert_eq!(served.get("/hangs", "").status, 504);
    assert_eq!(served.get("/babbles", "").status, 502);
}

#[test]
fn an_answer_may_have_many_fields_but_no_unknown_coding() {
    let peer = http_at(|mut socket| {
        let Some((head, _)) = read_head(&mut socket) else { return };
        let cookies: String = (0..200).map(|number| format!("Set-Cookie: c{number}=1\r\n")).collect();
        let answer = match head.starts_with("GET /app/coded") {
            true => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n".to_owned()
            }
            false => format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 2\r\n\r\nok"),
        };
        let _ = socket.write_all(answer.as_bytes());
    });
    let (_scratch, served) = site(vec![beneath("/app", peer)]);
    let many = served.get("/app/many", "");
    assert_eq!((many.status, many.text().as_str()), (200, "ok"));
    assert_eq!(many.fields.iter().filter(|(name, _)| name == "set-cookie").count(), 200);
    assert_eq!(served.get("/app/coded", "").status, 502);
    for method in ["CONNECT", "TRACE"] {
        let answer = served.ask(format!("{method} /app/x HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!((answer.status, answer.field("set-cookie")), (501, None), "{method}");
    }
}

#[test]
fn a_request_that_cannot_be_forwarded_is_refused_and_takes_no_slot() {
    let connections = Arc::new(AtomicUsize::new(0));
    let app = ProxyRoute { most: 1, ..beneath("/app", http_at(echo(Arc::clone(&connections)))) };
    let (_scratch, served) = site(vec![app]);
    for _ in 0..3 {
        let refused = served.get("/app", "X-A: \x7f\r\n");
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
    assert_eq!(served.get("/app?x", "").status, 203);
}

#[test]
fn a_preflight_with_a_body_is_not_passed_on_by_parts() {
    let connections = Arc::new(AtomicUsize::new(0));
    let scratch = Scratch::new();
    let grant = Grant {
        origins: vec![Origin::parse("https://app.example").unwrap()],
        methods: vec!["PUT".to_owned()],
        request_fields: Vec::new(),
        exposed: Vec::new(),
        credentials: false,
        max_age: 600,
    };
    let web = Web { cors: vec![Cors { paths: vec![PathPattern::new("/**")], grant }], ..Web::default() };
    let proxy_routes = vec![beneath("/app", http_at(echo(Arc::clone(&connections))))];
    let served = serve_http_with(Config { proxy_routes, web, ..http_config(scratch.storage()) });
    let inner = "PUT /app/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
    let mut client = served.connect();
    client.send(format!(
        "OPTIONS /app HTTP/1.1\r\nHost: h\r\nOrigin: https://app.example\r\n\
         Access-Control-Request-Method: PUT\r\nContent-Length: {}\r\n\r\n{inner}",
        inner.len()
    ));
    let answer = client.response();
    assert_eq!((answer.status, answer.field("connection")), (204, Some("close")));
    client.expect_end();
    assert_eq!(connections.load(Ordering::SeqCst), 0, "what was a body came there as a request");
}

/// Answers each request with its own head, as often as a connection has one.
fn echo(connections: Arc<AtomicUsize>) -> impl Fn(TcpStream) + Send + Sync + 'static {
    move |mut socket| {
        connections.fetch_add(1, Ordering::SeqCst);
        while let Some((head, mut body)) = read_head(&mut socket) {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            let mut piece = vec![0; 64 * 1024];
            while body.len() < length || (head.contains("chunked") && !body.ends_with(b"0\r\n\r\n")) {
                let count = socket.read(&mut piece).unwrap();
                assert!(count > 0);
                body.extend_from_slice(&piece[..count]);
            }
            let total = head.len() + body.len();
            let fields = "X-Two: a\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nStatus: 500\r\nServer: other\r\nConnection: X-Hop\r\nX-Hop: a\r\n";
            let answer = format!("HTTP/1.1 203 Odd\r\n{fields}Content-Length: {total}\r\n\r\n{head}");
            let answer = if head.starts_with("HEAD ") {
                answer.as_bytes()[..answer.len() - head.len()].to_vec()
            } else {
                [answer.as_bytes(), &body].concat()
            };
            socket.write_all(&answer).unwrap();
        }
    }
}
