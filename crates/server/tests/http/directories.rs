//! Pages of directories.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_storage::{Archives, FaultStorage, Faults, LocalOptions, LocalStorage};

use crate::kit::http2::{END_HEADERS, END_STREAM, HEADERS, block, frame, request};
use crate::kit::{PATIENCE, Scratch, http_config, https_config, pattern, serve_http, serve_http_with};

#[test]
fn a_page_links_to_what_is_there() {
    let scratch = Scratch::new();
    scratch.write("b & c.txt", b"12345");
    std::fs::create_dir(scratch.file("a")).unwrap();
    let served = serve_http(scratch.storage());
    let page = served.get("/", "");
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = page.text();
    let (directory, file) =
        (text.find("href=\"./a/\"").unwrap(), text.find("href=\"./b%20%26%20c.txt\"").unwrap());
    assert!(directory < file, "directories come first: {text}");
    assert!(!text.contains("../"), "nothing lies above the root");
    assert!(served.get("/a/", "").text().contains("href=\"../\""));
    assert_eq!(served.get("/b%20%26%20c.txt", "").body, b"12345");
}

/// A page is generated for each request: it has no tag, so any tag is another's (RFC 9110 section 13.1).
#[test]
fn conditions_hold_for_pages() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    for (fields, status) in [
        ("If-None-Match: *\r\n", 304),
        ("If-None-Match: \"x\"\r\n", 200),
        ("If-Match: *\r\n", 200),
        ("If-Match: \"x\"\r\n", 412),
    ] {
        assert_eq!(served.get("/", fields).status, status, "{fields}");
    }
}

#[test]
fn a_page_is_sorted_as_asked_and_json_for_programs() {
    let scratch = Scratch::new();
    scratch.write("a", b"1");
    scratch.write("b", b"");
    let served = serve_http(scratch.storage());
    let json = |query: &str| served.get(&format!("/{query}"), "Accept: application/json\r\n");
    let sorted = json("");
    assert_eq!(sorted.field("content-type"), Some("application/json"));
    assert_eq!(sorted.field("vary"), Some("Accept"));
    assert!(sorted.text().find("\"a\"") < sorted.text().find("\"b\""));
    let text = json("?sort=size").text();
    assert!(text.find("\"a\"") > text.find("\"b\""), "{text}");
    assert!(text.contains("\"size\":1"));
}

#[test]
fn an_answer_that_is_not_sorted_says_so_and_offers_no_order() {
    let scratch = Scratch::new();
    ["a", "b", "c"].iter().for_each(|name| scratch.write(name, b"1"));
    for (sort_entries, sorts_json, sorts_page) in [(0, false, false), (2, false, true), (3, true, true)] {
        let config = millrace_server::Config { sort_entries, ..http_config(scratch.storage()) };
        let served = serve_http_with(config);
        for (fields, is_sorted) in [("", sorts_page), ("Accept: application/json\r\n", sorts_json)] {
            let page = served.get("/?sort=size", fields);
            assert_eq!(
                page.field("x-listing"),
                (!is_sorted).then_some("unsorted"),
                "{sort_entries} {fields}"
            );
        }
        let text = served.get("/", "").text();
        assert_eq!((text.contains("sort="), text.contains("too many")), (sorts_page, !sorts_page), "{text}");
    }
}

#[test]
fn a_large_folder_has_sorted_pages_that_lead_to_one_another() {
    let scratch = Scratch::new();
    ["e", "b", "a", "d", "c"].iter().for_each(|name| scratch.write(name, b"1"));
    let config = millrace_server::Config { sort_entries: 2, ..http_config(scratch.storage()) };
    let served = serve_http_with(config);
    let (mut seen, mut query) = (Vec::new(), Some("?desc".to_owned()));
    while let Some(at) = query.take() {
        let text = served.get(&format!("/{at}"), "").text();
        let rows = text.split("<td><a href=\"./").skip(1);
        seen.push(rows.map(|row| row.split('"').next().unwrap().to_owned()).collect::<Vec<_>>());
        let next =
            text.split_once("<a rel=\"next\" href=\"").map(|(_, rest)| rest.split('"').next().unwrap());
        query = next.map(|next| next.replace("&amp;", "&"));
        assert_eq!(text.matches("Entries ").count(), 2, "{text}");
        assert!(text.contains("of 5") && text.contains("aria-sort=\"descending\""), "{text}");
    }
    assert_eq!(seen, [vec!["e", "d"], vec!["c", "b"], vec!["a"]]);
}

