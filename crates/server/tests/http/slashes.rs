//! Names with an encoded slash: they are forwarded as they came, and grant no further access.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use millrace_server::config::ProxyRoute;
use millrace_server::{Account, Config, Permissions, Rules};

use super::passing::{People, answer, beneath, fastcgi_at, hear, http_at, site};
use crate::kit::{Scratch, http_config, serve_http_with};

/// Tells the line that a request began with.
fn echo(mut socket: TcpStream) {
    let mut bytes = [0; 4096];
    let count = socket.read(&mut bytes).unwrap_or(0);
    let line = bytes[..count].split(|&byte| byte == b'\r').next().unwrap_or_default().to_vec();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", line.len());
    let _ = socket.write_all(&[head.as_bytes(), &line].concat());
}

/// Names of projects and packages have slashes in them, which their servers want encoded.
#[test]
fn a_name_with_a_slash_in_it_goes_to_others_as_it_was_sent() {
    let app = || {
        fastcgi_at(|mut socket| {
            let heard = hear(&mut socket).unwrap();
            let told = ["PATH_INFO", "REQUEST_URI"].map(|name| heard.variable(name).unwrap_or_default());
            answer(&mut socket, format!("Content-Type: text/plain\r\n\r\n{}", told.join(" ")).as_bytes());
        })
    };
    let php = ProxyRoute { suffix: Some(".php".to_owned()), ..beneath("/", app()) };
    let (_scratch, served) = site(vec![beneath("/app", http_at(echo)), beneath("/fast", app()), php]);
    for (sent, got) in [
        ("/app/a%2Fb/%3Cc%3E?d=%2F", "GET /app/a%2Fb/%3Cc%3E?d=%2F HTTP/1.1"),
        ("/app/\"<x>\"", "GET /app/%22%3Cx%3E%22 HTTP/1.1"),
        ("/fast/a%2Fb", "/a/b /fast/a%2Fb"),
    ] {
        let answer = served.get(sent, "");
        assert_eq!((answer.status, answer.text().as_str()), (200, got), "{sent}");
    }
    for sent in [
        "/file.txt%2F",
        "/a%2Ffile.txt",
        "/app%2Fa",
        "/app/..%2Ffile.txt",
        "/app/a%2F..%2F..%2Ffile.txt",
        "/app/%2Fa",
        "/x%2Fy.php",
        "/y.php/a%2Fb",
    ] {
        assert_eq!(served.get(sent, "").status, 404, "{sent}");
    }
}

/// For this server it is two names, for the other perhaps one: the user needs the right to read both.
#[test]
fn a_name_with_a_slash_in_it_is_no_way_round_what_may_be_read() {
    let scratch = Scratch::new();
    let rules = Rules::new(Permissions::READ_ONLY)
        .tree(b"/app", Permissions::NONE)
        .tree(b"/app/open", Permissions::READ_ONLY)
        .tree(b"/app/open/shut", Permissions::NONE);
    let carl = Account::ruled(scratch.storage(), rules);
    let no_access = Account::new(scratch.storage(), Permissions::NONE);
    let served = serve_http_with(Config {
        proxy_routes: vec![beneath("/app", http_at(echo))],
        accounts: Arc::new(People(carl, no_access)),
        ..http_config(scratch.storage())
    });
    for (target, status) in [
        ("/app/open/a", 200),
        ("/app/open/a%2Fb", 200),
        ("/app/open%2Fa", 403),
        ("/app/open/shut%2Fa", 403),
        ("/app/open/shut/a%2Fb", 403),
    ] {
        assert_eq!(served.get(target, "Authorization: Basic Y2FybDpw\r\n").status, status, "{target}");
    }
}
