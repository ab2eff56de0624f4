//! NcFTP: `ncftpput`, `ncftpget` and their kin, from a time before MLSD.

use std::fs;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::tool;
use crate::tree::{Times, assert_same, make, noise};

/// Names that NcFTP itself does not trip over: it takes patterns, and a leading blank, for its own.
const NAMES: [&str; 6] =
    ["with space", "single'quote", "grüße-日本語.txt", ".hidden", "#hash", "semi;type=a"];

fn login(server: &Server) -> Vec<String> {
    let port = server.address.port().to_string();
    ["-V", "-u", USER, "-p", PASSWORD, "-P", &port].map(str::to_owned).into()
}

fn arguments<'a>(login: &'a [String], rest: &[&'a str]) -> Vec<&'a str> {
    login.iter().map(String::as_str).chain(rest.iter().copied()).collect()
}

#[test]
fn ncftp_moves_a_tree_both_ways() {
    let (Some(put), Some(get)) = (tool("ncftpput"), tool("ncftpget")) else { return };
    for mode in ["-F", "-E"] {
        let server = Server::start();
        let login = login(&server);
        make(&server.local().join("tree"), 100, &NAMES);
        fs::create_dir(server.local().join("back")).unwrap();
        put.run(&server, &arguments(&login, &[mode, "-R", "127.0.0.1", "/", "tree"]));
        assert_same(&server.local().join("tree"), &server.served().join("tree"), Times::Ignored);
        get.run(&server, &arguments(&login, &[mode, "-R", "127.0.0.1", "back", "/tree"]));
        assert_same(&server.local().join("tree"), &server.local().join("back/tree"), Times::Ignored);
    }
}

#[test]
fn ncftp_resumes_a_download() {
    // And no upload: after its `REST 100001`, ncftpput 3.2.6 sends the file from its beginning.
    let Some(get) = tool("ncftpget") else { return };
    let server = Server::start();
    let contents = noise(61, 300_000);
    fs::write(server.served().join("down"), &contents).unwrap();
    fs::write(server.local().join("down"), &contents[..100_001]).unwrap();
    get.run(&server, &arguments(&login(&server), &["-z", "127.0.0.1", ".", "/down"]));
    assert!(read(server.local().join("down")) == contents);
}

#[test]
fn ncftp_appends_makes_directories_and_uploads_by_another_name() {
    let Some(put) = tool("ncftpput") else { return };
    let server = Server::start();
    let login = login(&server);
    fs::write(server.local().join("f"), "one ").unwrap();
    for _ in 0..2 {
        put.run(&server, &arguments(&login, &["-A", "-m", "127.0.0.1", "/new/folder", "f"]));
    }
    assert_eq!(read(server.served().join("new/folder/f")), b"one one ");
    put.run(&server, &arguments(&login, &["-S", ".tmp", "127.0.0.1", "/", "f"]));
    assert_eq!(read(server.served().join("f")), b"one ");
    assert!(!server.served().join("f.tmp").exists());
}

#[test]
fn ncftp_lists() {
    let Some(list) = tool("ncftpls") else { return };
    let server = Server::start();
    make(&server.served(), 10, &NAMES);
    let login = login(&server);
    let long = list.run(&server, &arguments(&login[1..], &["-l", "ftp://127.0.0.1/odd/"]));
    assert!(NAMES.iter().all(|name| long.contains(name)), "{long}");
    let short = list.run(&server, &arguments(&login[1..], &["-1", "ftp://127.0.0.1/"]));
    assert!(short.lines().any(|line| line == "odd directories"), "{short}");
}
