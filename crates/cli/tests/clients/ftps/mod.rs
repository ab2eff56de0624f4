//! FTPS: every client, explicit and implicit, TLS 1.2 and 1.3, data encrypted and, where the client can, in clear, a
//! hundred transfers on one control connection, with data connections that have to resume (`require`) or should
//! (`prefer`).

mod languages;
mod openssl;

use crate::server::{PASSWORD, Server, USER};
use crate::tool::{Tool, find, skip_anyway, tool};
use crate::tree::noise;

/// Transfers on one control connection: half of them up, half of them down.
const TRANSFERS: u64 = 100;

/// This many files go up, and come down again.
const FILES: u64 = TRANSFERS / 2;

const REQUIRE: &str = "require";
const PREFER: &str = "prefer";

/// The doors, and the words for them.
const DOORS: [&str; 2] = ["explicit", "implicit"];

impl Server {
    fn port_of(&self, door: &str) -> String {
        match door {
            "explicit" => self.address.port().to_string(),
            _ => self.ftps.expect("it was asked for").port().to_string(),
        }
    }

    /// What every session is told first: host and both ports, or one, and who logs in.
    fn arguments<'a>(&self, rest: &[&'a str]) -> Vec<String> {
        let own = [USER, PASSWORD, &self.authority().display().to_string()].map(str::to_owned);
        own.into_iter().chain(rest.iter().map(|word: &&'a str| (*word).to_owned())).collect()
    }

    /// Fails where a data connection did not resume.
    #[track_caller]
    fn assert_all_resumed(&self) {
        assert!(!self.log().contains("tls-session-not-resumed"), "{}", self.log());
    }
}

/// Runs a session's script, which says so in the end when all went well.
#[track_caller]
fn run(tool: &Tool, server: &Server, arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = tool.run(server, &arguments);
    assert!(said.ends_with("all of it works\n"), "{said}");
}

fn script(server: &Server, name: &str, text: &str) {
    std::fs::write(server.local().join(name), text).unwrap();
}

/// One run of curl: files up and down again, in a folder of its own on both sides.
fn curl_run(curl: &Tool, server: &Server, door: &str, versions: &[&str], level: &str) {
    let folder = format!("{door}{}{level}", versions.concat());
    std::fs::create_dir(server.served().join(&folder)).unwrap();
    std::fs::create_dir(server.local().join(&folder)).unwrap();
    let scheme = if door == "explicit" { "ftp" } else { "ftps" };
    let url = format!("{scheme}://{USER}:{PASSWORD}@127.0.0.1:{}/{folder}/", server.port_of(door));
    let authority = server.authority().display().to_string();
    let common = [&["--silent", "--show-error", "--fail", "--cacert", &authority, level], versions].concat();
    let (names, back, down) =
        (format!("u[1-{FILES}]"), format!("{folder}/back#1"), format!("{url}u[1-{FILES}]"));
    let up = [&common[..], &["-T", &names, &url, "--next"]].concat();
    curl.run(server, &[&up[..], &common, &["-o", &back, &down]].concat());
    for number in 1..=FILES {
        let back = std::fs::read(server.local().join(format!("{folder}/back{number}"))).unwrap();
        assert!(back == noise(number, 3000), "{folder}");
    }
}

#[test]
fn curl_with_openssl_resumes_for_a_hundred_transfers() {
    let Some(curl) = &tool("curl") else { return };
    for policy in [REQUIRE, PREFER] {
        let server = &Server::secure(policy);
        for number in 1..=FILES {
            std::fs::write(server.local().join(format!("u{number}")), noise(number, 3000)).unwrap();
        }
        // At once, because this one sleeps a lot.
        std::thread::scope(|scope| {
            for door in DOORS {
                for versions in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
                    for level in ["--ssl-reqd", "--ftp-ssl-control"] {
                        scope.spawn(move || curl_run(curl, server, door, versions, level));
                    }
                }
            }
        });
        let log = server.log_with(" disconnected", 8);
        assert_eq!(log.matches(" connected").count(), 8, "one control connection each");
        server.assert_all_resumed();
    }
}

