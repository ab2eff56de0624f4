//! Transfers say what they wait for: each cause is brought about, seen while it lasts, and found in the log and the metrics.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::site::{PATIENCE, Site, eventually};

/// More than the buffers of a connection hold.
const LARGE: usize = 32 << 20;

/// Waits until the transfer that runs waits for this, and has waited for so long that its log line says so: the end may show that
/// some of the time was another cause.
#[track_caller]
fn await_wait(site: &Site, waits_for: &str, cause: &str) {
    eventually(&format!("no transfer waits for {cause}"), || {
        let output = site.ctl(&["sessions", "--json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["sessions"].as_array().unwrap().iter().any(|session| {
            let waited = session["transfer"]["waited"][cause].as_f64().unwrap_or(0.0);
            session["waits-for"] == waits_for && waited > 0.2
        })
    });
}

/// Stops the server after it was scraped, and compares both with the log: what this cause took of the only transfer.
#[track_caller]
fn assert_told(mut site: Site, series: &str, cause: &str) {
    let key = format!("millrace_transfer_wait_seconds_total{{{series},cause=\"{cause}\"}}");
    let counted = site.scrape()[&key];
    site.stop();
    let log = site.read("log") + &site.read("transfers");
    let field = format!("waited-{cause}");
    let told = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?[&field].as_f64());
    let told: f64 = told.sum();
    assert!(told >= 0.05 && (told - counted).abs() < 0.01, "{told} s in the log, {counted} s counted: {log}");
}

