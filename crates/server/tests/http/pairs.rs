//! The same requests by HTTP/1.1 and by HTTP/2: the same answers.

use std::os::unix::fs::PermissionsExt;

use millrace_server::Config;
use millrace_server::config::{Peer, Programs, ProxyRoute, Upstream};
use millrace_server::web::Web;
use millrace_storage::Archives;
use millrace_vfs::VirtualPath;

use crate::kit::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, Http2Client, block, frame};
use crate::kit::{
    HttpClient, Response, Scratch, ServedHttp, http_config, https_config, pattern, serve_http_with,
};

/// `u:p`.
const USER: (&str, &str) = ("authorization", "Basic dTpw");

struct Request {
    line: &'static str,
    fields: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
}

fn request(line: &'static str, fields: &[(&'static str, &'static str)]) -> Request {
    Request { line, fields: fields.to_vec(), body: Vec::new() }
}

fn with_body(
    line: &'static str,
    fields: &[(&'static str, &'static str)],
    body: impl Into<Vec<u8>>,
) -> Request {
    Request { line, fields: fields.to_vec(), body: body.into() }
}

impl Request {
    fn method_and_path(&self) -> (&str, &str) {
        self.line.split_once(' ').unwrap()
    }

    fn by_http1(&self, client: &mut HttpClient) -> Response {
        let mut text = format!("{} HTTP/1.1\r\nHost: localhost\r\n", self.line);
        self.fields.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        if !self.body.is_empty() {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        client.send([format!("{text}\r\n").as_bytes(), &self.body].concat());
        client.response_to(self.line.starts_with("HEAD "))
    }

    fn by_http2(&self, client: &mut Http2Client, stream: u32) -> Response {
        let (method, path) = self.method_and_path();
        let length = self.body.len().to_string();
        let mut fields = crate::kit::http2::request(method, path, &self.fields);
        if !self.body.is_empty() {
            fields.push(("content-length", &length));
        }
        let ends = if self.body.is_empty() { END_STREAM } else { 0 };
        client.send(frame(HEADERS, END_HEADERS | ends, stream, block(&fields)));
        let last = self.body.chunks(16_000).count();
        for (at, piece) in self.body.chunks(16_000).enumerate() {
            client.send(frame(DATA, if at + 1 == last { END_STREAM } else { 0 }, stream, piece));
        }
        client.response(stream)
    }
}

/// What is the same in both: all but what tells of the connection, and of the moment.
fn comparable(answer: &Response, but: &[&str]) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let of_connections = ["connection", "transfer-encoding", "keep-alive", "date"];
    let mut fields = answer.fields.clone();
    fields.retain(|(name, _)| !of_connections.contains(&&**name) && !but.contains(&&**name));
    fields.sort();
    (answer.status, fields, answer.body.clone())
}

/// Has a server answer by both, each request on a connection that goes on where it may.
#[track_caller]
fn expect_same(http1: &ServedHttp, http2: &ServedHttp, requests: &[Request], but: &[&str]) {
    let mut client = http2.connect_http2(&[]);
    for (at, request) in requests.iter().enumerate() {
        let one = request.by_http1(&mut http1.connect_securely());
        let two = request.by_http2(&mut client, 1 + 2 * at as u32);
        assert_eq!(comparable(&one, but), comparable(&two, but), "{}", request.line);
        assert_ne!(one.status, 500, "{}", request.line);
    }
}

fn program(scratch: &Scratch, name: &str, text: &str) {
    std::fs::create_dir_all(scratch.file("cgi")).unwrap();
    scratch.write(&format!("cgi/{name}"), format!("#!/bin/sh\n{text}\n").as_bytes());
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch.file(&format!("cgi/{name}")), mode).unwrap();
}

