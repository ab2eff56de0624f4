//! Files that are no descriptors, files that change, and FTP beside HTTP.

use std::sync::Arc;

use millrace_storage::MemoryStorage;
use millrace_vfs::{Storage, VirtualPath, Wait, WriteMode};

use crate::kit::{
    Client, Scratch, descriptors, eventually, http_config, pattern, serve_http, serve_http_with,
};

#[test]
fn memory_is_served_as_files_are() {
    let storage = Arc::new(MemoryStorage::new());
    let path = VirtualPath::parse(b"/a.txt").unwrap();
    let content = pattern(200_000);
    let mut upload = storage.open_write(&path, WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(&content).unwrap();
    upload.commit().unwrap();
    let served = serve_http(storage);
    let mut client = served.connect();
    assert!(client.get("/a.txt").body == content);
    client.send("GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=1000-1999\r\n\r\n");
    assert!(client.response().body == content[1000..2000]);
    assert!(client.get("/").text().contains("a.txt"));
}

#[test]
fn files_stored_by_ftp_are_served_by_http_at_once() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let mut ftp = Client::connect(served.running.ftp_addresses()[0]);
    ftp.expect_reply(220);
    ftp.log_in("u", "p");
    let mut http = served.connect();
    for round in 0..50_u32 {
        let content = format!("round {round}").into_bytes();
        ftp.store("STOR a", &content);
        assert_eq!(http.get("/a").body, content);
    }
}

#[test]
fn a_removed_file_is_gone_and_its_descriptor_given_back() {
    let scratch = Scratch::new();
    let served = serve_http_with(http_config(scratch.storage()));
    let before = descriptors();
    scratch.write("a", &pattern(100_000));
    assert_eq!(served.get("/a", "").status, 200);
    std::fs::remove_file(scratch.file("a")).unwrap();
    assert_eq!(served.get("/a", "").status, 404);
    eventually("the descriptor is given back", || descriptors() <= before);
}

#[test]
fn an_orderly_end_lets_answers_be_read() {
    let scratch = Scratch::new();
    scratch.write("a", &pattern(20_000_000));
    let served = serve_http(scratch.storage());
    let mut idle = served.connect();
    assert_eq!(idle.get("/nothing").status, 404);
    let mut client = served.connect();
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut first = [0; 1];
    std::io::Read::read_exact(&mut client.stream, &mut first).unwrap();
    served.running.request_shutdown();
    idle.expect_end();
    assert!(client.rest().len() > 20_000_000);
    served.running.wait();
}
