//! Folders in buckets, through the binary: FTP and HTTP, the requests that they cost, and a rename that is killed.

#[path = "kit/client.rs"]
mod client;
#[path = "../../s3/tests/common/mod.rs"]
mod common;
#[path = "../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
#[path = "../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use client::Client;
use common::proxy::Proxy;
use common::{Server, names, read, write};
use millrace_vfs::{Storage, Wait};
use postgresql::Postgres;

const PATIENCE: Duration = Duration::from_secs(60);

/// A site whose folder `/b` is in a bucket.
struct Site(PathBuf);

impl Site {
    fn new(name: &str, port: u16) -> Self {
        Self::with(name, port, "")
    }

    /// With more keys of the folder.
    fn with(name: &str, port: u16, more: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-buckets-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("tree")).unwrap();
        let common::Settings { bucket, credentials, .. } = common::settings(port, "");
        let keys = format!(
            "aws_access_key_id = {}\naws_secret_access_key = {}\n",
            credentials.access_key, credentials.secret_key
        );
        fs::write(folder.join("keys"), keys).unwrap();
        let text = format!(
            "directory = \"tree\"\ncontrol = \"control\"\nanonymous = \"rw\"\n[[folder]]\npath = \"/b\"\nbucket = \
             \"{bucket}\"\nendpoint = \"http://127.0.0.1:{port}\"\ncredentials-file = \"keys\"\n{more}"
        );
        fs::write(folder.join("m.toml"), text).unwrap();
        Self(folder)
    }

    fn start(&self) -> Serving {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .current_dir(&self.0)
            .args(["serve", "--ftp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", "m.toml"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.0.join("log")).unwrap())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines: Vec<String> = out.take_while(|line| !line.starts_with("Ready")).collect();
        let at = |scheme: &str| -> SocketAddr {
            let line = lines.iter().find(|line| line.contains(scheme)).expect("it says where it is");
            let (_, rest) = line.split_once(scheme).unwrap();
            rest.split('/').next().unwrap().rsplit('@').next().unwrap().parse().unwrap()
        };
        let (ftp, http) = (at("ftp://"), at("http://"));
        Serving { child, ftp, http }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.0.join("log")).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Serving {
    child: Child,
    ftp: SocketAddr,
    http: SocketAddr,
}

impl Serving {
    fn log_in(&self) -> Client {
        let stream = TcpStream::connect(self.ftp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.expect("220");
        client.say("USER anonymous", "331");
        client.say("PASS x", "230");
        client.say("TYPE I", "200");
        client
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn small_files_cost_one_request_each() {
    let Some(store) = Server::seaweed() else { return };
    let bucket = store.storage("");
    let proxy = Proxy::before(store.port);
    let site = Site::new("requests", proxy.port);
    let server = site.start();
    let mut client = server.log_in();
    client.say("CWD /b", "250");
    client.upload("STOR first", "one");
    proxy.requests();
    client.upload("STOR second", "two");
    assert_eq!(proxy.requests(), ["PUT /files/second"]);
    assert_eq!(client.download("RETR second"), "two");
    assert_eq!(proxy.requests(), ["GET /files/second"]);
    assert_eq!(client.say("SIZE second", "213").trim(), "213 3");
    assert_eq!(proxy.requests(), ["HEAD /files/second"]);
    let listed = client.download("NLST");
    assert_eq!(listed, "first\r\nsecond\r\n");
    assert_eq!(proxy.requests(), ["GET /files?delimiter=%2F"]);
    client.upload("APPE second", "+three");
    assert_eq!(client.download("RETR second"), "two+three");
    let answer = server.get("/b/second");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("two+three"), "{answer}");
    assert_eq!(read(&bucket, "/second"), b"two+three");
    client.say("DELE second", "250");
    assert_eq!(names(&bucket, "/"), ["first"]);
    assert!(!site.log().contains("ignores"), "{}", site.log());
}

#[test]
fn with_names_in_a_database_the_store_is_asked_for_contents_alone() {
    let (Some(database), Some(store)) = (Postgres::new(), Server::seaweed()) else { return };
    let objects = store.storage("");
    let proxy = Proxy::before(store.port);
    let more = format!("layout = \"indexed\"\npostgres = \"{}\"\n", database.connection());
    let site = Site::with("indexed", proxy.port, &more);
    let server = site.start();
    let mut client = server.log_in();
    client.say("CWD /b", "250");
    client.say("MKD old", "257");
    let requests = || -> Vec<String> {
        proxy
            .requests()
            .into_iter()
            .filter_map(|request| request.split(' ').next().map(str::to_owned))
            .collect()
    };
    requests();
    client.upload("STOR old/first", "one");
    assert_eq!(requests(), ["PUT"]);
    assert_eq!(client.download("RETR old/first"), "one");
    assert_eq!(requests(), ["GET"]);
    assert_eq!(client.say("SIZE old/first", "213").trim(), "213 3");
    client.say("RNFR old", "350");
    client.say("RNTO new", "250");
    assert_eq!(client.download("NLST new"), "new/first\r\n");
    assert_eq!(requests(), [""; 0]);
    client.upload("APPE new/first", "+two");
    assert_eq!(client.download("RETR new/first"), "one+two");
    client.say("DELE new/first", "250");
    client.say("RMD new", "250");
    drop(server);
    let kept =
        database.run("SELECT count(*) FROM millrace_index.unnamed WHERE due > now() + interval '50 minutes'");
    assert_eq!((&*kept, names(&objects, "/").len()), ("2", 2), "for downloads that go on");
    assert!(!site.log().contains("cannot be asked"), "{}", site.log());
}

/// The whole answer to a `GET`, with more header fields.
fn ask(server: SocketAddr, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{request}\r\nHost: {server}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end + 4..].to_vec())
}

