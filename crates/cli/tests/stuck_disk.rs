//! A stuck or slow disk affects only the sessions that use it.
//!
//! A file system in memory (`stuck_disk.py`, by FUSE) is mounted within the served tree. While it holds every
//! request of one kind, sessions that use it are stuck; all others keep their latency. Skipped, with a line
//! that says so, where `/dev/fuse` cannot be used.

#[path = "clients/server.rs"]
#[expect(dead_code, reason = "the clients use more of it")]
mod server;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use server::{PASSWORD, Server, USER};

/// Longer than anything here takes, short enough to end a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long another session's command may take while the disk is stuck: the promise, unless the machine was busy enough
/// to break it before.
const LATENCY: Duration = Duration::from_millis(20);

/// How much worse than before it may be on a busy machine.
const FACTOR: u32 = 10;

/// How often others are measured before a latency is believed.
const ATTEMPTS: usize = 4;

/// Sessions that are measured: enough that each worker has some.
const OTHERS: usize = 8;

/// Commands that are measured each time.
const COMMANDS: usize = 1000;

/// An aborted transfer waits this long for the job that has its file; then it is answered all the same.
const ABORT: Duration = Duration::from_secs(4);

/// What one session does with the disk, and where that gets stuck.
const CASES: [(&str, Deed); 9] = [
    ("getattr", Deed::Ask("SIZE stuck/file")),
    ("getattr", Deed::Download),
    ("open", Deed::Download),
    ("read", Deed::Download),
    ("close", Deed::Download),
    ("open", Deed::Upload),
    ("write", Deed::Upload),
    ("close", Deed::Upload),
    ("readdir", Deed::List),
];

