//! Requests that change files.

use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;

use millrace_server::{Accounts, Config, Permission, Permissions};
use millrace_storage::{Folders, MemoryStorage};
use millrace_vfs::{Storage, VirtualPath};

use crate::kit::{HttpClient, Response, Scratch, ServedHttp, eventually, http_config, pattern};
use crate::kit::{serve_http, serve_http_with};

/// `u:p`.
const USER: &str = "Authorization: Basic dTpw\r\n";

fn ask(served: &ServedHttp, line: &str, fields: &str, body: &[u8]) -> Response {
    let mut client = served.connect();
    request(&mut client, line, fields, body);
    client.response()
}

fn request(client: &mut HttpClient, line: &str, fields: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: h\r\n{USER}{fields}Content-Length: {length}\r\n\r\n");
    client.send([head.as_bytes(), body].concat());
}

#[test]
fn a_file_is_put_replaced_and_removed() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let made = ask(&served, "PUT /a", "", b"one");
    assert_eq!((made.status, scratch.read("a").unwrap()), (201, b"one".to_vec()));
    let tag = served.get("/a", "").field("etag").map(str::to_owned);
    assert_eq!(made.field("etag").map(str::to_owned), tag);
    assert_eq!(ask(&served, "PUT /a", "", b"").status, 204);
    assert_eq!(scratch.read("a").unwrap(), b"");
    assert_eq!(ask(&served, "DELETE /a", "", b"").status, 204);
    assert_eq!(scratch.read("a"), None);
    assert_eq!(ask(&served, "DELETE /a", "", b"").status, 404);
}

#[test]
fn a_file_of_unknown_length_replaces_none() {
    let scratch = Scratch::new();
    scratch.write("a", b"one");
    let served = serve_http(scratch.storage());
    for version in ["1.0", "1.1"] {
        let mut client = served.connect();
        client.send(format!("PUT /a HTTP/{version}\r\nHost: h\r\n{USER}\r\ntwo"));
        client.end_writing();
        assert_eq!(client.response().status, 411);
        client.expect_end();
        assert_eq!(scratch.read("a").unwrap(), b"one");
    }
}

#[test]
fn bodies_of_any_size_and_framing_arrive_whole_and_requests_follow_them() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let mut client = served.connect();
    for size in [1, 65_535, 300_000, 3_000_000] {
        let content = pattern(size);
        request(&mut client, &format!("PUT /{size}"), "", &content);
        let chunks: Vec<u8> = content
            .chunks(70_001)
            .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
            .collect();
        client.send(format!(
            "PUT /chunked{size} HTTP/1.1\r\nHost: h\r\n{USER}Transfer-Encoding: chunked\r\n\r\n"
        ));
        client.send([&chunks[..], b"0\r\n\r\nGET /1 HTTP/1.1\r\nHost: h\r\n\r\n"].concat());
        assert_eq!((client.response().status, client.response().status), (201, 201));
        assert_eq!(client.response().body, pattern(1));
        assert!(scratch.read(&size.to_string()).unwrap() == content);
        assert!(scratch.read(&format!("chunked{size}")).unwrap() == content);
    }
}

#[test]
fn a_client_that_asks_first_is_told_to_send_or_why_not() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let mut client = served.connect();
    let expecting = "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    client.send(format!("PUT /a HTTP/1.1\r\nHost: h\r\n{USER}{expecting}"));
    assert_eq!(client.response().status, 100);
    client.send("abc");
    assert_eq!(client.response().status, 201);
    client.send(format!("PUT /a HTTP/1.1\r\nHost: h\r\n{expecting}"));
    let refused = client.response();
    assert_eq!((refused.status, refused.field("connection")), (401, Some("close")));
    client.expect_end();
}

#[test]
fn a_cut_upload_leaves_what_was_there() {
    let scratch = Scratch::new();
    scratch.write("a", b"old");
    let served = serve_http(scratch.storage());
    for length in [10, 1_000_000] {
        let mut client = served.connect();
        client.send(format!("PUT /a HTTP/1.1\r\nHost: h\r\n{USER}Content-Length: {length}\r\n\r\n"));
        client.send(vec![b'x'; length - 1]);
        client.stream.shutdown(Shutdown::Both).unwrap();
    }
    eventually("the staged files are gone", || scratch.names() == ["a"]);
    assert_eq!(scratch.read("a").unwrap(), b"old");
}