#[test]
fn ftplib_moves_files_with_sessions_and_without() {
    let Some(python) = tool("python3") else { return };
    for (policy, sessions) in [(REQUIRE, "reuse"), (PREFER, "reuse"), (PREFER, "fresh")] {
        let server = Server::secure(policy);
        script(&server, "session.py", include_str!("session.py"));
        for door in DOORS {
            for (version, level) in [("1.2", "P"), ("1.2", "C"), ("1.3", "P"), ("1.3", "C")] {
                let first = ["session.py", "127.0.0.1", &server.port_of(door)].map(str::to_owned);
                let rest = server.arguments(&[door, version, level, sessions, &TRANSFERS.to_string()]);
                run(&python, &server, &[&first[..], &rest].concat());
            }
        }
        if sessions == "reuse" {
            server.assert_all_resumed();
        }
    }
}

/// Not the programs, which want a screen: what they say, and how they use TLS.
#[test]
fn the_commands_of_filezilla_and_winscp_resume_for_a_hundred_transfers() {
    let Some(python) = &tool("python3") else { return };
    for policy in [REQUIRE, PREFER] {
        let server = &Server::secure(policy);
        script(server, "sequence.py", include_str!("sequence.py"));
        std::thread::scope(|scope| {
            for (program, door) in
                ["filezilla", "winscp"].into_iter().flat_map(|program| DOORS.map(|door| (program, door)))
            {
                scope.spawn(move || {
                    for version in ["1.2", "1.3"] {
                        let first = ["sequence.py", "127.0.0.1", &server.port_of(door)].map(str::to_owned);
                        let rest = server.arguments(&[program, door, version, &TRANSFERS.to_string()]);
                        run(python, server, &[&first[..], &rest].concat());
                    }
                });
            }
        });
        server.assert_all_resumed();
    }
}

/// What has to be shown to be refused.
#[test]
fn ftplib_without_sessions_is_refused_where_they_are_required() {
    let Some(python) = tool("python3") else { return };
    let server = Server::secure(REQUIRE);
    script(&server, "session.py", include_str!("session.py"));
    let rest = server.arguments(&["explicit", "1.3", "P", "fresh", "2"]);
    let port = server.port_of("explicit");
    let arguments: Vec<&str> =
        ["session.py", "127.0.0.1", &port].into_iter().chain(rest.iter().map(String::as_str)).collect();
    let output = python.attempt(&server, &arguments, "");
    assert!(!output.status.success());
    server.log_with("it has to resume the TLS session", 1);
}

#[test]
fn lftp_resumes_for_a_hundred_transfers() {
    let Some(lftp) = tool("lftp") else { return };
    for policy in [REQUIRE, PREFER] {
        let server = Server::secure(policy);
        let tree = server.local().join("tree");
        std::fs::create_dir_all(&tree).unwrap();
        for number in 1..=FILES {
            std::fs::write(tree.join(format!("u{number}")), noise(number, 3000)).unwrap();
        }
        for (door, scheme) in DOORS.into_iter().zip(["ftp", "ftps"]) {
            for (version, level) in [("1.2", "yes"), ("1.2", "no"), ("1.3", "yes"), ("1.3", "no")] {
                let commands = format!(
                    "set ssl:ca-file {}; set ftp:ssl-force yes; set ftp:ssl-protect-data {level}; \
                     set ftp:ssl-protect-list {level}; set ssl:priority NORMAL:-VERS-ALL:+VERS-TLS{version}; \
                     set net:max-retries 1; open -u {USER},{PASSWORD} {scheme}://127.0.0.1:{}; \
                     mirror -R --parallel=1 tree up; mirror --parallel=1 up back; rm -r up; bye",
                    server.authority().display(),
                    server.port_of(door)
                );
                lftp.run(&server, &["-c", &commands]);
                for number in 1..=FILES {
                    let back = std::fs::read(server.local().join(format!("back/u{number}"))).unwrap();
                    assert!(back == noise(number, 3000), "{door} {version} {level}");
                }
                std::fs::remove_dir_all(server.local().join("back")).unwrap();
            }
        }
        server.assert_all_resumed();
    }
}

