//! `millrace ctl upgrade`: one server replaces another, and clients must notice nothing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The file that all clients fetch.
const CONTENT: &[u8] = b"the content of a file";

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// What asks for a lock.
const LOCK: &str = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
                    <D:locktype><D:write/></D:locktype></D:lockinfo>";

/// How long something may take that is not in doubt.
const PATIENCE: Duration = Duration::from_secs(60);

struct Site {
    folder: PathBuf,
    /// The first server; others are started by the one before them.
    first: Child,
    /// What all of them print.
    out: BufReader<ChildStdout>,
    ftp: String,
    http: String,
    https: Option<String>,
}

impl Site {
    fn start(name: &str, keys: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-upgrade-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("files")).unwrap();
        fs::write(folder.join("files/f"), CONTENT).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        write(&folder, keys);
        let mut first = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--config", "millrace.toml"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let out = BufReader::new(first.stdout.take().unwrap());
        let mut site = Self { folder, first, out, ftp: String::new(), http: String::new(), https: None };
        let lines = site.lines_up_to_ready();
        let of = |scheme: &str| {
            let line = lines.iter().find_map(|line| line.split_once(scheme))?.1;
            Some(line.split('/').next().unwrap().rsplit('@').next().unwrap().to_owned())
        };
        (site.ftp, site.http) = (of("ftp://").unwrap(), of("http://").unwrap());
        site.https = of("https://");
        site
    }

    fn lines_up_to_ready(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.starts_with("Ready")) {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended: {}", self.log());
            lines.push(line);
        }
        lines
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.arg("ctl").arg("--control").arg(self.folder.join("control")).args(arguments).output().unwrap()
    }

    fn upgrade(&mut self) -> u32 {
        let output = self.ctl(&["--json", "upgrade"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}{}", self.log());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let lines = self.lines_up_to_ready();
        assert!(lines.iter().any(|line| line.contains(&self.ftp)), "it is where the other was: {lines:?}");
        answer["pid"].as_u64().unwrap() as u32
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.ftp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.expect("220");
        client
    }

    fn log_in(&self) -> Client {
        let mut client = self.connect();
        client.say("USER alice", "331");
        client.say("PASS password", "230");
        client.say("TYPE I", "200");
        client
    }

    /// A connection at which something was asked: it stays with the server that answered.
    fn ask_first(&self) -> TcpStream {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let answer = request(&mut stream, "OPTIONS", "/f", "", "");
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        stream
    }

    /// Waits for the end of the first server.
    fn first_ends_with(&mut self) -> Option<i32> {
        eventually("it ends", || self.first.try_wait().unwrap().is_some());
        self.first.wait().unwrap().code()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The last server owns the socket; earlier ones end with their sessions.
        let _ = self.ctl(&["stop"]);
        let _ = self.first.kill();
        let _ = self.first.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn write(folder: &std::path::Path, keys: &str) {
    let text = format!(
        "directory = \"files\"\nftp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ncontrol = \"control\"\nanonymous = \"rw\"\n\
         {keys}\n[[user]]\nname = \"alice\"\npassword = \"{HASH}\"\n"
    );
    fs::write(folder.join("millrace.toml"), text).unwrap();
}

struct Client(BufReader<TcpStream>);

impl Client {
    #[track_caller]
    fn expect(&mut self, code: &str) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.starts_with(code), "expected {code}: {line:?}");
        line
    }

    #[track_caller]
    fn say(&mut self, line: &str, code: &str) -> String {
        write!(self.0.get_mut(), "{line}\r\n").unwrap();
        self.expect(code)
    }

    fn passive(&mut self) -> TcpStream {
        let reply = self.say("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        let data = TcpStream::connect(("127.0.0.1", port)).unwrap();
        data.set_read_timeout(Some(PATIENCE)).unwrap();
        data
    }
}

fn eventually(what: &str, mut claim: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !claim() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Asks by HTTP; the head of the answer.
fn request(stream: &mut TcpStream, method: &str, path: &str, fields: &str, body: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let (mut reader, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "it ended: {head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: u64 = length.map_or(0, |length| length.parse().unwrap());
    reader.take(length).read_to_end(&mut Vec::new()).unwrap();
    head
}

/// Locks a file; the token.
fn lock(stream: &mut TcpStream, path: &str) -> Option<String> {
    let head = request(stream, "LOCK", path, "Timeout: Second-3000\r\n", LOCK);
    Some(head.split_once("Lock-Token: <")?.1.split_once('>')?.0.to_owned())
}

/// Fetches with curl until told to stop; what went wrong.
fn fetch(url: &str, is_over: &AtomicBool, fetched: &AtomicUsize) -> Vec<String> {
    let mut wrong = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let curl = Command::new("curl").args(["-sSk", "--max-time", "60", url]).output().unwrap();
        if curl.stdout != CONTENT {
            wrong.push(format!("{url}: {}", String::from_utf8_lossy(&curl.stderr)));
        }
        fetched.fetch_add(1, Ordering::Relaxed);
    }
    wrong
}

/// Connects and waits for the greeting until told to stop, and nothing else: often enough that a connection waits at
/// each listener at the moment when no server accepts. Returns the errors.
fn knock(address: &str, is_over: &AtomicBool) -> Vec<String> {
    let mut wrong = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let mut line = String::new();
        let greeted = TcpStream::connect(address).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            BufReader::new(&stream).read_line(&mut line)
        });
        if greeted.is_err() || !line.starts_with("220") {
            wrong.push(format!("{greeted:?} {line:?}"));
        }
    }
    wrong
}