#[test]
fn a_large_directory_is_streamed_whole() {
    let scratch = Scratch::new();
    scratch.crowd("many", 5000, "a-rather-long-name-");
    let served =
        serve_http_with(millrace_server::Config { sort_entries: 100, ..http_config(scratch.storage()) });
    let count = |text: &str| text.matches("\"./a-rather").count();
    let json = "Accept: application/json\r\n";
    for _ in 0..2 {
        let page = served.get("/many/", json);
        assert_eq!(page.field("transfer-encoding"), Some("chunked"));
        assert_eq!(count(&page.text()), 5000);
        assert!(page.text().ends_with("]\n"));
    }
    let old = served.ask(format!("GET /many/ HTTP/1.0\r\n{json}\r\n"));
    assert_eq!((old.field("transfer-encoding"), count(&old.text())), (None, 5000));
    let head = served.ask(format!("HEAD /many/ HTTP/1.1\r\nHost: h\r\n{json}\r\n"));
    assert_eq!(head.field("transfer-encoding"), Some("chunked"));
}

/// A million entries are not to be tested every time; these are more than all buffers on the way hold.
#[test]
fn a_large_directory_is_read_no_further_than_the_client_reads() {
    const ENTRIES: usize = 50_000;
    let scratch = Scratch::in_memory();
    scratch.crowd("many", ENTRIES, &"a-rather-long-name-".repeat(8));
    scratch.write("small", b"here");
    let config = https_config(&scratch);
    let storage = FaultStorage::new(LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap());
    let faults = storage.faults();
    let accounts = http_config(Arc::new(storage)).accounts;
    let served = serve_http_with(millrace_server::Config { accounts, ..config });
    let calls_of = |ask: &mut dyn FnMut()| {
        faults.reset();
        ask();
        faults.calls()
    };
    // As many calls as read all of it: the rows are counted by the way.
    let whole = calls_of(&mut || {
        let page = served.get("/many/", "Accept: application/json\r\n");
        assert_eq!(page.text().matches("\"./a-rather").count(), ENTRIES);
    });
    assert!(whole > 50, "it is read in batches: {whole}");
    for (method, version, fields) in [
        ("GET", "1.1", "Accept: application/json\r\n"),
        ("GET", "1.0", "Accept: application/json\r\n"),
        ("PROPFIND", "1.1", "Depth: 1\r\n"),
    ] {
        faults.reset();
        let mut client = TcpStream::connect(served.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("{method} /many/ HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        client.write_all(head.as_bytes()).unwrap();
        client.read_exact(&mut [0; 12]).unwrap();
        let read = rest_of(&faults);
        assert!(
            read < whole * 2 / 3,
            "{method} {version} {fields}: {read} of {whole} calls for a client that does not read"
        );
        assert_eq!(served.get("/small", "").body, b"here");
    }
    for (method, fields) in [("GET", ("accept", "application/json")), ("PROPFIND", ("depth", "1"))] {
        faults.reset();
        let mut client = served.connect_http2(&[]);
        let block = block(&request(method, "/many/", &[fields]));
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block));
        client.expect(HEADERS, 1);
        // Windows are of 64 KiB, and the buffers between the client and the worker are not much larger.
        let read = rest_of(&faults);
        assert!(read < whole / 4, "{method} by HTTP/2: {read} of {whole} calls");
        assert_eq!(served.connect_http2(&[]).fetch(1, "/small").0, 200);
    }
}

/// How many calls there are when no more follow; while some do, there are fewer than at the end.
fn rest_of(faults: &Faults) -> u64 {
    let (mut calls, mut since) = (faults.calls(), Instant::now());
    while since.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(10));
        if faults.calls() != calls {
            (calls, since) = (faults.calls(), Instant::now());
        }
    }
    calls
}

#[test]
fn an_index_that_comes_later_is_served_then() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    assert!(served.get("/", "").text().contains("<table>"));
    scratch.write("index.html", b"here");
    assert_eq!(served.get("/", "").body, b"here");
    std::fs::remove_file(scratch.file("index.html")).unwrap();
    assert!(served.get("/", "").text().contains("<table>"));
}

#[test]
fn a_folder_is_downloaded_as_an_archive_of_no_known_length() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    scratch.write("d/f", &pattern(200_000));
    let served = serve_http(Arc::new(Archives::new(scratch.storage())));
    let mut client = served.connect();
    for _ in 0..2 {
        let archive = client.get("/d.tar");
        assert_eq!((archive.status, archive.field("transfer-encoding")), (200, Some("chunked")));
        assert_eq!(archive.field("content-type"), Some("application/x-tar"));
        assert!(archive.body.windows(200_000).any(|part| part == pattern(200_000)), "it holds the file");
        assert_eq!(archive.body.len() % 512, 0);
    }
    let old = served.ask("GET /d.tar HTTP/1.0\r\n\r\n");
    assert_eq!((old.status, old.field("transfer-encoding"), old.body.len() % 512), (200, None, 0));
    assert_eq!(served.get("/e.tar", "").status, 404);
}
