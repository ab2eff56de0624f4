//! Settings of answers: precompressed neighbours, header fields, other origins, error pages, digests.

use std::fs::File;
use std::time::{Duration, SystemTime};

use millrace_server::Config;
use millrace_server::hooks::PathPattern;
use millrace_server::web::{Cors, ErrorPage, FieldRule, Fields, Grant, Origin, Types, Web};

use crate::kit::{Response, Scratch, ServedHttp, http_config, pattern, serve_http_with};

fn serve(scratch: &Scratch, web: Web) -> ServedHttp {
    serve_http_with(Config { web, ..http_config(scratch.storage()) })
}

/// A large file and small ones, some with neighbours.
fn compressed() -> (Scratch, ServedHttp) {
    let scratch = Scratch::new();
    scratch.write("a.css", b"body { color: black }");
    scratch.write("a.css.br", b"as-br");
    scratch.write("a.css.zst", b"as-zstd");
    scratch.write("a.css.gz", b"as-gzip");
    scratch.write("plain.txt", b"plain");
    scratch.write("large.js", &pattern(300_000));
    scratch.write("large.js.gz", &pattern(100_000));
    std::fs::create_dir(scratch.file("dir")).unwrap();
    scratch.write("dir/index.html", b"<p>index</p>");
    scratch.write("dir/index.html.gz", b"index-as-gzip");
    std::fs::create_dir(scratch.file("trap.txt.gz")).unwrap();
    scratch.write("trap.txt", b"trap");
    let served = serve(&scratch, Web { precompressed: true, ..Web::default() });
    (scratch, served)
}

fn coding(response: &Response) -> &str {
    response.field("content-encoding").unwrap_or("none")
}

#[test]
fn a_file_comes_in_the_coding_that_the_client_likes_best() {
    let (_scratch, served) = compressed();
    let css = "text/css; charset=utf-8";
    for (target, accepted, expected, body, media_type) in [
        ("/a.css", "", "none", &b"body { color: black }"[..], css),
        ("/a.css", "identity", "none", b"body { color: black }", css),
        ("/a.css", "gzip, deflate, br, zstd", "br", b"as-br", css),
        ("/a.css", "gzip, zstd", "zstd", b"as-zstd", css),
        ("/a.css", "br;q=0.5, gzip", "gzip", b"as-gzip", css),
        ("/a.css", "x-gzip", "gzip", b"as-gzip", css),
        ("/a.css", "br;q=0, gzip;q=0, zstd;q=0", "none", b"body { color: black }", css),
        ("/a.css", "gzip;q=0.5, identity", "none", b"body { color: black }", css),
        ("/plain.txt", "br, gzip", "none", b"plain", "text/plain; charset=utf-8"),
        ("/trap.txt", "gzip", "none", b"trap", "text/plain; charset=utf-8"),
        ("/dir/", "gzip", "gzip", b"index-as-gzip", "text/html; charset=utf-8"),
        // Asked for by its own name it is a file like others.
        ("/a.css.gz", "gzip", "none", b"as-gzip", "application/gzip"),
    ] {
        // Twice: from the disk, and from the cache.
        for _ in 0..2 {
            let response = served.get(target, &format!("Accept-Encoding: {accepted}\r\n"));
            assert_eq!((response.status, coding(&response)), (200, expected), "{target} {accepted}");
            assert_eq!(response.body, body, "{target} {accepted}");
            assert_eq!(response.field("content-type"), Some(media_type), "{target} {accepted}");
            assert_eq!(response.field("vary"), Some("Accept-Encoding"), "{target} {accepted}");
        }
    }
}

