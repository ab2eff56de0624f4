//! `millrace ctl` and SIGHUP against a server of their own; and every example of `docs/limits.md`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TEXT: &str = include_str!("../../../docs/limits.md");

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

struct Site {
    folder: PathBuf,
    child: Child,
    address: String,
    /// Of HTTP.
    http: String,
}

impl Site {
    fn start(name: &str, keys: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-ctl-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("f"), vec![b'x'; 300_000]).unwrap();
        fs::create_dir(folder.join("sub")).unwrap();
        write(&folder, keys);
        let mut child = serve(&folder);
        let out = child.stdout.take().unwrap();
        let mut site = Self { folder, child, address: String::new(), http: String::new() };
        for line in BufReader::new(out).lines().map(Result::unwrap) {
            if let Some((_, rest)) = line.split_once("ftp://") {
                site.address = rest.split('/').next().unwrap().rsplit('@').next().unwrap().to_owned();
            }
            if let Some((_, rest)) = line.split_once("http://") {
                site.http = rest.split('/').next().unwrap().rsplit('@').next().unwrap().to_owned();
            }
            if line.starts_with("Ready") {
                return site;
            }
        }
        panic!("it ended before it was ready");
    }

    /// Another server with the same configuration, or with which code it ended.
    fn successor(&self) -> Result<Child, Option<i32>> {
        let mut child = serve(&self.folder);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        match lines.any(|line| line.starts_with("Ready")) {
            true => Ok(child),
            false => Err(child.wait().unwrap().code()),
        }
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_millrace"))
            .arg("ctl")
            .arg("--control")
            .arg(self.folder.join("control"))
            .args(arguments)
            .output()
            .unwrap()
    }

    /// What it prints, where all went well.
    #[track_caller]
    fn tell(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.expect("220");
        client
    }

    fn log_in(&self, user: &str) -> Client {
        let mut client = self.connect();
        client.say(&format!("USER {user}"), "331");
        client.say("PASS password", "230");
        client.say("TYPE I", "200");
        client
    }

    fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.code(),
                None if Instant::now() > end => panic!("it does not end"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn serve(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--ftp", "127.0.0.1:0", "--quiet", "--config"])
        .arg(folder.join("millrace.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn write(folder: &Path, keys: &str) {
    let users = ["alice", "bob"].map(|name| format!("[[user]]\nname = \"{name}\"\npassword = \"{HASH}\"\n"));
    let text = format!("directory = \".\"\ncontrol = \"control\"\n{keys}\n{}", users.concat());
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

    /// Begins a download; its data connection.
    fn download(&mut self) -> TcpStream {
        let reply = self.say("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        let data = TcpStream::connect(("127.0.0.1", port)).unwrap();
        data.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        self.say("RETR f", "150");
        data
    }
}

fn eventually(what: &str, mut claim: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !claim() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_running_transfer_is_seen_freed_and_its_session_ended() {
    let site = Site::start("transfer", "user-download-limit = \"2k\"");
    let mode = fs::metadata(site.folder.join("control")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = site.log_in("alice");
    let mut data = client.download();
    let seen = site.tell(&["sessions"]);
    assert!(
        seen.contains(" alice ") && seen.contains("download /f: ") && seen.contains(" of 300 kB in "),
        "{seen}"
    );
    assert!(site.tell(&["limits"]).contains(" 2 kB/s "));
    site.tell(&["limits", "user", "alice", "--download", "none"]);
    let mut all = Vec::new();
    data.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 300_000);
    client.expect("226");

    site.tell(&["limits", "user", "alice", "--download", "1k"]);
    let mut data = client.download();
    assert_eq!(site.tell(&["kick", "--user", "alice", "--address", "127.0.0.1"]), "1 session ended.\n");
    let _ = data.read_to_end(&mut all);
    client.expect("426");
    client.expect("421 Disconnected by the administrator.");
    for json in [&[][..], &["--json"]] {
        let none = site.ctl(&[json, &["kick", "--user", "typo"]].concat());
        assert_eq!(none.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&none.stdout).contains("\"kicked\":0"), !json.is_empty());
        assert!(String::from_utf8_lossy(&none.stderr).contains("no session matches"));
    }
    let refused = site.ctl(&["limits", "mallory", "--download", "1k"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not server, listener"));
}

#[test]
fn a_trace_shows_requests_of_both_protocols_and_ends_in_time() {
    let site = Site::start("trace", "anonymous = \"ro\"");
    let trace = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["ctl", "--control"])
            .arg(site.folder.join("control"))
            .arg("trace")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = trace(&["--address", "127.0.0.1"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let get = || {
        let mut stream = TcpStream::connect(&site.http).unwrap();
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    };
    // Requests are made until the trace has begun.
    let (begun, has_begun) =
        (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::Ordering::Relaxed);
    let first = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !begun.load(has_begun) {
                get()
            }
        });
        let first = lines.next();
        begun.store(true, has_begun);
        first
    });
    let first = first.unwrap();
    assert!(first.contains(" > GET /f HTTP/1.1") && first.contains("@127.0.0.1:"), "{first}");
    assert!(lines.next().unwrap().ends_with(" < 200, 300000 bytes"));
    site.log_in("alice");
    assert!(lines.any(|line| line.contains(" alice@127.0.0.1:") && line.ends_with(" > PASS ***")));
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = trace(&["alice", "--seconds", "100ms"]).wait().unwrap();
    assert!(ended.success());
    assert_eq!(trace(&["--seconds", "1"]).wait().unwrap().code(), Some(2));
}

#[test]
fn the_log_is_followed_from_its_last_lines_on() {
    let site = Site::start("log", "login-delay = \"0s\"");
    let mut client = site.connect();
    client.say("USER mallory", "331");
    client.say("PASS wrong", "530");
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["ctl", "log", "-n", "1", "--control"])
        .arg(site.folder.join("control"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let last = lines.next().unwrap();
    assert!(last.ends_with("login-failed tried=\"mallory\""), "{last}");
    // What --quiet leaves out is seen from now on.
    client.say("QUIT", "221");
    let next = lines.next().unwrap();
    assert!(next.contains(" disconnected ") && next.contains("reason=\"quit\""), "{next}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn how_long_a_download_by_http_is_is_told_while_it_runs() {
    let site = Site::start("http-total", "anonymous = \"ro\"\nsession-download-limit = \"10k\"");
    let mut stream = TcpStream::connect(&site.http).unwrap();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    eventually("it is under way", || {
        let told: serde_json::Value = serde_json::from_str(&site.tell(&["--json", "sessions"])).unwrap();
        let transfer = &told["sessions"][0]["transfer"];
        transfer["kind"] == "download" && transfer["total"] == 300_000
    });
    assert!(site.tell(&["sessions"]).contains(" of 300 kB in "));
}

#[test]
fn limits_of_a_user_without_sessions_can_be_shown_and_set() {
    let site = Site::start("away", "");
    let of_alice = || site.tell(&["limits", "user", "alice"]);
    let told = of_alice();
    assert!(
        told.starts_with("no session of alice is logged in") && told.contains("\"millrace explain alice\""),
        "{told}"
    );
    let told = site.tell(&["limits", "user", "alice", "--download", "1k"]);
    assert!(
        told.contains("no session of alice is logged in: what is set here holds from the next login on"),
        "{told}"
    );
    let told = of_alice();
    assert!(told.contains(" 1 kB/s ") && told.contains("no session of alice"), "{told}");
    assert!(site.tell(&["limits", "group", "staff"]).contains("no member of staff is logged in"));
    let _client = site.log_in("alice");
    let told = of_alice();
    assert!(told.contains(" 1 kB/s ") && !told.contains("no session"), "{told}");
    assert_eq!(site.tell(&["limits", "user", "alice", "--download", "2k"]), "Limits updated.\n");
    let sessions = site.tell(&["sessions"]);
    let number = sessions.lines().nth(1).and_then(|line| line.split_whitespace().next()).unwrap();
    assert!(site.tell(&["limits", "session", number]).starts_with("nothing is set for session"));
    for absent in
        [&["session", "4711"][..], &["listener", "192.0.2.1:1"], &["user", "carol", "--download", "5k"]]
    {
        let refused = site.ctl(&[&["limits"], absent].concat());
        assert!(
            String::from_utf8_lossy(&refused.stderr)
                .lines()
                .any(|line| line.contains("there is no ") || line.contains("no account has the name carol")),
            "{absent:?}"
        );
        assert_eq!(refused.status.code(), Some(1));
    }
}

#[test]
fn a_ban_is_for_a_time_as_others_are_written() {
    let site = Site::start("ban", "");
    assert_eq!(site.tell(&["ban", "192.0.2.7", "--for", "1h"]), "192.0.2.7 is banned for 1 h.\n");
    let told: serde_json::Value = serde_json::from_str(&site.tell(&["bans", "--json"])).unwrap();
    let ban = &told["bans"][0];
    assert!((1..=3600).contains(&ban["seconds-left"].as_u64().unwrap()), "{told}");
    assert_eq!(ban["network"], "192.0.2.7");
    let told = site.tell(&["bans"]);
    assert!(told.starts_with("NETWORK    USER  EXPIRES IN\n192.0.2.7  -     "), "{told}");
    assert_eq!(site.tell(&["unban", "192.0.2.7"]), "192.0.2.7 is no longer banned.\n");
    assert_eq!(site.tell(&["bans"]), "No bans.\n");
    let refused = site.ctl(&["ban", "192.0.2.8", "--for", "ever"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not a length of time"));
    assert_eq!(refused.status.code(), Some(2));
}

/// The answer to a request of HTTP, head and all.
fn by_http(address: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
        .write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_reload_takes_over_hosts_and_what_is_said_of_answers() {
    let keys = |host: &str, index: &str| {
        format!(
            "anonymous = \"ro\"\nindex = \"{index}\"\n[mime]\n\"\" = \"text/x-{index}\"\n\
             [[host]]\nnames = \"{host}\"\ndirectory = \"sub\"\n[[header]]\nset = {{ X-Said = \"{host}\" }}\n"
        )
    };
    let site = Site::start("reload-http", &keys("one.example", "f"));
    fs::write(site.folder.join("sub/f"), "of f").unwrap();
    fs::write(site.folder.join("sub/g"), "of g").unwrap();
    let address = site.http.clone();
    for (host, index) in [("one.example", "f"), ("two.example", "g")] {
        write(&site.folder, &keys(host, index));
        site.tell(&["reload"]);
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = by_http(&address, host);
            let is_new = answer.ends_with(&format!("of {index}"))
                && answer.contains(&format!("X-Said: {host}\r\n"))
                && answer.contains(&format!("Content-Type: text/x-{index}\r\n"));
            if is_new {
                break;
            }
            assert!(Instant::now() < end, "{answer}");
        }
    }
    assert!(!by_http(&address, "one.example").ends_with("of g"), "it is no host any more");
}

#[test]
fn a_reload_takes_over_accounts_and_limits_or_leaves_all_as_it_was() {
    let site = Site::start("reload", "");
    let mut leaves = site.log_in("bob");
    let no_bob = format!(
        "directory = \".\"\ncontrol = \"control\"\ndownload-limit = 12345\n[[user]]\nname = \"carol\"\npassword = \"{HASH}\"\n"
    );
    fs::write(site.folder.join("millrace.toml"), &no_bob).unwrap();
    assert_eq!(site.tell(&["reload"]), "Configuration reloaded; changed: user, download-limit.\n");
    assert_eq!(site.tell(&["reload"]), "Configuration reloaded.\n");
    site.log_in("carol");
    let mut gone = site.connect();
    gone.say("USER bob", "331");
    gone.say("PASS password", "530");
    leaves.expect("421 This account can no longer be used here");
    assert!(site.tell(&["limits"]).contains(" 12.3 kB/s "));

    fs::write(site.folder.join("millrace.toml"), no_bob.replace("12345", "\"a lot\"")).unwrap();
    let refused = site.ctl(&["reload"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("the old configuration stays in force") && error.contains(":3:"), "{error}");
    assert!(site.tell(&["limits"]).contains(" 12.3 kB/s "));

    fs::write(site.folder.join("millrace.toml"), no_bob.replace("12345", "54321")).unwrap();
    let hang_up = Command::new("kill").args(["-HUP", &site.child.id().to_string()]).status().unwrap();
    assert!(hang_up.success());
    eventually("SIGHUP reads the file", || site.tell(&["limits"]).contains(" 54.3 kB/s "));
    site.log_in("carol");

    let for_later = format!("idle-timeout = 7\nhttp = \"127.0.0.1:1\"\n{no_bob}");
    fs::write(site.folder.join("millrace.toml"), for_later).unwrap();
    assert!(
        site.tell(&["reload"])
            .ends_with("these need a restart or \"millrace ctl upgrade\": http, idle-timeout.\n")
    );

    let elsewhere = no_bob.replace("directory = \".\"", "directory = \"sub\"");
    fs::write(site.folder.join("millrace.toml"), elsewhere).unwrap();
    assert_eq!(site.tell(&["reload"]), "Configuration reloaded; changed: directory.\n");
    site.log_in("carol").say("SIZE f", "550");
}

#[test]
fn shared_limits_of_groups_and_listeners_are_configured_explained_and_changed_during_transfers() {
    let keys = |rate: &str| {
        format!(
            "[[group]]\nname = \"staff\"\nshared-download = \"{rate}\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
             sessions = 20\nupload = \"1M\"\n[[user]]\nname = \"carol\"\npassword = \"{HASH}\"\ngroups = \"staff\"\n"
        )
    };
    // The address of the flag is not in a file that is read alone.
    let with_door = |rate: &str| format!("ftp = \"127.0.0.1:0\"\n{}", keys(rate));
    let site = Site::start("shared", &with_door("2k"));
    let told = site.tell(&["limits"]);
    assert!(told.contains(&format!("listener {}", site.address)), "{told}");
    assert!(told.contains(" 20 ") && told.contains(" 1 MB/s"), "{told}");
    let explained = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["explain", "carol", "--config"])
        .arg(site.folder.join("millrace.toml"))
        .output()
        .unwrap();
    let explained = String::from_utf8(explained.stdout).unwrap();
    let line = explained.lines().find(|line| line.starts_with("shared-download")).unwrap_or(&explained);
    assert!(
        line.ends_with("of all members of the group staff together") && line.contains(" 2000 "),
        "{line}"
    );

    let mut client = site.log_in("carol");
    let mut data = client.download();
    assert!(site.tell(&["limits"]).contains(" 2 kB/s "));
    write(&site.folder, &with_door("none"));
    site.tell(&["reload"]);
    let mut all = Vec::new();
    data.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 300_000);
    client.expect("226");

    for (keys, told) in [
        ("[[listener]]\naddress = \"127.0.0.1:1\"\n", "is none of the addresses in `ftp`"),
        ("[[listener]]\naddress = \"off\"\n", "is no address at which anybody is served"),
        ("[[listener]]\ndownload = \"1M\"\n", "table needs `address`"),
    ] {
        write(&site.folder, keys);
        let refused = site.ctl(&["reload"]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && error.contains(told), "{error}");
    }
}

#[test]
fn drain_waits_for_transfers_and_stop_for_no_longer_than_the_grace() {
    let mut site = Site::start("drain", "user-download-limit = \"100k\"\ngrace = 0");
    let mut client = site.log_in("alice");
    let mut data = client.download();
    let next = site.successor();
    assert_eq!(next.map(|_| ()), Err(Some(1)), "a server that lets clients in keeps its socket");
    site.tell(&["drain"]);
    let next = site.successor().expect("one that drains gives it away");
    assert!(
        String::from_utf8_lossy(&site.ctl(&["sessions"]).stdout).lines().count() <= 1,
        "it is the next one's"
    );
    let mut all = Vec::new();
    data.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 300_000);
    client.expect("226");
    client.expect("421");
    assert_eq!(site.exit_code(), Some(0));
    assert!(site.folder.join("control").exists(), "it is the next one's");
    site.child = next;
    site.tell(&["drain"]);
    assert_eq!(site.exit_code(), Some(0));
    assert!(!site.folder.join("control").exists(), "the socket is removed");

    let mut site = Site::start("stop", "user-download-limit = \"1k\"\ngrace = 0");
    let mut client = site.log_in("alice");
    let _data = client.download();
    site.tell(&["stop"]);
    client.expect("426");
    assert_eq!(site.exit_code(), Some(0));
}

/// A folder of a service manager, in which servers and clients look.
struct RuntimeFolder(PathBuf);

impl RuntimeFolder {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(arguments).env("RUNTIME_DIRECTORY", self.0.join("run"));
        command
    }

    fn serve(&self) -> Child {
        let folder = self.0.join("served");
        fs::create_dir_all(&folder).unwrap();
        let mut child = self
            .command(&["serve", "--ftp", "127.0.0.1:0", "--http", "off", "--quiet"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.starts_with("Ready")));
        child
    }

    fn ctl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(&["ctl"]).args(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }
}

impl Drop for RuntimeFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_only_server_of_a_user_is_found_without_a_name() {
    let path = std::env::temp_dir().join(format!("millrace-ctl-{}-default", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    let folder = RuntimeFolder(path);
    let (code, text) = folder.ctl(&["status"]);
    assert!(code == Some(1) && text.contains("no running server of this user"), "{text}");

    let mut first = folder.serve();
    let (code, text) = folder.ctl(&["status"]);
    assert!(code == Some(0), "{text}");
    assert!(
        text.contains(&format!("process {}", first.id())) && text.contains("  ftp://127.0.0.1:"),
        "{text}"
    );
    assert!(folder.ctl(&["sessions", "--json"]).1.starts_with("{\"ok\":true,\"sessions\":[],\"total\":0}"));
    assert!(folder.ctl(&["--json", "sessions"]).1.starts_with("{\"ok\":true,\"sessions\":[],\"total\":0}"));
    let before = folder.command(&["--json", "ctl", "sessions"]).output().unwrap();
    assert!(before.stdout.starts_with(b"{\"ok\":true,\"sessions\":[]"), "{before:?}");

    let mut second = folder.serve();
    let socket = folder.0.join(format!("run/{}.sock", second.id()));
    let (code, text) = folder.ctl(&["status"]);
    assert!(
        code == Some(1)
            && text.contains("several servers run")
            && text.contains(&format!("{}   ftp://127.0.0.1:", socket.display()))
    );
    assert_eq!(folder.ctl(&["stop", "--control", socket.to_str().unwrap()]).0, Some(0));
    assert_eq!(second.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());

    // What a killed server left is not taken for a server.
    first.kill().unwrap();
    first.wait().unwrap();
    let mut third = folder.serve();
    assert!(folder.ctl(&["status"]).1.contains(&format!("process {}", third.id())));
    assert_eq!(folder.ctl(&["drain"]).0, Some(0));
    assert_eq!(third.wait().unwrap().code(), Some(0));

    // Others could have put sockets there.
    fs::set_permissions(folder.0.join("run"), fs::Permissions::from_mode(0o777)).unwrap();
    let mut fourth = folder.serve();
    assert_eq!(folder.ctl(&["status"]).0, Some(1));
    fourth.kill().unwrap();
    fourth.wait().unwrap();
}

#[test]
fn nonsense_on_the_control_socket_is_answered_as_such() {
    let site = Site::start("nonsense", "");
    let mut stream = UnixStream::connect(site.folder.join("control")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for line in [
        "",
        "x",
        "{}",
        "[]",
        "{\"do\":\"dance\"}",
        "{\"do\":\"kick\"}",
        "{\"do\":\"kick\",\"who\":1}",
        "\u{0}",
    ] {
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        assert!(answer.contains("\"ok\":false"), "{line:?}: {answer}");
    }
    let long = [vec![b'x'; 70_000], b"\n".to_vec()].concat();
    let _ = stream.write_all(&long);
    let mut answer = String::new();
    reader.read_line(&mut answer).unwrap();
    assert!(answer.contains("\"ok\":false"));
    assert!(site.tell(&["limits"]).contains("server "), "others are served");
}

/// The code blocks of the document in this language.
fn blocks(language: &str) -> impl Iterator<Item = &'static str> {
    let fence = format!("```{language}\n");
    TEXT.split("```").scan(0, |_, part| Some(part)).filter_map(move |part| {
        let rest = format!("```{part}");
        rest.starts_with(&fence).then(|| &part[language.len() + 1..])
    })
}

#[test]
fn the_documented_examples_do_what_they_say() {
    let site = Site::start("document", "");
    fs::create_dir(site.folder.join("files")).unwrap();
    for text in ["greeting", "welcome", "full", "guests"] {
        fs::write(site.folder.join(text), "Welcome.\n").unwrap();
    }
    for line in blocks("limits").flat_map(str::lines) {
        let limit = line.split("  ").next().unwrap();
        site.tell(&["limits", "server", "--download", limit]);
    }
    for line in blocks("json").flat_map(str::lines) {
        let mut stream = UnixStream::connect(site.folder.join("control")).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("\"ok\":true"), "{line}: {answer}");
    }
    for keys in blocks("toml") {
        fs::write(site.folder.join("example.toml"), keys).unwrap();
        let check = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["check", site.folder.join("example.toml").to_str().unwrap()])
            .output()
            .unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    }
    let mut site = site;
    for line in blocks("console").flat_map(str::lines).filter(|line| !line.ends_with(" stop")) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..2], ["millrace", "ctl"], "{line}");
        let _meant = words.contains(&"kick").then(|| site.log_in("alice"));
        site.tell(&words[2..]);
    }
    assert_eq!(site.exit_code(), Some(0), "drain was the last");
}
