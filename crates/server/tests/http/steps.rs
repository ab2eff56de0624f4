//! The steps of a request keep their order: hooks say what it is about before it is decided who answers it, and are not
//! asked about what has been done already.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;

use millrace_server::Config;
use millrace_server::config::{Peer, Programs, ProxyRoute, Upstream};
use millrace_server::hooks::{Event, EventContext, HookVerdict, Hooks, PathPattern, Refusal};
use millrace_server::web::{Cors, Grant, Origin, Web};
use millrace_storage::{Fault, FaultStorage, MemoryStorage};
use millrace_vfs::VirtualPath;

use crate::kit::{PATIENCE, Scratch, eventually, http_config, serve_http_with};

/// `u:p`.
const LOGIN: &str = "Authorization: Basic dTpw\r\n";

/// Has requests be about something else.
#[derive(Debug)]
struct Leads(&'static [(&'static str, &'static str)]);

impl Hooks for Leads {
    fn concerns(&self, event: Event, _: &str) -> bool {
        event == Event::Command
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        let path = |path: &str| VirtualPath::parse(path.as_bytes()).unwrap();
        match self.0.iter().find(|(from, _)| context.path == Some(path(from))) {
            Some((_, to)) => HookVerdict::Rewrite(path(to)),
            None => HookVerdict::Pass,
        }
    }
}

/// A server of HTTP that answers with the first line of what it is asked, once for each connection.
fn echo() -> Upstream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut head, mut bytes) = (Vec::new(), [0; 4096]);
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match socket.read(&mut bytes) {
                    Ok(count) if count > 0 => head.extend_from_slice(&bytes[..count]),
                    _ => break,
                }
            }
            let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
            let length =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", line.len());
            let _ = socket.write_all(&[length.as_bytes(), line].concat());
        }
    });
    Upstream::Http(Peer::Tcp(address))
}

#[test]
fn where_a_request_is_led_says_who_answers_it() {
    let scratch = Scratch::new();
    for folder in ["cgi", "d"] {
        std::fs::create_dir(scratch.file(folder)).unwrap();
    }
    scratch.write(
        "cgi/echo",
        b"#!/bin/sh\necho 'Content-Type: a/b'; echo; echo \"$REQUEST_METHOD|$SCRIPT_NAME\"; cat",
    );
    std::fs::set_permissions(scratch.file("cgi/echo"), PermissionsExt::from_mode(0o755)).unwrap();
    scratch.write("d/one", b"a file");
    let mark = VirtualPath::parse(b"/cgi").unwrap();
    let folder = scratch.file("cgi").canonicalize().unwrap();
    let grant = Grant {
        origins: vec![Origin::parse("https://a.example").unwrap()],
        methods: vec!["GET".to_owned()],
        request_fields: Vec::new(),
        exposed: Vec::new(),
        credentials: false,
        max_age: 1,
    };
    let hooks = Leads(&[
        ("/run", "/cgi/echo"),
        ("/cgi/old", "/d/one"),
        ("/far/x", "/app/y"),
        ("/app/here", "/d/one"),
        ("/folder", "/d"),
    ]);
    let served = serve_http_with(Config {
        programs: Programs { folders: vec![(mark, folder)], ..Programs::default() },
        proxy_routes: vec![ProxyRoute {
            path: VirtualPath::parse(b"/app").unwrap(),
            silence: PATIENCE,
            ..ProxyRoute::new(echo())
        }],
        web: Web { cors: vec![Cors { paths: vec![PathPattern::new("/d/**")], grant }], ..Web::default() },
        hooks: Some(Arc::new(hooks)),
        ..http_config(scratch.storage())
    });
    let mut client = served.connect();
    let post = "POST /run HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    client.send([post, "GET /d/one HTTP/1.1\r\nHost: h\r\n\r\n"].concat());
    assert_eq!(client.response().text(), "POST|/cgi/echo\nhello");
    assert_eq!(client.response().body, b"a file", "the connection goes on behind a body that a program took");
    assert_eq!(client.get("/cgi/old").body, b"a file");
    assert_eq!(client.get("/app/here").body, b"a file");
    assert_eq!(client.get("/far/x?q=1").text(), "GET /app/y?q=1 HTTP/1.1");
    client.send("PROPFIND /folder HTTP/1.1\r\nHost: h\r\nDepth: 1\r\n\r\n");
    let members = client.response();
    assert!(members.status == 207 && members.text().contains("/d/one<"), "{}", members.text());
    // What browsers may show to a page depends on the sent header fields.
    client.send("GET /cgi/old HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\n\r\n");
    assert_eq!(client.response().field("access-control-allow-origin"), Some("https://a.example"));
}

/// Refuses everything.
#[derive(Debug)]
struct Closed;

impl Hooks for Closed {
    fn concerns(&self, event: Event, _: &str) -> bool {
        event == Event::Command
    }

    fn call(&self, _: &EventContext) -> HookVerdict {
        HookVerdict::Refuse(Refusal::new("No more."))
    }
}

#[test]
fn a_finished_request_is_answered_without_newly_loaded_hooks() {
    let body = "<propfind xmlns=\"DAV:\"><allprop/></propfind>";
    let length = body.len();
    for (request, status) in [
        (format!("DELETE /a HTTP/1.1\r\nHost: h\r\n{LOGIN}\r\n"), 204),
        (format!("PROPFIND /b HTTP/1.1\r\nHost: h\r\n{LOGIN}Content-Length: {length}\r\n\r\n{body}"), 207),
    ] {
        let storage = FaultStorage::new(MemoryStorage::new());
        storage.inner().insert("/a", "gone").insert("/b", "stays");
        let (faults, storage) = (storage.faults(), Arc::new(storage));
        let config = || http_config(storage.clone());
        let served = serve_http_with(config());
        faults.from(1, Fault::Stuck);
        let mut client = served.connect();
        client.send(request.clone() + "GET /b HTTP/1.1\r\nHost: h\r\n\r\n");
        eventually("it is under way", || faults.stuck() > 0);
        served.running.reload(Config { hooks: Some(Arc::new(Closed)), ..config() }).unwrap();
        faults.release();
        assert_eq!(client.response().status, status, "{request}");
        assert_eq!(client.response().status, 403, "the next one is another");
    }
}
