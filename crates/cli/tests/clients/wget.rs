//! wget: whole trees by LIST, and downloads that go on where they stopped.

use std::fs;
use std::os::unix::fs::symlink;

use crate::server::{Server, read};
use crate::tool::{Tool, tool};
use crate::tree::{ODD_NAMES, Times, assert_same, make, noise};

fn wget(tool: &Tool, server: &Server, arguments: &[&str]) {
    tool.run(
        server,
        &[&["--no-verbose", "--tries=1", "--timeout=20", "--restrict-file-names=nocontrol"], arguments]
            .concat(),
    );
}

fn assert_fetches_a_tree(options: &[&str]) {
    let Some(tool) = tool("wget") else { return };
    let server = Server::start();
    // wget takes some names for patterns or parts of URLs, cuts blanks in front, and skips empty directories.
    let odd = |name: &&str| name.starts_with(' ') || name.contains(['?', '*', '[', '%', ';', '#', '\\']);
    let names: Vec<&str> = ODD_NAMES.into_iter().filter(|name| !odd(name)).collect();
    make(&server.served(), 60, &names);
    fs::remove_dir(server.served().join("empty")).unwrap();
    fs::remove_dir_all(server.served().join("nothing")).unwrap();
    wget(&tool, &server, &[options, &["-r", "-l", "10", "-nH", "-P", "back", &server.url("")]].concat());
    assert_same(&server.served(), &server.local().join("back"), Times::Ignored);
}

#[test]
fn wget_fetches_a_tree() {
    assert_fetches_a_tree(&[]);
}

#[test]
fn wget_fetches_a_tree_in_active_mode() {
    assert_fetches_a_tree(&["--no-passive-ftp"]);
}

#[test]
fn wget_continues() {
    let Some(tool) = tool("wget") else { return };
    let server = Server::start();
    let contents = noise(81, 400_000);
    fs::write(server.served().join("f"), &contents).unwrap();
    fs::write(server.local().join("f"), &contents[..123_456]).unwrap();
    wget(&tool, &server, &["--continue", &server.url("f")]);
    assert!(read(server.local().join("f")) == contents);
}

#[test]
fn wget_fetches_by_pattern_and_keeps_links_and_times() {
    let Some(tool) = tool("wget") else { return };
    let server = Server::start();
    make(&server.served(), 30, &[]);
    let folder = server.served().join("d1/e0");
    symlink("file-15.bin", folder.join("link.bin")).unwrap();
    wget(&tool, &server, &["--timestamping", "--retr-symlinks=no", &server.url("d1/e0/*.bin")]);
    assert!(read(server.local().join("file-15.bin")) == read(folder.join("file-15.bin")));
    assert_eq!(fs::read_link(server.local().join("link.bin")).unwrap().to_str(), Some("file-15.bin"));
}