#[test]
fn what_is_read_is_the_same() {
    let (scratch, behind) = (Scratch::new(), Scratch::new());
    scratch.write("small", b"here");
    scratch.write("empty", b"");
    scratch.write("middle", &pattern(200_000));
    scratch.write("large", &pattern(3 << 20));
    scratch.write("style.css", &pattern(2_000));
    scratch.write("style.css.gz", b"not really a coding");
    std::fs::create_dir_all(scratch.file("folder/below")).unwrap();
    scratch.write("folder/a", b"a");
    scratch.write("folder/below/b", &pattern(100_000));
    let echo = "echo 'Content-Type: text/plain'; echo; echo \"$REQUEST_METHOD|$PATH_INFO|$QUERY_STRING|$CONTENT_LENGTH\"; cat";
    program(&scratch, "echo", echo);
    program(
        &scratch,
        "many",
        "echo 'Status: 201'; echo 'X-A: b'; echo; for n in 1 2 3 4 5 6 7; do echo \"line $n\"; sleep 0.01; done",
    );
    program(&scratch, "large", "echo 'Content-Type: a/b'; echo; head -c 1000000 /dev/zero");
    program(&scratch, "moved", "echo 'Location: /small'; echo");
    program(&scratch, "nph-raw", "printf 'HTTP/1.1 203 Raw\\r\\nX-Raw: yes\\r\\n\\r\\nraw'");
    program(&scratch, "broken", "echo nothing");
    std::fs::create_dir(behind.file("behind")).unwrap();
    behind.write("behind/there", &pattern(300_000));
    let other = serve_http_with(https_config(&behind));
    let path = VirtualPath::parse(b"/behind").unwrap();
    let route = ProxyRoute { path, ..ProxyRoute::new(Upstream::Http(Peer::Tcp(other.address))) };
    let folder = scratch.file("cgi").canonicalize().unwrap();
    let programs =
        Programs { folders: vec![(VirtualPath::parse(b"/cgi").unwrap(), folder)], ..Programs::default() };
    let web = Web { precompressed: true, ..Web::default() };
    let served =
        serve_http_with(Config { programs, web, proxy_routes: vec![route], ..https_config(&scratch) });
    let requests = [
        request("GET /small", &[]),
        request("HEAD /small", &[]),
        request("GET /empty", &[]),
        request("GET /middle", &[]),
        request("GET /large", &[]),
        request("HEAD /large", &[]),
        request("GET /none", &[]),
        request("GET /small", &[("range", "bytes=1-2")]),
        request("GET /large", &[("range", "bytes=1000000-2999999")]),
        request("GET /small", &[("range", "bytes=9-")]),
        request("GET /small", &[("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT")]),
        request("GET /small", &[("if-match", "\"other\"")]),
        request("GET /style.css", &[("accept-encoding", "gzip")]),
        request("GET /middle", &[("want-repr-digest", "sha-256=1")]),
        request("GET /folder", &[]),
        request("GET /folder/", &[]),
        request("GET /folder/", &[("accept", "application/json")]),
        request("OPTIONS *", &[]),
        request("OPTIONS /small", &[]),
        request("TRACE /small", &[]),
        request("GET /small?query", &[("authorization", "Basic dTp3cm9uZw==")]),
        request("PUT /new", &[("content-length", "0")]),
        request("DELETE /small", &[]),
        request("GET /cgi/echo/a?b", &[]),
        with_body("POST /cgi/echo", &[], pattern(100_000)),
        request("HEAD /cgi/echo", &[]),
        request("GET /cgi/many", &[]),
        request("GET /cgi/large", &[]),
        request("GET /cgi/moved", &[]),
        request("GET /cgi/nph-raw", &[]),
        request("GET /cgi/broken", &[]),
        request("GET /cgi/none", &[]),
        request("GET /behind/there", &[]),
        request("GET /behind/there", &[("range", "bytes=5-9")]),
        request("HEAD /behind/there", &[]),
        request("GET /behind/none", &[]),
        with_body("POST /small", &[USER], "more"),
    ];
    // Only an answer in chunks has no length by HTTP/1.1.
    expect_same(&served, &served, &requests, &["content-length"]);
}