#[test]
fn an_upload_is_resumed_where_the_file_ends() {
    let scratch = Scratch::new();
    scratch.write("a", b"01234");
    let served = serve_http(scratch.storage());
    let put = |range: &str, body: &[u8]| {
        ask(&served, "PUT /a", &format!("Content-Range: bytes {range}\r\n"), body).status
    };
    assert_eq!(put("9-9/10", b"9"), 416, "a gap");
    assert_eq!(put("5-9/10", b"567"), 400, "another length");
    assert_eq!(put("5-9", b"56789"), 400);
    assert_eq!(put("5-9/10", b"56789"), 204);
    assert_eq!(scratch.read("a").unwrap(), b"0123456789");
    assert_eq!(put("2-3/*", b"xy"), 204);
    assert_eq!(scratch.read("a").unwrap(), b"01xy456789");
}

#[test]
fn in_place_an_upload_that_another_took_over_is_423() {
    let scratch = Scratch::new();
    scratch.write("a", b"old");
    let served = serve_http(scratch.in_place());
    let mut first = served.connect();
    first.send(format!("PUT /a HTTP/1.1\r\nHost: h\r\n{USER}Content-Length: 2000000\r\n\r\n"));
    first.send(vec![b'1'; 1_000_000]);
    eventually("most of it is written", || scratch.read("a").unwrap().len() > 500_000);
    assert_eq!(ask(&served, "PUT /a", "", b"of the second").status, 204);
    first.send(vec![b'1'; 1_000_000]);
    assert_eq!(first.response().status, 423);
    assert_eq!(scratch.read("a").unwrap(), b"of the second");
    assert_eq!(ask(&served, "PUT /a", "", b"again").status, 204);
}

#[test]
fn conditions_keep_from_overwriting() {
    let scratch = Scratch::new();
    scratch.write("a", b"old");
    let served = serve_http(scratch.storage());
    assert_eq!(ask(&served, "PUT /a", "If-None-Match: *\r\n", b"new").status, 412);
    assert_eq!(ask(&served, "PUT /a", "If-Match: \"x\"\r\n", b"new").status, 412);
    assert_eq!(ask(&served, "DELETE /a", "If-Match: \"x\"\r\n", b"").status, 412);
    assert_eq!(scratch.read("a").unwrap(), b"old");
    let tag = served.get("/a", "").field("etag").unwrap().to_owned();
    assert_eq!(ask(&served, "PUT /a", &format!("If-Match: {tag}\r\n"), b"new").status, 204);
    assert_eq!(ask(&served, "PUT /a", &format!("If-Match: {tag}\r\n"), b"newer").status, 412);
    assert_eq!(ask(&served, "PUT /b", "If-None-Match: *\r\n", b"new").status, 201);
    assert_eq!(ask(&served, "MKCOL /d", "If-Match: \"x\"\r\n", b"").status, 412);
    assert_eq!(ask(&served, "MKCOL /d", "If-None-Match: *\r\n", b"").status, 201);
    assert_eq!(ask(&served, "MKCOL /d", "If-None-Match: *\r\n", b"").status, 405, "it is there");
}

/// Where two editors name the same tag, one is too late, whichever began first (RFC 9110 section 13.1.1).
#[test]
fn conditions_hold_when_the_file_takes_its_name() {
    let scratch = Scratch::new();
    scratch.write("a", b"old");
    let served = serve_http(scratch.storage());
    let tag = served.get("/a", "").field("etag").unwrap().to_owned();
    let begin = |path: &str, fields: &str| {
        let mut client = served.connect();
        client.send(format!(
            "PUT {path} HTTP/1.1\r\nHost: h\r\n{USER}{fields}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        ));
        assert_eq!(client.response().status, 100);
        client
    };
    let matches = format!("If-Match: {tag}\r\n");
    let mut clients: Vec<_> = (0..8).map(|_| begin("/a", &matches)).collect();
    clients.iter_mut().for_each(|client| client.send("mine"));
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.response().status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 204).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 412).count(), 7, "{statuses:?}");
    // Those who were too late may go on by the same connection.
    for client in &mut clients {
        assert_eq!(client.get("/a").body, b"mine");
    }
    let mut late = begin("/b", "If-None-Match: *\r\n");
    assert_eq!(ask(&served, "PUT /b", "", b"first").status, 201);
    late.send("late");
    assert_eq!((late.response().status, scratch.read("b").unwrap()), (412, b"first".to_vec()));
    let mut moved = begin("/c", "");
    std::fs::create_dir(scratch.file("c")).unwrap();
    moved.send("file");
    assert_eq!(moved.response().status, 409);
    assert_eq!(scratch.names(), ["a", "b", "c"]);
}

