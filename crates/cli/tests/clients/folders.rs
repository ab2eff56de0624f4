//! Virtual folders, encrypted ones, files as rows and folders as archives, by clients that know of none of it.

use std::fs;
use std::time::{Duration, Instant};

use crate::postgresql::Postgres;
use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, tool};
use crate::tree::{Times, assert_same, make, noise};

/// Every kind of folder. `local` and `home` lie outside the served tree.
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
    users = "another-user"
"#;

/// How long something may take that takes no time.
const PATIENCE: Duration = Duration::from_secs(60);

/// curl's exit code for a refused upload.
const UPLOAD_FAILED: i32 = 25;

fn server() -> Server {
    Server::configured_with(FOLDERS, &[("millrace.key", "7f".repeat(32).as_bytes())])
}

/// The files of a database, which the folder `rows` shows.
fn server_of(database: &Postgres) -> Server {
    let connection = database.connection();
    let folder = format!("[[folder]]\npath = \"/rows\"\npostgres = \"{connection}\"\ntimeout = \"30s\"\n");
    Server::configured_with(&folder, &[])
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

#[test]
fn files_of_postgresql_move_both_ways_and_are_there_again_when_it_is() {
    let (Some(tool), Some(mut database)) = (tool("curl"), Postgres::new()) else { return };
    let server = server_of(&database);
    let content = noise(3, 300_000);
    fs::write(server.local().join("up"), &content).unwrap();
    fs::write(server.local().join("more"), noise(4, 1000)).unwrap();
    fs::write(server.served().join("beside"), "of the disk").unwrap();
    let url = server.url("rows/f");
    curl(&tool, &server, &["-T", "up", &url]);
    curl(&tool, &server, &["-r", "123456-", "-o", "rest", &url]);
    assert!(read(server.local().join("rest")) == content[123_456..]);
    curl(&tool, &server, &["-a", "-T", "more", &url]);

    database.daemon.kill();
    let away = tool.attempt(&server, &["--silent", "--show-error", "-v", &url], "");
    let told = String::from_utf8_lossy(&away.stderr);
    assert!(!away.status.success() && told.contains("cannot be reached now"), "{told}");
    assert_eq!(curl(&tool, &server, &[&server.url("beside")]), "of the disk");
    server.log_with("CWD rows failed: ", 1);
    database.start();
    let end = Instant::now() + PATIENCE;
    while !tool.attempt(&server, &["--silent", "-o", "down", &url], "").status.success() {
        assert!(Instant::now() < end, "it is not found again:\n{}", server.log());
    }
    assert!(read(server.local().join("down")) == [&content[..], &noise(4, 1000)].concat());
}

#[test]
fn lftp_mirrors_a_tree_into_postgresql_and_back() {
    let (Some(tool), Some(database)) = (tool("lftp"), Postgres::new()) else { return };
    let server = server_of(&database);
    make(&server.local().join("tree"), 40, &["with space", "grüße-日本語.txt", "[brackets]"]);
    let script = format!(
        "set cmd:fail-exit yes; set net:max-retries 1; set net:timeout 60; set ftp:ssl-allow no; \
         open -u {USER},{PASSWORD} ftp://{}; mirror -R --parallel=3 tree rows/tree; mirror rows/tree back; \
         rm -r rows/tree",
        server.address
    );
    tool.run(&server, &["-c", &script]);
    assert_same(&server.local().join("tree"), &server.local().join("back"), Times::Ignored);
    assert_eq!(database.run("SELECT count(*) FROM millrace_files.content"), "0");
}

#[test]
fn a_server_that_starts_without_its_database_says_so_and_serves_the_rest() {
    let Some(tool) = tool("curl") else { return };
    let folder = "[[folder]]\npath = \"/rows\"\npostgres = \"host=/nowhere user=me\"\n";
    let server = Server::configured_with(folder, &[]);
    fs::write(server.served().join("f"), "content").unwrap();
    assert_eq!(curl(&tool, &server, &[&server.url("f")]), "content");
    assert_eq!(curl(&tool, &server, &["--list-only", &server.url("")]), "f\n");
    let log = server.log_with("its files are out of reach until it can", 1);
    assert!(log.contains("the PostgreSQL database me at /nowhere cannot be asked: "), "{log}");
}
