//! What RFC 9110 and RFC 9112 ask of a server of files.

use std::fs::File;
use std::time::{Duration, SystemTime};

use millrace_http::date;

use crate::kit::{Scratch, ServedHttp, pattern, serve_http};

const ALLOW: &str = "GET, HEAD, OPTIONS, PUT, DELETE, MKCOL, MOVE, COPY, \
                     PROPFIND, PROPPATCH, LOCK, UNLOCK";

fn site() -> (Scratch, ServedHttp) {
    let scratch = Scratch::new();
    scratch.write("small.txt", b"0123456789");
    scratch.write("empty", b"");
    scratch.write("large.bin", &pattern(1_000_000));
    std::fs::create_dir(scratch.file("dir")).unwrap();
    scratch.write("dir/index.html", b"<p>index</p>");
    let served = serve_http(scratch.storage());
    (scratch, served)
}

/// Request line and fields; status; a field and its value, where one matters.
type Row = (&'static str, &'static str, u16, Option<(&'static str, &'static str)>);

const TABLE: &[Row] = &[
    ("GET /small.txt", "", 200, Some(("content-type", "text/plain; charset=utf-8"))),
    ("GET /small.txt", "", 200, Some(("content-length", "10"))),
    ("GET /small.txt", "", 200, Some(("accept-ranges", "bytes"))),
    ("GET /empty", "", 200, Some(("content-length", "0"))),
    ("GET /large.bin", "", 200, Some(("content-length", "1000000"))),
    ("GET /nothing", "", 404, None),
    ("GET /small.txt/", "", 404, None),
    ("GET /small.txt/x", "", 404, None),
    ("GET /dir/", "", 200, Some(("content-type", "text/html; charset=utf-8"))),
    ("GET /dir", "", 301, Some(("location", "/dir/"))),
    ("GET //dir", "", 301, Some(("location", "/dir/"))),
    ("GET /dir?a=b", "", 301, Some(("location", "/dir/?a=b"))),
    ("GET /dir/../small.txt", "", 200, None),
    ("GET http://h/small.txt", "", 200, None),
    ("GET /small.txt?query", "", 200, None),
    // Methods: RFC 9110 section 9.
    ("HEAD /small.txt", "", 200, Some(("content-length", "10"))),
    ("HEAD /nothing", "", 404, None),
    ("OPTIONS *", "", 204, Some(("allow", ALLOW))),
    ("OPTIONS /small.txt", "", 204, None),
    ("PATCH /small.txt", "", 501, None),
    ("get /small.txt", "", 501, None),
    ("TRACE /small.txt", "", 501, None),
    // Ranges: section 14.
    ("GET /small.txt", "Range: bytes=0-3", 206, Some(("content-range", "bytes 0-3/10"))),
    ("GET /small.txt", "Range: bytes=-3", 206, Some(("content-range", "bytes 7-9/10"))),
    ("GET /small.txt", "Range: bytes=5-", 206, Some(("content-length", "5"))),
    ("GET /small.txt", "Range: bytes=0-99", 206, Some(("content-range", "bytes 0-9/10"))),
    ("GET /small.txt", "Range: bytes=10-", 416, Some(("content-range", "bytes */10"))),
    ("GET /small.txt", "Range: bytes=5-4", 200, None),
    ("GET /small.txt", "Range: lines=1-2", 200, None),
    ("GET /empty", "Range: bytes=0-", 416, Some(("content-range", "bytes */0"))),
    ("HEAD /small.txt", "Range: bytes=0-3", 200, Some(("content-length", "10"))),
    ("GET /large.bin", "Range: bytes=999990-", 206, Some(("content-range", "bytes 999990-999999/1000000"))),
    ("GET /large.bin", "Range: bytes=100-199999", 206, Some(("content-length", "199900"))),
    // If-Range: section 13.1.5.
    ("GET /small.txt", "Range: bytes=0-3\r\nIf-Range: \"other\"", 200, None),
    ("GET /small.txt", "Range: bytes=0-3\r\nIf-Range: Sun, 06 Nov 1994 08:49:37 GMT", 200, None),
    // Preconditions: section 13.
    ("GET /small.txt", "If-Match: \"other\"", 412, None),
    ("GET /small.txt", "If-Match: *", 200, None),
    ("GET /small.txt", "If-None-Match: *", 304, None),
    ("HEAD /small.txt", "If-None-Match: *", 304, None),
    ("GET /small.txt", "If-None-Match: \"other\"", 200, None),
    ("GET /small.txt", "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT", 304, None),
    ("GET /small.txt", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", 200, None),
    ("GET /small.txt", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT", 412, None),
    ("GET /small.txt", "If-Unmodified-Since: Fri, 31 Dec 2100 23:59:59 GMT", 200, None),
    // A condition on a missing file does not hide that it is missing.
    ("GET /nothing", "If-None-Match: *", 404, None),
    // Expectations that need nothing are no error: section 10.1.1.
    ("GET /small.txt", "Expect: 100-continue", 200, None),
    ("GET /small.txt", "Expect: something-else", 417, None),
    // An unknown field is ignored: section 5.1.
    ("GET /small.txt", "X-Unknown: yes\r\nUpgrade: h2c\r\nTE: trailers", 200, None),
];

#[test]
fn every_row_of_the_table_is_answered_so() {
    let (_scratch, served) = site();
    for (line, fields, status, expected) in TABLE {
        let fields = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
        let response = served.ask(format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        assert_eq!(response.status, *status, "{line} {fields}");
        if let Some((name, value)) = expected {
            assert_eq!(response.field(name), Some(*value), "{line} {fields}");
        }
        assert!(response.field("date").is_some_and(|date| date.len() == 29), "{line}");
        assert_eq!(response.field("server"), Some("Millrace"));
    }
}

#[test]
fn the_whole_table_fits_one_connection() {
    let (_scratch, served) = site();
    let mut client = served.connect();
    for (line, fields, status, _) in TABLE.iter().filter(|(_, _, status, _)| *status != 417) {
        let fields = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
        client.send(format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        assert_eq!(client.response_to(line.starts_with("HEAD")).status, *status, "{line} {fields}");
    }
}

#[test]
fn the_whole_table_may_be_sent_before_the_first_answer_is_read() {
    let (_scratch, served) = site();
    let mut client = served.connect();
    let rows = || TABLE.iter().filter(|(_, _, status, _)| *status != 417);
    let mut requests = String::new();
    for (line, fields, ..) in rows() {
        let fields = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
        requests += &format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    }
    client.send(requests);
    for (line, fields, status, _) in rows() {
        assert_eq!(client.response_to(line.starts_with("HEAD")).status, *status, "{line} {fields}");
    }
}

#[test]
fn bodies_are_the_files() {
    let (_scratch, served) = site();
    let large = pattern(1_000_000);
    assert_eq!(served.get("/small.txt", "").body, b"0123456789");
    assert!(served.get("/large.bin", "").body == large);
    assert_eq!(served.get("/small.txt", "Range: bytes=2-4\r\n").body, b"234");
    assert!(served.get("/large.bin", "Range: bytes=100-199999\r\n").body == large[100..200_000]);
    assert_eq!(served.get("/dir/", "").body, b"<p>index</p>");
}

#[test]
fn head_says_what_get_says() {
    let (_scratch, served) = site();
    for target in ["/small.txt", "/large.bin", "/empty", "/dir/", "/dir", "/nothing", "/"] {
        let fields = |method: &str| {
            let response = served.ask(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
            let mut fields = response.fields;
            fields.retain(|(name, _)| name != "date");
            (response.status, fields)
        };
        assert_eq!(fields("HEAD"), fields("GET"), "{target}");
    }
}

#[test]
fn several_ranges_come_as_parts() {
    let (_scratch, served) = site();
    for (target, content) in [("/small.txt", b"0123456789".to_vec()), ("/large.bin", pattern(1_000_000))] {
        let last = content.len() - 1;
        let ranges = format!("Range: bytes=1-2,{last}-\r\n");
        let response = served.get(target, &ranges);
        // Ten bytes are nearer together than the head of a part is long.
        if content.len() == 10 {
            assert_eq!((response.status, response.field("content-range")), (206, Some("bytes 1-9/10")));
            continue;
        }
        assert_eq!(response.status, 206);
        let boundary =
            response.field("content-type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
        let part = |first: usize, last: usize| {
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {first}-{last}/{}\r\n\r\n",
                content.len()
            );
            [head.as_bytes(), &content[first..=last]].concat()
        };
        let expected =
            [part(1, 2), part(last, last), format!("\r\n--{boundary}--\r\n").into_bytes()].concat();
        assert!(response.body == expected, "{}", response.text());
    }
}

#[test]
fn the_tag_and_the_date_of_an_answer_are_good_for_conditions() {
    let (scratch, served) = site();
    let shift = |name: &str, to: SystemTime| {
        File::options().write(true).open(scratch.file(name)).unwrap().set_modified(to).unwrap();
    };
    for target in ["/small.txt", "/large.bin"] {
        // A date is good for ranges when its second is over.
        shift(&target[1..], SystemTime::now() - Duration::from_secs(1000));
        let first = served.get(target, "");
        let (tag, date) = (first.field("etag").unwrap(), first.field("last-modified").unwrap());
        assert!(tag.starts_with('"'), "strong: {tag}");
        let status = |fields: String| served.get(target, &fields).status;
        assert_eq!(status(format!("If-None-Match: {tag}\r\n")), 304);
        assert_eq!(status(format!("If-Modified-Since: {date}\r\n")), 304);
        assert_eq!(status(format!("If-Match: {tag}\r\n")), 200);
        assert_eq!(status(format!("If-Unmodified-Since: {date}\r\n")), 200);
        assert_eq!(status(format!("Range: bytes=0-0\r\nIf-Range: {tag}\r\n")), 206);
        assert_eq!(status(format!("Range: bytes=0-0\r\nIf-Range: {date}\r\n")), 206);
        assert_eq!(served.get(target, &format!("If-None-Match: {tag}\r\n")).field("etag"), Some(tag));
    }
    let before = served.get("/small.txt", "");
    scratch.write("small.txt", b"something else");
    let after = served.get("/small.txt", "");
    assert_eq!(after.body, b"something else");
    assert_ne!(after.field("etag"), before.field("etag"));
    // A change that is not made yet is not announced.
    shift("small.txt", SystemTime::now() + Duration::from_secs(1_000_000));
    let early = served.get("/small.txt", "");
    let date = |name| date::parse(early.field(name).unwrap().as_bytes()).unwrap();
    assert!(date("last-modified") <= date("date"));
    let tag = early.field("etag").unwrap();
    assert_eq!(served.get("/small.txt", &format!("If-None-Match: {tag}\r\n")).status, 304);
}

#[test]
fn connections_go_on_as_the_version_says() {
    let (_scratch, served) = site();
    for (version, connection, told) in
        [("1.1", "", None), ("1.0", "Connection: Keep-Alive\r\n", Some("Keep-Alive"))]
    {
        let mut client = served.connect();
        for _ in 0..3 {
            client.send(format!("GET /small.txt HTTP/{version}\r\nHost: h\r\n{connection}\r\n"));
            let response = client.response();
            assert_eq!(response.field("connection"), told, "{version}");
            assert_eq!(response.field("content-length"), Some("10"));
        }
    }
    for (version, connection) in [("1.1", "Connection: close\r\n"), ("1.0", "")] {
        for target in ["/small.txt", "/large.bin", "/nothing"] {
            let mut client = served.connect();
            client.send(format!("GET {target} HTTP/{version}\r\nHost: h\r\n{connection}\r\n"));
            assert_eq!(client.response().field("connection"), Some("close"), "{version} {target}");
            client.expect_end();
        }
    }
}

#[test]
fn http_1_0_needs_no_host() {
    let (_scratch, served) = site();
    assert_eq!(served.ask("GET /small.txt HTTP/1.0\r\n\r\n").status, 200);
}
