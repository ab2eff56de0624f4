//! The output of a running server: the announcement and the log.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::{CHEAP, GOLDEN, Scratch, Serving, millrace, reply, run, text};

#[test]
fn it_announces_what_is_open_and_to_whom() {
    let serving = Serving::start(&["--anonymous", "ro", "--user", "a b:pw", "--user", "carol:pw:ro:inside"]);
    let address = serving.address();
    let port = address.rsplit(':').next().unwrap();
    let page = serving.announced[4].split_whitespace().next().unwrap();
    let opening = format!(
        "  Only this computer can connect; --ftp 0.0.0.0:{port} --http 0.0.0.0:{} opens it to the network",
        page.trim_end_matches('/').rsplit(':').next().unwrap()
    );
    let mut announced = serving.announced.clone();
    // Where this computer has an address on a network, that is told.
    let place = announced.remove(5).strip_prefix(&opening).expect("how it is opened").to_owned();
    assert!(place == "." || place.starts_with(", at "), "{place}");
    let expected = [
        format!("Millrace {} serves {GOLDEN}", env!("CARGO_PKG_VERSION")),
        format!("  ftp://{address}/         anonymous may read"),
        format!("  ftp://a%20b@{address}/   a b may read and write"),
        format!("  ftp://carol@{address}/   carol may read, in inside"),
        format!("  {page}        the same, for browsers"),
        "Ready. Ctrl-C stops; running transfers get 30 s.".to_owned(),
    ];
    assert_eq!(announced, expected);
    serving.connect();
}

#[test]
fn encrypted_addresses_are_told_how_to_be_opened_too() {
    let mut doors = vec!["--user", "a:pw", "--https", "127.0.0.1:0", "--ftps", "127.0.0.1:0"];
    let state = Scratch::new("opening");
    let folder = state.path("state");
    doors.extend(["--tls-self-signed", "--state", folder.to_str().unwrap()]);
    let serving = Serving::start(&doors);
    let told = serving.announced.iter().find(|line| line.contains("Only this computer")).unwrap();
    let flags: Vec<&str> = told.split(' ').filter(|word| word.starts_with("--")).collect();
    // By HTTP in clear nobody could log in from elsewhere.
    assert_eq!(flags, ["--ftp", "--ftps", "--https"], "{told}");
}

