//! curl: what scripts use.

use std::fs;

use crate::server::{Server, USER, read};
use crate::tool::{Tool, tool};
use crate::tree::{ODD_NAMES, noise, write};

/// curl's exit code for a refused login.
const LOGIN_DENIED: i32 = 67;

/// curl's exit code for a file that is not there.
const NOT_FOUND: i32 = 78;

/// Runs curl, which must succeed.
fn curl(curl: &Tool, server: &Server, arguments: &[&str]) -> String {
    curl.run(server, &[&["--silent", "--show-error", "--fail"], arguments].concat())
}

/// A path as it stands in a URL.
fn encode(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte);
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Uploads and downloads a file and an empty one with these options.
#[track_caller]
fn assert_moves_files_both_ways(server: &Server, options: &[&str]) {
    let Some(tool) = tool("curl") else { return };
    for (name, length) in [("some", 300_000), ("none", 0)] {
        let contents = noise(length as u64, length);
        fs::write(server.local().join(name), &contents).unwrap();
        curl(&tool, server, &[options, &["-T", name, &server.url(name)]].concat());
        assert!(read(server.served().join(name)) == contents, "{name} went up");
        curl(&tool, server, &[options, &["-o", "back", &server.url(name)]].concat());
        assert!(read(server.local().join("back")) == contents, "{name} came back");
        curl(&tool, server, &[options, &[&server.url("")]].concat());
    }
}

#[test]
fn curl_moves_files_both_ways() {
    assert_moves_files_both_ways(&Server::start(), &[]);
}

#[test]
fn curl_moves_files_both_ways_in_active_mode() {
    assert_moves_files_both_ways(&Server::start(), &["-P", "-"]);
    assert_moves_files_both_ways(&Server::start(), &["-P", "-", "--disable-eprt"]);
}

#[test]
fn curl_moves_files_both_ways_without_epsv() {
    assert_moves_files_both_ways(&Server::start(), &["--disable-epsv"]);
}

#[test]
fn curl_moves_files_both_ways_over_ipv6() {
    let server = Server::on("[::1]:0");
    assert_moves_files_both_ways(&server, &[]);
    assert_moves_files_both_ways(&server, &["-P", "-"]);
}

#[test]
fn curl_replaces_a_longer_file() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    fs::write(server.served().join("f"), noise(1, 100_000)).unwrap();
    fs::write(server.local().join("f"), "short").unwrap();
    curl(&tool, &server, &["-T", "f", &server.url("f")]);
    assert_eq!(read(server.served().join("f")), b"short");
}

#[test]
fn curl_resumes_a_download() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    let contents = noise(2, 500_000);
    fs::write(server.served().join("f"), &contents).unwrap();
    fs::write(server.local().join("f"), &contents[..123_457]).unwrap();
    curl(&tool, &server, &["-C", "-", "-O", &server.url("f")]);
    assert!(read(server.local().join("f")) == contents);
    // A complete file stays complete.
    curl(&tool, &server, &["-C", "-", "-O", &server.url("f")]);
    assert!(read(server.local().join("f")) == contents);
}

#[test]
fn curl_resumes_an_upload() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    let contents = noise(3, 500_000);
    fs::write(server.local().join("f"), &contents).unwrap();
    fs::write(server.served().join("f"), &contents[..123_457]).unwrap();
    curl(&tool, &server, &["-C", "-", "-T", "f", &server.url("f")]);
    assert!(read(server.served().join("f")) == contents);
}

#[test]
fn curl_appends() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    fs::write(server.local().join("f"), "one ").unwrap();
    for _ in 0..3 {
        curl(&tool, &server, &["-a", "-T", "f", &server.url("log")]);
    }
    assert_eq!(read(server.served().join("log")), b"one one one ");
}

