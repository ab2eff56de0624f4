//! Paths that others answer: FastCGI applications, and other servers by HTTP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use millrace_http::fastcgi::{self, Decoder, Said};
use millrace_server::config::{Pass, Peer, Upstream};
use millrace_server::hooks::PathPattern;
use millrace_server::web::{Cors, Grant, Origin, Web};
use millrace_server::{Account, Attempt, Authenticator, Config, Decision, Permissions, Rules};
use millrace_storage::{LocalOptions, LocalStorage};
use millrace_vfs::VirtualPath;

use crate::kit::{PATIENCE, Scratch, ServedHttp, eventually, http_config, pattern, serve_http_with};

pub(super) fn site(passes: Vec<Pass>) -> (Scratch, ServedHttp) {
    let scratch = Scratch::new();
    scratch.write("file.txt", b"a file");
    let served = serve_http_with(Config { passes, ..http_config(scratch.storage()) });
    (scratch, served)
}

pub(super) fn beneath(path: &str, to: Upstream) -> Pass {
    Pass { path: VirtualPath::parse(path.as_bytes()).unwrap(), silence: PATIENCE, ..Pass::new(to) }
}

/// Accepts on a free port; each connection has a thread of its own.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.set_write_timeout(Some(PATIENCE)).unwrap();
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(socket));
        }
    });
    address
}

/// What an application heard of a request.
#[derive(Debug, Default)]
pub(super) struct Heard {
    wire: Vec<u8>,
    body: Vec<u8>,
    is_whole: bool,
    was_aborted: bool,
}