#[test]
fn downloads_of_large_files_are_sent_to_the_store() {
    let Some(store) = Server::seaweed() else { return };
    let bucket = store.storage("");
    // Requests of the server pass the proxy, those of its clients do not.
    let proxy = Proxy::before(store.port);
    let more = format!("redirect-downloads = \"http://127.0.0.1:{}\"\n", store.port);
    let site = Site::with("redirected", proxy.port, &more);
    let content: Vec<u8> = (0..9_u32 << 20).map(|at| (at % 251) as u8).collect();
    write(&bucket, "/large one", &content);
    write(&bucket, "/small", b"small");
    let server = site.start();
    let (head, _) = ask(server.http, "GET /b/large%20one HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 307 ") && head.contains("Cache-Control: no-store"), "{head}");
    let location = head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
    let path = location.strip_prefix(&format!("http://127.0.0.1:{}", store.port)).unwrap();
    let at_store = SocketAddr::from(([127, 0, 0, 1], store.port));
    let (head, body) = ask(at_store, &format!("GET {path} HTTP/1.1"));
    assert!(head.starts_with("HTTP/1.1 200 ") && body == content, "{head}");
    let (head, body) = ask(at_store, &format!("GET {path} HTTP/1.1\r\nRange: bytes=9000000-9000009"));
    assert!(head.starts_with("HTTP/1.1 206 ") && body == content[9_000_000..=9_000_009], "{head}");
    let (head, _) = ask(at_store, &format!("GET {} HTTP/1.1", path.replace("large", "larger")));
    assert!(head.starts_with("HTTP/1.1 403 "), "the signature is for one file: {head}");

    let (head, body) = ask(server.http, "GET /b/small HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == b"small", "{head}");
    let (head, _) = ask(server.http, "HEAD /b/large%20one HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("Content-Length: 9437184"), "{head}");
    let etag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap();
    let (head, _) = ask(server.http, &format!("GET /b/large%20one HTTP/1.1\r\nIf-None-Match: {etag}"));
    assert!(head.starts_with("HTTP/1.1 304 "), "{head}");
    drop(server);

    let text = fs::read_to_string(site.0.join("m.toml")).unwrap();
    fs::write(site.0.join("m.toml"), format!("user-download-limit = \"100M\"\n{text}")).unwrap();
    let server = site.start();
    let (head, body) = ask(server.http, "GET /b/large%20one HTTP/1.1");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body == content,
        "what a limit concerns passes here: {head}"
    );
}

/// Uploads a file; an error where the server dies meanwhile.
fn try_upload(server: SocketAddr, name: &str, content: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(TcpStream::connect(server)?);
    lines.get_ref().set_read_timeout(Some(PATIENCE))?;
    let mut reply = String::new();
    let mut data = None;
    for (command, code) in [("", "220"), ("USER anonymous", "331"), ("PASS x", "230"), ("EPSV", "229")] {
        if !command.is_empty() {
            lines.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        }
        reply.clear();
        lines.read_line(&mut reply)?;
        let wrong = || std::io::Error::other(reply.clone());
        if !reply.starts_with(code) {
            return Err(wrong());
        }
        if command == "EPSV" {
            let port = reply.split('|').nth(3).and_then(|port| port.parse::<u16>().ok()).ok_or_else(wrong)?;
            data = Some(TcpStream::connect((server.ip(), port))?);
        }
    }
    lines.get_mut().write_all(format!("STOR {name}\r\n").as_bytes())?;
    lines.read_line(&mut reply)?;
    data.ok_or(std::io::ErrorKind::NotConnected)?.write_all(content)?;
    reply.clear();
    lines.read_line(&mut reply)?;
    if reply.starts_with("226") { Ok(()) } else { Err(std::io::Error::other(reply)) }
}