#[test]
fn curl_gets_a_range_and_a_head() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    write(&server.served().join("f"), b"0123456789", 1_000_000_000);
    assert_eq!(curl(&tool, &server, &["-r", "3-6", &server.url("f")]), "3456");
    assert_eq!(curl(&tool, &server, &["-r", "-2", &server.url("f")]), "89");
    let head = curl(&tool, &server, &["-I", &server.url("f")]);
    assert!(head.contains("Content-Length: 10\r\n"), "{head}");
    assert!(head.contains("Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT"), "{head}");
}

#[test]
fn curl_lists_names_and_details() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    for name in ["b", "a", ".c"] {
        fs::write(server.served().join(name), name).unwrap();
    }
    fs::create_dir(server.served().join("empty")).unwrap();
    assert_eq!(curl(&tool, &server, &["-l", &server.url("")]), ".c\na\nb\nempty\n");
    let details = curl(&tool, &server, &[&server.url("")]);
    assert!(details.lines().any(|line| line.starts_with("-rw") && line.ends_with(" a")), "{details}");
    assert!(details.lines().any(|line| line.starts_with('d') && line.ends_with(" empty")), "{details}");
    assert_eq!(curl(&tool, &server, &["-l", &server.url("empty/")]), "");
}

#[test]
fn curl_reaches_odd_names_by_every_method() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    for name in ODD_NAMES {
        write(&server.served().join("deep/er").join(name).join(name), name.as_bytes(), 1_000_000_000);
    }
    for method in ["multicwd", "singlecwd", "nocwd"] {
        let paths = ODD_NAMES.map(|name| server.url(&encode(&format!("deep/er/{name}/{name}"))));
        let arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
        let all = curl(&tool, &server, &[&["--ftp-method", method], &arguments[..]].concat());
        assert_eq!(all, ODD_NAMES.concat(), "{method}");
    }
}

#[test]
fn curl_makes_directories_for_an_upload() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    fs::write(server.local().join("f"), "deep").unwrap();
    curl(&tool, &server, &["--ftp-create-dirs", "-T", "f", &server.url("a%20b/c/f")]);
    assert_eq!(read(server.served().join("a b/c/f")), b"deep");
}

#[test]
fn curl_quotes_commands_before_and_after() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    for name in ["f", "old", "gone"] {
        fs::write(server.served().join(name), name).unwrap();
    }
    let before = ["-Q", "MKD made", "-Q", "RNFR old", "-Q", "RNTO made/new name", "-Q", "*DELE missing"];
    let after = ["-Q", "-DELE gone", "-Q", "-SITE CHMOD 600 f"];
    assert_eq!(curl(&tool, &server, &[&before[..], &after[..], &[&server.url("f")]].concat()), "f");
    assert_eq!(read(server.served().join("made/new name")), b"old");
    assert!(!server.served().join("gone").exists());
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(server.served().join("f")).unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn curl_converts_line_ends_in_ascii() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    fs::write(server.served().join("f"), "one\ntwo\n").unwrap();
    // curl itself makes and takes away carriage returns; with one too few or too many these would differ.
    assert_eq!(curl(&tool, &server, &[&server.url("f;type=a")]), "one\ntwo\n");
    fs::write(server.local().join("f"), "three\nfour\n").unwrap();
    curl(&tool, &server, &["-T", "f", &server.url("f;type=a")]);
    assert_eq!(read(server.served().join("f")), b"three\nfour\n");
}

#[test]
fn curl_hears_what_went_wrong() {
    let Some(tool) = tool("curl") else { return };
    let server = Server::start();
    fs::write(server.local().join("f"), "f").unwrap();
    let code = |arguments: &[&str]| tool.attempt(&server, arguments, "").status.code();
    assert_eq!(code(&["-sS", &server.url("missing")]), Some(NOT_FOUND));
    assert_eq!(
        code(&["-sS", "-u", &format!("{USER}:wrong"), &format!("ftp://{}/", server.address)]),
        Some(LOGIN_DENIED)
    );
    // 9: no such directory; 25: upload refused.
    assert_eq!(code(&["-sS", &server.url("missing/")]), Some(9));
    fs::create_dir(server.served().join("d")).unwrap();
    assert_eq!(code(&["-sS", "-T", "f", &server.url("d")]), Some(25));
}