#[test]
fn a_client_that_does_not_connect_for_data() {
    let site = Site::start("wait-connection", "");
    fs::write(site.folder.join("files/f"), "content").unwrap();
    let mut client = site.log_in();
    let reply = client.say("EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    client.0.get_mut().write_all(b"RETR f\r\n").unwrap();
    await_wait(&site, "data connection", "connection");
    let mut content = String::new();
    TcpStream::connect(("127.0.0.1", port)).unwrap().read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    client.expect("150");
    client.expect("226");
    assert_told(site, "protocol=\"ftp\",direction=\"download\"", "connection");
}

#[test]
fn a_client_that_does_not_begin_tls_on_the_data_connection() {
    let site = Site::start("wait-handshake", "tls-self-signed = true");
    fs::write(site.folder.join("files/f"), "content").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics/slow_handshake.py");
    let mut client = Command::new("python3")
        .arg(script)
        .args([site.ftp.rsplit(':').next().unwrap(), "f"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    await_wait(&site, "handshake", "handshake");
    client.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == b"content", "{output:?}");
    assert_told(site, "protocol=\"ftp\",direction=\"download\"", "handshake");
}

#[test]
fn a_client_that_takes_nothing_of_a_download() {
    let site = Site::start("wait-client", "");
    fs::write(site.folder.join("files/f"), vec![b'x'; LARGE]).unwrap();
    let mut client = site.log_in();
    let mut data = client.data();
    client.say("RETR f", "150");
    await_wait(&site, "client", "client");
    assert_eq!(std::io::copy(&mut data, &mut std::io::sink()).unwrap(), LARGE as u64);
    client.expect("226");
    assert_told(site, "protocol=\"ftp\",direction=\"download\"", "client");
}

#[test]
fn a_client_that_sends_nothing_of_an_upload() {
    let site = Site::start("wait-upload", "");
    let mut client = site.log_in();
    let mut data = client.data();
    client.say("STOR f", "150");
    await_wait(&site, "client", "client");
    data.write_all(b"late").unwrap();
    drop(data);
    client.expect("226");
    assert_told(site, "protocol=\"ftp\",direction=\"upload\"", "client");
}

#[test]
fn a_limit_on_bandwidth() {
    let site = Site::start("wait-limit", "download-limit = \"200k\"");
    fs::write(site.folder.join("files/f"), vec![b'x'; 300_000]).unwrap();
    let mut client = site.log_in();
    client.download("RETR f");
    assert_told(site, "protocol=\"ftp\",direction=\"download\"", "limit");
}

#[test]
fn a_limit_is_told_to_hooks_and_in_the_access_log_too() {
    let events = std::env::temp_dir().join(format!("millrace-wait-told-{}", std::process::id()));
    let _ = fs::remove_file(&events);
    let hook = format!(
        "[[hook]]\non = [\"download\", \"upload\"]\nrun = [\"/bin/sh\", \"-c\", \"cat >> {0}; echo >> {0}\"]\n",
        events.display()
    );
    let limits = "download-limit = \"200k\"\nupload-limit = \"200k\"\n";
    let mut site = Site::start("wait-told", &format!("{limits}hooks-queue = \"events.db\"\n{hook}"));
    fs::write(site.folder.join("files/f"), vec![b'x'; 300_000]).unwrap();
    site.log_in().download("RETR f");
    for (method, body) in [("GET", &[][..]), ("PUT", &[b'x'; 300_000])] {
        let mut stream = TcpStream::connect(&site.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} /f HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\nAuthorization: Basic dTpwYXNzd29yZA==\r\n\r\n",
            site.http,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    site.stop();
    let limited = |text: &str, field: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let limited = lines.filter(|line| line["waited-limit"].as_f64().is_some_and(|time| time > 0.05));
        limited.map(|line| line[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(limited(&site.read("access"), "method"), ["GET", "PUT"], "{}", site.read("access"));
    let told = fs::read_to_string(&events).unwrap_or_default();
    fs::remove_file(&events).unwrap();
    assert_eq!(limited(&told, "event"), ["download", "download", "upload"], "{told}");
}

/// Waits until an upload waits for the hook, which reads a pipe; then lets it end.
fn await_hook(site: &Site, pipe: &Path) {
    eventually("no session waits for a hook", || {
        let output = site.ctl(&["sessions", "--json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["sessions"].as_array().unwrap().iter().any(|session| {
            session["waits-for"] == "hook" && session["idle"].as_f64().is_some_and(|idle| idle > 0.2)
        })
    });
    fs::write(pipe, "\n").unwrap();
}

/// Starts a server whose hook decides about uploads once there is something in a pipe.
fn with_slow_hook(name: &str) -> (Site, PathBuf) {
    let pipe = std::env::temp_dir().join(format!("millrace-pipe-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let hook = format!("[[hook]]\non = [\"upload\"]\nrun = [\"/bin/cat\", \"{}\"]\n", pipe.display());
    (Site::start(name, &hook), pipe)
}

#[test]
fn a_hook_that_decides_about_an_upload_by_ftp() {
    let (site, pipe) = with_slow_hook("wait-hook");
    let mut client = site.log_in();
    let mut data = client.data();
    client.say("STOR f", "150");
    data.write_all(b"x").unwrap();
    drop(data);
    await_hook(&site, &pipe);
    client.expect("226");
    assert_told(site, "protocol=\"ftp\",direction=\"upload\"", "hook");
    fs::remove_file(&pipe).unwrap();
}

#[test]
fn a_hook_that_decides_about_an_upload_by_http() {
    let (mut site, pipe) = with_slow_hook("wait-hook-http");
    let mut stream = TcpStream::connect(&site.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "PUT /f HTTP/1.1\r\nHost: {}\r\nContent-Length: 1\r\nConnection: close\r\nAuthorization: Basic dTpwYXNzd29yZA==\r\n\r\nx",
        site.http
    );
    stream.write_all(request.as_bytes()).unwrap();
    await_hook(&site, &pipe);
    stream.read_to_end(&mut Vec::new()).unwrap();
    let key = "millrace_transfer_wait_seconds_total{protocol=\"http\",direction=\"upload\",cause=\"hook\"}";
    let counted = site.scrape()[key];
    site.stop();
    let told: Value = serde_json::from_str(site.read("access").lines().next().unwrap()).unwrap();
    let (told, seconds) = (told["waited-hook"].as_f64().unwrap(), told["seconds"].as_f64().unwrap());
    assert!(
        told > 0.1 && told <= seconds && (told - counted).abs() < 0.05,
        "{told} of {seconds} s, {counted} counted"
    );
    fs::remove_file(&pipe).unwrap();
}

/// The archive is compressed while it is sent, and its content takes the compressor long.
#[test]
fn what_has_to_be_made_first() {
    let site = Site::start("wait-storage", "archives = true");
    fs::create_dir(site.folder.join("files/d")).unwrap();
    let mut state = 1_u32;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        b'a' + (state % 26) as u8
    })
    .take(LARGE)
    .collect();
    fs::write(site.folder.join("files/d/f"), bytes).unwrap();
    let mut client = site.log_in();
    let mut data = client.data();
    client.say("RETR d.tar.gz", "150");
    assert!(std::io::copy(&mut data, &mut std::io::sink()).unwrap() > 0);
    client.expect("226");
    assert_told(site, "protocol=\"ftp\",direction=\"download\"", "storage");
}

#[test]
fn a_client_that_takes_nothing_of_an_answer() {
    let site = Site::start("wait-http", "");
    fs::write(site.folder.join("files/f"), vec![b'x'; LARGE]).unwrap();
    let mut stream = TcpStream::connect(&site.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "GET /f HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Basic dTpwYXNzd29yZA==\r\n\r\n",
        site.http
    );
    stream.write_all(request.as_bytes()).unwrap();
    await_wait(&site, "client", "client");
    assert!(std::io::copy(&mut stream, &mut std::io::sink()).unwrap() > LARGE as u64);
    let key =
        "millrace_transfer_wait_seconds_total{protocol=\"http\",direction=\"download\",cause=\"client\"}";
    eventually("it is not counted", || site.scrape()[key] > 0.05);
}