#[test]
fn a_name_with_a_slash_is_a_folder_s() {
    let scratch = Scratch::new();
    scratch.write("f", b"file");
    std::fs::create_dir(scratch.file("d")).unwrap();
    let served = serve_http(scratch.storage());
    for (line, to, status) in [
        ("GET /f/", "", 404),
        ("DELETE /f/", "", 404),
        ("MOVE /f/", "/g", 404),
        ("COPY /f/", "/g", 404),
        ("MOVE /f", "/g/", 409),
        ("COPY /f", "/g/", 409),
        ("MOVE /d/", "/e", 201),
        ("COPY /e", "/d/", 201),
    ] {
        let status_now = ask(&served, line, &format!("Destination: {to}\r\n"), b"").status;
        assert_eq!(status_now, status, "{line} to {to}");
    }
    assert_eq!(scratch.names(), ["d", "e", "f"]);
}

#[test]
fn a_destination_is_on_this_server() {
    let scratch = Scratch::new();
    scratch.write("a", b"a");
    let served = serve_http(scratch.storage());
    let copy = |line: &str, host: &str, to: &str| {
        served.ask(format!("COPY {line}\r\n{host}{USER}Destination: {to}\r\n\r\n")).status
    };
    for (line, host, to, status) in [
        ("/a HTTP/1.1", "Host: h\r\n", "http://h:80/b", 201),
        ("/a HTTP/1.1", "Host: h:80\r\n", "http://H/b", 204),
        ("/a HTTP/1.1", "Host: h:8080\r\n", "http://h/b", 502),
        ("http://i/a HTTP/1.1", "Host: h\r\n", "http://i/b", 204),
        ("http://i/a HTTP/1.1", "Host: h\r\n", "http://h/b", 502),
        ("/a HTTP/1.0", "", "http://h/b", 502),
        ("/a HTTP/1.0", "", "/b", 204),
    ] {
        assert_eq!(copy(line, host, to), status, "{line} {host} to {to}");
    }
}

#[test]
fn directories_are_made_moved_copied_and_removed() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let make = |path: &str| ask(&served, &format!("MKCOL {path}"), "", b"").status;
    let transfer = |method: &str, from: &str, to: &str, fields: &str| {
        ask(&served, &format!("{method} {from}"), &format!("Destination: {to}\r\n{fields}"), b"").status
    };
    assert_eq!((make("/d"), make("/d/"), make("/x/y")), (201, 405, 409));
    assert_eq!(ask(&served, "MKCOL /e", "", b"body").status, 415);
    assert_eq!(ask(&served, "PUT /d", "", b"").status, 409, "a directory is not replaced by a file");
    assert_eq!(ask(&served, "PUT /x/y", "", b"").status, 409, "directories are not made on the way");
    assert_eq!(ask(&served, "PUT /d/f", "", b"file").status, 201);
    assert_eq!(transfer("COPY", "/d", "/e", ""), 201);
    assert_eq!(transfer("COPY", "/d", "http://h/g", "Depth: 0\r\n"), 201);
    assert_eq!(scratch.names(), ["d", "d/f", "e", "e/f", "g"]);
    assert_eq!(transfer("MOVE", "/e/f", "/g/h%20i", ""), 201);
    assert_eq!(transfer("MOVE", "/g/h%20i", "/d/f", "Overwrite: F\r\n"), 412);
    assert_eq!(transfer("MOVE", "/g/h%20i", "/d/f", ""), 204);
    assert_eq!(transfer("MOVE", "/d", "/e", ""), 204, "with all that was there");
    assert_eq!(scratch.names(), ["e", "e/f", "g"]);
    for (from, to, status) in [
        ("/e", "/e/inside", 403),
        ("/e/f", "/e", 403),
        ("/e", "/e", 403),
        ("/nothing", "/n", 404),
        ("/e/f", "/x/f", 409),
        ("/e/f", "http://elsewhere/f", 502),
        ("/e/f", "/../f", 400),
    ] {
        assert_eq!(transfer("MOVE", from, to, ""), status, "{from} to {to}");
        assert_eq!(transfer("COPY", from, to, ""), status, "{from} to {to}");
    }
    assert_eq!(ask(&served, "MOVE /e", "", b"").status, 400, "no Destination");
    assert_eq!(ask(&served, "DELETE /", "", b"").status, 403);
    assert_eq!(ask(&served, "DELETE /e/", "", b"").status, 204);
    assert_eq!(scratch.names(), ["g"]);
}

