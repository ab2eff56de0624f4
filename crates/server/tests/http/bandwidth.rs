//! Limits of bandwidth hold for what others answer, and for what they are told, too.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use millrace_server::Config;
use millrace_server::config::{Peer, Programs, ProxyRoute, Upstream};
use millrace_server::limits::{Limit, Limits, ServerLimits};
use millrace_vfs::VirtualPath;

use crate::kit::{PATIENCE, Scratch, http_config, https_config, serve_http_with};

const RATE: u64 = 400_000;

/// Bytes of an answer, and of a body.
const LENGTH: usize = 400_000;

/// Another server: it answers with as many bytes as it was told, and that is how many it reads.
fn listen() -> Peer {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                let (mut read, mut buffer) = (Vec::new(), vec![0; 65_536]);
                while !read.windows(4).any(|part| part == b"\r\n\r\n") {
                    let count = socket.read(&mut buffer).unwrap();
                    read.extend_from_slice(&buffer[..count]);
                }
                let has_body = read.starts_with(b"POST");
                let head = read.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
                let mut left = if has_body { LENGTH - (read.len() - head) } else { 0 };
                while left > 0 {
                    left -= socket.read(&mut buffer).unwrap();
                }
                let body = if has_body { LENGTH.to_string().into_bytes() } else { vec![0; LENGTH] };
                let head =
                    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = socket.write_all(&[head.as_bytes(), &body].concat());
            });
        }
    });
    Peer::Tcp(address)
}

#[test]
fn a_limit_holds_for_programs_and_other_servers_in_both_directions() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("cgi")).unwrap();
    let text = format!(
        "#!/bin/sh\necho 'Content-Type: a/b'; echo\n\
         if [ $REQUEST_METHOD = POST ]; then wc -c; else head -c {LENGTH} /dev/zero; fi\n"
    );
    scratch.write("cgi/both", text.as_bytes());
    std::fs::set_permissions(scratch.file("cgi/both"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = |path: &str| VirtualPath::parse(path.as_bytes()).unwrap();
    let folders = vec![(path("/cgi"), scratch.file("cgi").canonicalize().unwrap())];
    let route =
        ProxyRoute { path: path("/app"), silence: PATIENCE, ..ProxyRoute::new(Upstream::Http(listen())) };
    let rate = Some(Limit::of(RATE));
    let session = Limits { download: rate.clone(), upload: rate, ..Limits::default() };
    let served = serve_http_with(Config {
        programs: Programs { folders, ..Programs::default() },
        proxy_routes: vec![route],
        limits: ServerLimits { session, ..ServerLimits::default() },
        ..http_config(scratch.storage())
    });
    std::thread::scope(|scope| {
        for target in ["/cgi/both", "/app/x"] {
            let served = &served;
            scope.spawn(move || {
                let begin = Instant::now();
                assert_eq!(served.get(target, "").body, vec![0; LENGTH], "{target}");
                assert_held(begin, target);
            });
            scope.spawn(move || {
                let begin = Instant::now();
                let head = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {LENGTH}\r\n\r\n");
                let answer = served.ask([head.as_bytes(), &vec![7; LENGTH]].concat());
                assert_eq!(answer.text().trim(), LENGTH.to_string(), "{target}");
                assert_held(begin, target);
            });
        }
    });
}

#[test]
fn a_limit_holds_for_uploads_in_clear_in_tls_and_in_pieces() {
    let scratch = Scratch::new();
    let session = Limits { upload: Some(Limit::of(RATE)), ..Limits::default() };
    let limits = ServerLimits { session, ..ServerLimits::default() };
    let served = serve_http_with(Config { limits, ..https_config(&scratch) });
    const FIELDS: &str = "Host: h\r\nAuthorization: Basic dTpw\r\n";
    let length = format!("Content-Length: {LENGTH}\r\n\r\n").into_bytes();
    let body = vec![7; LENGTH];
    let chunk = format!("Transfer-Encoding: chunked\r\n\r\n{LENGTH:x}\r\n").into_bytes();
    let bodies = [
        ("length", [&length[..], &body].concat()),
        ("chunks", [&chunk[..], &body, b"\r\n0\r\n\r\n"].concat()),
    ];
    std::thread::scope(|scope| {
        for (framing, body) in &bodies {
            for in_tls in [false, true] {
                let served = &served;
                scope.spawn(move || {
                    let mut client = if in_tls { served.connect_securely() } else { served.connect() };
                    let target = format!("/{framing}-{in_tls}");
                    let begin = Instant::now();
                    let head = format!("PUT {target} HTTP/1.1\r\n{FIELDS}");
                    client.send([head.as_bytes(), body].concat());
                    assert_eq!(client.response().status, 201, "{target}");
                    assert_held(begin, &target);
                    assert!(served.get(&target, "").body == [7; LENGTH], "{target}");
                });
            }
        }
    });
}

/// Asserts that it took its time at this rate, except for the first slice and what is read along with it.
#[track_caller]
fn assert_held(begin: Instant, target: &str) {
    let took = begin.elapsed().as_secs_f64();
    let least = LENGTH as f64 / RATE as f64 - 0.45;
    assert!(took >= least, "{target}: {LENGTH} bytes at {RATE} a second took {took:.2} s");
}
