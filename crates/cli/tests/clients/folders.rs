//! Virtual folders, encrypted ones, files as rows and folders as archives, by clients that know of none of it.

use std::fs;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, tool};
use crate::tree::{Times, assert_same, make, noise};

/// Every kind of folder. `local` and `home` lie beside what is served.
const FOLDERS: &str = r#"
    archives = true

    [[folder]]
    path = "/archive"
    directory = "local"
    access = "ro"

    [[folder]]
    path = "/vault"
    directory = "home/{user}"
    key-file = "millrace.key"

    [[folder]]
    path = "/in/rows"
    database = "files.db"

    [[folder]]
    path = "/theirs"
    directory = "home"
    users = "somebody-else"
"#;

/// curl's exit code for a refused upload.
const UPLOAD_FAILED: i32 = 25;

fn server() -> Server {
    Server::configured_with(FOLDERS, &[("millrace.key", "7f".repeat(32).as_bytes())])
}

fn curl(curl: &Tool, server: &Server, arguments: &[&str]) -> String {
    curl.run(server, &[&["--silent", "--show-error", "--fail"], arguments].concat())
}

#[test]
fn curl_moves_files_both_ways_whatever_they_lie_in() {
    let Some(tool) = tool("curl") else { return };
    let server = server();
    let content = noise(3, 300_000);
    for folder in ["vault", "in/rows"] {
        fs::write(server.local().join("up"), &content).unwrap();
        let url = server.url(&format!("{folder}/f"));
        curl(&tool, &server, &["-T", "up", &url]);
        curl(&tool, &server, &["-o", "down", &url]);
        assert!(read(server.local().join("down")) == content, "{folder}");
        // The rest of a download, and of an upload.
        curl(&tool, &server, &["-r", "123456-", "-o", "rest", &url]);
        assert!(read(server.local().join("rest")) == content[123_456..], "{folder}");
        fs::write(server.local().join("up"), noise(4, 1000)).unwrap();
        curl(&tool, &server, &["-a", "-T", "up", &url]);
        curl(&tool, &server, &["-o", "down", &url]);
        assert!(read(server.local().join("down")) == [&content[..], &noise(4, 1000)].concat(), "{folder}");
    }
    let kept = read(server.home().join(USER).join("f"));
    assert!(!kept.windows(64).any(|part| part == &content[..64]), "it lies there encrypted");
}

#[test]
fn listings_show_the_folders_that_are_for_the_user() {
    let Some(tool) = tool("curl") else { return };
    let server = server();
    let listing = curl(&tool, &server, &["--list-only", &server.url("")]);
    let mut names: Vec<&str> = listing.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["archive", "in", "vault"]);
}

#[test]
fn a_read_only_folder_can_be_read_and_nothing_else() {
    let Some(tool) = tool("curl") else { return };
    let server = server();
    fs::write(server.local().join("f"), "from another disk").unwrap();
    assert_eq!(curl(&tool, &server, &[&server.url("archive/f")]), "from another disk");
    let refused = tool.attempt(&server, &["--silent", "-T", "f", &server.url("archive/g")], "");
    assert_eq!(refused.status.code(), Some(UPLOAD_FAILED));
    assert!(!server.local().join("g").exists());
}

#[test]
fn lftp_mirrors_a_tree_into_encryption_and_into_rows_and_back() {
    let Some(tool) = tool("lftp") else { return };
    let server = server();
    make(&server.local().join("tree"), 60, &["with space", "grüße-日本語.txt", "[brackets]"]);
    for folder in ["vault", "in/rows"] {
        let script = format!(
            "set cmd:fail-exit yes; set net:max-retries 1; set net:timeout 20; set ftp:ssl-allow no; \
             open -u {USER},{PASSWORD} ftp://{}; mirror -R tree {folder}/tree; mirror {folder}/tree back-{folder}",
            server.address
        );
        tool.run(&server, &["-c", &script]);
        let back = server.local().join(format!("back-{folder}"));
        assert_same(&server.local().join("tree"), &back, Times::Ignored);
    }
}

#[test]
fn a_folder_downloads_as_an_archive_that_tar_unpacks() {
    let (Some(tool), Some(tar)) = (tool("curl"), tool("tar")) else { return };
    let server = server();
    let tree = server.served().join("tree");
    make(&tree, 40, &["with space", "grüße-日本語.txt"]);
    curl(&tool, &server, &["-o", "tree.tar.gz", &server.url("tree.tar.gz")]);
    tar.run(&server, &["-xzf", "tree.tar.gz"]);
    assert_same(&tree, &server.local().join("tree"), Times::Ignored);
    let listing = curl(&tool, &server, &["--list-only", &server.url("")]);
    assert!(!listing.contains("tar"), "archives are not listed: {listing}");
}