#[test]
fn five_upgrades_refuse_and_cut_no_client() {
    const LARGE: usize = 3 << 20;
    let keys = "workers = 2\npassive-ports = \"61300-61363\"\ngrace = 600\nhttps = \"127.0.0.1:0\"\n\
                tls-self-signed = true\nstate = \"state\"";
    let mut site = Site::start("five", keys);
    fs::write(site.folder.join("files/large"), vec![b'x'; LARGE]).unwrap();
    // Begun before, and under way until the last of them serves.
    let (mut down, mut up) = (site.log_in(), site.log_in());
    let (mut coming, mut going) = (down.passive(), up.passive());
    down.say("RETR large", "150");
    up.say("STOR up", "150");
    coming.read_exact(&mut [0; 1000]).unwrap();
    going.write_all(&[b'y'; 1000]).unwrap();

    let (is_over, fetched) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 3]);
    let address = site.ftp.clone();
    let https = site.https.clone().expect("HTTPS is served");
    let urls =
        [format!("ftp://{}/f", site.ftp), format!("http://{}/f", site.http), format!("https://{https}/f")];
    let (pids, wrong) = thread::scope(|scope| {
        let fetching = urls.iter().zip(&fetched);
        let fetching = fetching.map(|(url, fetched)| scope.spawn(|| fetch(url, &is_over, fetched)));
        let knocking = (0..4).map(|_| scope.spawn(|| knock(&address, &is_over)));
        let clients: Vec<_> = fetching.chain(knocking).collect();
        let mut pids = vec![site.first.id()];
        for _ in 0..5 {
            let before = [0, 1, 2].map(|which| fetched[which].load(Ordering::Relaxed));
            pids.push(site.upgrade());
            eventually("each of them is used", || {
                (0..3).all(|which| fetched[which].load(Ordering::Relaxed) > before[which] + 1)
            });
        }
        is_over.store(true, Ordering::Relaxed);
        (pids, clients.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>())
    });
    assert_eq!(wrong, [""; 0], "{}", site.log());
    pids.windows(2).for_each(|two| assert_ne!(two[0], two[1]));

    going.write_all(&vec![b'y'; LARGE - 1000]).unwrap();
    drop(going);
    up.expect("226");
    let mut rest = Vec::new();
    coming.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), LARGE - 1000);
    down.expect("226");
    assert_eq!(fs::metadata(site.folder.join("files/up")).unwrap().len(), LARGE as u64);
    drop((down, up));
    assert_eq!(site.first_ends_with(), Some(0));
    let log = site.log();
    let ended = format!("ended reason=\"handed over to process {}\" pid={}", pids[1], pids[0]);
    assert!(log.contains(&ended) && log.contains(&format!(" replaces_pid={}", pids[0])), "{log}");
    assert!(site.folder.join("control").exists(), "it is the last one's");
}