#[test]
fn each_coding_has_a_tag_and_ranges_of_its_own() {
    let (_scratch, served) = compressed();
    let gzip = "Accept-Encoding: gzip\r\n";
    let plain = served.get("/large.js", "");
    let coded = served.get("/large.js", gzip);
    assert_eq!((plain.body.len(), coded.body.len()), (300_000, 100_000));
    let tag = |response: &Response| response.field("etag").unwrap().to_owned();
    let (of_plain, of_coded, of_file) = (tag(&plain), tag(&coded), tag(&served.get("/large.js.gz", "")));
    assert!(of_plain != of_coded && of_coded != of_file && of_coded.ends_with("-gzip\""), "{of_coded}");
    for (fields, status, length) in [
        (format!("{gzip}If-None-Match: {of_coded}\r\n"), 304, 0),
        (format!("{gzip}If-None-Match: {of_plain}\r\n"), 200, 100_000),
        (format!("If-None-Match: {of_coded}\r\n"), 200, 300_000),
        (format!("{gzip}Range: bytes=0-9\r\n"), 206, 10),
        (format!("{gzip}Range: bytes=200000-\r\n"), 416, 0),
        (format!("{gzip}Range: bytes=0-9\r\nIf-Range: {of_coded}\r\n"), 206, 10),
        // The rest of another coding would not fit what came of this one.
        (format!("{gzip}Range: bytes=0-9\r\nIf-Range: {of_plain}\r\n"), 200, 100_000),
        (format!("{gzip}Range: bytes=0-9,50000-50009\r\n"), 200, 100_000),
    ] {
        let response = served.get("/large.js", &fields);
        assert_eq!(response.status, status, "{fields}");
        if status != 416 {
            assert_eq!(response.body.len(), length, "{fields}");
            assert_eq!(response.field("vary"), Some("Accept-Encoding"), "{fields}");
        }
        if status == 304 {
            assert_eq!(response.field("etag"), Some(&*of_coded));
        }
    }
    let range = served.get("/large.js", &format!("{gzip}Range: bytes=5-9\r\n"));
    assert_eq!(range.body, pattern(100_000)[5..10]);
    assert_eq!(range.field("content-range"), Some("bytes 5-9/100000"));
    let head = served.ask(format!("HEAD /large.js HTTP/1.1\r\nHost: h\r\n{gzip}\r\n"));
    assert_eq!((head.field("content-length"), coding(&head)), (Some("100000"), "gzip"));
}

