//! Connections: kept open for the next request, streams, floods.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc;

use millrace_admin_http::AdminAccess;

use crate::kit::Site;

/// Connections at a time: as in `connections.rs`.
const MOST: usize = 64;

/// Streams at a time: as in `call.rs`.
const STREAMS: usize = 8;

#[test]
fn a_connection_answers_one_request_after_the_other() {
    let site = Site::start(AdminAccess::default());
    let token = site.token("viewer", None);
    let mut stream = BufReader::new(site.connect());
    for _ in 0..3 {
        write!(stream.get_mut(), "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n{token}\r\n").unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 200 OK\r\n");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
            let value = line.to_ascii_lowercase();
            if let Some(value) = value.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        assert!(body.starts_with(b"{\"ending\":false"), "{}", body.escape_ascii());
    }
}

#[test]
fn a_flood_holds_up_neither_health_checks_nor_workers() {
    let site = Site::start(AdminAccess::default());
    // Some say nothing, some begin a head, some a login whose body never ends.
    let flood: Vec<_> = (0..3 * MOST)
        .map(|number| {
            let mut stream = site.connect();
            let said = match number % 3 {
                0 => "",
                1 => "GET /api/v1/status HTTP/1.1\r\nHost: loc",
                _ => "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
            };
            // It may have been closed already.
            let _ = stream.write_all(said.as_bytes());
            stream
        })
        .collect();
    assert_eq!(site.ask("GET", "/healthz", "", "").body, "ok\n");
    let (answer, answered) = mpsc::channel();
    for worker in 0..site.running.worker_count() {
        let answer = answer.clone();
        site.running.ask_worker(worker, move || answer.send(()).unwrap());
    }
    (0..site.running.worker_count()).for_each(|_| answered.recv().unwrap());
    drop(flood);
}

/// Opens a stream of the log, and returns it behind its head.
fn stream(site: &Site, token: &str) -> (String, BufReader<std::net::TcpStream>) {
    let mut stream = BufReader::new(site.connect());
    write!(stream.get_mut(), "GET /api/v1/log HTTP/1.1\r\nHost: localhost\r\n{token}\r\n").unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    (head, stream)
}

/// Reads until a line has this text.
fn wait_for(stream: &mut BufReader<std::net::TcpStream>, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "it has ended without {text}");
    }
}

#[test]
fn the_log_is_streamed_to_a_few_until_their_token_is_removed() {
    let site = Site::start(AdminAccess::default());
    let (viewer, admin) = (site.token("viewer", None), site.token("administrator", None));
    let (head, mut first) = stream(&site, &viewer);
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/event-stream"), "{head}");
    wait_for(&mut first, ": the log from now on");
    let others: Vec<_> = (1..STREAMS).map(|_| stream(&site, &admin)).collect();
    assert!(stream(&site, &admin).0.starts_with("HTTP/1.1 429 "));
    assert_eq!(site.ask("GET", "/healthz", "", "").status, 200);
    // What someone does by the API is told, and by whom.
    site.ask("POST", "/api/v1/bans", &admin, r#"{"network":"192.0.2.7","seconds":60}"#);
    wait_for(
        &mut first,
        r#""what":"ban network=192.0.2.7 seconds=60","admin":"token of-administrator-None""#,
    );
    site.ask("DELETE", "/api/v1/tokens/of-viewer-None", &admin, "");
    let mut rest = String::new();
    first.read_to_string(&mut rest).unwrap();
    drop(others);
}

#[test]
fn a_stream_ends_with_the_role_of_its_user() {
    let site = Site::start(AdminAccess { viewers: vec!["ann".to_owned()], ..AdminAccess::default() });
    let admin = site.token("administrator", None);
    let told = site.ask("POST", "/api/v1/login", "", r#"{"name":"ann","password":"secret"}"#);
    let (head, mut stream) = stream(&site, &told.cookie());
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    wait_for(&mut stream, ": the log from now on");
    let ban = |network: &str| {
        let body = format!(r#"{{"network":"{network}","seconds":60}}"#);
        assert_eq!(site.ask("POST", "/api/v1/bans", &admin, &body).status, 200);
    };
    ban("192.0.2.7");
    wait_for(&mut stream, "192.0.2.7");
    site.admin.configure(AdminAccess::default());
    ban("192.0.2.8");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("it ends");
}
