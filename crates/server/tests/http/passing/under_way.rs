//! Requests under way: clients that end their side, cut their bodies or go, and how many there may be.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use millrace_http::fastcgi;
use millrace_server::config::ProxyRoute;

use super::{answer, beneath, fastcgi_at, hear, http_at, read_head, site};
use crate::kit::{PATIENCE, eventually};

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

/// A cache would store a part as the whole.
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
        // A client that has left before has no request.
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
    let (_scratch, served) = site(vec![ProxyRoute { most: 2, ..beneath("/app", app) }]);
    let mut clients: Vec<_> = (0..12).map(|_| served.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("GET /app HTTP/1.1\r\nHost: h\r\n\r\n"));
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert!(most.load(Ordering::SeqCst) <= 2);
}

/// The connection of a request that waited too long at one server continues with the other.
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
    let first = ProxyRoute { most: 1, silence: Duration::from_secs(2), ..beneath("/first", babbles) };
    let (_scratch, served) = site(vec![first, ProxyRoute { most: 1, ..beneath("/second", waits) }]);
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
