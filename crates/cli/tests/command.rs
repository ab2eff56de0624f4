//! The binary as a user meets it: what it prints, and its exit codes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

fn millrace(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    millrace(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A server in a child process, killed when dropped.
struct Serving {
    child: Child,
    out: BufReader<ChildStdout>,
    announced: Vec<String>,
}

impl Serving {
    /// Starts one, and waits for the line that scripts wait for.
    fn start(arguments: &[&str]) -> Self {
        Self::start_in(GOLDEN, arguments)
    }

    fn start_in(folder: &str, arguments: &[&str]) -> Self {
        let mut command = millrace(&["serve", folder, "--ftp", "127.0.0.1:0"]);
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut serving = Self { child, out, announced: Vec::new() };
        loop {
            let mut line = String::new();
            assert_ne!(serving.out.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
            serving.announced.push(line.trim_end().to_owned());
            if line.starts_with("Ready") {
                return serving;
            }
        }
    }

    fn address(&self) -> String {
        let url = self.announced[1].split_whitespace().next().unwrap();
        url.trim_start_matches("ftp://").trim_end_matches('/').rsplit('@').next().unwrap().to_owned()
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut client = BufReader::new(stream);
        assert_eq!(reply(&mut client), "220 Millrace ready.");
        client
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.code(),
                None if Instant::now() > end => panic!("it does not end"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn logged(&mut self) -> String {
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reply(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn help_and_version_go_to_stdout() {
    for (arguments, expected) in [
        (&["--version"][..], concat!("millrace ", env!("CARGO_PKG_VERSION"))),
        (&["--help"], "millrace serve ./somewhere"),
        (&["serve", "--help"], "--ftp 0.0.0.0:2121"),
        (&["serve", "-h"], "[default: 127.0.0.1:2121]"),
        (&["check", "--help"], "configuration file"),
        (&["hash-password", "--help"], "standard input"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(text(&output.stdout).contains(expected), "{arguments:?} lacks {expected:?}");
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn what_makes_no_sense_exits_with_2() {
    for arguments in [
        &[][..],
        &["serf"],
        &["serve", "/nowhere/at/all"],
        &["serve", "--passive-ports", "2-1"],
        &["serve", "--config", "/nowhere.toml"],
        &["serve", "--user", "alice"],
        &["check", "/nowhere.toml"],
        &["check"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
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
fn check_says_what_a_file_means() {
    let mut files: Vec<PathBuf> = fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    assert!(files.len() >= 3, "the golden files are in {GOLDEN}");
    // Git knows of no such modes.
    fs::set_permissions(format!("{GOLDEN}/vault.key"), fs::Permissions::from_mode(0o600)).unwrap();
    for file in files {
        // Where this is kept without a word depends on who runs the tests.
        let mut check = millrace(&["check", file.to_str().unwrap()]);
        let output = check.env("STATE_DIRECTORY", format!("{GOLDEN}/state")).output().unwrap();
        let told = format!("{}{}", text(&output.stdout), text(&output.stderr)).replace(GOLDEN, "GOLDEN");
        let told = format!("{told}exit code {}\n", output.status.code().unwrap());
        compare(&file.with_extension("txt"), &told);
    }
}

/// Compares with a golden file; `MILLRACE_GOLDEN=write` writes it instead.
fn compare(golden: &Path, told: &str) {
    match std::env::var_os("MILLRACE_GOLDEN") {
        Some(_) => fs::write(golden, told).unwrap(),
        None => assert_eq!(told, fs::read_to_string(golden).unwrap_or_default(), "{}", golden.display()),
    }
}

#[test]
fn it_announces_what_is_open_and_to_whom() {
    let serving = Serving::start(&["--anonymous", "ro", "--user", "a b:pw", "--user", "carol:pw:ro:inside"]);
    let address = serving.address();
    let port = address.rsplit(':').next().unwrap();
    let page = serving.announced[4].split_whitespace().next().unwrap();
    let expected = [
        format!("Millrace {} serves {GOLDEN}", env!("CARGO_PKG_VERSION")),
        format!("  ftp://{address}/         anonymous may read"),
        format!("  ftp://a%20b@{address}/   a b may read and write"),
        format!("  ftp://carol@{address}/   carol may read, in inside"),
        format!("  {page}        the same, for browsers"),
        format!("  Only this computer can connect; --ftp 0.0.0.0:{port} opens it to the network."),
        "Ready. Ctrl-C stops; running transfers get 30 s.".to_owned(),
    ];
    assert_eq!(serving.announced, expected);
    serving.connect();
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

/// The hash of `password`, from the tests of the reference implementation in C.
const CHEAP: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

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
    assert!(lines.iter().all(|line| line.ends_with("nobody: HTTP takes passwords from this computer only")));
}

/// What a server would fail on at its start is a mistake in the file, and nothing is made to find that out.
#[test]
fn check_finds_what_a_start_would_fail_on() {
    let scratch = Scratch::new("obstacles");
    let file = scratch.path("m.toml");
    let hook = "[[hook]]\non = \"login\"\nrun = [\"/bin/true\"]\n";
    for (toml, told) in [
        ("control = \"missing/ctl\"", "missing/ctl cannot be made in "),
        ("control = \"m.toml\"", "is there and no socket"),
        (&format!("hooks-queue = \"missing/q.db\"\n{hook}"), "missing/q.db cannot be made in "),
        ("access-log = \"missing/log\"", "missing/log cannot be made in "),
        ("tls-self-signed = true\nstate = \"/proc/x\"", "the server's own certificate cannot be kept in "),
        ("tls-self-signed = true\nstate = \"m.toml\"", "the server's own certificate cannot be kept in "),
        ("http = \"127.0.0.1:2121\"", "127.0.0.1:2121 cannot be had, as FTP is served at 127.0.0.1:2121"),
        (
            "ftp = [\"0.0.0.0:21\", \"127.0.0.1:21\"]",
            "127.0.0.1:21 cannot be had, as FTP is served at 0.0.0.0:21",
        ),
    ] {
        let toml = format!("directory = \"{GOLDEN}/inside\"\n{toml}\n");
        fs::write(&file, toml).unwrap();
        let before = fs::read_dir(&scratch.0).unwrap().count();
        for arguments in [&["check"][..], &["serve", "--config"]] {
            let output = run(&[arguments, &[file.to_str().unwrap()]].concat());
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{error}");
            assert!(error.to_lowercase().contains(&told.to_lowercase()), "{error}");
        }
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), before);
    }
    let several =
        format!("directory = \"{GOLDEN}/inside\"\ncontrol = \"missing/ctl\"\naccess-log = \"missing/log\"\n");
    fs::write(&file, several).unwrap();
    let error = text(&run(&["check", file.to_str().unwrap()]).stderr);
    assert!(error.contains(":2:11: ") && error.contains(":3:14: "), "{error}");
    for toml in ["ftp = [\"0.0.0.0:2121\", \"[::]:2121\"]", "ftp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\""] {
        fs::write(&file, toml).unwrap();
        let output = run(&["check", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

#[test]
fn keys_that_others_may_read_are_warned_of() {
    let scratch = Scratch::new("modes");
    let (file, key) = (scratch.path("m.toml"), scratch.path("links"));
    fs::write(&file, format!("directory = \"{GOLDEN}/inside\"\nhttp-link-keys = \"links\"\n")).unwrap();
    fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    for (mode, told) in [(0o600, false), (0o640, true), (0o604, true), (0o400, false)] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let output = text(&run(&["check", file.to_str().unwrap()]).stdout);
        let warning = format!("links (http-link-keys), of mode {mode:04o}: chmod 600 ");
        assert_eq!(output.contains(&warning), told, "{output}");
    }
}

#[test]
fn sockets_of_applications_that_are_not_there_are_warned_of() {
    let scratch = Scratch::new("applications");
    let (file, socket) = (scratch.path("m.toml"), scratch.path("socket"));
    let pass = format!("[[pass]]\npath = \"/app\"\nto = \"fastcgi:{}\"\n", socket.display());
    fs::write(&file, format!("directory = \"{GOLDEN}/inside\"\n{pass}")).unwrap();
    let warns = || {
        text(&run(&["check", file.to_str().unwrap()]).stdout).contains("warning: [[pass]] /app to fastcgi:")
    };
    assert!(warns());
    let _there = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(!warns());
}

#[test]
fn a_default_port_that_is_taken_moves_http_and_a_written_one_does_not() {
    // Whether or not something else has it already: it is taken now.
    let _taken = TcpListener::bind("127.0.0.1:8080");
    // A port of its own choice would move HTTP as well; nobody else is at this address.
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
    assert!(text(&log).starts_with("warning: another program has 127.0.0.1:8080, where HTTP is by default;"));

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
fn sigterm_and_sigint_end_it_with_0() {
    for signal in ["-TERM", "-INT"] {
        let mut serving = Serving::start(&[]);
        let mut client = serving.connect();
        serving.signal(signal);
        assert_eq!(serving.exit_code(), Some(0), "{signal}");
        assert!(reply(&mut client).starts_with("421 "), "{signal}");
    }
}

#[test]
fn what_uploads_needed_is_gone_with_the_server() {
    let folder = std::env::temp_dir().join(format!("millrace-tidy-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("f"), "old").unwrap();
    let mut serving = Serving::start_in(folder.to_str().unwrap(), &["--anonymous", "rw", "--http", "off"]);
    let mut client = serving.connect();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let eprt = format!("EPRT |1|127.0.0.1|{port}|");
    write!(client.get_mut(), "USER anonymous\r\nPASS x\r\n{eprt}\r\nSTOR f\r\n").unwrap();
    assert!((0..4).map(|_| reply(&mut client)).last().unwrap().starts_with("150 "));
    listener.accept().unwrap().0.write_all(b"new").unwrap();
    assert!(reply(&mut client).starts_with("226 "));
    serving.signal("-TERM");
    assert_eq!(serving.exit_code(), Some(0));
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
    assert_eq!(fs::read(folder.join("f")).unwrap(), b"new");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = std::env::temp_dir().join(format!("millrace-endless-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    // Larger than the buffers of two sockets: a download that ends only when it is read.
    fs::File::create(folder.join("endless")).unwrap().set_len(1 << 30).unwrap();
    let mut serving = Serving::start_in(folder.to_str().unwrap(), &["--grace", "1h"]);
    let mut client = serving.connect();
    write!(client.get_mut(), "USER anonymous\r\nPASS x\r\nPASV\r\n").unwrap();
    let passive = (0..3).map(|_| reply(&mut client)).last().unwrap();
    let numbers: Vec<u16> =
        passive.split(['(', ')']).nth(1).unwrap().split(',').map(|number| number.parse().unwrap()).collect();
    let data = TcpStream::connect(("127.0.0.1", numbers[4] * 256 + numbers[5])).unwrap();
    write!(client.get_mut(), "RETR endless\r\n").unwrap();
    assert!(reply(&mut client).starts_with("150 "));
    serving.signal("-TERM");
    // New connections are refused once the signal was heard.
    let end = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(serving.address()).is_ok_and(|stream| is_greeted(&stream)) {
        assert!(Instant::now() < end, "it goes on accepting");
    }
    assert!(serving.child.try_wait().unwrap().is_none(), "it waits for the transfer");
    serving.signal("-TERM");
    assert_eq!(serving.exit_code(), Some(143));
    drop(data);
    fs::remove_dir_all(folder).unwrap();
}

fn is_greeted(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("220")
}

#[test]
fn anonymous_writers_from_the_network_are_warned_of() {
    let mut child = millrace(&["serve", GOLDEN, "--ftp", "0.0.0.0:0", "--anonymous", "rw", "--user", "a:b"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ready =
        BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap().starts_with("Ready"));
    child.kill().unwrap();
    assert!(ready);
    assert_eq!(
        text(&child.wait_with_output().unwrap().stderr),
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
fn a_stuck_log_does_not_stop_the_server() {
    // Nobody reads the pipe of its standard error, which holds 64 KiB.
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

#[test]
fn a_hashed_password_logs_in() {
    let mut child =
        millrace(&["hash-password"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"s3cr:et\n").unwrap();
    let hash = text(&child.wait_with_output().unwrap().stdout);
    let file = std::env::temp_dir().join(format!("millrace-command-{}.toml", std::process::id()));
    let users = format!("[[user]]\nname = \"dora\"\npassword = \"{}\"\n", hash.trim_end());
    fs::write(&file, users).unwrap();

    let serving = Serving::start(&["--config", file.to_str().unwrap()]);
    let mut client = serving.connect();
    write!(client.get_mut(), "USER dora\r\nPASS s3cr:et\r\n").unwrap();
    assert!(reply(&mut client).starts_with("331 "));
    assert!(reply(&mut client).starts_with("230 "));
    fs::remove_file(file).unwrap();
}

#[test]
fn what_follows_the_first_line_is_told_to_be_no_part_of_the_password() {
    for (input, told) in [
        ("pw\nmore\n", "warning: only the first line was taken for the password; more followed it\n"),
        ("pw\n", ""),
    ] {
        let mut child = millrace(&["hash-password"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(text(&output.stdout).starts_with("$argon2id$"));
        assert_eq!(text(&output.stderr), told);
    }
}

#[test]
fn a_hash_on_the_command_line_is_a_hash_there_too() {
    // The hash of `password`, from the tests of the reference implementation in C.
    let user = "dora:$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4:ro";
    let serving = Serving::start(&["--user", user]);
    let mut client = serving.connect();
    write!(client.get_mut(), "USER dora\r\nPASS password\r\n").unwrap();
    assert!(reply(&mut client).starts_with("331 "));
    assert!(reply(&mut client).starts_with("230 "));
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
fn passwords_that_cannot_be_sent_are_not_hashed() {
    for password in [&b""[..], b"\n", b"a\0b\n", b"a\tb\n"] {
        let mut child = millrace(&["hash-password"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(password).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", password.escape_ascii());
        assert!(output.stdout.is_empty());
    }
}

/// A folder that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-tls-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The lines about TLS that are printed at the start.
fn encrypted_doors(serving: &Serving) -> (Option<&String>, Option<&String>) {
    let url = serving.announced.iter().find(|line| line.trim_start().starts_with("ftps://"));
    let at = serving.announced.iter().position(|line| line.contains("SHA-256 fingerprint"));
    (url, at.map(|at| &serving.announced[at + 1]))
}

#[test]
fn a_self_signed_certificate_is_kept_and_its_fingerprint_printed() {
    let scratch = Scratch::new("kept");
    let state = scratch.path("state");
    let flags = ["--tls-self-signed", "--state", state.to_str().unwrap(), "--ftps", "127.0.0.1:0"];
    let fingerprints: Vec<String> = (0..2)
        .map(|_| {
            let serving = Serving::start(&flags);
            let (url, fingerprint) = encrypted_doors(&serving);
            assert!(url.is_some(), "{:?}", serving.announced);
            let mut client = serving.connect();
            client.get_mut().write_all(b"AUTH TLS\r\n").unwrap();
            assert!(reply(&mut client).starts_with("234 "));
            fingerprint.expect("it is printed").clone()
        })
        .collect();
    assert_eq!(fingerprints[0], fingerprints[1]);
    assert_eq!(fingerprints[0].trim().len(), 32 * 3 - 1);
}

#[test]
fn sighup_takes_over_new_certificates_or_leaves_all_as_it_was() {
    let scratch = Scratch::new("renewed");
    let (certificate, key) = (scratch.path("cert.pem"), scratch.path("key.pem"));
    let make = |name: &str| {
        let state = scratch.path(name);
        let serving = Serving::start(&["--tls-self-signed", "--state", state.to_str().unwrap()]);
        fs::copy(state.join("tls/self-signed/certificate.pem"), &certificate).unwrap();
        fs::copy(state.join("tls/self-signed/key.pem"), &key).unwrap();
        drop(serving);
    };
    make("first");
    let flags = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let mut serving = Serving::start(&flags);
    let mut log = BufReader::new(serving.child.stderr.take().unwrap()).lines();
    let mut wait_for = |text: &str| log.any(|line| line.unwrap().contains(text));
    make("second");
    serving.signal("-HUP");
    assert!(wait_for("configuration read anew"));
    fs::write(&key, "no key").unwrap();
    serving.signal("-HUP");
    assert!(wait_for("the old configuration stays in force"));
    assert!(serving.connect().get_mut().write_all(b"AUTH TLS\r\n").is_ok());
}

/// `millrace check FILE | head`: who reads no further has seen enough.
#[test]
fn a_reader_that_goes_is_no_failure() {
    let folder = std::env::temp_dir().join(format!("millrace-reader-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("m.toml");
    fs::write(&file, "ftp = \"127.0.0.1:2121\"\n").unwrap();
    for arguments in [&["check", file.to_str().unwrap()][..], &["limits"], &["bench", "--list"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = millrace(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", text(&output.stderr));
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// What `millrace link` says of a configuration with these keys in it, with a folder `d` that is served.
fn link(keys: &str, arguments: &[&str]) -> (Option<i32>, String) {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("millrace-link-{}-{number}", std::process::id()));
    fs::create_dir_all(folder.join("served/d")).unwrap();
    fs::create_dir_all(folder.join("served/bin")).unwrap();
    fs::write(folder.join("served/f"), "content").unwrap();
    fs::write(folder.join("keys"), "0123456789abcdef0123456789abcdef").unwrap();
    let config = folder.join("m.toml");
    let text = format!("directory = \"served\"\nstate = \"state\"\nhttp-link-keys = \"keys\"\n{keys}");
    fs::write(&config, text).unwrap();
    let output = run(&[&["link", "--config", config.to_str().unwrap()], arguments].concat());
    fs::remove_dir_all(folder).unwrap();
    (output.status.code(), text_of_both(&output))
}

fn text_of_both(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_link_begins_with_where_the_server_is_and_knows_a_folder() {
    for (keys, url) in [
        ("", "http://127.0.0.1:8080/f?expires="),
        ("http = \"192.0.2.1:80\"", "http://192.0.2.1/f?expires="),
        ("http = \"[::1]:81\"", "http://[::1]:81/f?expires="),
        ("https = \"192.0.2.1:443\"\ntls-self-signed = true", "https://192.0.2.1/f?expires="),
        (
            "https = \"0.0.0.0:8443\"\npublic-ip = \"203.0.113.7\"\ntls-self-signed = true",
            "https://203.0.113.7:8443/f?expires=",
        ),
        (
            "https = \"0.0.0.0:443\"\nacme = [\"files.example.org\"]\nacme-agree = true",
            "https://files.example.org/f?expires=",
        ),
    ] {
        let (code, said) = link(keys, &["/f"]);
        assert!(code == Some(0) && said.starts_with(url), "{keys}: {said}");
    }
    assert!(link("", &["/f", "--url", "https://a.example/"]).1.starts_with("https://a.example/f?"));
    for path in ["/d", "d/", "/none/"] {
        let (_, said) = link("", &[path]);
        assert!(said.contains("/?expires=") && said.contains("&beneath=1&"), "{path}: {said}");
    }
    assert!(!link("", &["/f"]).1.contains("beneath"));
    for (keys, arguments, reason) in [
        ("http = \"off\"", &["/f"][..], "say it with --url"),
        ("http = \"127.0.0.1:0\"", &["/f"], "say it with --url"),
        ("cgi = \"bin\"", &["/bin/report"], "answered by a program (cgi)"),
        (
            "[[pass]]\npath = \"/app\"\nto = \"http://127.0.0.1:3000\"",
            &["/app/x"],
            "answered by somebody else",
        ),
        ("", &["/d", "--put"], "is for one file"),
    ] {
        let (code, said) = link(keys, arguments);
        assert!(code == Some(2) && said.contains(reason), "{keys}: {code:?} {said}");
    }
}
