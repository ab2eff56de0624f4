//! Pages of directories.

use std::sync::Arc;

use millrace_storage::Archives;

use crate::kit::{Scratch, http_config, pattern, serve_http, serve_http_with};

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
fn a_large_directory_is_streamed_whole() {
    let scratch = Scratch::new();
    scratch.crowd("many", 5000, "a-rather-long-name-");
    let served =
        serve_http_with(millrace_server::Config { sort_entries: 100, ..http_config(scratch.storage()) });
    let count = |text: &str| text.matches("href=\"./a-rather").count();
    let mut client = served.connect();
    for _ in 0..2 {
        let page = client.get("/many/");
        assert_eq!(page.field("transfer-encoding"), Some("chunked"));
        assert_eq!(count(&page.text()), 5000);
        assert!(page.text().ends_with("</html>\n"));
    }
    let old = served.ask("GET /many/ HTTP/1.0\r\n\r\n");
    assert_eq!((old.field("transfer-encoding"), count(&old.text())), (None, 5000));
    let head = served.ask("HEAD /many/ HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(head.field("transfer-encoding"), Some("chunked"));
}

#[test]
fn an_index_that_comes_later_is_served_then() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    assert!(served.get("/", "").text().contains("<pre>"));
    scratch.write("index.html", b"here");
    assert_eq!(served.get("/", "").body, b"here");
    std::fs::remove_file(scratch.file("index.html")).unwrap();
    assert!(served.get("/", "").text().contains("<pre>"));
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
