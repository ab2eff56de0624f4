//! `/healthz` and `/readyz`, and what they say when.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use crate::site::{Site, eventually, get};

#[test]
fn a_server_that_runs_is_healthy_and_ready_and_logs_none_of_it() {
    let mut site = Site::start("pages", "");
    assert_eq!(site.page("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(site.page("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(site.page("/nothing").0, 404);
    assert_eq!(site.page("/").0, 200, "the dashboard");
    let head = get(&site.admin, "HEAD", "/healthz", "");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    let post = get(&site.admin, "POST", "/healthz", "Content-Length: 0\r\n");
    assert!(post.starts_with("HTTP/1.1 405 ") && post.to_lowercase().contains("allow: get, head"), "{post}");
    let metrics =
        get(&site.admin, "GET", "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(metrics.contains("application/openmetrics-text") && metrics.ends_with("# EOF\n"));
    site.stop();
    assert_eq!(site.read("access"), "");
    assert!(!site.read("log").contains("healthz"));
}

#[test]
fn idle_connections_keep_no_health_check_out() {
    let site = Site::start("flood", "");
    let mut flood: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(&site.admin).unwrap()).collect();
    assert_eq!(site.page("/healthz").0, 200);
    for stream in &mut flood {
        // Some of them are closed by now.
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: h\r\nX: ");
    }
    assert_eq!(site.page("/healthz").0, 200);
    assert_eq!(site.page("/metrics").0, 200);
    let fds = fs::read_dir(format!("/proc/{}/fd", site.child.id())).unwrap().count();
    assert!(fds < 200, "{fds} descriptors are open");
    assert_eq!(flood[0].read(&mut [0]).unwrap_or(0), 0, "the oldest made room");
}

#[test]
fn a_server_that_drains_is_healthy_and_not_ready() {
    let site = Site::start("drain", "");
    fs::write(site.folder.join("files/large"), vec![b'x'; 40_000_000]).unwrap();
    let mut client = site.log_in();
    let data = client.data();
    client.say("RETR large", "150");
    assert_eq!(site.scrape()["millrace_ready"], 1.0);
    assert!(site.ctl(&["drain"]).status.success());
    assert_eq!(site.page("/readyz"), (503, "draining\n".to_owned()));
    assert_eq!(site.page("/healthz").0, 200);
    assert_eq!(site.scrape()["millrace_ready"], 0.0);
    drop(data);
}

/// HAProxy's `agent-check` with `agent-send "agent\n"`.
fn ask_agent(site: &Site) -> String {
    let mut stream = TcpStream::connect(&site.admin).unwrap();
    stream.write_all(b"agent\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_server_that_is_about_to_drain_says_so_and_still_takes_clients() {
    let mut site = Site::start("notice", "");
    assert_eq!(ask_agent(&site), "ready up\n");
    let refused = site.ctl(&["drain", "--after", "soon"]);
    assert_eq!(refused.status.code(), Some(2));
    let told = site.ctl(&["drain", "--after", "1h"]);
    assert!(
        String::from_utf8_lossy(&told.stdout).starts_with("Clients are accepted for 1 h yet"),
        "{told:?}"
    );
    assert_eq!(ask_agent(&site), "drain\n");
    assert_eq!(site.page("/readyz"), (503, "draining\n".to_owned()));
    let mut client = site.log_in();
    client.say("PWD", "257");
    assert!(site.ctl(&["drain", "--after", "1s", "--wait"]).status.success());
    client.expect("421");
    eventually("it has ended", || site.child.try_wait().unwrap().is_some());
}

#[test]
fn the_successor_of_an_upgrade_answers_at_the_same_address() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut site = Site::start("upgrade", &format!("admin = \"{free}\"\ngrace = \"1h\""));
    fs::write(site.folder.join("files/large"), vec![b'x'; 40_000_000]).unwrap();
    let mut client = site.log_in();
    let data = client.data();
    client.say("RETR large", "150");
    let before = site.scrape()["process_start_time_seconds"];
    let upgraded = site.ctl(&["upgrade"]);
    assert!(upgraded.status.success(), "{}{}", String::from_utf8_lossy(&upgraded.stderr), site.read("log"));
    site.hear_ready();
    assert_eq!(site.admin, free.to_string());
    for _ in 0..20 {
        assert_eq!(site.page("/readyz"), (200, "ready\n".to_owned()));
        assert!(site.scrape()["process_start_time_seconds"] > before);
    }
    drop(data);
    client.expect("426");
    client.say("QUIT", "221");
    eventually("the old one ends", || site.child.try_wait().unwrap().is_some());
    assert!(site.ctl(&["stop"]).status.success());
}

#[test]
fn an_address_that_another_server_has_is_refused() {
    let site = Site::start("taken", "");
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "files", "--ftp", "127.0.0.1:0", "--http", "off", "--admin", &site.admin])
        .current_dir(&site.folder)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("(--admin)"), "{error}");
}

#[test]
fn an_address_that_others_reach_is_warned_of() {
    let site = Site::start("open", "");
    let file = site.folder.join("open.toml");
    fs::write(&file, "directory = \"files\"\nadmin = \"0.0.0.0:9121\"\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_millrace")).arg("check").arg(&file).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("can read health and metrics at 0.0.0.0:9121"), "{told}");
    assert!(told.contains("Admin         0.0.0.0:9121, every address of this computer"), "{told}");
}