#[test]
fn of_a_server_that_is_killed_every_acknowledged_file_is_whole_and_every_object_has_a_row() {
    const THREADS: usize = 4;
    const KILLS: usize = 3;
    const BETWEEN: usize = 15;
    let (Some(database), Some(store)) = (Postgres::new(), Server::seaweed()) else { return };
    let objects = store.storage("");
    let more = format!("layout = \"indexed\"\npostgres = \"{}\"\n", database.connection());
    let site = Site::with("kills", store.port, &more);
    let first = site.start();
    let address = Mutex::new(first.ftp);
    let acknowledged = Mutex::new(Vec::new());
    let count = || acknowledged.lock().unwrap().len();
    // Small ones, and ones of two parts.
    let content = |name: &str| name.repeat(if name.ends_with('3') { 1 << 20 } else { 3 });
    let mut server = first;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (address, acknowledged) = (&address, &acknowledged);
            scope.spawn(move || {
                for number in 0.. {
                    if count() >= (KILLS + 1) * BETWEEN {
                        return;
                    }
                    // Some names come again.
                    let name = format!("file-{thread}-{}", number % 20);
                    let server = *address.lock().unwrap();
                    match try_upload(server, &format!("/b/{name}"), content(&name).as_bytes()) {
                        Ok(()) => acknowledged.lock().unwrap().push(name),
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
        }
        for kill in 1..=KILLS {
            while count() < kill * BETWEEN {
                std::thread::yield_now();
            }
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            let _ = fs::remove_file(site.0.join("control"));
            server = site.start();
            *address.lock().unwrap() = server.ftp;
        }
    });
    let mut client = server.log_in();
    for name in acknowledged.into_inner().unwrap() {
        assert!(client.download(&format!("RETR /b/{name}")) == content(&name), "{name}");
    }
    drop((client, server));
    let rows = database.run(
        "SELECT encode(object, 'hex') FROM millrace_index.node WHERE object IS NOT NULL
        UNION SELECT encode(object, 'hex') FROM millrace_index.unnamed",
    );
    let lost: Vec<String> =
        names(&objects, "/").into_iter().filter(|object| !rows.contains(&**object)).collect();
    assert_eq!(lost, Vec::<String>::new());
}

#[test]
fn a_rename_that_is_killed_is_finished_by_the_next_start() {
    const FILES: usize = 200;
    let Some(store) = Server::seaweed() else { return };
    let bucket = store.storage("");
    bucket.make_directory(&common::path("/old")).unwrap();
    for number in 0..FILES {
        write(&bucket, &format!("/old/{number}"), number.to_string().as_bytes());
    }
    let proxy = Proxy::before(store.port);
    let site = Site::new("killed", proxy.port);
    let mut server = site.start();
    let mut client = server.log_in();
    proxy.hold_after(FILES / 2);
    client.say("RNFR /b/old", "350");
    client.0.get_mut().write_all(b"RNTO /b/new\r\n").unwrap();
    proxy.wait_until_held();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    drop(server);
    assert_eq!(names(&bucket, "/old").len(), FILES, "nothing is removed before all is copied");
    // A client has seen the new folder, and has written into it; behind the second in which the old files came, because
    // the store tells no more of them.
    let second = |name: &str| bucket.metadata(&common::path(name), Wait::Allowed).unwrap().modified.seconds;
    let (first, last) = ("/new/0", format!("/new/{}", FILES - 1));
    loop {
        [first, &last].iter().for_each(|name| write(&bucket, name, b"newer"));
        if second(first) > second(&format!("/old/{}", FILES - 1)) {
            break;
        }
    }
    proxy.hold_after(usize::MAX);
    let _ = fs::remove_file(Path::new(&site.0).join("control"));
    let server = site.start();
    let mut client = server.log_in();
    client.say("CWD /b/new", "250");
    assert_eq!(names(&bucket, "/"), ["new"]);
    assert_eq!(names(&bucket, "/new").len(), FILES);
    for number in [1, FILES / 2, FILES - 2] {
        assert_eq!(read(&bucket, &format!("/new/{number}")), number.to_string().as_bytes());
    }
    assert_eq!([first, &last].map(|name| read(&bucket, name)), [b"newer", b"newer"]);
}