/// The lines of an announcement, less the first and the last.
fn announced(toml: &str, name: &str) -> Vec<String> {
    let folder = Scratch::new(name);
    let file = folder.path("m.toml");
    fs::write(&file, toml.replace("HASH", CHEAP)).unwrap();
    let mut child = millrace(&["serve", GOLDEN, "--config", file.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines: Vec<String> =
        out.lines().map(Result::unwrap).skip(1).take_while(|line| !line.starts_with("Ready")).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    // Ports are the system's to choose.
    lines
        .iter()
        .filter(|line| !line.contains("Only this computer"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .map(|line| match line.split_once("127.0.0.1:") {
            Some((before, after)) => {
                format!("{before}HOST{}", after.trim_start_matches(|char: char| char.is_ascii_digit()))
            }
            None => line,
        })
        .collect()
}

#[test]
fn each_address_is_announced_to_those_who_come_in_there() {
    let doors = "ftp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n";
    let user = |name: &str, said: &str| format!("[[user]]\nname = \"{name}\"\npassword = \"HASH\"\n{said}\n");
    let users = [
        user("web", "protocols = [\"http\"]"),
        user("al", "access = \"ro\"\ntree = [{ path = \"/in\", access = [\"write\"] }]"),
        user("off", "disabled = true"),
        user("old", "expires = \"2020-01-01\""),
        user("tls", "require-tls = true"),
    ]
    .concat();
    assert_eq!(
        announced(&format!("{doors}{users}"), "doors"),
        [
            "ftp://al@HOST/ al may read; at /in: write",
            "http://web@HOST/ web may read and write",
            "http://al@HOST/ al may read; at /in: write",
            "off is not served: the account is disabled",
            "old is not served: the account has expired: expires is 2020-01-01T00:00:00Z",
            "tls is not served: require-tls is true, and there is no certificate",
        ]
    );
    let alone = "ftp = \"off\"\nhttp = \"127.0.0.1:0\"\nanonymous = \"ro\"\n";
    assert_eq!(
        announced(&format!("{alone}{}", user("al", "")), "browsers"),
        ["http://HOST/ anonymous may read", "http://al@HOST/ al may read and write"]
    );
    // From elsewhere a password is not taken in clear; where this computer has no other address, that is not told.
    let everywhere = "ftp = \"127.0.0.1:0\"\nhttp = \"0.0.0.0:0\"\n";
    let mut lines = announced(&format!("{everywhere}{}", user("al", "")), "everywhere");
    assert_eq!(lines.remove(0), "ftp://al@HOST/ al may read and write");
    assert_eq!(lines.pop().as_deref(), Some("http://HOST/ the same, for browsers"));
    assert!(lines.iter().all(|line| line.ends_with("no logins over plain HTTP (use --https)")));
}

#[test]
fn a_port_that_is_taken_exits_with_1_and_says_which() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, arguments) in [
        ("--ftp", &["serve", GOLDEN, "--ftp", &address][..]),
        ("--http", &["serve", GOLDEN, "--ftp", "127.0.0.1:0", "--http", &address]),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            text(&output.stderr),
            format!(
                "millrace: cannot listen on {address}: Address already in use (os error 98); another program has \
                 that port: end it, or choose another, such as {flag} 127.0.0.1:0.\n"
            )
        );
    }
}

#[test]
fn a_default_port_that_is_taken_moves_http_and_a_written_one_does_not() {
    // Whether or not something else has it already: it is taken now.
    let _taken = TcpListener::bind("127.0.0.1:8080");
    // A port of its own choice would move HTTP as well; no other program uses this address.
    let mut child = millrace(&["serve", GOLDEN, "--ftp", "127.0.0.77:2121"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines: Vec<String> =
        out.lines().map(Result::unwrap).take_while(|line| !line.starts_with("Ready")).collect();
    let url = lines.iter().find_map(|line| line.split_whitespace().find(|word| word.starts_with("http://")));
    child.kill().unwrap();
    let log = child.wait_with_output().unwrap().stderr;
    let url = url.expect("HTTP is served");
    assert!(!url.contains(":8080/"), "{lines:?}");
    let warning = "warning: another program has 127.0.0.1:8080, where HTTP is by default;";
    assert!(text(&log).lines().any(|line| line.starts_with(warning)));

    let output = run(&["serve", GOLDEN, "--ftp", "off", "--http", "127.0.0.1:8080"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot listen on 127.0.0.1:8080"));
}

#[test]
fn http_alone_can_be_served() {
    let mut child = millrace(&["serve", GOLDEN, "--ftp", "off", "--http", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines: Vec<String> =
        out.lines().map(Result::unwrap).take_while(|line| !line.starts_with("Ready")).collect();
    let url = lines[1].split_whitespace().next().unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET /least.toml HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    // Told to end, it writes its log.
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let log = text(&child.wait_with_output().unwrap().stderr);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(log.contains("\"GET /least.toml HTTP/1.0\" 200 "), "{log}");
    assert!(lines.iter().all(|line| !line.contains("ftp://")), "{lines:?}");
}

#[test]
fn anonymous_writers_from_the_network_are_warned_of() {
    let open = ["--ftp", "0.0.0.0:0", "--anonymous", "rw", "--user", "a:b"];
    let mut child = millrace(&[&["serve", GOLDEN, "--quiet"], &open[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ready =
        BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap().starts_with("Ready"));
    child.kill().unwrap();
    assert!(ready);
    let told = text(&child.wait_with_output().unwrap().stderr);
    assert_eq!(
        crate::without_word_of_root(&told),
        "warning: everyone who can reach this computer may write, delete and fill the disk: anonymous is rw\n\
         warning: passwords and files cross the network unencrypted: this is FTP without TLS\n"
    );
}

#[test]
fn quiet_keeps_the_announcement_and_drops_the_events() {
    let mut serving = Serving::start(&["--quiet"]);
    let mut client = serving.connect();
    write!(client.get_mut(), "USER anonymous\r\nPASS x\r\nQUIT\r\n").unwrap();
    assert_eq!((0..3).map(|_| reply(&mut client)).filter(|line| !line.is_empty()).count(), 3);
    serving.signal("-TERM");
    assert_eq!(serving.exit_code(), Some(0));
    assert_eq!(serving.logged(), "");
}

#[test]
fn quiet_and_json_go_together() {
    let mut serving = Serving::start(&["--quiet", "--log-format", "json", "--user", "dora:pw"]);
    let mut client = serving.connect();
    write!(client.get_mut(), "USER dora\r\nPASS wrong\r\n").unwrap();
    assert!(reply(&mut client).starts_with("331 "));
    assert!(reply(&mut client).starts_with("530 "));
    serving.signal("-TERM");
    assert_eq!(serving.exit_code(), Some(0));
    let logged = serving.logged();
    assert_eq!(logged.lines().count(), 1, "{logged}");
    assert!(logged.starts_with("{\"time\":\"") && logged.contains("\"event\":\"login-failed\""), "{logged}");
}

#[test]
fn a_stuck_log_does_not_stop_the_server() {
    // Its standard error is a pipe that is not read, and holds 64 KiB.
    let serving = Serving::start(&["--user", "dora:pw"]);
    let mut client = serving.connect();
    client.get_mut().write_all(b"USER dora\r\nPASS pw\r\n").unwrap();
    for code in ["331 ", "230 "] {
        assert!(reply(&mut client).starts_with(code));
    }
    let mut another = serving.connect();
    for round in 0..60 {
        // Each login is a line in the log.
        client.get_mut().write_all("USER dora\r\nPASS pw\r\n".repeat(50).as_bytes()).unwrap();
        for number in 0..100 {
            let expected = if number % 2 == 0 { "331 " } else { "230 " };
            assert!(reply(&mut client).starts_with(expected), "round {round}");
        }
        write!(another.get_mut(), "NOOP\r\n").unwrap();
        assert!(reply(&mut another).starts_with("200 "));
        if round % 10 == 9 {
            another = serving.connect();
        }
    }
}