#[test]
fn a_new_server_that_fails_leaves_the_old_one_as_it_was() {
    let mut site = Site::start("failing", "");
    let mut client = site.log_in();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (keys, told) in [
        ("http-sort = 1\n", "millrace.toml:"),
        (&*format!("https = \"{taken}\"\ntls-self-signed = true\nstate = \"state\"\n"), "cannot listen on"),
    ] {
        write(&site.folder, keys);
        let refused = site.ctl(&["upgrade"]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{error}");
        assert!(error.contains("goes on as it was") && error.contains(told), "{error}");
        client.say("NOOP", "200");
        site.log_in().say("QUIT", "221");
    }
    write(&site.folder, "");
    site.upgrade();
    client.say("QUIT", "221");
    assert_eq!(site.first_ends_with(), Some(0));
}

#[test]
fn addresses_that_are_gone_are_closed_and_new_ones_opened_and_bans_and_numbers_go_on() {
    let mut site = Site::start("addresses", "workers = 3");
    site.log_in().say("QUIT", "221");
    assert!(site.ctl(&["ban", "192.0.2.0/24"]).status.success());
    assert!(site.ctl(&["ban", "192.0.2.7", "--for", "1h"]).status.success());
    let text = fs::read_to_string(site.folder.join("millrace.toml")).unwrap();
    let text = text
        .replace("http = \"127.0.0.1:0\"", "http = [\"127.0.0.2:0\"]")
        .replace("workers = 3", "workers = 2");
    fs::write(site.folder.join("millrace.toml"), text).unwrap();
    site.upgrade();
    // A thread writes the log.
    let started = || site.log().lines().filter(|line| line.contains(" started ")).count();
    eventually("the successor has logged where it listens", || started() == 2);
    let log = site.log();
    let opened = log.lines().rfind(|line| line.contains(" started ")).unwrap();
    let http = opened.split("http=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(http.starts_with("127.0.0.2:"), "{opened}");
    TcpStream::connect(http).unwrap();
    eventually("the old address is closed", || TcpStream::connect(&site.http).is_err());
    let bans: Value = serde_json::from_slice(&site.ctl(&["--json", "bans"]).stdout).unwrap();
    let mut bans: Vec<_> =
        bans["bans"].as_array().unwrap().iter().map(|ban| ban["network"].as_str()).collect();
    bans.sort();
    assert_eq!(bans, [Some("192.0.2.0/24"), Some("192.0.2.7")]);
    let _client = site.log_in();
    let sessions: Value = serde_json::from_slice(&site.ctl(&["--json", "sessions"]).stdout).unwrap();
    assert!(sessions["sessions"][0]["session"].as_u64().unwrap() > 1, "{sessions}");
}

#[test]
fn sessions_of_the_old_server_go_on_for_the_grace_time() {
    let mut site = Site::start("grace", "grace = 600");
    let mut client = site.log_in();
    site.upgrade();
    client.say("PWD", "257");
    let mut data = client.passive();
    client.say("RETR f", "150");
    let mut content = Vec::new();
    data.read_to_end(&mut content).unwrap();
    assert_eq!(content, CONTENT);
    client.expect("226");
    client.say("QUIT", "221");
    assert_eq!(site.first_ends_with(), Some(0), "the last of them has gone");
}

#[test]
fn an_idle_session_gets_421_after_the_grace_time() {
    let mut site = Site::start("no-grace", "grace = 0");
    let (mut idle, mut busy) = (site.log_in(), site.log_in());
    let mut data = busy.passive();
    busy.say("STOR up", "150");
    site.upgrade();
    idle.expect("421");
    data.write_all(CONTENT).unwrap();
    drop(data);
    busy.expect("226");
    busy.expect("421");
    assert_eq!(site.first_ends_with(), Some(0));
}

/// What each counts by itself comes together when the old one has ended.
#[test]
fn bytes_of_the_last_sessions_are_counted_by_the_next_server() {
    let keys = "quotas = \"quotas.db\"\n[[folder]]\npath = \"/q\"\ndirectory = \"q\"\nquota-bytes = \"1M\"\n";
    let folder = std::env::temp_dir().join(format!("millrace-upgrade-{}-quota", std::process::id()));
    fs::create_dir_all(folder.join("q")).unwrap();
    let mut site = Site::start("quota", keys);
    let mut client = site.log_in();
    client.say("CWD q", "250");
    let mut data = client.passive();
    client.say("STOR late", "150");
    data.write_all(&[b'x'; 1000]).unwrap();
    site.upgrade();
    let mut other = site.log_in();
    let mut more = other.passive();
    other.say("STOR q/early", "150");
    more.write_all(&[b'x'; 500]).unwrap();
    drop(more);
    other.expect("226");
    data.write_all(&[b'x'; 2000]).unwrap();
    drop(data);
    client.expect("226");
    drop(client);
    assert_eq!(site.first_ends_with(), Some(0));
    eventually("the new one knows of it", || {
        let quotas: Value = serde_json::from_slice(&site.ctl(&["--json", "quotas"]).stdout).unwrap();
        quotas["quotas"][0]["bytes"] == 3500
    });
}

/// What a client of WebDAV is told holds, whichever of the two it asks: the old one takes nothing that would be lost.
#[test]
fn webdav_changes_during_an_upgrade_are_stored_or_refused() {
    let mut site = Site::start("dav", "grace = 600\nstate = \"state\"");
    let mut old: Vec<_> = (0..7).map(|_| site.ask_first()).collect();
    let token = lock(&mut old[0], "/f").expect("it can be locked");
    let if_token = format!("If: (<{token}>)\r\n");
    // A new one that fails late, for there is no room for a name beside that of its control socket: the old one goes on.
    let text = fs::read_to_string(site.folder.join("millrace.toml")).unwrap();
    let long = format!("\"{}\"", "c".repeat(103));
    fs::write(site.folder.join("millrace.toml"), text.replace("\"control\"", &long)).unwrap();
    let refused = site.ctl(&["upgrade"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(site.log().contains(" replaces_pid="), "it came as far as to serve: {}", site.log());
    lock(&mut old[0], "/g").expect("it is this one's again");
    fs::write(site.folder.join("millrace.toml"), text).unwrap();
    site.upgrade();

    let update = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><x xmlns=\"urn:y\">1</x></D:prop></D:set></D:propertyupdate>";
    let lock_token = format!("Lock-Token: <{token}>\r\n");
    for (method, fields, body) in [
        ("LOCK", "", LOCK),
        ("UNLOCK", &*lock_token, ""),
        ("PROPPATCH", "", update),
        ("DELETE", "", ""),
        ("PUT", &*if_token, "new"),
    ] {
        let answer = request(&mut old.pop().unwrap(), method, "/f", fields, body);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{method}: {answer}");
        assert!(
            answer.contains("Connection: close\r\n") && answer.contains("Retry-After: 0\r\n"),
            "{answer}"
        );
    }
    let stored = request(&mut old.pop().unwrap(), "PUT", "/other", "", "new");
    assert!(stored.starts_with("HTTP/1.1 201 "), "the file must be new: {stored}");
    let new = |method: &str, path: &str, fields: &str| {
        let mut stream = TcpStream::connect(&site.http).unwrap();
        request(&mut stream, method, path, fields, "")[9..12].to_owned()
    };
    assert_eq!(new("PUT", "/f", ""), "423");
    assert_eq!(new("PUT", "/g", ""), "423", "what was locked behind the failure, too");
    assert_eq!(new("PUT", "/f", &if_token), "204");
    assert_eq!(new("UNLOCK", "/f", &lock_token), "204");
    assert_eq!(new("PUT", "/f", ""), "204");
}

/// Deliveries are one server's: events are told once, those of the old one's last sessions, too.
#[test]
fn events_of_hooks_are_delivered_once_by_whichever_server() {
    let told = std::env::temp_dir().join(format!("millrace-upgrade-{}-told", std::process::id()));
    let keys = format!(
        "hooks-queue = \"queue.db\"\n[[hook]]\non = \"upload\"\nwait = false\nrun = [\"/bin/sh\", \"-c\", \"cat >> {}; echo >> {}\"]\n",
        told.display(),
        told.display()
    );
    let mut site = Site::start("events", &keys);
    let mut client = site.log_in();
    let mut store = |name: &str| {
        let mut data = client.passive();
        client.say(&format!("STOR {name}"), "150");
        data.write_all(CONTENT).unwrap();
        drop(data);
        client.expect("226");
    };
    store("before");
    site.upgrade();
    store("behind");
    store("last");
    drop(client);
    assert_eq!(site.first_ends_with(), Some(0));
    let paths = || {
        let text = fs::read_to_string(&told).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.map(|event| event["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("all are told", || paths().len() >= 3);
    assert_eq!(paths(), ["/before", "/behind", "/last"]);
    fs::remove_file(told).unwrap();
}

/// A manager hears when the first is ready, and which process is the one from then on.
#[test]
fn a_service_manager_is_told() {
    let name = std::env::temp_dir().join(format!("millrace-upgrade-{}-notify", std::process::id()));
    let _ = fs::remove_file(&name);
    let manager = std::os::unix::net::UnixDatagram::bind(&name).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut message = [0; 200];
        let count = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..count]).into_owned()
    };
    let folder = std::env::temp_dir().join(format!("millrace-upgrade-{}-managed", std::process::id()));
    fs::create_dir_all(folder.join("files")).unwrap();
    write(&folder, "");
    let mut first = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--quiet", "--config", "millrace.toml"])
        .current_dir(&folder)
        .env("NOTIFY_SOCKET", &name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(hear(), "READY=1");
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.arg("ctl").arg("--control").arg(folder.join("control")).args(arguments).output().unwrap()
    };
    let output = ctl(&["upgrade"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let pid = told.split_whitespace().nth(1).unwrap();
    assert_eq!(hear(), format!("MAINPID={pid}\nREADY=1"), "{told}");
    assert!(first.wait().unwrap().success());
    assert!(ctl(&["stop"]).status.success());
    let _ = fs::remove_file(&name);
    let _ = fs::remove_dir_all(&folder);
}