impl Heard {
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        // Names and values of the tests are short: one byte says how long they are.
        let at = self.wire.windows(name.len()).position(|part| part == name.as_bytes())?;
        let length = usize::from(self.wire[at - 1]);
        let value = &self.wire[at + name.len()..][..length];
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

/// Hears a request out; `None` where the connection ended before it began.
pub(super) fn hear(socket: &mut impl Read) -> Option<Heard> {
    let (mut decoder, mut heard) = (Decoder::default(), Heard::default());
    let mut bytes = [0; 16 * 1024];
    while !heard.is_whole && !heard.was_aborted {
        let count = socket.read(&mut bytes).unwrap_or(0);
        if count == 0 {
            return (!heard.wire.is_empty()).then_some(heard);
        }
        if heard.wire.len() < 16 * 1024 {
            heard.wire.extend_from_slice(&bytes[..count]);
        }
        let Heard { body, is_whole, was_aborted, .. } = &mut heard;
        let taken = decoder.take(&bytes[..count], &mut |said| match said {
            Said::Stdin(b"") => *is_whole = true,
            Said::Stdin(more) => body.extend_from_slice(more),
            Said::Abort => *was_aborted = true,
            _ => {}
        });
        taken.unwrap();
    }
    Some(heard)
}

pub(super) fn answer(socket: &mut impl Write, text: &[u8]) {
    let mut records = Vec::new();
    fastcgi::stdout(text, &mut records);
    fastcgi::end(&mut records);
    let _ = socket.write_all(&records);
}

pub(super) fn fastcgi_at(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Upstream {
    Upstream::FastCgi(Peer::Tcp(listen(serve)))
}

pub(super) fn http_at(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Upstream {
    Upstream::Http(Peer::Tcp(listen(serve)))
}

#[test]
fn an_application_is_told_what_a_program_is_told() {
    let app = fastcgi_at(|mut socket| {
        let heard = hear(&mut socket).unwrap();
        let names = [
            "SCRIPT_NAME",
            "PATH_INFO",
            "QUERY_STRING",
            "REQUEST_METHOD",
            "HTTP_X_A",
            "CONTENT_LENGTH",
            "HTTP_PROXY",
        ];
        let said: Vec<String> =
            names.iter().map(|name| heard.variable(name).unwrap_or("-".to_owned())).collect();
        let body = String::from_utf8_lossy(&heard.body).into_owned();
        answer(
            &mut socket,
            format!("Status: 201\r\nContent-Type: text/plain\r\n\r\n{} {body}", said.join("|")).as_bytes(),
        );
    });
    let (_scratch, served) = site(vec![beneath("/app", app)]);
    let told = served.ask(
        "POST /app/x%20y?q=1 HTTP/1.1\r\nHost: h\r\nX-A: b\r\nProxy: evil\r\nContent-Length: 4\r\n\r\nbody",
    );
    assert_eq!((told.status, told.text().as_str()), (201, "/app|/x y|q=1|POST|b|4|- body"));
    assert_eq!(served.get("/file.txt", "").body, b"a file");
    let chunked = served.ask("POST /app HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(chunked.status, 411);
}

#[test]
fn scripts_are_named_by_their_suffix_and_have_to_be_there() {
    let scratch = Scratch::new();
    let folder = scratch.file("").canonicalize().unwrap();
    let path = scratch.file("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let heard = hear(&mut socket).unwrap();
            let file = heard.variable("SCRIPT_FILENAME").unwrap();
            let text = format!(
                "Content-Type: a/b\r\n\r\n{file} {}",
                heard.variable("PATH_INFO").unwrap_or_default()
            );
            answer(&mut socket, text.as_bytes());
        }
    });
    let to = Upstream::FastCgi(Peer::Unix(path));
    let pass = Pass { suffix: Some(".php".to_owned()), root: Some(folder.clone()), ..beneath("/", to) };
    scratch.write("a.php", b"<?php");
    scratch.write("picture.jpg", b"<?php");
    let served = serve_http_with(Config { passes: vec![pass], ..http_config(scratch.storage()) });
    let told = served.get("/a.php/more/x", "").text();
    assert_eq!(told, format!("{}/a.php /more/x", folder.display()));
    for target in ["/none.php", "/picture.jpg/x.php", "/a.php.php"] {
        assert_eq!(served.get(target, "").status, 404, "{target}");
    }
    assert_eq!(served.get("/picture.jpg", "").body, b"<?php");
}

/// Who asks for a script asks for a file: what that user may not read, or sees elsewhere, is not run.
/// `carl` has the first account, `bob` the second.
#[derive(Debug)]
pub(super) struct People(pub(super) Account, pub(super) Account);

impl Authenticator for People {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        match attempt.user {
            b"carl" => Decision::Granted(self.0.clone()),
            b"bob" => Decision::Granted(self.1.clone()),
            _ => Decision::Denied,
        }
    }
}

/// `carl` may do nothing in `/secret`, `bob` sees `home` only.
#[test]
fn rights_by_place_hold_for_what_others_answer() {
    let (scratch, outside) = (Scratch::new(), Scratch::new());
    let folder = scratch.path().canonicalize().unwrap();
    for name in ["home", "secret", "folder.php"] {
        std::fs::create_dir(scratch.file(name)).unwrap();
    }
    for name in ["a.php", "secret/s.php", "home/own.php"] {
        scratch.write(name, b"<?php");
    }
    outside.write("o.php", b"<?php");
    std::os::unix::fs::symlink(outside.file("o.php"), scratch.file("out.php")).unwrap();
    std::os::unix::fs::symlink("a.php", scratch.file("in.php")).unwrap();
    let app = || {
        fastcgi_at(|mut socket| {
            let heard = hear(&mut socket).unwrap();
            let file = heard.variable("SCRIPT_FILENAME").unwrap_or_default();
            answer(&mut socket, format!("Content-Type: a/b\r\n\r\n{file}").as_bytes());
        })
    };
    let scripts = Pass { suffix: Some(".php".to_owned()), root: Some(folder.clone()), ..beneath("/", app()) };
    let rules = Rules::new(Permissions::READ_ONLY).tree(b"/secret", Permissions::NONE);
    let home = LocalStorage::open(&scratch.file("home"), LocalOptions::default()).unwrap();
    let people = People(
        Account::ruled(scratch.storage(), rules),
        Account::new(Arc::new(home), Permissions::READ_ONLY),
    );
    let served = serve_http_with(Config {
        passes: vec![scripts, beneath("/secret/app", app()), beneath("/app", app())],
        accounts: Arc::new(people),
        ..http_config(scratch.storage())
    });
    let (carl, bob) = ("Authorization: Basic Y2FybDpw\r\n", "Authorization: Basic Ym9iOnA=\r\n");
    for (who, target, status, file) in [
        (carl, "/a.php", 200, "a.php"),
        (carl, "/in.php/x", 200, "a.php"),
        (carl, "/home/own.php", 200, "home/own.php"),
        (carl, "/secret/s.php", 403, ""),
        (carl, "/secret/app", 403, ""),
        (carl, "/out.php", 403, ""),
        (carl, "/folder.php", 404, ""),
        (bob, "/secret/s.php", 404, ""),
        (bob, "/a.php", 404, ""),
        (bob, "/own.php", 200, "home/own.php"),
    ] {
        let told = served.get(target, who);
        assert_eq!(told.status, status, "{target} for {who}");
        if status == 200 {
            assert_eq!(told.text(), format!("{}/{file}", folder.display()), "{target} for {who}");
        }
    }
    assert_eq!(served.get("/app", carl).status, 200);
}

#[test]
fn bodies_stream_both_ways_through_an_application_and_connections_are_kept() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let app = fastcgi_at(move |mut socket| {
        counted.fetch_add(1, Ordering::Relaxed);
        while let Some(heard) = hear(&mut socket) {
            let head = format!("Content-Type: a/b\r\nContent-Length: {}\r\n\r\n", heard.body.len());
            answer(&mut socket, &[head.as_bytes(), &heard.body].concat());
        }
    });
    let (_scratch, served) = site(vec![beneath("/app", app)]);
    let mut client = served.connect();
    for size in [1, 70_000, 3_000_000] {
        let content = pattern(size);
        let head = format!("POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n");
        let mut sender = client.stream.try_clone().unwrap();
        let body = content.clone();
        let sending = thread::spawn(move || sender.write_all(&[head.as_bytes(), &body].concat()).unwrap());
        let told = client.response();
        sending.join().unwrap();
        assert_eq!(told.status, 200);
        assert!(told.body == content, "{size}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[test]
fn an_application_that_misbehaves_is_answered_for() {
    let misbehave = |words: &'static [u8]| {
        move |mut socket: TcpStream| {
            hear(&mut socket);
            let _ = socket.write_all(words);
        }
    };
    let (_scratch, served) = site(vec![
        beneath("/dies", fastcgi_at(misbehave(b""))),
        beneath("/babbles", fastcgi_at(misbehave(b"HTTP/1.1 200 OK\r\n\r\n"))),
        beneath("/refuses", fastcgi_at(misbehave(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]))),
        beneath(
            "/no-head",
            fastcgi_at(|mut socket| {
                hear(&mut socket);
                answer(&mut socket, b"no head\n");
            }),
        ),
        beneath(
            "/floods",
            fastcgi_at(|mut socket| {
                hear(&mut socket);
                let mut records = Vec::new();
                fastcgi::stdout(&[b'a'; 32 * 1024], &mut records);
                while socket.write_all(&records).is_ok() {}
            }),
        ),
        Pass {
            silence: Duration::from_millis(100),
            ..beneath(
                "/hangs",
                fastcgi_at(|mut socket| {
                    hear(&mut socket);
                    // Until the server has given up.
                    let _ = socket.read(&mut [0]);
                }),
            )
        },
        beneath("/away", Upstream::FastCgi(Peer::Unix("/nowhere/at/all".into()))),
    ]);
    for (target, status) in [
        ("/dies", 502),
        ("/babbles", 502),
        ("/refuses", 502),
        ("/no-head", 502),
        ("/floods", 502),
        ("/hangs", 504),
        ("/away", 502),
        ("/file.txt", 200),
    ] {
        assert_eq!(served.get(target, "").status, status, "{target}");
    }
}

#[test]
fn an_answer_that_was_cut_is_cut_to_the_client() {
    let (_scratch, served) = site(vec![
        beneath(
            "/app",
            fastcgi_at(|mut socket| {
                hear(&mut socket);
                let mut records = Vec::new();
                fastcgi::stdout(b"Content-Type: a/b\r\n\r\nhalf", &mut records);
                let _ = socket.write_all(&records);
            }),
        ),
        beneath(
            "/http",
            http_at(|mut socket| {
                let _ = read_head(&mut socket);
                let _ =
                    socket.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
            }),
        ),
    ]);
    for target in ["/app", "/http"] {
        let mut client = served.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let text = String::from_utf8(client.rest()).unwrap();
        assert!(text.starts_with("HTTP/1.1 "), "{target}: {text:?}");
        assert!(!text.ends_with("0\r\n\r\n") || text.contains(" 502 "), "{target}: {text:?}");
    }
}

/// As `nc -N` does: it has said all, and waits.
#[test]
fn a_client_that_ends_its_side_is_answered_by_others_too() {
    let app = fastcgi_at(|mut socket| {
        hear(&mut socket);
        answer(&mut socket, b"Content-Type: a/b\r\n\r\nfastcgi");
    });
    let other = http_at(|mut socket| {
        let _ = read_head(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhttp");
    });
    let (_scratch, served) = site(vec![beneath("/app", app), beneath("/other", other)]);
    for (target, expected) in [("/app", "fastcgi"), ("/other", "http")] {
        let mut client = served.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        client.end_writing();
        assert_eq!(client.response().text(), expected);
    }
}

/// Whoever stores it would have a part for the whole.
#[test]
fn a_body_that_was_cut_short_does_not_look_whole_to_others() {
    let (tell, told) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    let (tell_http, begin_http) = (tell.clone(), begin.clone());
    let app = fastcgi_at(move |mut socket| {
        begin.send(socket.peek(&mut [0])).unwrap();
        let heard = hear(&mut socket).unwrap();
        let _ = tell.send((heard.is_whole, heard.body));
    });
    let other = http_at(move |mut socket| {
        begin_http.send(socket.peek(&mut [0])).unwrap();
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all);
        let body = all.windows(4).position(|part| part == b"\r\n\r\n").map_or(0, |at| at + 4);
        let _ = tell_http.send((all.ends_with(b"0\r\n\r\n"), all[body..].to_vec()));
    });
    let (_scratch, served) = site(vec![beneath("/app", app), beneath("/other", other)]);
    for (target, body, arrived) in [
        ("/app", "Content-Length: 5\r\n\r\nbody", "body"),
        ("/other", "Content-Length: 5\r\n\r\nbody", "body"),
        ("/other", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", "4\r\nbody\r\n"),
    ] {
        let mut client = served.connect();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: h\r\n{body}"));
        // Who has gone before is nobody's request.
        begun.recv_timeout(PATIENCE).unwrap().unwrap();
        client.end_writing();
        assert_eq!(client.response().status, 400, "{target}");
        let (is_whole, heard) = told.recv_timeout(PATIENCE).unwrap();
        assert!(!is_whole, "{target}");
        assert!(arrived.as_bytes().starts_with(&heard), "{target}: {:?}", heard.escape_ascii().to_string());
    }
}

#[test]
fn a_client_that_goes_ends_what_was_asked() {
    let (tell, told) = mpsc::channel();
    let (tell_http, told_http) = (tell.clone(), tell.clone());
    drop(told_http);
    let (_scratch, served) = site(vec![
        beneath(
            "/app",
            fastcgi_at(move |mut socket| {
                hear(&mut socket);
                let mut records = Vec::new();
                fastcgi::stdout(b"Content-Type: a/b\r\n\r\nbegun", &mut records);
                let _ = socket.write_all(&records);
                let after = hear(&mut socket);
                let _ = tell.send(after.is_none_or(|heard| heard.was_aborted));
            }),
        ),
        beneath(
            "/http",
            http_at(move |mut socket| {
                let _ = read_head(&mut socket);
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun");
                let mut rest = Vec::new();
                let _ = tell_http.send(socket.read_to_end(&mut rest).is_ok());
            }),
        ),
    ]);
    for target in ["/app", "/http"] {
        let mut client = served.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let mut bytes = [0; 1024];
        assert!(client.stream.read(&mut bytes).unwrap() > 0);
        drop(client);
        assert!(told.recv_timeout(PATIENCE).unwrap(), "{target}");
    }
}

#[test]
fn as_many_requests_are_under_way_as_may_be() {
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (counted, highest) = (Arc::clone(&running), Arc::clone(&most));
    let app = fastcgi_at(move |mut socket| {
        hear(&mut socket);
        highest.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::yield_now();
        counted.fetch_sub(1, Ordering::SeqCst);
        answer(&mut socket, b"Content-Type: a/b\r\n\r\n");
    });
    let (_scratch, served) = site(vec![Pass { most: 2, ..beneath("/app", app) }]);
    let mut clients: Vec<_> = (0..12).map(|_| served.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("GET /app HTTP/1.1\r\nHost: h\r\n\r\n"));
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert!(most.load(Ordering::SeqCst) <= 2);
}

/// The connection of whoever waited too long at one of them goes on with the other.
#[test]
fn a_place_at_one_is_none_at_another() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let babbles = fastcgi_at(move |mut socket| {
        hear(&mut socket);
        let mut records = Vec::new();
        fastcgi::stdout(b"Content-Type: a/b\r\n\r\n", &mut records);
        while socket.write_all(&records).is_ok() && !over.load(Ordering::SeqCst) {
            records.clear();
            fastcgi::stdout(b"more", &mut records);
            thread::sleep(Duration::from_millis(50));
        }
        answer(&mut socket, b"");
    });
    let (count, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let (tell, told) = mpsc::channel::<()>();
    let (highest, told) = (Arc::clone(&most), Mutex::new(told));
    let waits = fastcgi_at(move |mut socket| {
        hear(&mut socket);
        highest.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let _ = told.lock().unwrap().recv();
        count.fetch_sub(1, Ordering::SeqCst);
        answer(&mut socket, b"Content-Type: a/b\r\n\r\n");
    });
    let first = Pass { most: 1, silence: Duration::from_secs(2), ..beneath("/first", babbles) };
    let (_scratch, served) = site(vec![first, Pass { most: 1, ..beneath("/second", waits) }]);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let (mut at_first, mut at_second, mut waiting) = (served.connect(), served.connect(), served.connect());
    at_first.send(get("/first"));
    at_first.stream.read_exact(&mut [0]).unwrap();
    at_second.send(get("/second"));
    eventually("the second has one", || most.load(Ordering::SeqCst) == 1);
    waiting.send(get("/first"));
    assert_eq!(waiting.response().status, 503);
    waiting.send(get("/second"));
    is_over.store(true, Ordering::SeqCst);
    assert_eq!(served.get("/first", "").status, 200, "there is room again");
    drop(tell);
    assert_eq!([at_second.response().status, waiting.response().status], [200; 2]);
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[test]
fn what_cannot_be_passed_on_is_refused_and_takes_nobodys_place() {
    let connections = Arc::new(AtomicUsize::new(0));
    let app = Pass { most: 1, ..beneath("/app", http_at(echo(Arc::clone(&connections)))) };
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
    let passes = vec![beneath("/app", http_at(echo(Arc::clone(&connections))))];
    let served = serve_http_with(Config { passes, web, ..http_config(scratch.storage()) });
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

/// The head of a request of HTTP, and what came with it of the body.
fn read_head(socket: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            let body = bytes.split_off(at + 4);
            return Some((String::from_utf8(bytes).unwrap(), body));
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
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
        Pass { silence: Duration::from_millis(100), ..beneath("/hangs", hanging) },
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

/// As everybody who serves PHP writes it: `index.php` in front of `index.html`.
#[test]
fn a_folder_whose_index_is_a_script_is_answered_by_the_application() {
    let scratch = Scratch::new();
    let folder = scratch.path().canonicalize().unwrap();
    let app = fastcgi_at(|mut socket| {
        let heard = hear(&mut socket).unwrap();
        let names = ["REQUEST_METHOD", "SCRIPT_NAME", "REQUEST_URI", "QUERY_STRING", "PATH_INFO"];
        let said: Vec<String> =
            names.iter().map(|name| heard.variable(name).unwrap_or("-".to_owned())).collect();
        let body = String::from_utf8_lossy(&heard.body).into_owned();
        answer(&mut socket, format!("Content-Type: a/b\r\n\r\n{} {body}", said.join("|")).as_bytes());
    });
    let pass = Pass { suffix: Some(".php".to_owned()), root: Some(folder), ..beneath("/", app) };
    for name in ["blog", "page"] {
        std::fs::create_dir(scratch.file(name)).unwrap();
    }
    scratch.write("blog/index.php", b"<?php secret");
    scratch.write("blog/index.html", b"not this");
    scratch.write("page/index.html", b"a page");
    let index = ["index.php", "index.html"].map(|name| name.as_bytes().to_vec()).to_vec();
    let web = Web { index, ..Web::default() };
    let served = serve_http_with(Config { passes: vec![pass], web, ..http_config(scratch.storage()) });
    let mut client = served.connect();
    assert_eq!(client.get("/blog/?q=1").text(), "GET|/blog/index.php|/blog/?q=1|q=1|- ");
    client.send("POST /blog/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.response().text(), "POST|/blog/index.php|/blog/||- body");
    client.send("GET http://other/blog/./ HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response().text(), "GET|/blog/index.php|/blog/||- ");
    assert_eq!(client.get("/page/").text(), "a page");
    client.send("POST /page/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.response().status, 405);
    client.expect_end();
}

#[test]
fn the_text_of_a_script_is_shown_by_no_other_name() {
    let scratch = Scratch::new();
    let folder = scratch.path().canonicalize().unwrap();
    let nobody = Upstream::FastCgi(Peer::Unix(scratch.file("none")));
    let pass = Pass { suffix: Some(".php".to_owned()), root: Some(folder), ..beneath("/app", nobody) };
    std::fs::create_dir(scratch.file("app")).unwrap();
    scratch.write("app/a.php", b"<?php secret");
    scratch.write("style.css", b"large enough to be worth a coding");
    std::os::unix::fs::symlink("app/a.php", scratch.file("a.txt")).unwrap();
    std::os::unix::fs::symlink("app/a.php", scratch.file("style.css.gz")).unwrap();
    std::os::unix::fs::symlink("app", scratch.file("other")).unwrap();
    let web = Web { precompressed: true, ..Web::default() };
    let served = serve_http_with(Config { passes: vec![pass], web, ..http_config(scratch.storage()) });
    for target in ["/a.txt", "/other/a.php"] {
        let answer = served.get(target, "");
        assert_eq!((answer.status, answer.text().contains("secret")), (403, false), "{target}");
    }
    let coded = served.get("/style.css", "Accept-Encoding: gzip\r\n");
    assert_eq!((coded.status, coded.field("content-encoding")), (200, None));
}
