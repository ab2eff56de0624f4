//! Clients of HTTP that reset, half-close or stall, in every state of a connection: nothing is left of any of them, and
//! others are answered meanwhile.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_server::config::{Pass, Peer, Programs, Upstream};
use millrace_server::hooks::{Event, Hooks, Moment, Ruling};
use millrace_server::{Accounts, Config, Permissions};
use millrace_storage::{Fault, FaultStorage, Faults, LocalOptions, LocalStorage};
use millrace_vfs::VirtualPath;

use crate::alone;
use crate::kit::http2::{HEADERS, INITIAL_WINDOW_SIZE, get};
use crate::kit::{
    PATIENCE, Scratch, ServedHttp, descriptors, https_config, pattern, reset, serve_http_with, within,
};

/// When whoever does nothing is given up.
const STALL: Duration = Duration::from_secs(1);

/// When a test gives up: the slowest end is that of a program whose time is over.
const LONGEST: Duration = Duration::from_secs(30);

/// `u:p`.
const USER: &str = "Host: h\r\nAuthorization: Basic dTpw\r\n";

/// How a client ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Reset,
    HalfClose,
    Stall,
}

const ENDINGS: [Ending; 3] = [Ending::Reset, Ending::HalfClose, Ending::Stall];

/// What a connection is busy with when its client ends: the variant of `Work` that it has then, what that is about, and
/// how it comes about.
type State = (&'static str, &'static str, fn(&Site) -> Victim);