#[test]
fn a_neighbour_that_comes_changes_or_is_outdated_is_noticed() {
    let (scratch, served) = compressed();
    let get = || {
        let response = served.get("/plain.txt", "Accept-Encoding: gzip\r\n");
        (coding(&response).to_owned(), response.text())
    };
    let said = |coding: &str, text: &str| (coding.to_owned(), text.to_owned());
    assert_eq!(get(), said("none", "plain"));
    scratch.write("plain.txt.gz", b"first");
    assert_eq!(get(), said("gzip", "first"));
    scratch.write("plain.txt.gz", b"second one");
    assert_eq!(get(), said("gzip", "second one"));
    let of = |name: &str, ago: u64| {
        let file = File::options().write(true).open(scratch.file(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(ago)).unwrap();
    };
    of("plain.txt.gz", 100);
    assert_eq!(get(), said("none", "plain"), "it was made of something older");
    of("plain.txt", 100_000);
    assert_eq!(get(), said("gzip", "second one"));
    std::fs::remove_file(scratch.file("plain.txt.gz")).unwrap();
    assert_eq!(get(), said("none", "plain"));
}

#[test]
fn neighbours_are_files_like_others_by_default() {
    let (scratch, _) = compressed();
    let served = serve(&scratch, Web::default());
    let response = served.get("/a.css", "Accept-Encoding: br\r\n");
    assert_eq!((coding(&response), response.field("vary")), ("none", None));
}

fn rule(paths: &[&str], types: &[&str], fields: &[(&str, &str)]) -> FieldRule {
    FieldRule {
        paths: paths.iter().map(|path| PathPattern::new(path)).collect(),
        types: types.iter().map(|&one| one.to_owned()).collect(),
        fields: fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
    }
}

#[test]
fn fields_are_added_by_path_and_type() {
    let (scratch, _) = compressed();
    let rules = vec![
        rule(&["/a.*"], &[], &[("Cache-Control", "immutable"), ("X-Frame-Options", "")]),
        rule(&[], &["text/*"], &[("Cache-Control", "max-age=60")]),
        rule(&[], &[], &[("X-Everywhere", "yes")]),
    ];
    let served = serve(&scratch, Web { fields: Fields::new(rules, true).unwrap(), ..Web::default() });
    for (target, cache, frame) in [
        ("/a.css", Some("immutable"), None),
        ("/plain.txt", Some("max-age=60"), Some("SAMEORIGIN")),
        ("/large.js.gz", None, Some("SAMEORIGIN")),
        ("/nothing", None, Some("SAMEORIGIN")),
        ("/", None, Some("SAMEORIGIN")),
        ("/dir", None, Some("SAMEORIGIN")),
    ] {
        let response = served.get(target, "");
        assert_eq!(response.field("cache-control"), cache, "{target}");
        assert_eq!(response.field("x-frame-options"), frame, "{target}");
        for (name, value) in [("x-everywhere", "yes"), ("x-content-type-options", "nosniff")] {
            assert_eq!(response.field(name), Some(value), "{target}");
            let times = response.fields.iter().filter(|(field, _)| field == name).count();
            assert_eq!(times, 1, "{target} {name}");
        }
    }
    let not_modified = served.get("/a.css", "If-None-Match: *\r\n");
    assert_eq!((not_modified.status, not_modified.field("cache-control")), (304, Some("immutable")));
    let part = served.get("/a.css", "Range: bytes=0-1\r\n");
    assert_eq!((part.status, part.field("cache-control")), (206, Some("immutable")));
}

#[test]
fn pages_that_we_make_run_no_script() {
    let (scratch, _) = compressed();
    let served = serve(&scratch, Web::default());
    for target in ["/", "/nothing", "/dir"] {
        let policy = served.get(target, "").field("content-security-policy").map(str::to_owned);
        assert!(policy.is_some_and(|policy| policy.starts_with("default-src 'none'")), "{target}");
    }
    assert_eq!(served.get("/plain.txt", "").field("content-security-policy"), None);
}

fn cors(origins: &[&str], credentials: bool) -> Web {
    let grant = Grant {
        origins: origins.iter().map(|origin| Origin::parse(origin).unwrap()).collect(),
        methods: vec!["GET".to_owned(), "PUT".to_owned()],
        request_fields: vec!["Content-Type".to_owned()],
        exposed: vec!["ETag".to_owned()],
        credentials,
        max_age: 600,
    };
    Web { cors: vec![Cors { paths: vec![PathPattern::new("/**")], grant }], ..Web::default() }
}

#[test]
fn pages_of_granted_origins_may_read_every_answer_and_ask_without_a_login() {
    let (scratch, _) = compressed();
    let config = http_config(scratch.storage());
    let served =
        serve_http_with(Config { anonymous: false, web: cors(&["https://app.example"], true), ..config });
    let app = "Origin: https://app.example\r\n";
    let preflight =
        format!("OPTIONS /new HTTP/1.1\r\nHost: h\r\n{app}Access-Control-Request-Method: PUT\r\n\r\n");
    let response = served.ask(&preflight);
    assert_eq!((response.status, response.field("access-control-allow-methods")), (204, Some("GET, PUT")));
    assert_eq!(response.field("access-control-allow-credentials"), Some("true"));
    assert_eq!(served.ask(preflight.replace("app", "evil")).field("access-control-allow-origin"), None);

    // Its body, where it has one, is not taken for a request.
    let smuggled = preflight
        .replace("OPTIONS /new", "OPTIONS /plain.txt")
        .replace("\r\n\r\n", "\r\nContent-Length: 38\r\n\r\nGET /plain.txt HTTP/1.1\r\nHost: inner\r\n");
    let mut client = served.connect();
    client.send(&smuggled);
    let response = client.response();
    assert_eq!((response.status, response.field("connection")), (204, Some("close")));
    client.expect_end();

    // Also for 401 and 404.
    let login = "Authorization: Basic dTpw\r\n";
    let mut client = served.connect();
    for (request, status) in [
        (format!("GET /plain.txt HTTP/1.1\r\nHost: h\r\n{app}"), 401),
        (format!("GET /plain.txt HTTP/1.1\r\nHost: h\r\n{app}{login}"), 200),
        (format!("GET /nothing HTTP/1.1\r\nHost: h\r\n{app}{login}"), 404),
        (format!("GET / HTTP/1.1\r\nHost: h\r\n{app}{login}"), 200),
        (format!("PUT /new HTTP/1.1\r\nHost: h\r\n{app}{login}Content-Length: 0\r\n"), 201),
    ] {
        client.send(format!("{request}\r\n"));
        let response = client.response();
        assert_eq!(response.status, status, "{request}");
        let origin = response.field("access-control-allow-origin");
        assert_eq!(origin, Some("https://app.example"), "{request}");
    }
    // What one request's answer says is not said to the next.
    client.send(format!("GET /plain.txt HTTP/1.1\r\nHost: h\r\nOrigin: https://evil.example\r\n{login}\r\n"));
    let response = client.response();
    assert_eq!((response.status, response.field("access-control-allow-origin")), (200, None));
    assert_eq!(response.field("vary"), Some("Origin"));
}

#[test]
fn errors_have_the_page_that_was_made_for_them() {
    let (scratch, _) = compressed();
    let page = |statuses: &[u16], paths: &[&str], name: &str, body: &str| {
        let paths = paths.iter().map(|path| PathPattern::new(path)).collect();
        let media_type = Types::default().of(name.as_bytes());
        ErrorPage::new(statuses.to_vec(), paths, media_type, body.as_bytes().to_vec())
    };
    let error_pages = vec![
        page(&[404], &["/api/**"], "e.json", "{}"),
        page(&[404, 403], &[], "e.html", "gone"),
        page(&[], &["/dir/**"], "e.txt", "any"),
    ];
    let served = serve(&scratch, Web { error_pages, ..Web::default() });
    for (request, status, body, media_type) in [
        ("GET /api/x HTTP/1.1", 404, Some("{}"), "application/json"),
        ("GET /nothing HTTP/1.1", 404, Some("gone"), "text/html; charset=utf-8"),
        ("POST /dir/x HTTP/1.1", 405, Some("any"), "text/plain; charset=utf-8"),
        ("POST /x HTTP/1.1", 405, None, "text/html; charset=utf-8"),
        // What cannot be understood is at no path.
        ("GET /dir/%00 HTTP/1.1", 400, None, "text/html; charset=utf-8"),
        ("GET /dir HTTP/1.1", 301, None, "text/html; charset=utf-8"),
    ] {
        let response = served.ask(format!("{request}\r\nHost: h\r\n\r\n"));
        assert_eq!(
            (response.status, response.field("content-type")),
            (status, Some(media_type)),
            "{request}"
        );
        match body {
            Some(body) => assert_eq!(response.text(), body, "{request}"),
            None => assert!(response.text().contains("<h1>"), "{request}"),
        }
    }
    let head = served.ask("HEAD /nothing HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((head.status, head.field("content-length")), (404, Some("4")));
    assert_eq!(served.ask("BAD\r\n\r\n").status, 400);
}

#[test]
fn a_digest_is_that_of_the_whole_whatever_part_is_sent() {
    let scratch = Scratch::new();
    scratch.write("small.txt", b"hello\n");
    scratch.write("large.bin", &pattern(300_000));
    scratch.write("larger.bin", &pattern(300_001));
    let served = serve(&scratch, Web { digest_bytes: 300_000, ..Web::default() });
    let hello = "sha-256=:WJG1tSLV3whtD/CxEPvZ0hu0/HFjrzTQgoai6Eb2vgM=:";
    let digest = |target: &str, fields: &str| {
        let response = served.get(target, fields);
        (response.status, response.field("repr-digest").map(str::to_owned))
    };
    let want = "Want-Repr-Digest: sha-256=5\r\n";
    assert_eq!(digest("/small.txt", ""), (200, None));
    assert_eq!(digest("/small.txt", want), (200, Some(hello.to_owned())));
    assert_eq!(digest("/small.txt", &format!("{want}Range: bytes=0-1\r\n")), (206, Some(hello.to_owned())));
    let parts = format!("{want}Range: bytes=0-0,-1\r\n");
    assert_eq!(digest("/large.bin", &parts).0, 206);
    assert!(digest("/large.bin", &parts).1.is_some_and(|digest| digest.len() == 54), "of several parts too");
    let (_, of_large) = digest("/large.bin", want);
    let of_large = of_large.expect("it is found out");
    assert!(of_large.starts_with("sha-256=:") && of_large.len() == 54, "{of_large}");
    assert_eq!(digest("/large.bin", &format!("{want}Range: bytes=5-9\r\n")), (206, Some(of_large.clone())));
    let longer = digest("/large.bin", "Want-Repr-Digest: sha-512=9, sha-256=1\r\n").1;
    assert!(longer.is_some_and(|digest| digest.starts_with("sha-512=:") && digest.len() == 98));
    assert_eq!(digest("/larger.bin", want), (200, None));
    let head = served.ask(format!("HEAD /large.bin HTTP/1.1\r\nHost: h\r\n{want}\r\n"));
    assert_eq!(head.field("repr-digest"), Some(&*of_large));
    scratch.write("large.bin", &pattern(299_999));
    assert_ne!(digest("/large.bin", want).1, Some(of_large));
}
