//! Commands and replies of sessions, followed by the API and at the control socket.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use millrace_admin::Control;
use millrace_admin_http::AdminAccess;
use serde_json::{Value, json};

use crate::kit::Site;

/// Lines that wait for a reader: as in `live.rs` of the log.
const WAITING: usize = 4096;

/// A client of FTP.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(site: &Site) -> Self {
        let stream = TcpStream::connect(site.running.ftp_addresses()[0]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Self(BufReader::new(stream));
        client.expect("220");
        client
    }

    #[track_caller]
    fn expect(&mut self, code: &str) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.starts_with(code), "expected {code}: {line:?}");
    }

    #[track_caller]
    fn say(&mut self, line: &str, code: &str) {
        write!(self.0.get_mut(), "{line}\r\n").unwrap();
        self.expect(code);
    }
}

/// Follows by the API; returns the stream behind its first comment.
fn follow(site: &Site, token: &str, query: &str) -> BufReader<TcpStream> {
    let mut stream = BufReader::new(site.connect());
    write!(stream.get_mut(), "GET /api/v1/trace?{query} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n").unwrap();
    let mut head = String::new();
    while !head.ends_with(": commands and replies from now on\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    stream
}

/// Returns the directions and texts of events up to that of this text.
fn up_to(stream: &mut BufReader<TcpStream>, last: &str) -> Vec<String> {
    let (mut told, mut line) = (Vec::new(), String::new());
    while !told.last().is_some_and(|told: &String| told.ends_with(last)) {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "it has ended: {told:?}");
        if let Some(event) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(event).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(event["time"].as_str().unwrap().ends_with('Z') && event["session"].is_u64(), "{event}");
            let arrow = if event["direction"] == "received" { '>' } else { '<' };
            told.push(format!("{arrow} {}", event["text"].as_str().unwrap()));
        }
    }
    told
}

#[test]
fn a_trace_shows_both_directions_of_later_sessions_without_passwords() {
    let site = Site::start(AdminAccess::default());
    let token = site.token("operator", None);
    let log = site.running.watch_log(0, Box::new(|| {}));
    let mut stream = follow(&site, &token, "user=ann");
    let (logged, _) = log.take();
    let told = r#""what":"trace user=ann","admin":"token of-operator-None""#;
    assert!(logged.iter().any(|line| line.contains(told)), "{logged:?}");

    // Another's session is not seen, nor what a session says before it names its user.
    let mut bob = Client::connect(&site);
    bob.say("USER bob", "331");
    let mut ann = Client::connect(&site);
    ann.say("CLNT x", "200");
    ann.say("USER ann", "331");
    bob.say("PASS secret", "230");
    ann.say("pass wrong-secret", "530");
    ann.say("USER ann", "331");
    ann.say("PASS secret", "230");
    ann.say("SITE PSWD secret secret", "5");
    ann.say("PASSX secret", "500");
    ann.say("PAS secret", "500");
    ann.say("secret", "500");
    ann.say("SITE PASWD secret", "50");
    ann.say("CWD /nosuch", "550");
    ann.say("QUIT", "221");
    let seen = up_to(&mut stream, "< 221 Goodbye.");
    let starts = [
        "> USER ann",
        "< 331 ",
        "> pass ***",
        "< 530 ",
        "> USER ann",
        "< 331 ",
        "> PASS ***",
        "< 230 ",
        "> SITE PSWD ***",
        "< 50",
        "> ***",
        "< 500 ",
        "> PAS ***",
        "< 500 ",
        "> ***",
        "< 500 ",
        "> SITE ***",
        "< 50",
        "> CWD /nosuch",
        "< 550 ",
        "> QUIT",
        "< 221 ",
    ];
    assert_eq!(seen.len(), starts.len(), "{seen:#?}");
    for (seen, start) in seen.iter().zip(starts) {
        assert!(seen.starts_with(start) && !seen.contains("secret"), "{seen:?} is not {start:?}");
    }
}

#[test]
fn a_trace_of_an_address_begins_with_the_greeting() {
    let site = Site::start(AdminAccess::default());
    let mut stream = follow(&site, &site.token("operator", None), "address=127.0.0.1");
    let mut client = Client::connect(&site);
    client.say("NOOP", "");
    let seen = up_to(&mut stream, "> NOOP");
    assert!(seen.len() == 2 && seen[0].starts_with("< 220 "), "{seen:?}");
}

#[test]
fn a_trace_is_of_someone() {
    let site = Site::start(AdminAccess::default());
    let answer = site.ask("GET", "/api/v1/trace", &site.token("operator", None), "");
    assert_eq!(answer.status, 422);
    assert!(answer.body.contains("say whom"), "{}", answer.body);
}

#[test]
fn a_reader_that_stands_still_loses_lines_and_holds_up_no_session() {
    let site = Site::start(AdminAccess::default());
    let path = site.folder.join("control");
    let _control = Control::open(&path, &site.administration).unwrap();
    let mut reader = BufReader::new(UnixStream::connect(&path).unwrap());
    writeln!(reader.get_mut(), "{}", json!({ "do": "trace", "address": "127.0.0.1" })).unwrap();
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"ok\":true}\n");

    // More than wait in the server and in the socket together: long lines fill that soon.
    let (commands, each) = (2 * WAITING, 50);
    let burst = format!("NOOP {}\r\n", "x".repeat(200)).repeat(each);
    let mut client = Client::connect(&site);
    for _ in 0..commands / each {
        client.0.get_mut().write_all(burst.as_bytes()).unwrap();
        (0..each).for_each(|_| client.expect("200"));
    }
    client.say("QUIT", "221");
    let said = 1 + 2 * (commands / each * each) + 2;
    let (mut whole, mut dropped) = (0, 0);
    while whole + dropped < said {
        line.clear();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "{whole} lines, {dropped} dropped of {said}");
        let told: Value = serde_json::from_str(&line).unwrap();
        match told["dropped"].as_u64() {
            Some(lost) => dropped += lost as usize,
            None => whole += 1,
        }
    }
    assert_eq!(whole + dropped, said);
    assert!(dropped > 0 && whole >= WAITING, "{whole} lines, {dropped} dropped");
}