const STATES: [State; 20] = [
    ("Idle", "nothing was said", |site| site.say("")),
    ("Idle", "a head is read", |site| site.say("GET /small HTTP/1.1\r\nHo")),
    ("Idle", "an answer was given", |site| site.heard("GET /small HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Idle", "small answers are not taken", |site| {
        site.say(&"GET /medium HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2_000))
    }),
    ("Idle", "the rest of a refused body is awaited", |site| {
        site.heard("POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc")
    }),
    ("Securing", "TLS begins", |site| site.secure("")),
    ("Securing", "TLS begins, half a hello", |site| site.secure("\x16\x03\x01\x02\x00\x01")),
    ("Asked", "the pool is waited for", Site::stuck),
    ("Queued", "another program is waited for", |site| {
        let other = site.say("GET /cgi/silent HTTP/1.1\r\nHost: h\r\n\r\n");
        site.wait_for_program();
        site.say("GET /cgi/silent HTTP/1.1\r\nHost: h\r\n\r\n").beside(other)
    }),
    ("Held", "a wrong password is answered later", |site| {
        site.say("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTp3cm9uZw==\r\n\r\n")
    }),
    ("Sending", "a file is sent", |site| site.heard("GET /large HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Sending", "a directory's page is made", |site| site.heard("GET /many/ HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Collecting", "WebDAV's body comes", |site| {
        site.say("PROPFIND / HTTP/1.1\r\nHost: h\r\nDepth: 1\r\nContent-Length: 100\r\n\r\n<?xml")
    }),
    ("Receiving", "a body comes", |site| {
        site.say(&format!("PUT /up HTTP/1.1\r\n{USER}Content-Length: 1000000\r\n\r\n{}", "x".repeat(70_000)))
    }),
    ("Running", "a program is silent", |site| {
        let victim = site.say("GET /cgi/silent HTTP/1.1\r\nHost: h\r\n\r\n");
        site.wait_for_program();
        victim
    }),
    ("Running", "a program answers", |site| {
        let victim = site.heard("GET /cgi/endless HTTP/1.1\r\nHost: h\r\n\r\n");
        site.wait_for_program();
        victim
    }),
    ("Running", "another server is silent", |site| site.say("GET /silent/ HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Running", "another server answers", |site| site.heard("GET /endless/ HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Ruled", "a hook is asked", |site| site.say(&format!("DELETE /asked HTTP/1.1\r\n{USER}\r\n"))),
    ("Sending", "HTTP/2, an answer is not taken", |site| {
        let mut client = site.served.connect_http2(&[(INITIAL_WINDOW_SIZE, 0)]);
        client.send(get(1, "/large"));
        client.expect(HEADERS, 1);
        Victim::of(client.secured.socket)
    }),
];

#[test]
fn the_table_has_every_state_of_a_connection() {
    let source = include_str!("../../src/http/connection.rs");
    let (_, source) = source.split_once("enum Work {").unwrap();
    let (source, _) = source.split_once("\n}").unwrap();
    let lines = source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    let variants: Vec<_> = lines.map(|line| line.split(['(', ',']).next().unwrap()).collect();
    assert!(variants.contains(&"Idle") && variants.len() >= 10, "{variants:?}");
    for variant in &variants {
        assert!(STATES.iter().any(|(state, ..)| state == variant), "{variant} is not in the table");
    }
    assert!(STATES.iter().all(|(state, ..)| variants.contains(state)));
}

#[test]
fn whoever_goes_or_stalls_leaves_nothing_and_keeps_nobody() {
    let _alone = alone();
    let before_all = descriptors();
    let site = Site::new();
    // What is made once and kept, and files that are kept open while they are asked for.
    for (_, _, begin) in STATES {
        begin(&site).end(Ending::Reset);
        site.let_go();
    }
    site.expect_others_served("the first round");
    site.expect_quiet("the first round");
    let base = descriptors();
    for (state, about, begin) in STATES {
        for ending in ENDINGS {
            let what = format!("{state}: {about}; {ending:?}");
            let victim = begin(&site);
            site.expect_others_served(&what);
            let left = victim.end(ending);
            site.expect_others_served(&what);
            site.let_go();
            let own = left.iter().count();
            within(LONGEST, &format!("{what}: {} descriptors, {base} before", descriptors()), || {
                descriptors() <= base + own
            });
            site.expect_quiet(&what);
        }
    }
    assert!(site.scratch.read("up").is_none(), "no part of an upload has its name");
    // All places among the sessions are there: so many at once.
    let mut crowd: Vec<_> = (0..SESSIONS).map(|_| site.served.connect()).collect();
    for client in &mut crowd {
        assert_eq!(client.get("/small").status, 200);
    }
    drop(crowd);
    drop(site);
    // Two of the other servers listen on.
    crate::expect_descriptors(before_all + 2);
}

/// Sessions at most: a leak of places would soon keep others out.
const SESSIONS: usize = 8;

struct Site {
    scratch: Scratch,
    served: ServedHttp,
    faults: Faults,
}

/// A client in some state, and others without whom it would not be.
struct Victim {
    socket: TcpStream,
    beside: Vec<TcpStream>,
}

impl Victim {
    fn of(socket: TcpStream) -> Self {
        Self { socket, beside: Vec::new() }
    }

    fn beside(mut self, other: Victim) -> Self {
        self.beside.push(other.socket);
        self
    }

    /// What the client still holds.
    fn end(self, ending: Ending) -> Option<TcpStream> {
        let Self { socket, beside } = self;
        drop(beside);
        match ending {
            Ending::Reset => {
                reset(socket);
                None
            }
            Ending::HalfClose => {
                // It may have been closed already.
                let _ = socket.shutdown(Shutdown::Write);
                Some(socket)
            }
            Ending::Stall => Some(socket),
        }
    }
}

/// Is asked about one method, and takes its time.
#[derive(Debug)]
struct Slow;

impl Hooks for Slow {
    fn concerns(&self, event: Event, verb: &str) -> bool {
        event == Event::Command && verb == "DELETE"
    }

    fn call(&self, _: &Moment) -> Ruling {
        thread::sleep(Duration::from_millis(300));
        Ruling::Pass
    }
}

impl Site {
    fn new() -> Self {
        let scratch = Scratch::in_memory();
        scratch.write("small", b"here");
        scratch.write("medium", &pattern(16_000));
        scratch.write("stuck", b"here");
        std::fs::File::create(scratch.file("large")).unwrap().set_len(64 << 20).unwrap();
        scratch.crowd("many", 30_000, &"a-rather-long-name-".repeat(10));
        std::fs::create_dir(scratch.file("cgi")).unwrap();
        let told = "echo $$ >> ../pids; sleep 1000 & echo $! >> ../pids";
        program(&scratch, "silent", &format!("{told}; wait"));
        program(&scratch, "endless", &format!("{told}; echo 'Content-Type: a/b'; echo; exec cat /dev/zero"));
        let plain = scratch.storage();
        let faulty = FaultStorage::new(LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap())
            .showing_descriptors();
        let faults = faulty.faults();
        let accounts = Accounts::new().anonymous(Permissions::READ_ONLY, plain).user(
            "u",
            "p",
            Permissions::READ_WRITE,
            Arc::new(faulty),
        );
        let beneath = |path: &str, serve: fn(TcpStream)| Pass {
            path: VirtualPath::parse(path.as_bytes()).unwrap(),
            silence: STALL,
            ..Pass::new(Upstream::Http(Peer::Tcp(listen(serve))))
        };
        let programs = Programs {
            folders: vec![(
                VirtualPath::parse(b"/cgi").unwrap(),
                scratch.file("cgi").canonicalize().unwrap(),
            )],
            most: 1,
            time: 2 * STALL,
        };
        let served = serve_http_with(Config {
            accounts: Arc::new(accounts),
            programs,
            passes: vec![beneath("/silent", silent), beneath("/endless", endless)],
            hooks: Some(Arc::new(Slow)),
            sessions: SESSIONS,
            stall_timeout: STALL,
            // Others shake hands and ask within this, on a machine that is busy with other things.
            http_head_timeout: 3 * STALL,
            http_idle_timeout: 3 * STALL,
            login_delay: Duration::from_millis(300),
            login_attempts: 1_000,
            sort_entries: 100,
            ..https_config(&scratch)
        });
        Self { scratch, served, faults }
    }

    /// A client that has said this.
    fn say(&self, text: &str) -> Victim {
        let mut socket = TcpStream::connect(self.served.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        Victim::of(socket)
    }

    /// The same, and that has heard the beginning of the answer.
    fn heard(&self, text: &str) -> Victim {
        let mut victim = self.say(text);
        victim.socket.read_exact(&mut [0; 12]).unwrap();
        victim
    }

    /// A client of HTTPS that has said this.
    fn secure(&self, text: &str) -> Victim {
        let mut socket = TcpStream::connect(self.served.running.https_addresses()[0]).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        Victim::of(socket)
    }

    /// A client whose file's disk does not answer.
    fn stuck(&self) -> Victim {
        self.faults.reset();
        self.faults.from(1, Fault::Stuck);
        let victim = self.say(&format!("GET /stuck HTTP/1.1\r\n{USER}\r\n"));
        within(LONGEST, "the pool is stuck", || self.faults.stuck() > 0);
        victim
    }

    /// The disk answers again.
    fn let_go(&self) {
        self.faults.reset();
    }

    fn pids(&self) -> Vec<String> {
        let text = self.scratch.read("pids").unwrap_or_default();
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }

    /// A program has begun, and its child.
    fn wait_for_program(&self) {
        within(LONGEST, "the program begins", || self.pids().len() >= 2);
    }

    /// Programs and their children are gone; what they wrote of themselves, too.
    #[track_caller]
    fn expect_quiet(&self, what: &str) {
        let begin = Instant::now();
        for pid in self.pids() {
            let is_gone = || {
                let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
                status.map_or(true, |status| status.contains(") Z "))
            };
            while !is_gone() {
                assert!(begin.elapsed() < LONGEST, "{what}: process {pid} goes on");
                thread::sleep(Duration::from_millis(2));
            }
        }
        let _ = std::fs::remove_file(self.scratch.file("pids"));
    }

    /// Others, of HTTP/1.1 in clear and in TLS, and of files that have to be opened.
    #[track_caller]
    fn expect_others_served(&self, what: &str) {
        for target in ["/small", "/medium"] {
            assert_eq!(self.served.get(target, "").status, 200, "{what}");
        }
        assert_eq!(self.served.connect_securely().get("/small").body, b"here", "{what}");
    }
}

fn program(scratch: &Scratch, name: &str, text: &str) {
    let name = format!("cgi/{name}");
    scratch.write(&name, format!("#!/bin/sh\n{text}\n").as_bytes());
    std::fs::set_permissions(scratch.file(&name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Accepts on a free port for as long as the tests run; each connection has a thread of its own.
fn listen(serve: fn(TcpStream)) -> std::net::SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(socket));
        }
    });
    address
}

/// Hears, and never answers.
fn silent(mut socket: TcpStream) {
    let mut buffer = [0; 4096];
    while socket.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

/// Answers without end, as long as somebody listens.
fn endless(mut socket: TcpStream) {
    let mut head = [0; 4096];
    let _ = socket.read(&mut head);
    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [&b"10000\r\n"[..], &[7; 65_536], b"\r\n"].concat();
    while socket.write_all(&chunk).is_ok() {}
}
