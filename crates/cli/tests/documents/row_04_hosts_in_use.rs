//! Row 4: virtual hosts while the server runs: who is at which, what is counted for whom, proxies, HTTP/2, reloads.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::row_04_virtual_hosts::{add_user, at, fetch_by, fetch_path_by, folder, make_certificate};
use super::site::{Client, Folder, HASH, Site, eventually, free_port, program};

/// A host with users of its own beside those of the server, of whom each may have one session and download little.
fn two_of_a_name(name: &str) -> Site {
    let folder = folder(name, &["second"]);
    fs::write(folder.0.join("groups.toml"), "[[group]]\nname = \"small\"\n").unwrap();
    add_user(&folder, "second.db", "zoe", &["groups=small", "--config", "groups.toml"]);
    let keys = format!(
        "ftp = \"0.0.0.0:0\"\nuser-sessions = 1\nuser-logins = \"2/hour\"\n\
         [[host]]\naddresses = \"127.0.0.2\"\ndirectory = \"second\"\nusers = \"second.db\"\n\
         [[group]]\nname = \"small\"\nquota-download = \"30/day\"\n\
         [[user]]\nname = \"zoe\"\npassword = \"{HASH}\"\ngroups = \"small\"\n"
    );
    Site::start_in(folder, &keys)
}

fn log_in_at(site: &Site, ip: &str) -> Client {
    let mut client = Client::connect(&at(ip, &site.ftp));
    client.log_in("zoe");
    client
}

#[test]
fn users_of_one_name_at_two_hosts_are_two() {
    let site = two_of_a_name("one-name");
    let (mut first, mut second) = (log_in_at(&site, "127.0.0.1"), log_in_at(&site, "127.0.0.2"));
    // Each has one session and two logins, and the second login is one too many for the sessions.
    for ip in ["127.0.0.1", "127.0.0.2"] {
        let mut third = Client::connect(&at(ip, &site.ftp));
        third.say("USER zoe", "331");
        let reply = third.say("PASS password", "421");
        assert!(reply.contains("Too many sessions of this user"), "{ip}: {reply}");
    }

    // 21 bytes of 30, and then too many; and the other's six.
    first.get("/f");
    let _data = first.data();
    first.say("RETR /f", "150");
    first.expect("552");
    second.get("/f");

    let scopes = site.ask(&["limits"])["limits"].to_string();
    assert!(scopes.contains("\"user zoe\"") && scopes.contains("\"user 127.0.0.2/zoe\""), "{scopes}");
    site.ask(&["limits", "user", "127.0.0.2/zoe", "--download", "1M"]);
    assert!(!site.ctl(&["limits", "user", "127.0.0.3/zoe", "--download", "1M"]).status.success());
}

#[test]
fn administrators_see_which_host_a_session_is_at_and_end_those_of_one() {
    let site = two_of_a_name("seen-hosts");
    let (mut first, mut second) = (log_in_at(&site, "127.0.0.1"), log_in_at(&site, "127.0.0.2"));
    let sessions = site.ask(&["sessions"]);
    let hosts: Vec<&Value> =
        sessions["sessions"].as_array().unwrap().iter().map(|session| &session["host"]).collect();
    assert_eq!(hosts, [&Value::Null, &Value::from("127.0.0.2")], "{sessions}");
    let table = site.folder.tell(&["ctl", "--control", "control", "sessions"]);
    assert!(table.starts_with("SESSION  USER  HOST       FROM"), "{table}");

    assert_eq!(site.ask(&["kick", "--user", "zoe", "--host", "127.0.0.2"])["kicked"], 1);
    second.expect("421");
    first.say("NOOP", "200");
}

#[test]
fn a_user_that_a_host_alone_has_is_expelled_once_removed() {
    let site = two_of_a_name("removed");
    let (mut first, mut second) = (log_in_at(&site, "127.0.0.1"), log_in_at(&site, "127.0.0.2"));
    site.folder.tell(&["user", "--users", "second.db", "remove", "zoe"]);
    second.expect("421");
    first.say("NOOP", "200");
}

