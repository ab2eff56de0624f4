//! rclone: copy, sync, check and purge, with nothing but its environment for a configuration.

use std::fs;

use crate::server::{PASSWORD, Server, USER};
use crate::tool::{Tool, tool};
use crate::tree::{ODD_NAMES, Times, assert_same, make, write};

/// rclone with a remote `m:` that is the server. `None` where it is not installed.
fn rclone(server: &Server) -> Option<Tool> {
    let hidden = tool("rclone")?.run(server, &["obscure", PASSWORD]);
    let rclone = tool("rclone")?
        .variable("RCLONE_CONFIG", "")
        .variable("RCLONE_CONFIG_M_TYPE", "ftp")
        .variable("RCLONE_CONFIG_M_HOST", server.address.ip().to_string())
        .variable("RCLONE_CONFIG_M_PORT", server.address.port().to_string())
        .variable("RCLONE_CONFIG_M_USER", USER)
        .variable("RCLONE_CONFIG_M_PASS", hidden.trim())
        .variable("RCLONE_RETRIES", "1")
        .variable("RCLONE_LOW_LEVEL_RETRIES", "1");
    Some(rclone)
}

#[test]
fn rclone_copies_syncs_checks_and_purges_a_tree() {
    let server = Server::start();
    let Some(rclone) = rclone(&server) else { return };
    let (tree, up) = (server.local().join("tree"), server.served().join("up"));
    make(&tree, 200, &ODD_NAMES);
    rclone.run(&server, &["copy", "--create-empty-src-dirs", "tree", "m:up"]);
    assert_same(&tree, &up, Times::Kept);
    rclone.run(&server, &["check", "--download", "tree", "m:up"]);
    rclone.run(&server, &["copy", "--create-empty-src-dirs", "m:up", "back"]);
    assert_same(&tree, &server.local().join("back"), Times::Kept);

    write(&tree.join("odd/~"), b"changed", 1_600_000_000);
    write(&tree.join("new/file"), b"new", 1_600_000_000);
    fs::remove_dir_all(tree.join("odd directories")).unwrap();
    fs::remove_file(tree.join("odd/.hidden")).unwrap();
    rclone.run(&server, &["sync", "--create-empty-src-dirs", "tree", "m:up"]);
    assert_same(&tree, &up, Times::Kept);
    rclone.run(&server, &["sync", "--create-empty-src-dirs", "m:up", "back"]);
    assert_same(&tree, &server.local().join("back"), Times::Kept);

    rclone.run(&server, &["purge", "m:up"]);
    assert!(!up.exists());
}

#[test]
fn rclone_sees_what_is_there() {
    let server = Server::start();
    let Some(rclone) = rclone(&server) else { return };
    write(&server.served().join("a b/f"), b"12345", 1_000_000_000);
    assert!(rclone.run(&server, &["lsl", "m:"]).contains("5 2001-09-09 01:46:40.000000000 a b/f"));
    assert_eq!(rclone.run(&server, &["cat", "--offset", "1", "--count", "3", "m:a b/f"]), "234");
    rclone.run(&server, &["moveto", "m:a b/f", "m:g/h"]);
    rclone.run(&server, &["rmdirs", "m:"]);
    assert_eq!(rclone.run(&server, &["lsf", "-R", "m:"]), "g/\ng/h\n");
    assert!(!rclone.attempt(&server, &["ls", "m:missing"], "").status.success());
}
