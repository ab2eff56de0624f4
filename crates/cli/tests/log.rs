//! What `millrace serve` writes about its clients, and where.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

struct Site {
    folder: PathBuf,
    child: Child,
    log: Option<BufReader<ChildStderr>>,
    address: SocketAddr,
}

impl Site {
    fn start(name: &str, flags: &[&str]) -> Self {
        Self::start_with_ports(name, "61100-61163", flags)
    }

    fn start_with_ports(name: &str, ports: &str, flags: &[&str]) -> Self {
        let door = ["serve", "files", "--ftp", "127.0.0.1:0", "--http", "off", "--user", "u:secret"];
        Self::start_by(name, &[&door[..], &["--passive-ports", ports], flags].concat(), &[])
    }

    /// With these files in its folder.
    fn start_by(name: &str, arguments: &[&str], files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-log-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("files")).unwrap();
        fs::write(folder.join("files/f"), b"content").unwrap();
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let log = child.stderr.take().map(BufReader::new);
        let mut announced = None;
        for line in out.lines().map(Result::unwrap).take_while(|line| !line.starts_with("Ready")) {
            if let Some((_, rest)) = line.split_once("127.0.0.1:") {
                let port = rest.split('/').next().unwrap();
                announced = Some(SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())));
            }
        }
        Self { folder, child, log, address: announced.expect("it says where it is") }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.expect("220");
        client
    }

    fn log_in(&self) -> Client {
        let mut client = self.connect();
        client.say("USER u", "331");
        client.say("PASS secret", "230");
        client
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Reads the log up to a line with these words in it; answers the lines.
    fn log_up_to(&mut self, words: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in self.log.as_mut().unwrap().lines().map(Result::unwrap) {
            lines.push(line);
            if lines.last().unwrap().contains(words) {
                return lines;
            }
        }
        panic!("no {words:?} in {lines:#?}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Inside the sandbox, which has to let it.
#[test]
fn the_server_moves_its_log_files_away_and_loses_no_line() {
    let settings = "log-rotate-size = 2000\nlog-rotate-keep = 50\n";
    let arguments = "serve files --ftp 127.0.0.1:0 --http off --user u:secret --config a.toml --xferlog logs/x.log --passive-ports 61164-61171";
    let files = [("a.toml", settings), ("logs/other", "")];
    let mut site = Site::start_by("moving", &arguments.split(' ').collect::<Vec<_>>(), &files);
    let mut client = site.log_in();
    for _download in 0..100 {
        client.fetch("f");
    }
    client.say("QUIT", "221");
    site.signal("-TERM");
    assert!(site.child.wait().unwrap().success());
    let names = fs::read_dir(site.folder.join("logs")).unwrap().map(|entry| entry.unwrap().path());
    let texts: Vec<String> = names.map(|path| fs::read_to_string(path).unwrap()).collect();
    assert!(texts.len() > 3 && texts.iter().all(|text| text.len() <= 2000), "{}", texts.len());
    let lines = texts.iter().flat_map(|text| text.lines());
    assert_eq!(lines.filter(|line| line.contains(" o r u ftp ") && line.ends_with(" c")).count(), 100);
}

/// GoAccess, a program that others wrote, reads every line, whatever clients have sent.
#[test]
fn a_program_for_logs_reads_the_extended_format() {
    let arguments =
        "serve files --ftp off --http 127.0.0.1:0 --user u:secret --config a.toml --access-log access";
    let files = [("a.toml", "access-log-format = \"w3c\"\n")];
    let mut site = Site::start_by("w3c", &arguments.split(' ').collect::<Vec<_>>(), &files);
    let requests = ["GET /f", "GET /f?a=b%20c&d+e", "GET /no%0asuch%20file", "HEAD /f\"g"];
    for request in requests {
        let mut stream = TcpStream::connect(site.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = "Host: files.example\r\nUser-Agent: a b \"c\"\r\nAuthorization: Basic dTpzZWNyZXQ=\r\nConnection: close\r\n";
        write!(stream, "{request} HTTP/1.1\r\n{head}\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    site.signal("-TERM");
    assert!(site.child.wait().unwrap().success());
    let text = fs::read_to_string(site.folder.join("access")).unwrap();
    assert!(text.starts_with("#Version: 1.0\n#Software: Millrace\n#Fields: date time c-ip "), "{text}");
    assert!(text.contains(" 127.0.0.1 u GET /f a=b%20c&d%2Be 200 7 "), "{text}");
    let read = Command::new("goaccess")
        .arg(site.folder.join("access"))
        .args(["--log-format=%d %t %h %e %m %U %q %s %b %T %H %v %u %R", "--date-format=%Y-%m-%d"])
        .args(["--time-format=%H:%M:%S", "-o", "json", "--no-global-config", "--no-progress"])
        .output();
    let required = std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_some();
    let Ok(read) = read else { return assert!(!required, "goaccess is missing") };
    let told: Value = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(told["general"]["valid_requests"], requests.len(), "{told}");
    assert_eq!(told["general"]["failed_requests"], 0, "{told}");
    assert!(read.stdout.windows(13).any(|part| part == b"files.example"));
}

/// Inside the sandbox, which has to let it.
#[test]
fn a_binary_log_is_read_after_the_server_was_killed_and_the_next_goes_on() {
    let settings = "access-log-format = \"binary\"\naccess-log-size = \"1Mi\"\n";
    let arguments = "serve files --ftp 127.0.0.1:0 --http off --user u:secret --config a.toml --access-log logs/binary --passive-ports 61172-61179";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let files = [("a.toml", settings), ("logs/other", "")];
    let convert = |site: &Site| {
        let file = site.folder.join("logs/binary");
        let converted = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["log", "convert", "--to", "xferlog"])
            .arg(file)
            .output()
            .unwrap();
        assert!(converted.status.success() && converted.stderr.is_empty(), "{converted:?}");
        String::from_utf8(converted.stdout).unwrap()
    };
    let mut downloads = 0;
    let mut site = Site::start_by("binary", &arguments, &files);
    for _server in 0..2 {
        let mut client = site.log_in();
        client.fetch("f");
        client.fetch("f");
        downloads += 2;
        eventually("they are not written", || convert(&site).lines().count() == downloads);
        site.child.kill().unwrap();
        site.child.wait().unwrap();
        let text = convert(&site);
        assert_eq!(
            text.lines().filter(|line| line.contains(" 127.0.0.1 7 /f a _ o r u ftp 0 * c")).count(),
            downloads
        );
        // The folder stays.
        std::mem::forget(std::mem::replace(&mut site, Site::start_by("binary", &arguments, &files)));
    }
    assert_eq!(fs::metadata(site.folder.join("logs/binary")).unwrap().len(), 4096 + (1 << 20));
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
        TcpStream::connect(("127.0.0.1", port)).unwrap()
    }

    /// Downloads a file and discards it.
    fn fetch(&mut self, name: &str) {
        let data = self.passive();
        self.say(&format!("RETR {name}"), "150");
        std::io::copy(&mut &data, &mut std::io::sink()).unwrap();
        self.expect("226");
    }
}

/// The events of lines of the JSON log, each with one of its fields.
fn told(lines: &[String], field: &str) -> Vec<String> {
    let objects = lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")));
    objects
        .filter_map(|object: Value| {
            Some(format!("{} {}", object["event"].as_str()?, object.get(field)?.as_str()?))
        })
        .collect()
}

#[test]
fn refusals_are_logged_and_every_line_of_the_json_log_is_json() {
    let mut site = Site::start("declined", &["--log-format", "json", "--anonymous", "rw"]);
    let mut client = site.connect();
    for (line, code) in [
        ("PASSX secret", "500"),
        ("PAS secret", "500"),
        ("PWD", "530"),
        ("USER u", "331"),
        ("PASS secret", "230"),
        ("PORT 127,0,0,2,4,1", "5"),
        ("EPRT |1|127.0.0.1|22|", "5"),
        ("RNFR f", "350"),
        ("RNTO g", "250"),
        ("MKD g", "550"),
        ("CWD nowhere", "550"),
        ("SIZE nowhere", "550"),
        (&"x".repeat(20_000), "500"),
        ("QUIT", "221"),
    ] {
        client.say(line, code);
    }
    let mut silent = site.log_in();
    site.signal("-HUP");
    site.signal("-TERM");
    silent.expect("421");
    let lines = site.log_up_to("The server is shutting down.");
    let commands = told(&lines, "command");
    assert_eq!(
        commands,
        [
            "declined ***",
            "declined PAS",
            "declined PWD",
            "declined PORT 127,0,0,2,4,1",
            "declined EPRT |1|127.0.0.1|22|",
            "declined MKD g",
            "declined CWD nowhere",
            "declined SIZE nowhere",
            "declined (a line that is too long)"
        ]
    );
    assert!(told(&lines, "reply")[5].starts_with("declined 550 "));
    assert_eq!(told(&lines, "from"), ["changed /f"]);
    let reasons = told(&lines, "reason");
    assert_eq!(reasons, ["disconnected quit", "disconnected The server is shutting down."]);
    let warnings = told(&lines, "text");
    // A reload that went well is none.
    assert!(!warnings.iter().any(|text| text.contains("reloaded")), "{warnings:?}");
    assert!(lines.iter().any(|line| line.contains("\"event\":\"reloaded\"")));
    assert_eq!(told(&lines, "what"), ["administered SIGHUP", "administered SIGTERM"]);
    assert!(!lines.concat().contains("secret"));
}

/// An operator must see the error, and where it is configured.
#[test]
fn an_upstream_that_does_not_answer_is_logged_with_the_reason() {
    // An address of no other test, where no server listens.
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silence = silent.local_addr().unwrap();
    let pass = |path: &str, to: &str| format!("[[proxy]]\npath = \"{path}\"\nto = \"{to}\"\n");
    let text = [
        "directory = \"files\"\nftp = \"off\"\nhttp = \"127.0.0.1:0\"\nanonymous = \"ro\"\ncgi = \"bin\"\n",
        &pass("/refused", &format!("http://{refusing}")),
        &pass("/absent", "fastcgi:/nowhere/socket"),
        &format!("{}timeout = \"200ms\"\n", pass("/silent", &format!("http://{silence}"))),
    ];
    let files = [
        ("m.toml", &*text.concat()),
        ("files/bin/strange", "#!/nowhere/interpreter\n"),
        ("files/bin/mute", "#!/bin/sh\n"),
    ];
    let mut site = Site::start_by("stead", &["serve", "--config", "m.toml"], &files);
    let folder = site.folder.display().to_string();
    for (path, status, said) in [
        (
            "/refused",
            502,
            format!("[[proxy]] /refused to http://{refusing} failed: it cannot be connected to: Conn"),
        ),
        (
            "/absent",
            502,
            "[[proxy]] /absent to fastcgi:/nowhere/socket failed: it cannot be connected to: No".into(),
        ),
        ("/silent", 504, format!("[[proxy]] /silent to http://{silence} failed: its time is over")),
        (
            "/bin/strange",
            502,
            format!("the program {folder}/files/bin/strange cannot be run: the interpreter"),
        ),
        ("/bin/mute", 502, format!("the program {folder}/files/bin/mute failed: it ended without the head")),
    ] {
        let mut stream = TcpStream::connect(site.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        site.log_up_to(&said);
    }
}

#[test]
fn each_transfer_that_fails_has_a_line_that_says_why() {
    let mut site = Site::start("failed", &["--log-format", "json"]);
    fs::File::create(site.folder.join("files/large")).unwrap().set_len(64 << 20).unwrap();
    let mut client = site.log_in();
    client.say("TYPE I", "200");
    // No connection comes, and the client gives up.
    client.say("EPSV", "229");
    client.say("RETR f", "150");
    client.say("ABOR", "426");
    client.expect("226");
    // What was sent is not read: that resets the connection.
    let mut data = client.passive();
    client.say("RETR large", "150");
    data.read_exact(&mut [0; 1]).unwrap();
    drop(data);
    client.expect("426");
    // Half the head of a block.
    client.say("MODE B", "200");
    let mut data = client.passive();
    client.say("STOR up", "150");
    data.write_all(b"\x40\x00").unwrap();
    drop(data);
    client.expect("426");
    client.say("QUIT", "221");
    let lines = site.log_up_to("quit");
    let failed = told(&lines, "failed");
    let [gone, reset, malformed] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!(gone, "download aborted");
    assert!(reset.starts_with("download data connection broke: "), "{reset}");
    assert!(malformed.starts_with("upload ") && malformed.len() > 10, "{malformed}");
    assert_eq!(told(&lines, "path")[..3], ["download /f", "download /large", "upload /up"]);
    assert!(!site.folder.join("files/up").exists());
}

/// Until hooks have decided, it is open whether an upload stays.
#[test]
fn an_upload_that_a_hook_refuses_is_not_told_as_done() {
    let config = std::env::temp_dir().join(format!("millrace-log-{}-hooks.toml", std::process::id()));
    let rule = |name: &str, script: &str| {
        format!(
            "[[hook]]\non = \"upload\"\npaths = [\"/{name}\"]\nrun = [\"/bin/sh\", \"-c\", \"{script}\"]\n"
        )
    };
    fs::write(&config, [rule("bad", "echo 'A virus.'; exit 1"), rule("good", "exit 0")].concat()).unwrap();
    let config_path = config.display().to_string();
    let flags = ["--log-format", "json", "--xferlog", "xfer", "--config", &config_path];
    let mut site = Site::start("judged", &flags);
    let mut client = site.log_in();
    for (name, code) in [("bad", "550"), ("good", "226"), ("other", "226")] {
        let mut data = client.passive();
        client.say(&format!("STOR {name}"), "150");
        data.write_all(b"content").unwrap();
        drop(data);
        client.expect(code);
    }
    client.say("QUIT", "221");
    let lines = site.log_up_to("quit");
    assert_eq!(told(&lines, "on"), ["hook-refused upload"]);
    assert_eq!(told(&lines, "path"), ["upload /bad", "hook-refused /bad", "upload /good", "upload /other"]);
    assert_eq!(told(&lines, "failed"), ["upload refused: A virus."]);
    let ends = || {
        let text = fs::read_to_string(site.folder.join("xfer")).unwrap();
        text.lines().map(|line| line.chars().last().unwrap()).collect::<String>()
    };
    eventually("three transfers are in the log", || ends().len() == 3);
    assert_eq!(ends(), "icc");
    fs::remove_file(config).unwrap();
}

/// The file may be used for billing.
#[test]
fn a_transfer_log_that_cannot_be_written_is_told_of() {
    let mut site = Site::start("full", &["--quiet", "--xferlog", "/dev/full"]);
    let mut client = site.log_in();
    client.fetch("f");
    let lines = site.log_up_to("cannot be written");
    assert!(lines.last().unwrap().contains("the transfer log cannot be written: No space left"), "{lines:?}");
    client.fetch("f");
    site.signal("-TERM");
    site.log_up_to("2 lines are missing from the transfer log, which could not be written");
}

/// As people do who give their log to a program. It need not be there yet, nor stay.
#[test]
fn a_transfer_log_may_be_a_named_pipe_and_blocks_no_session() {
    let folder = std::env::temp_dir().join(format!("millrace-log-{}-pipe", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("xfer")).status().unwrap().success());
    let mut site = Site::start("pipe", &["--xferlog", "xfer", "--anonymous", "ro"]);
    let mut client = site.connect();
    client.say("USER anonymous", "331");
    client.say("PASS me@example", "230");
    client.fetch("f");
    let mut pipe = BufReader::new(fs::File::open(folder.join("xfer")).unwrap());
    let mut line = String::new();
    pipe.read_line(&mut line).unwrap();
    assert!(line.ends_with(" o a me@example ftp 0 * c\n"), "{line}");
    site.signal("-HUP");
    site.log_up_to(" - - - reloaded");
    drop(pipe);
    client.fetch("f");
    site.signal("-TERM");
    client.expect("421");
    assert!(site.child.wait().unwrap().success());
}

#[test]
fn passive_ports_that_are_all_another_programs_are_warned_of() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let mut site = Site::start_with_ports("ports", &port.to_string(), &["--quiet"]);
    site.log_up_to(&format!("none of the passive-ports {port}-{port} can be bound at 127.0.0.1 now"));
}

#[test]
fn a_transfer_log_that_was_moved_is_begun_anew_at_sighup() {
    let mut site = Site::start("rotation", &["--xferlog", "xfer"]);
    let (log, old) = (site.folder.join("xfer"), site.folder.join("xfer.1"));
    let mut client = site.log_in();
    client.fetch("f");
    eventually("the first line is written", || lines_of(&log) == 1);
    fs::rename(&log, &old).unwrap();
    site.signal("-HUP");
    site.log_up_to(" - - - reloaded");
    client.fetch("f");
    client.fetch("f");
    eventually("the others are in a file of their own", || lines_of(&log) == 2);
    assert_eq!(lines_of(&old), 1);
}

fn lines_of(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

fn eventually(what: &str, mut claim: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !claim() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
