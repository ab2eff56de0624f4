//! FastCGI applications: what they are told, whose rights hold, and what becomes of answers that are none.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use millrace_http::fastcgi;
use millrace_server::config::{Peer, ProxyRoute, Upstream};
use millrace_server::web::Web;
use millrace_server::{Account, Config, Permissions, Rules};
use millrace_storage::{LocalOptions, LocalStorage};

use super::{People, answer, beneath, fastcgi_at, hear, http_at, read_head, site};
use crate::kit::{Scratch, http_config, https_config, pattern, serve_http_with};

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
    let route =
        ProxyRoute { suffix: Some(".php".to_owned()), root: Some(folder.clone()), ..beneath("/", to) };
    scratch.write("a.php", b"<?php");
    scratch.write("picture.jpg", b"<?php");
    let served = serve_http_with(Config { proxy_routes: vec![route], ..http_config(scratch.storage()) });
    let told = served.get("/a.php/more/x", "").text();
    assert_eq!(told, format!("{}/a.php /more/x", folder.display()));
    assert_eq!(served.get("/a.php/more/", "").text(), format!("{}/a.php /more/", folder.display()));
    assert_eq!(served.get("/a.php/", "").text(), format!("{}/a.php /", folder.display()));
    for target in ["/none.php", "/picture.jpg/x.php", "/a.php.php"] {
        assert_eq!(served.get(target, "").status, 404, "{target}");
    }
    assert_eq!(served.get("/picture.jpg", "").body, b"<?php");
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
    let scripts =
        ProxyRoute { suffix: Some(".php".to_owned()), root: Some(folder.clone()), ..beneath("/", app()) };
    let rules = Rules::new(Permissions::READ_ONLY).tree(b"/secret", Permissions::NONE);
    let home = LocalStorage::open(&scratch.file("home"), LocalOptions::default()).unwrap();
    let people = People(
        Account::ruled(scratch.storage(), rules),
        Account::new(Arc::new(home), Permissions::READ_ONLY),
    );
    let served = serve_http_with(Config {
        proxy_routes: vec![scripts, beneath("/secret/app", app()), beneath("/app", app())],
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
        ProxyRoute {
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

/// As PHP is usually served: `index.php` before `index.html`.
#[test]
fn a_folder_whose_index_is_a_script_is_answered_by_the_application() {
    let scratch = Scratch::new();
    let folder = scratch.path().canonicalize().unwrap();
    let app = fastcgi_at(|mut socket| {
        // A connection that ended behind an answer could end while a POST is on its way by it.
        while let Some(heard) = hear(&mut socket) {
            let names = ["REQUEST_METHOD", "SCRIPT_NAME", "REQUEST_URI", "QUERY_STRING", "PATH_INFO"];
            let said: Vec<String> =
                names.iter().map(|name| heard.variable(name).unwrap_or("-".to_owned())).collect();
            let body = String::from_utf8_lossy(&heard.body).into_owned();
            answer(&mut socket, format!("Content-Type: a/b\r\n\r\n{} {body}", said.join("|")).as_bytes());
        }
    });
    let route = ProxyRoute { suffix: Some(".php".to_owned()), root: Some(folder), ..beneath("/", app) };
    for name in ["blog", "page"] {
        std::fs::create_dir(scratch.file(name)).unwrap();
    }
    scratch.write("blog/index.php", b"<?php secret");
    scratch.write("blog/index.html", b"not this");
    scratch.write("page/index.html", b"a page");
    let index = ["index.php", "index.html"].map(|name| name.as_bytes().to_vec()).to_vec();
    let web = Web { index, ..Web::default() };
    let served = serve_http_with(Config { proxy_routes: vec![route], web, ..https_config(&scratch) });
    let (status, body) = served.connect_http2(&[]).fetch(1, "/blog/?q=1");
    assert_eq!(
        (status, String::from_utf8(body).unwrap()),
        (200, "GET|/blog/index.php|/blog/?q=1|q=1|- ".to_owned())
    );
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
    let unreachable = Upstream::FastCgi(Peer::Unix(scratch.file("none")));
    let route =
        ProxyRoute { suffix: Some(".php".to_owned()), root: Some(folder), ..beneath("/app", unreachable) };
    std::fs::create_dir(scratch.file("app")).unwrap();
    scratch.write("app/a.php", b"<?php secret");
    scratch.write("style.css", b"large enough to be worth a coding");
    std::os::unix::fs::symlink("app/a.php", scratch.file("a.txt")).unwrap();
    std::os::unix::fs::symlink("app/a.php", scratch.file("style.css.gz")).unwrap();
    std::os::unix::fs::symlink("app", scratch.file("other")).unwrap();
    let web = Web { precompressed: true, ..Web::default() };
    let served = serve_http_with(Config { proxy_routes: vec![route], web, ..http_config(scratch.storage()) });
    for target in ["/a.txt", "/other/a.php"] {
        let answer = served.get(target, "");
        assert_eq!((answer.status, answer.text().contains("secret")), (403, false), "{target}");
    }
    let coded = served.get("/style.css", "Accept-Encoding: gzip\r\n");
    assert_eq!((coded.status, coded.field("content-encoding")), (200, None));
}