#[derive(Debug, Clone, Copy)]
enum Deed {
    Ask(&'static str),
    Download,
    Upload,
    List,
}

#[test]
fn a_stuck_disk_holds_up_only_those_who_use_it() {
    let server = Server::start();
    let Some(mut disk) = Disk::mount(&server.served().join("stuck")) else { return };
    fs::write(server.served().join("small"), "small").unwrap();
    let mut others: Vec<Session> = (0..OTHERS).map(|_| Session::log_in(server.address)).collect();
    measure(&mut others);
    let before = measure(&mut others);
    for (kind, deed) in CASES {
        let mut waiting = Session::log_in(server.address);
        let mut aborting = Session::log_in(server.address);
        let mut leaving = Session::log_in(server.address);
        disk.command(&format!("hold {kind}"));
        let data = waiting.begin(deed);
        let aborted = aborting.begin(deed);
        drop(leaving.begin(deed));
        assert_eq!(disk.line(), format!("stuck {kind}"));
        assert_undisturbed(&mut others, before, &format!("with {kind} stuck in {deed:?}"));

        drop(leaving);
        let asked = Instant::now();
        aborting.say("ABOR");
        // Where the transfer has begun; a file that is being opened answers for itself.
        if matches!((kind, deed), ("read", _) | (_, Deed::Upload)) {
            let replies = aborting.replies_until(226);
            assert!(replies.contains(&426) && asked.elapsed() < ABORT, "{replies:?} {:?}", asked.elapsed());
        }
        drop(aborted);
        assert_undisturbed(&mut others, before, &format!("with {kind} given up in {deed:?}"));

        disk.command("release");
        waiting.finish(deed, data);
        assert_eq!(waiting.command("NOOP"), 200, "{kind} {deed:?}");
    }
}

#[test]
fn a_slow_disk_is_served_whole() {
    let server = Server::start();
    let Some(mut disk) = Disk::mount(&server.served().join("stuck")) else { return };
    disk.command("slow 0.02");
    let mut session = Session::log_in(server.address);
    let contents: Vec<u8> = (0..1_500_000_u32).map(|number| (number ^ number >> 8) as u8).collect();
    for name in ["new", "file"] {
        let mut data = session.data(&format!("STOR stuck/{name}"));
        data.write_all(&contents).unwrap();
        drop(data);
        assert_eq!(session.replies_until(226), [150, 226]);
        let mut back = Vec::new();
        session.data(&format!("RETR stuck/{name}")).read_to_end(&mut back).unwrap();
        assert_eq!(session.replies_until(226), [150, 226]);
        assert!(back == contents, "{name} came back");
    }
    assert_eq!(session.command("DELE stuck/new"), 250);
    assert_eq!(session.command("MKD stuck/d"), 257);
    assert_eq!(session.command("RNFR stuck/file"), 350);
    assert_eq!(session.command("RNTO stuck/d/moved"), 250);
    let mut names = String::new();
    session.data("NLST stuck/d").read_to_string(&mut names).unwrap();
    assert_eq!(names, "stuck/d/moved\r\n");
}

/// Asserts that these sessions are as quick as they were before. Measured again where they are not: what a
/// busy machine does passes, a worker that waits for the disk waits again.
fn assert_undisturbed(sessions: &mut [Session], before: Duration, when: &str) {
    let most = LATENCY.max(before * FACTOR);
    let mut measured = vec![measure(sessions)];
    while measured.last() >= Some(&most) && measured.len() < ATTEMPTS {
        measured.push(measure(sessions));
    }
    println!("p99 of others: {before:?} before, {measured:?} {when}");
    assert!(measured.last().is_some_and(|&p99| p99 < most), "{before:?} before, {measured:?} {when}");
}

/// The 99th percentile of a thousand commands, half of them downloads, over all of these sessions in turn.
fn measure(sessions: &mut [Session]) -> Duration {
    let mut times: Vec<Duration> = (0..COMMANDS)
        .map(|number| {
            let session = &mut sessions[number / 2 % OTHERS];
            let begin = Instant::now();
            if number % 2 == 0 {
                assert_eq!(session.command("NOOP"), 200);
            } else {
                let mut text = String::new();
                session.data("RETR small").read_to_string(&mut text).unwrap();
                assert_eq!((session.replies_until(226), text.as_str()), (vec![150, 226], "small"));
            }
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[COMMANDS * 99 / 100]
}

/// A control connection.
struct Session {
    control: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Session {
    fn log_in(address: SocketAddr) -> Self {
        let mut session = Self { control: BufReader::new(connect(address)), address };
        assert_eq!(session.reply(), 220);
        assert_eq!(session.command(&format!("USER {USER}")), 331);
        assert_eq!(session.command(&format!("PASS {PASSWORD}")), 230);
        assert_eq!(session.command("TYPE I"), 200);
        session
    }

    fn say(&mut self, line: &str) {
        self.control.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.control.read_line(&mut line).unwrap();
            if line.as_bytes().get(3) == Some(&b' ') {
                return line;
            }
            assert!(!line.is_empty(), "the server hung up");
        }
    }

    fn reply(&mut self) -> u16 {
        self.line()[..3].parse().unwrap()
    }

    fn replies_until(&mut self, last: u16) -> Vec<u16> {
        let mut replies = vec![self.reply()];
        while replies.last() != Some(&last) && replies.len() < 4 {
            replies.push(self.reply());
        }
        replies
    }

    fn command(&mut self, line: &str) -> u16 {
        self.say(line);
        self.reply()
    }

    /// Opens a data connection and says what it is for.
    fn data(&mut self, line: &str) -> TcpStream {
        self.say("EPSV");
        let reply = self.line();
        let port = reply.split('|').nth(3).and_then(|port| port.parse().ok()).unwrap();
        let data = connect(SocketAddr::new(self.address.ip(), port));
        self.say(line);
        data
    }

    /// Begins something that may get stuck.
    fn begin(&mut self, deed: Deed) -> Option<TcpStream> {
        match deed {
            Deed::Ask(line) => {
                self.say(line);
                None
            }
            Deed::Download => Some(self.data("RETR stuck/file")),
            Deed::List => Some(self.data("LIST stuck")),
            Deed::Upload => {
                let mut data = self.data("STOR stuck/upload");
                data.write_all(&[b'u'; 10_000]).unwrap();
                data.shutdown(std::net::Shutdown::Write).unwrap();
                Some(data)
            }
        }
    }

    /// Sees it through, once nothing is stuck any more.
    fn finish(&mut self, deed: Deed, data: Option<TcpStream>) {
        let mut bytes = Vec::new();
        if let (Deed::Download | Deed::List, Some(mut data)) = (deed, data) {
            data.read_to_end(&mut bytes).unwrap();
        }
        match deed {
            Deed::Ask(_) => {
                let reply = self.line();
                assert!(reply.starts_with("213 "), "{reply}");
            }
            _ => assert_eq!(self.replies_until(226), [150, 226], "{deed:?}"),
        }
        match deed {
            Deed::Download => assert!(bytes.chunks(250).all(|chunk| chunk.iter().copied().eq(0..250))),
            Deed::List => assert!(String::from_utf8(bytes).unwrap().contains(" file\r\n")),
            Deed::Upload | Deed::Ask(_) => {}
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The file system. Unmounted when it is dropped.
struct Disk {
    child: Child,
    commands: Option<ChildStdin>,
    lines: Receiver<String>,
    path: PathBuf,
}

impl Disk {
    /// Mounts it. `None`, and a line that says why, where that cannot be done.
    fn mount(path: &Path) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let mut child = Command::new("python3")
            .args(["-c", include_str!("stuck_disk.py")])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let disk = Self { commands: child.stdin.take(), child, lines, path: path.to_owned() };
        match disk.line() {
            ready if ready == "ready" => Some(disk),
            why => {
                // Not `eprintln!`, which the test harness keeps to itself when a test passes.
                let _ = writeln!(std::io::stderr(), "skipped: {why}");
                None
            }
        }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("nothing from the disk: {error}"))
    }

    fn command(&mut self, line: &str) {
        self.commands.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        // A request that got stuck before the command says so first.
        while self.line() != "ok" {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.child.wait();
        let _ = fs::remove_dir(&self.path);
    }
}