/// The host's tree, greeting and certificate are those of the new configuration, also for a session that goes on.
#[test]
fn a_reload_changes_a_hosts_tree_greeting_and_certificate() {
    let Some(openssl) = program("openssl", false) else { return };
    let folder = folder("reloaded-host", &["second", "second/new"]);
    for name in ["old", "new"] {
        make_certificate(&openssl, &folder, name, "127.0.0.2");
    }
    let put_certificate = |folder: &Folder, name: &str| {
        for end in ["pem", "key"] {
            fs::copy(folder.0.join(format!("{name}.{end}")), folder.0.join(format!("host.{end}"))).unwrap();
        }
    };
    let https = free_port();
    let keys = |tree: &str| {
        format!(
            "ftp = \"0.0.0.0:0\"\nhttps = \"0.0.0.0:{https}\"\ntls-self-signed = true\n\
             [[host]]\naddresses = \"127.0.0.2\"\ndirectory = \"{tree}\"\ngreeting = \"This is {tree}.\"\n\
             tls-cert = \"host.pem\"\ntls-key = \"host.key\"\n"
        )
    };
    put_certificate(&folder, "old");
    let site = Site::start_in(folder, &keys("second"));
    let mut client = Client::connect(&at("127.0.0.2", &site.ftp));
    client.log_in("bob");
    assert_eq!(client.get("/f"), b"second");
    let subject = || {
        let connect = format!("127.0.0.2:{https}");
        let told =
            Command::new(&openssl).args(["s_client", "-connect", &connect]).stdin(Stdio::null()).output();
        let told = String::from_utf8(told.unwrap().stdout).unwrap();
        told.lines().find_map(|line| line.strip_prefix("subject=")).map(str::to_owned)
    };
    assert_eq!(subject().as_deref(), Some("CN = old"));

    put_certificate(&site.folder, "new");
    site.folder.configure(&format!("http = \"off\"\ncontrol = \"control\"\n{}", keys("second/new")));
    site.ask(&["reload"]);
    eventually("the certificate is the new one", || (subject().as_deref() == Some("CN = new")).then_some(()));
    assert_eq!(Client::open(&at("127.0.0.2", &site.ftp)).unwrap().reply(), "220 This is second/new.\r\n");
    eventually("the session goes on in the new tree", || (client.get("/f") == b"second/new").then_some(()));
}

/// A proxy's header says which address the client came to.
#[test]
fn behind_a_proxy_the_header_says_which_host_it_is() {
    let keys = "http = \"127.0.0.1:0\"\nproxy-from = [\"127.0.0.1\"]\n[[host]]\naddresses = \"192.0.2.2\"\n\
                directory = \"second\"\ngreeting = \"The second.\"\n";
    let site = Site::start_in(folder("proxied-host", &["second"]), keys);
    for (to, greeting, content) in [
        ("192.0.2.1", "220 Millrace ready.\r\n", "the content of a file"),
        ("192.0.2.2", "220 The second.\r\n", "second"),
    ] {
        let mut client = Client::open(&site.ftp).unwrap();
        client.send(&format!("PROXY TCP4 198.51.100.7 {to} 40000 21"));
        assert_eq!(client.reply(), greeting, "{to}");
        let mut stream = std::net::TcpStream::connect(&site.http).unwrap();
        write!(stream, "PROXY TCP4 198.51.100.7 {to} 40000 80\r\n").unwrap();
        let answer = fetch_by(stream, to);
        assert!(answer.ends_with(content), "{to}: {answer}");
    }
}

#[test]
fn by_http2_a_host_is_known_by_its_address_and_its_name() {
    let Some(curl) = program("curl", true) else { return };
    let https = free_port();
    let keys = format!(
        "ftp = \"127.0.0.1:0\"\nhttps = \"0.0.0.0:{https}\"\ntls-self-signed = true\n\
         [[host]]\naddresses = \"127.0.0.2\"\ndirectory = \"second\"\n\
         [[host]]\nnames = \"third.test\"\ndirectory = \"third\"\n"
    );
    let site = Site::start_in(folder("http2-host", &["second", "third"]), &keys);
    for (host, ip, expected) in [
        ("127.0.0.1", "127.0.0.1", "the content of a file 2"),
        ("127.0.0.2", "127.0.0.2", "second 2"),
        ("third.test", "127.0.0.2", "third 2"),
    ] {
        let got = site.folder.0.join("got");
        let output = Command::new(&curl)
            .args(["-sSk", "--http2", "-w", "%{http_version}", "-o"])
            .arg(&got)
            .args(["--resolve", &format!("third.test:{https}:{ip}"), &format!("https://{host}:{https}/f")])
            .output()
            .unwrap();
        let (version, content) =
            (String::from_utf8_lossy(&output.stdout), fs::read_to_string(&got).unwrap_or_default());
        assert_eq!(
            format!("{content} {version}"),
            expected,
            "{host} {:?}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Another host has other files at the path, and may have another user of the name.
#[test]
fn a_signed_link_is_good_at_the_host_that_it_was_made_for_alone() {
    let folder = folder("linked-host", &["second", "third"]);
    fs::write(folder.0.join("keys"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let keys = "http = \"0.0.0.0:0\"\nhttp-link-keys = \"keys\"\n\
                [[host]]\naddresses = \"127.0.0.2\"\ndirectory = \"second\"\n\
                [[host]]\nnames = \"third.test\"\ndirectory = \"third\"\n";
    let site = Site::start_in(folder, keys);
    let hosts = ["127.0.0.1", "127.0.0.2", "third.test"];
    for made_at in hosts {
        let url = format!("http://{made_at}");
        let link =
            site.folder.tell(&["link", "/f", "--config", "millrace.toml", "--user", "bob", "--url", &url]);
        let target = link.trim().strip_prefix(&url).unwrap();
        for used_at in hosts {
            let ip = if used_at == "third.test" { "127.0.0.1" } else { used_at };
            let stream = std::net::TcpStream::connect(at(ip, &site.http)).unwrap();
            let answer = fetch_path_by(stream, used_at, target);
            let expected = if used_at == made_at { "HTTP/1.1 200 " } else { "HTTP/1.1 403 " };
            assert!(answer.starts_with(expected), "{made_at} {used_at}: {answer}");
        }
    }
}