#[test]
fn several_ranges_are_the_same() {
    let scratch = Scratch::new();
    scratch.write("large", &pattern(1 << 20));
    let served = serve_http_with(https_config(&scratch));
    let ranges = request("GET /large", &[("range", "bytes=0-9,100000-199999,-5")]);
    let one = ranges.by_http1(&mut served.connect_securely());
    let two = ranges.by_http2(&mut served.connect_http2(&[]), 1);
    assert_eq!((one.status, one.body.len()), (206, two.body.len()));
    assert_eq!(one.field("content-length"), two.field("content-length"));
    let boundary = |answer: &Response| {
        let media_type = answer.field("content-type").unwrap();
        media_type.strip_prefix("multipart/byteranges; boundary=").unwrap().to_owned()
    };
    let [a, b] = [&one, &two].map(|answer| answer.text().replace(&boundary(answer), "boundary"));
    assert_eq!(a, b);
}

#[test]
fn what_is_changed_is_the_same() {
    let [one, two] = [(); 2].map(|()| {
        let scratch = Scratch::new();
        scratch.write("old", b"old");
        let served = serve_http_with(https_config(&scratch));
        (scratch, served)
    });
    let tus = [USER, ("tus-resumable", "1.0.0")];
    let lock =
        "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";
    let find = "<propfind xmlns='DAV:'><prop><getcontentlength/><resourcetype/></prop></propfind>";
    let requests = [
        with_body("PUT /new", &[USER], pattern(700_000)),
        with_body("PUT /new", &[USER], "shorter"),
        request("GET /new", &[]),
        with_body("PUT /none/new", &[USER], "x"),
        with_body("PUT /new", &[], "x"),
        with_body("PUT /new", &[USER, ("if-none-match", "*")], pattern(300_000)),
        with_body("PUT /new", &[USER, ("content-range", "bytes 0-3/4")], "part"),
        request("MKCOL /folder", &[USER]),
        request("MOVE /new", &[USER, ("destination", "/folder/moved")]),
        request("COPY /folder/", &[USER, ("destination", "/copy/")]),
        with_body("PROPFIND /folder/", &[USER, ("depth", "1")], find),
        with_body("PROPFIND /folder/", &[USER, ("depth", "1")], "<no xml"),
        request("DELETE /copy/", &[USER]),
        with_body("LOCK /none/", &[], lock),
        request("OPTIONS /folder/", &tus),
        request("POST /folder/", &[tus[0], tus[1], ("upload-length", "5")]),
        request("GET /", &[("accept", "application/json"), USER]),
    ];
    expect_same(
        &one.1,
        &two.1,
        &requests,
        &["etag", "last-modified", "location", "upload-expires", "content-length"],
    );
    assert_eq!(one.0.read("folder/moved"), two.0.read("folder/moved"));
    assert!(one.0.read("folder/moved").is_some());
}

/// Its length is known at its end.
#[test]
fn a_body_of_unknown_length_becomes_a_file() {
    let scratch = Scratch::new();
    let served = serve_http_with(https_config(&scratch));
    let mut client = served.connect_http2(&[]);
    let fields = crate::kit::http2::request("PUT", "/up", &[USER]);
    client.send(frame(HEADERS, END_HEADERS, 1, block(&fields)));
    let content = pattern(900_000);
    content.chunks(10_000).for_each(|piece| _ = client.send(frame(DATA, 0, 1, piece)));
    client.send(frame(DATA, END_STREAM, 1, []));
    assert_eq!(client.response(1).status, 201);
    assert!(scratch.read("up") == Some(content));
}

#[test]
fn an_archive_of_a_folder_is_the_same() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("folder")).unwrap();
    scratch.write("folder/a", &pattern(500_000));
    let storage = std::sync::Arc::new(Archives::new(scratch.storage()));
    let secure = https_config(&scratch);
    let served = serve_http_with(Config { https: secure.https, tls: secure.tls, ..http_config(storage) });
    expect_same(
        &served,
        &served,
        &[request("GET /folder.tar", &[]), request("GET /folder.zip", &[])],
        &["content-length"],
    );
}
