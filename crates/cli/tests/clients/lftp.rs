//! lftp: mirrors of whole trees, both ways.

use std::fs;
use std::os::unix::fs::symlink;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, tool};
use crate::tree::{ODD_NAMES, Times, assert_same, make, noise, write};

/// Every command must succeed, at once, and TLS is off.
const SETTINGS: &str = "set cmd:fail-exit yes; set net:max-retries 1; set net:timeout 20; set ftp:ssl-allow no; \
                        set xfer:clobber yes; set mirror:parallel-transfer-count 4";

/// Files of a tree that is to be mirrored.
const FILES: usize = 300;

/// Runs lftp commands on a connection to the server; they must succeed.
fn lftp(tool: &Tool, server: &Server, settings: &str, commands: &str) -> String {
    let (host, port) = (server.address.ip(), server.address.port());
    let host = if server.address.is_ipv6() { format!("[{host}]") } else { host.to_string() };
    let script = format!("{SETTINGS}; {settings}; open -u {USER},{PASSWORD} ftp://{host}:{port}; {commands}");
    tool.run(server, &["-c", &script])
}

/// Mirrors a tree up, then down to another place, and compares.
fn assert_mirrors_both_ways(server: &Server, settings: &str, times: Times) {
    let Some(tool) = tool("lftp") else { return };
    make(&server.local().join("tree"), FILES, &ODD_NAMES);
    lftp(&tool, server, settings, "mirror -R tree up");
    assert_same(&server.local().join("tree"), &server.served().join("up"), times);
    lftp(&tool, server, settings, "mirror up back");
    assert_same(&server.local().join("tree"), &server.local().join("back"), times);
    // Nothing is left to be done, but for what lftp always says first.
    let again = lftp(&tool, server, settings, "mirror -R --dry-run tree up; mirror --dry-run up back");
    assert!(again.lines().all(|line| line.starts_with("mkdir -p ")), "{again}");
}

#[test]
fn lftp_mirrors_a_tree_both_ways_with_its_times() {
    assert_mirrors_both_ways(&Server::start(), "set ftp:use-mlsd yes", Times::Kept);
}

#[test]
fn lftp_mirrors_a_tree_both_ways_by_list() {
    assert_mirrors_both_ways(&Server::start(), "set ftp:use-mlsd no; set ftp:use-feat no", Times::Ignored);
}

#[test]
fn lftp_mirrors_a_tree_both_ways_in_active_mode() {
    assert_mirrors_both_ways(&Server::start(), "set ftp:passive-mode no", Times::Kept);
}

#[test]
fn lftp_mirrors_a_tree_both_ways_over_ipv6() {
    assert_mirrors_both_ways(&Server::on("[::1]:0"), "", Times::Kept);
}

#[test]
fn lftp_mirrors_what_changed_and_deletes_what_is_gone() {
    let Some(tool) = tool("lftp") else { return };
    let server = Server::start();
    let tree = server.local().join("tree");
    make(&tree, 60, &ODD_NAMES);
    lftp(&tool, &server, "", "mirror -R tree up");
    for gone in ["odd/~", "odd/-dash", "odd/.hidden", "odd/[brackets]", "d1/e1/file-1.bin"] {
        fs::remove_file(tree.join(gone)).unwrap();
    }
    for gone in ["odd directories", "nothing"] {
        fs::remove_dir_all(tree.join(gone)).unwrap();
    }
    write(&tree.join("odd/star*"), b"changed", 1_600_000_000);
    write(&tree.join("new/file"), b"new", 1_600_000_000);
    lftp(&tool, &server, "", "mirror -R --delete tree up");
    assert_same(&tree, &server.served().join("up"), Times::Kept);
    fs::create_dir_all(server.local().join("back/stale/deep")).unwrap();
    lftp(&tool, &server, "", "mirror --delete up back");
    assert_same(&tree, &server.local().join("back"), Times::Kept);
}

#[test]
fn lftp_mirrors_links() {
    let Some(tool) = tool("lftp") else { return };
    let server = Server::start();
    let up = server.served().join("up");
    make(&up, 5, &[]);
    symlink("d0/e0/file-0.bin", up.join("to-a-file")).unwrap();
    symlink("d1", up.join("to-a-directory")).unwrap();
    symlink("nowhere", up.join("dangling")).unwrap();
    // By MLSD too: lftp says who it is, is shown links, and reads such a folder by LIST, which has all of a link.
    for settings in ["set ftp:use-mlsd no", "set ftp:use-mlsd yes"] {
        lftp(&tool, &server, settings, "mirror up links");
        assert_same(&up, &server.local().join("links"), Times::Ignored);
        lftp(&tool, &server, settings, "mirror -R links again");
        lftp(&tool, &server, settings, "mirror -R links again");
        assert_same(&up, &server.served().join("again"), Times::Ignored);
        for gone in [server.local().join("links"), server.served().join("again")] {
            fs::remove_dir_all(gone).unwrap();
        }
    }
}