/// As it is run: with several sessions at once, which show one another's tickets.
#[test]
fn rclone_with_parallel_sessions_loses_nothing_as_the_server_is_by_default() {
    let Some(rclone) = tool("rclone") else { return };
    let Some(hidden) = find("rclone") else { return };
    let server = Server::secure(PREFER);
    let tree = server.local().join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    let files = 60;
    for number in 1..=files {
        std::fs::write(tree.join(format!("u{number}")), noise(number, 3000)).unwrap();
    }
    let password = hidden.run(&server, &["obscure", PASSWORD]);
    for (door, flag) in DOORS.into_iter().zip(["--ftp-explicit-tls", "--ftp-tls"]) {
        let port = server.port_of(door);
        let common = ["--ftp-host", "127.0.0.1", "--ftp-port", &port, "--ftp-user", USER, "--ftp-pass"];
        // No second try: a refusal is a failure.
        let more = [
            password.trim(),
            flag,
            "--ftp-no-check-certificate",
            "--retries",
            "1",
            "--low-level-retries",
            "1",
        ];
        let common = [&common[..], &more].concat();
        rclone.run(&server, &[&["copy", "tree", ":ftp:up"], &common[..]].concat());
        rclone.run(&server, &[&["copy", ":ftp:up", "back"], &common[..]].concat());
        for number in 1..=files {
            let back = std::fs::read(server.local().join(format!("back/u{number}"))).unwrap();
            assert!(back == noise(number, 3000), "{door}");
        }
        rclone.run(&server, &[&["purge", ":ftp:up"], &common[..]].concat());
        std::fs::remove_dir_all(server.local().join("back")).unwrap();
    }
    assert!(server.log().contains("shown="), "that is what this is about: {}", server.log());
}

#[test]
fn rclone_resumes_for_a_hundred_transfers() {
    let Some(rclone) = tool("rclone") else { return };
    let Some(hidden) = find("rclone") else { return };
    for policy in [REQUIRE, PREFER] {
        let server = Server::secure(policy);
        let tree = server.local().join("tree");
        std::fs::create_dir_all(&tree).unwrap();
        for number in 1..=FILES {
            std::fs::write(tree.join(format!("u{number}")), noise(number, 3000)).unwrap();
        }
        let password = hidden.run(&server, &["obscure", PASSWORD]);
        for (door, flag) in DOORS.into_iter().zip(["--ftp-explicit-tls", "--ftp-tls"]) {
            for versions in [&["--ftp-disable-tls13"][..], &[]] {
                let port = server.port_of(door);
                let common =
                    ["--ftp-host", "127.0.0.1", "--ftp-port", &port, "--ftp-user", USER, "--ftp-pass"];
                let more = [
                    password.trim(),
                    flag,
                    "--ftp-no-check-certificate",
                    "--transfers",
                    "1",
                    "--checkers",
                    "1",
                ];
                let common = [&common[..], &more, &["--ftp-concurrency", "1"], versions].concat();
                rclone.run(&server, &[&["copy", "tree", ":ftp:up"], &common[..]].concat());
                rclone.run(&server, &[&["copy", ":ftp:up", "back"], &common[..]].concat());
                rclone.run(&server, &[&["purge", ":ftp:up"], &common[..]].concat());
                for number in 1..=FILES {
                    let back = std::fs::read(server.local().join(format!("back/u{number}"))).unwrap();
                    assert!(back == noise(number, 3000), "{door} {versions:?}");
                }
                std::fs::remove_dir_all(server.local().join("back")).unwrap();
            }
        }
        server.assert_all_resumed();
    }
}

#[test]
fn basic_ftp_resumes_for_a_hundred_transfers() {
    let Some(node) = tool("node") else { return };
    for policy in [REQUIRE, PREFER] {
        let server = Server::secure(policy);
        if !crate::basic_ftp::install(&server, crate::basic_ftp::PACKAGE) {
            return skip_anyway("npm cannot fetch basic-ftp");
        }
        script(&server, "session.mjs", include_str!("session.mjs"));
        let (explicit, implicit) = (server.port_of("explicit"), server.port_of("implicit"));
        let first = ["session.mjs", "127.0.0.1", &explicit, &implicit].map(str::to_owned);
        run(&node, &server, &[&first[..], &server.arguments(&[&TRANSFERS.to_string()])].concat());
        server.assert_all_resumed();
    }
}