#[test]
fn rights_decide() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    scratch.write("a", b"old");
    let accounts = Accounts::new().user("u", "p", Permissions::READ_ONLY, scratch.storage());
    let read_only = Config { accounts: Arc::new(accounts), ..http_config(scratch.storage()) };
    let served = serve_http_with(read_only);
    for line in ["PUT /a", "PUT /b", "DELETE /a", "DELETE /d", "MKCOL /e", "MOVE /a", "COPY /a"] {
        assert_eq!(ask(&served, line, "Destination: /z\r\n", b"").status, 403, "{line}");
    }
    // Anonymous may read, and is asked who it is.
    let open = serve_http(scratch.storage());
    let anonymous = open.ask("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nnew");
    assert_eq!(anonymous.status, 401);
    assert_eq!(scratch.names(), ["a", "d"]);
    assert_eq!(scratch.read("a").unwrap(), b"old");
}

/// A copy shows the content to users that may read the other name.
#[test]
fn a_copy_needs_the_right_to_read() {
    let scratch = Scratch::new();
    scratch.write("a", b"secret");
    let permissions = Permissions::READ_WRITE.without(Permission::Read);
    let accounts = Accounts::new().user("u", "p", permissions, scratch.storage());
    let served = serve_http_with(Config { accounts: Arc::new(accounts), ..http_config(scratch.storage()) });
    assert_eq!(ask(&served, "COPY /a", "Destination: /b\r\n", b"").status, 403);
    assert_eq!(ask(&served, "MOVE /a", "Destination: /b\r\n", b"").status, 201);
}

#[test]
fn any_storage_is_written_to() {
    let served = serve_http(Arc::new(MemoryStorage::new()));
    assert_eq!(ask(&served, "PUT /a", "", &pattern(100_000)).status, 201);
    assert_eq!(ask(&served, "COPY /a", "Destination: /b\r\n", b"").status, 201);
    assert!(served.get("/b", "").body == pattern(100_000));
}

/// Whatever keeps the new one from its place, the old one is not lost; RFC 4918 sections 9.8.5, 9.9.4.
#[test]
fn a_refused_copy_or_move_leaves_its_destination() {
    use std::os::unix::fs::symlink;

    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("old")).unwrap();
    std::fs::create_dir(scratch.file("tree")).unwrap();
    scratch.write("old/precious", b"p");
    scratch.write("tree/a", b"a");
    scratch.write("file", b"f");
    symlink("/etc/hostname", scratch.file("out")).unwrap();
    symlink("tree", scratch.file("link")).unwrap();
    symlink("/nowhere", scratch.file("tree/dangling")).unwrap();
    let other = MemoryStorage::new();
    other.make_directory(&VirtualPath::parse(b"/dir").unwrap()).unwrap();
    let at = VirtualPath::parse(b"/other").unwrap();
    let storage = Arc::new(Folders::new(scratch.storage()).mount(at, Arc::new(other)));
    let served = serve_http(storage);
    let before = scratch.names();
    for (line, status) in [
        ("COPY /out", 403),
        ("COPY /link", 409),
        ("COPY /tree", 403),
        ("MOVE /other/dir", 403),
        ("COPY /nothing", 404),
    ] {
        let refused = ask(&served, line, "Destination: /old\r\n", b"");
        assert_eq!((refused.status, scratch.names()), (status, before.clone()), "{line}: {}", refused.text());
    }
    assert_eq!(scratch.read("old/precious").unwrap(), b"p");
    // A folder in the place of a file, and the other way round.
    assert_eq!(ask(&served, "MOVE /other/dir", "Destination: /file\r\n", b"").status, 403);
    assert_eq!(scratch.read("file").unwrap(), b"f");
    std::fs::remove_file(scratch.file("tree/dangling")).unwrap();
    assert_eq!(ask(&served, "COPY /tree", "Destination: /old\r\n", b"").status, 204);
    assert_eq!(scratch.names(), ["file", "link", "old", "old/a", "out", "tree", "tree/a"]);
}