#[test]
fn lftp_moves_a_large_file_and_gets_it_in_parts() {
    let Some(tool) = tool("lftp") else { return };
    let server = Server::start();
    let contents = noise(50, 50 << 20);
    write(&server.local().join("large"), &contents, 1_234_567_890);
    let commands = "put large; pget -n 5 -c large -o parts; get large -o whole";
    lftp(&tool, &server, "", commands);
    assert!(read(server.served().join("large")) == contents, "went up");
    assert!(read(server.local().join("whole")) == contents, "came back");
    assert!(read(server.local().join("parts")) == contents, "came back in parts");
}

#[test]
fn lftp_compresses() {
    let Some(tool) = tool("lftp") else { return };
    let config = std::env::temp_dir().join(format!("millrace-lftp-{}.toml", std::process::id()));
    fs::write(&config, "mode-z = true\n").unwrap();
    let server = Server::with("127.0.0.1:0", &["--config", config.to_str().unwrap()]);
    fs::remove_file(&config).unwrap();
    let contents = [noise(52, 2 << 20), vec![b'z'; 2 << 20]].concat();
    fs::write(server.local().join("f"), &contents).unwrap();
    let said = lftp(&tool, &server, "set ftp:use-mode-z yes", "debug -o debug 4; put f; get f -o back");
    assert!(String::from_utf8_lossy(&read(server.local().join("debug"))).contains("200 Mode set"), "{said}");
    assert!(read(server.served().join("f")) == contents, "went up");
    assert!(read(server.local().join("back")) == contents, "came back");
}

/// Longer than what lftp takes of a listing that it has had compressed.
#[test]
fn lftp_mirrors_a_folder_of_thousands() {
    let Some(tool) = tool("lftp") else { return };
    let server = Server::start();
    let folder = server.served().join("many");
    fs::create_dir(&folder).unwrap();
    for number in 0..3000 {
        fs::write(folder.join(format!("IMG_2026_{number:05}.JPG")), number.to_string()).unwrap();
    }
    lftp(&tool, &server, "", "mirror many down; mirror -R down again");
    for copy in [server.local().join("down"), server.served().join("again")] {
        assert_eq!(fs::read_dir(copy).unwrap().count(), 3000);
    }
}

#[test]
fn lftp_resumes_both_ways() {
    let Some(tool) = tool("lftp") else { return };
    let server = Server::start();
    let contents = noise(51, 700_000);
    fs::write(server.local().join("up"), &contents).unwrap();
    fs::write(server.served().join("up"), &contents[..400_001]).unwrap();
    fs::write(server.served().join("down"), &contents).unwrap();
    fs::write(server.local().join("down"), &contents[..400_001]).unwrap();
    lftp(&tool, &server, "", "put -c up; get -c down");
    assert!(read(server.served().join("up")) == contents, "went up");
    assert!(read(server.local().join("down")) == contents, "came back");
}

#[test]
fn lftp_works_in_a_tree() {
    let Some(tool) = tool("lftp") else { return };
    let server = Server::start();
    fs::write(server.local().join("f"), "text\n").unwrap();
    let commands = "mkdir -p a/b; cd a/b; put f; mv f g; chmod 640 g; ln -s 'g' link; \
                    cat g; cat link; find /; du -s /; cls -1 /a/b; glob echo *; cd ~; pwd; rm -r a";
    let said = lftp(&tool, &server, "", commands);
    assert!(said.starts_with("text\ntext\n") && said.contains("\n/\n/a/\n/a/b/\n/a/b/g\n"), "{said}");
    assert!(!server.served().join("a").exists());
}

#[test]
fn a_name_with_a_line_end_spoils_no_mirror() {
    let Some(tool) = tool("lftp") else { return };
    let server = Server::start();
    // FTP's commands are lines: lftp has no way to ask for this one, and says so.
    write(&server.served().join("up/line\nend"), b"x", 1_000_000_000);
    write(&server.served().join("up/plain"), b"y", 1_000_000_000);
    write(&server.served().join("up/zone/deep"), b"z", 1_000_000_000);
    for (settings, to) in [("set ftp:use-mlsd no", "by-list"), ("set ftp:use-mlsd yes", "by-mlsd")] {
        let url = server.url("");
        tool.attempt(&server, &["-c", &format!("{SETTINGS}; {settings}; open {url}; mirror up {to}")], "");
        assert_eq!(read(server.local().join(to).join("plain")), b"y");
        assert_eq!(read(server.local().join(to).join("zone/deep")), b"z");
    }
}
