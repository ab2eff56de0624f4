//! A server with every kind of work, and clients that keep it busy.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use millrace_server::config::{Peer, Programs, ProxyRoute, Upstream};
use millrace_server::hooks::{Event, EventContext, HookVerdict, Hooks};
use millrace_server::limits::Limit;
use millrace_server::{Accounts, Config, Permissions};
use millrace_storage::{Fault, FaultStorage, Faults, LocalOptions, LocalStorage};
use millrace_vfs::VirtualPath;

use super::{Ending, LONGEST, STALL};
use crate::kit::{PATIENCE, Scratch, ServedHttp, https_config, pattern, reset, serve_http_with, within};

/// Sessions at most: a leak of places would soon keep others out.
pub(super) const SESSIONS: usize = 8;

pub(super) struct Site {
    pub(super) scratch: Scratch,
    pub(super) served: ServedHttp,
    faults: Faults,
    slow: Arc<Slow>,
}

/// A client in some state, and the others that it depends on.
pub(super) struct Victim {
    socket: TcpStream,
    beside: Vec<TcpStream>,
}

impl Victim {
    pub(super) fn of(socket: TcpStream) -> Self {
        Self { socket, beside: Vec::new() }
    }

    pub(super) fn beside(mut self, other: Victim) -> Self {
        self.beside.push(other.socket);
        self
    }

    /// What the client still holds.
    pub(super) fn end(self, ending: Ending) -> Option<TcpStream> {
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

/// Is asked about one method, and answers when it is let go.
#[derive(Debug, Default)]
struct Slow {
    /// How often it was asked, and how many of these may be answered.
    asked: Mutex<(u64, u64)>,
    change: Condvar,
}

impl Slow {
    fn asked(&self) -> u64 {
        self.asked.lock().unwrap().0
    }

    fn let_go(&self) {
        let mut asked = self.asked.lock().unwrap();
        asked.1 = asked.0;
        self.change.notify_all();
    }
}

impl Hooks for Slow {
    fn concerns(&self, event: Event, verb: &str) -> bool {
        event == Event::Command && verb == "DELETE"
    }

    fn call(&self, _: &EventContext) -> HookVerdict {
        let mut asked = self.asked.lock().unwrap();
        asked.0 += 1;
        let number = asked.0;
        drop(self.change.wait_timeout_while(asked, PATIENCE, |asked| asked.1 < number).unwrap());
        HookVerdict::Pass
    }
}

impl Site {
    pub(super) fn new() -> Self {
        Self::with_sessions(SESSIONS)
    }

    /// With room for this many clients at a time.
    pub(super) fn with_sessions(sessions: usize) -> Self {
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
        let beneath = |path: &str, serve: fn(TcpStream)| ProxyRoute {
            path: VirtualPath::parse(path.as_bytes()).unwrap(),
            silence: STALL,
            ..ProxyRoute::new(Upstream::Http(Peer::Tcp(listen(serve))))
        };
        let programs = Programs {
            folders: vec![(
                VirtualPath::parse(b"/cgi").unwrap(),
                scratch.file("cgi").canonicalize().unwrap(),
            )],
            most: 1,
            time: 2 * STALL,
        };
        let slow = Arc::new(Slow::default());
        let served = serve_http_with(Config {
            accounts: Arc::new(accounts),
            programs,
            proxy_routes: vec![beneath("/silent", silent), beneath("/endless", endless)],
            hooks: Some(slow.clone()),
            sessions: Limit::of(sessions as u64),
            stall_timeout: STALL,
            // Others shake hands and ask within this, on a machine that is busy with other things.
            http_head_timeout: 3 * STALL,
            http_idle_timeout: 3 * STALL,
            login_delay: Duration::from_millis(300),
            login_attempts: 1_000,
            sort_entries: 100,
            ..https_config(&scratch)
        });
        Self { scratch, served, faults, slow }
    }

    /// A client that has said this.
    pub(super) fn say(&self, text: &str) -> Victim {
        let mut socket = TcpStream::connect(self.served.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        Victim::of(socket)
    }

    /// The same, and that has heard the beginning of the answer.
    pub(super) fn heard(&self, text: &str) -> Victim {
        let mut victim = self.say(text);
        victim.socket.read_exact(&mut [0; 12]).unwrap();
        victim
    }

    /// A client of HTTPS that has said this.
    pub(super) fn secure(&self, text: &str) -> Victim {
        let mut socket = TcpStream::connect(self.served.running.https_addresses()[0]).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        Victim::of(socket)
    }

    /// A client whose request waits for a stuck disk.
    pub(super) fn stuck<V>(&self, ask: impl FnOnce() -> V) -> V {
        self.faults.reset();
        self.faults.from(1, Fault::Stuck);
        let victim = ask();
        within(LONGEST, "the pool is stuck", || self.faults.stuck() > 0);
        victim
    }

    /// A client about whose request a hook is asked.
    pub(super) fn ruled<V>(&self, ask: impl FnOnce() -> V) -> V {
        let before = self.slow.asked();
        let victim = ask();
        within(LONGEST, "the hook is asked", || self.slow.asked() > before);
        victim
    }

    /// Disks and hooks answer again.
    pub(super) fn let_go(&self) {
        self.faults.reset();
        self.slow.let_go();
    }

    fn pids(&self) -> Vec<String> {
        let text = self.scratch.read("pids").unwrap_or_default();
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }

    /// A program has begun, and its child.
    pub(super) fn wait_for_program(&self) {
        within(LONGEST, "the program begins", || self.pids().len() >= 2);
    }

    /// Programs and their children are gone; what they wrote of themselves, too.
    #[track_caller]
    pub(super) fn expect_quiet(&self, what: &str) {
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
    pub(super) fn expect_others_served(&self, what: &str) {
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

/// Sends an endless answer, as long as the connection is open.
fn endless(mut socket: TcpStream) {
    let mut head = [0; 4096];
    let _ = socket.read(&mut head);
    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [&b"10000\r\n"[..], &[7; 65_536], b"\r\n"].concat();
    while socket.write_all(&chunk).is_ok() {}
}