#[test]
fn a_folder_is_copied_but_for_what_cannot_be_and_that_is_named() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.file("d/sub")).unwrap();
    for name in ["d/a", "d/z", "d/sub/b"] {
        scratch.write(name, b"x");
    }
    for name in ["d/m", "d/sub/m & n"] {
        std::os::unix::fs::symlink("/nowhere", scratch.file(name)).unwrap();
    }
    // A link to a folder is shown as one, and may lead back up.
    std::os::unix::fs::symlink("..", scratch.file("d/sub/up")).unwrap();
    let served = serve_http(scratch.storage());
    let partly = ask(&served, "COPY /d", "Destination: /e\r\n", b"");
    assert_eq!(partly.status, 207);
    let text = partly.text();
    assert_eq!(text.matches("<D:response>").count(), 3, "{text}");
    for name in ["/d/m", "/d/sub/m%20%26%20n", "/d/sub/up/"] {
        let named = format!("<D:href>{name}</D:href><D:status>HTTP/1.1 403 Forbidden</D:status>");
        assert!(text.contains(&named), "{name} in {text}");
    }
    for name in ["e/a", "e/z", "e/sub/b"] {
        assert_eq!(scratch.read(name).unwrap(), b"x", "{name}");
    }
}

/// By its names the one does not lie in the other; by a link on the way it does.
#[test]
fn a_folder_is_not_copied_into_itself_by_another_name() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.file("a/sub/deep")).unwrap();
    scratch.write("a/sub/f", b"file");
    std::os::unix::fs::symlink("a", scratch.file("link")).unwrap();
    let served = serve_http(scratch.storage());
    assert_eq!(ask(&served, "COPY /a", "Destination: /link/sub/b\r\n", b"").status, 201);
    let names = [
        "a",
        "a/sub",
        "a/sub/b",
        "a/sub/b/sub",
        "a/sub/b/sub/deep",
        "a/sub/b/sub/f",
        "a/sub/deep",
        "a/sub/f",
        "link",
    ];
    assert_eq!(scratch.names(), names);
}

/// Names of 4 KiB bound how deep a tree is, nothing else.
#[test]
fn deep_folders_are_copied_and_removed_whole() {
    let scratch = Scratch::new();
    let deep = format!("d{}", "/x".repeat(300));
    std::fs::create_dir_all(scratch.file(&deep)).unwrap();
    scratch.write(&format!("{deep}/leaf"), b"leaf");
    let served = serve_http(scratch.storage());
    assert_eq!(ask(&served, "COPY /d", "Destination: /e\r\n", b"").status, 201);
    assert_eq!(scratch.read(&format!("e{}/leaf", "/x".repeat(300))).unwrap(), b"leaf");
    assert_eq!(ask(&served, "DELETE /d", "", b"").status, 204);
    assert_eq!(ask(&served, "DELETE /e", "", b"").status, 204);
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn a_user_that_may_only_append_cannot_overwrite() {
    let scratch = Scratch::new();
    scratch.write("a", b"01234");
    let permissions = Permissions::READ_WRITE.without(Permission::Overwrite);
    let accounts = Accounts::new().user("u", "p", permissions, scratch.storage());
    let served = serve_http_with(Config { accounts: Arc::new(accounts), ..http_config(scratch.storage()) });
    let put = |range: &str, body: &[u8]| {
        ask(&served, "PUT /a", &format!("Content-Range: bytes {range}\r\n"), body).status
    };
    assert_eq!((put("0-4/5", b"xxxxx"), put("4-5/6", b"xx")), (403, 403));
    assert_eq!(scratch.read("a").unwrap(), b"01234");
    assert_eq!(put("5-6/7", b"56"), 204);
    assert_eq!(scratch.read("a").unwrap(), b"0123456");
}

/// Many programs read the answer when they have sent all: what the server left unread of that would reset it.
#[test]
fn a_client_that_sends_a_large_body_gets_the_refusal() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let mut client = served.connect();
    let length = 30_000_000;
    let head = format!("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
    client.stream.write_all(head.as_bytes()).unwrap();
    let piece = pattern(1_000_000);
    for _ in 0..length / piece.len() {
        client.stream.write_all(&piece).unwrap();
    }
    assert_eq!(client.response().status, 401);
    assert_eq!(scratch.read("a"), None);
}
