//! Row 4: virtual hosts by address and port, as NcFTPd had them, beside those by name.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use super::site::{Client, Folder, HASH, Site, free_port, program};

/// A folder with a tree for each of these hosts, whose `f` holds the host's name.
pub(super) fn folder(name: &str, hosts: &[&str]) -> Folder {
    let folder = Folder::new(name);
    for host in hosts {
        fs::create_dir_all(folder.0.join(host)).unwrap();
        fs::write(folder.0.join(host).join("f"), host).unwrap();
    }
    folder
}

/// The same port of another address of this computer.
pub(super) fn at(ip: &str, address: &str) -> String {
    let (_, port) = address.rsplit_once(':').unwrap();
    format!("{ip}:{port}")
}

/// What `/f` is by HTTP.
fn fetch(address: &str, host: &str) -> String {
    fetch_all(address, host).split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The answer to a request for it, with its head.
fn fetch_all(address: &str, host: &str) -> String {
    fetch_by(TcpStream::connect(address).unwrap(), host)
}

/// The same on a connection.
pub(super) fn fetch_by(stream: TcpStream, host: &str) -> String {
    fetch_path_by(stream, host, "/f")
}

/// The answer to a request for this on a connection.
pub(super) fn fetch_path_by(mut stream: TcpStream, host: &str, target: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const BY_ADDRESS: &str = r#"
ftp = "0.0.0.0:0"
http = "0.0.0.0:0"
tls-self-signed = true
[[host]]
addresses = "127.0.0.2"
directory = "second"
[[host]]
names = "third.test"
addresses = "127.0.0.3"
directory = "third"
"#;

#[test]
fn a_client_belongs_to_the_host_that_it_names_or_else_to_that_of_the_address() {
    let site = Site::start_in(folder("by-address", &["second", "third"]), BY_ADDRESS);
    for (ip, name, expected) in [
        ("127.0.0.1", None, "the content of a file"),
        ("127.0.0.2", None, "second"),
        ("127.0.0.2", Some("127.0.0.2"), "second"),
        ("127.0.0.2", Some("third.test"), "third"),
        ("127.0.0.3", None, "third"),
        ("127.0.0.1", Some("third.test"), "third"),
    ] {
        let mut client = Client::connect(&at(ip, &site.ftp));
        if let Some(name) = name {
            client.say(&format!("HOST {name}"), "220");
        }
        client.log_in("bob");
        assert_eq!(String::from_utf8(client.get("/f")).unwrap(), expected, "{ip} {name:?}");
        let by_http = fetch(&at(ip, &site.http), name.unwrap_or(ip));
        assert_eq!(by_http, expected, "by HTTP: {ip} {name:?}");
    }
    let told = site.folder.tell(&["explain", "bob", "--config", "millrace.toml", "--at", "127.0.0.2:21"]);
    assert!(told.contains("By the address 127.0.0.2:21 the host 127.0.0.2 is reached"), "{told}");
}

#[test]
fn check_refuses_two_hosts_at_one_address_and_warns_of_one_that_nothing_covers() {
    let folder = folder("checked-hosts", &["second", "third"]);
    let check = |port: &str, one: &str, other: &str| {
        let hosts = format!(
            "[[host]]\naddresses = \"{one}\"\ndirectory = \"second\"\n\
             [[host]]\naddresses = \"{other}\"\ndirectory = \"third\"\n"
        );
        folder.configure(&format!("ftp = \"127.0.0.2:{port}\"\nhttp = \"off\"\n{hosts}"));
        let output = folder.run(&["check", "millrace.toml"]);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (is_good, text) = check("2121", "127.0.0.2", "127.0.0.2:2121");
    assert!(is_good && !text.contains("no client reaches the host"), "{text}");
    let (is_good, text) = check("2121", "127.0.0.2", "127.0.0.2");
    assert!(!is_good && text.contains("There are two hosts at the address 127.0.0.2"), "{text}");
    let (_, text) = check("2121", "127.0.0.2", "127.0.0.2:2122");
    assert!(text.contains("no client reaches the host at 127.0.0.2:2122"), "{text}");
}

#[test]
fn check_refuses_a_host_without_users_and_a_log_that_cannot_be_written() {
    let folder = folder("wrong-hosts", &["second"]);
    for (line, expected) in [
        ("users = \"off\"", "A host has the users of a database"),
        (
            "[[user]]\nname = \"zoe\"\npassword = \"HASH\"\nhost = \"else.test\"",
            "There is no [[host]] table with else.test",
        ),
        ("[[host.user]]\nname = \"zoe\"", "`user` is of the top level: write [[user]]"),
        ("xferlog = \"nowhere/x.log\"", "make the folder first"),
    ] {
        let line = line.replace("HASH", HASH);
        folder.configure(&format!(
            "ftp = \"127.0.0.2:2121\"\nhttp = \"off\"\n[[host]]\naddresses = \"127.0.0.2\"\ndirectory = \"second\"\n{line}\n"
        ));
        let output = folder.run(&["check", "millrace.toml"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(expected), "{line}: {error}");
    }
}

/// Makes a database of users with one whose password is `password`, and who has these settings.
pub(super) fn add_user(folder: &Folder, database: &str, name: &str, settings: &[&str]) {
    let mut child = folder
        .command(&["user", "--users", database, "add", name, "--hash", HASH])
        .args(settings)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success(), "{name} in {database}");
}

#[test]
fn users_of_a_host_can_stand_in_the_same_file() {
    let keys = format!(
        "ftp = \"0.0.0.0:0\"\n[[host]]\naddresses = \"127.0.0.2\"\ndirectory = \"second\"\n\
         [[host]]\nnames = \"third.test\"\ndirectory = \"third\"\n\
         [[user]]\nname = \"zoe\"\npassword = \"{HASH}\"\nhost = \"127.0.0.2\"\n\
         [[user]]\nname = \"bob\"\npassword = \"{HASH}\"\nhost = \"127.0.0.2\"\ndirectory = \"own\"\n"
    );
    let site = Site::start_in(folder("same-file", &["second", "second/own", "third"]), &keys);
    for (ip, name, user, expected) in [
        ("127.0.0.1", None, "bob", Some("the content of a file")),
        ("127.0.0.1", None, "zoe", None),
        ("127.0.0.2", None, "bob", Some("second/own")),
        ("127.0.0.2", None, "zoe", Some("second")),
        ("127.0.0.2", None, "eve", None),
        ("127.0.0.1", Some("third.test"), "bob", Some("third")),
        ("127.0.0.1", Some("third.test"), "zoe", None),
    ] {
        let mut client = Client::connect(&at(ip, &site.ftp));
        if let Some(name) = name {
            client.say(&format!("HOST {name}"), "220");
        }
        let content = is_let_in(&mut client, user).then(|| String::from_utf8(client.get("/f")).unwrap());
        assert_eq!(content.as_deref(), expected, "{user} at {ip} {name:?}");
    }
}

/// Without users of the server and without anonymous logins, too.
#[test]
fn a_server_may_have_no_users_but_those_of_its_hosts() {
    let folder = folder("hosts-alone", &["second"]);
    let keys = format!(
        "directory = \"files\"\nanonymous = false\n[[host]]\naddresses = \"127.0.0.2\"\ndirectory = \"second\"\n\
         [[user]]\nname = \"zoe\"\npassword = \"{HASH}\"\nhost = \"127.0.0.2\"\n"
    );
    fs::write(folder.0.join("millrace.toml"), keys).unwrap();
    let told = folder.tell(&["check", "millrace.toml"]);
    assert!(told.contains("127.0.0.2: the folder ./second; only zoe may log in there\n"), "{told}");
}

/// The settings of a host, whose users are those of a database.
const OF_ITS_OWN: &str = r#"
ftp = "0.0.0.0:0"
http = "0.0.0.0:0"
greeting = "The first."
[[host]]
addresses = "127.0.0.2"
directory = "second"
users = "second.db"
anonymous = false
greeting = "The second."
greeting-file = "before"
welcome-file = "behind"
limit-file = "full"
public-ip = "192.0.2.2"
sessions = "1"
"#;

/// A server with such a host.
fn site_of_its_own(name: &str) -> Site {
    let folder = folder(name, &["second"]);
    fs::write(folder.0.join("before"), "Come in to %L.\n").unwrap();
    fs::write(folder.0.join("behind"), "Behind the door.\n").unwrap();
    fs::write(folder.0.join("full"), "%M at a time at %L.\n").unwrap();
    add_user(&folder, "second.db", "zoe", &[]);
    Site::start_in(folder, OF_ITS_OWN)
}

/// Whether a password is right.
fn is_let_in(client: &mut Client, user: &str) -> bool {
    client.say(&format!("USER {user}"), "331");
    client.send("PASS password");
    client.reply().starts_with("230")
}

#[test]
fn a_host_has_users_of_its_own_and_none_besides() {
    let site = site_of_its_own("own-users");
    for (ip, user, expected) in [
        ("127.0.0.1", "bob", true),
        ("127.0.0.1", "zoe", false),
        ("127.0.0.1", "anonymous", true),
        ("127.0.0.2", "zoe", true),
        ("127.0.0.2", "bob", false),
        ("127.0.0.2", "anonymous", false),
    ] {
        let mut client = Client::connect(&at(ip, &site.ftp));
        assert_eq!(is_let_in(&mut client, user), expected, "{user} at {ip}");
        client.say("QUIT", "221");
    }
    let status = |ip| fetch_all(&at(ip, &site.http), ip).split(' ').nth(1).unwrap().to_owned();
    assert_eq!((&*status("127.0.0.1"), &*status("127.0.0.2")), ("200", "401"));
}

#[test]
fn a_host_greets_and_names_addresses_and_counts_sessions_for_itself() {
    let site = site_of_its_own("own-settings");
    let greeting = |ip| Client::open(&at(ip, &site.ftp)).unwrap().reply();
    assert_eq!(greeting("127.0.0.2"), "220-Come in to 127.0.0.2.\r\n220 The second.\r\n");
    assert_eq!(greeting("127.0.0.1"), "220 The first.\r\n");

    let mut client = Client::connect(&at("127.0.0.2", &site.ftp));
    client.say("USER zoe", "331");
    let welcome = client.say("PASS password", "230");
    assert!(welcome.contains("Behind the door."), "{welcome}");
    let reply = client.say("PASV", "227");
    assert!(reply.contains("(192,0,2,2,"), "{reply}");
    let mut other = Client::connect(&at("127.0.0.1", &site.ftp));
    other.log_in("bob");
    let reply = other.say("PASV", "227");
    assert!(reply.contains("(127,0,0,1,"), "{reply}");

    let mut second = Client::connect(&at("127.0.0.2", &site.ftp));
    second.say("USER zoe", "331");
    let reply = second.say("PASS password", "421");
    assert!(reply.starts_with("421-1 at a time at 127.0.0.2.\r\n421 Too many sessions"), "{reply}");
    let mut third = site.log_in("bob");
    third.say("NOOP", "200");
}

/// Makes `NAME.pem` and `NAME.key` for an address.
pub(super) fn make_certificate(openssl: &Path, folder: &Folder, name: &str, ip: &str) {
    let [certificate, key] = ["pem", "key"].map(|end| folder.0.join(format!("{name}.{end}")));
    let made = Command::new(openssl)
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", &format!("/CN={name}"), "-addext", &format!("subjectAltName=IP:{ip}")])
        .arg("-out")
        .arg(certificate)
        .arg("-keyout")
        .arg(key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// The certificate of a host is what a client checks that says no name: curl, which sends no SNI for an address.
#[test]
fn a_host_has_a_certificate_of_its_own_that_curl_checks() {
    let (Some(openssl), Some(curl)) = (program("openssl", false), program("curl", true)) else { return };
    let folder = folder("own-certificate", &["second"]);
    for (name, ip) in [("first", "127.0.0.1"), ("second", "127.0.0.2")] {
        make_certificate(&openssl, &folder, name, ip);
    }
    let https = free_port();
    let keys = format!(
        "ftp = \"0.0.0.0:0\"\nhttps = \"0.0.0.0:{https}\"\n\
         tls-cert = \"first.pem\"\ntls-key = \"first.key\"\n[[host]]\naddresses = \"127.0.0.2\"\n\
         directory = \"second\"\ntls-cert = \"second.pem\"\ntls-key = \"second.key\"\n"
    );
    let site = Site::start_in(folder, &keys);
    for (name, ip, expected) in
        [("first", "127.0.0.1", "the content of a file"), ("second", "127.0.0.2", "second")]
    {
        for url in [format!("ftp://{}/f", at(ip, &site.ftp)), format!("https://{ip}:{https}/f")] {
            let got = Command::new(&curl)
                .args(["-sS", "--ssl-reqd", "--user", "bob:password", "--cacert"])
                .arg(site.folder.0.join(format!("{name}.pem")))
                .arg(&url)
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&got.stderr);
            assert_eq!(String::from_utf8_lossy(&got.stdout), expected, "{url}: {error}");
        }
    }
}

#[test]
fn a_host_has_a_transfer_log_of_its_own() {
    let keys = "ftp = \"0.0.0.0:0\"\nhttp = \"0.0.0.0:0\"\nxferlog = \"first.log\"\n[[host]]\naddresses = \"127.0.0.2\"\n\
                directory = \"second\"\nxferlog = \"second.log\"\n[[host]]\nnames = \"third.test\"\ndirectory = \"third\"\n";
    let site = Site::start_in(folder("own-log", &["second", "third"]), keys);
    for ip in ["127.0.0.1", "127.0.0.2"] {
        let mut client = Client::connect(&at(ip, &site.ftp));
        client.log_in("bob");
        client.get("/f");
        client.say("QUIT", "221");
    }
    fetch(&at("127.0.0.2", &site.http), "127.0.0.2");
    fetch(&at("127.0.0.2", &site.http), "third.test");
    let services = |log: &str| {
        let text = fs::read_to_string(site.folder.0.join(log)).unwrap_or_default();
        let words = text.lines().map(|line| line.split(' ').rev().nth(3).unwrap().to_owned());
        let mut services: Vec<_> = words.collect();
        services.sort();
        services
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while services("first.log").len() + services("second.log").len() < 4 {
        assert!(std::time::Instant::now() < end, "{:?} {:?}", services("first.log"), services("second.log"));
        std::thread::yield_now();
    }
    assert_eq!(
        (services("first.log"), services("second.log")),
        (services("second.log"), services("first.log"))
    );
    assert_eq!(services("second.log"), ["ftp", "http"]);
}
