//! A CA for one test: Let's Encrypt's own for tests (pebble), behind a door that this test opens and closes.
//!
//! The CA listens first, so that a server can be configured with it before the CA knows the server's ports: early
//! connections wait. Tests of other crates include this file, too.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use millrace_server::config::{KeyPair, self_signed};

use super::daemon::{Daemon, program};

/// Names that it refuses.
pub(crate) const REFUSED: &str = "refused.example";

/// Where its directory is, behind the door; and where it tells of itself.
const DIRECTORY: u16 = 14_000;
const MANAGEMENT: u16 = 15_000;

/// There are 16 million in 127.0.0.0/8.
fn own_address() -> Ipv4Addr {
    static NUMBER: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 192 + NUMBER.fetch_add(1, Ordering::Relaxed) % 62, high, low)
}

/// How it is disposed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mood {
    /// Of a hundred requests, this many are told that their nonce is none.
    pub(crate) bad_nonces: u32,
}

/// A CA that asks at this machine's own doors.
pub(crate) struct Pebble {
    daemon: Daemon,
    program: PathBuf,
    identity: KeyPair,
    door: Door,
    /// An address of this machine's that no other test uses, so that its ports are free.
    own: Ipv4Addr,
}

impl Pebble {
    /// One that does not run yet; `None` where it is not installed and need not be.
    pub(crate) fn new() -> Option<Self> {
        let installed = program("pebble", "pebble")?;
        let daemon = Daemon::new();
        // A copy: the tests' user need not be able to reach the other.
        let program = daemon.path().join("pebble");
        fs::copy(installed, &program).unwrap();
        let folder = std::env::temp_dir().join(format!("{}-tls", daemon.path().display()));
        let made = self_signed(&folder, &["localhost".to_owned()]).unwrap();
        let keep = |from: &PathBuf, name: &str| daemon.write(name, &fs::read_to_string(from).unwrap());
        let identity = KeyPair {
            certificate: keep(&made.certificate, "certificate.pem"),
            key: keep(&made.key, "key.pem"),
        };
        fs::remove_dir_all(&folder).unwrap();
        Some(Self { daemon, program, identity, door: Door::new(), own: own_address() })
    }

    /// Its directory.
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/dir", self.door.port)
    }

    /// The certificate that vouches for the directory's own.
    pub(crate) fn authority(&self) -> PathBuf {
        self.identity.certificate.clone()
    }

    /// Starts it, to ask at these ports of this machine's. What it knew before it knows no more.
    pub(crate) fn start(&mut self, http: u16, https: u16, mood: Mood) {
        let [directory, management] = [DIRECTORY, MANAGEMENT].map(|port| SocketAddr::from((self.own, port)));
        let configuration = format!(
            r#"{{"pebble": {{
                "listenAddress": "{directory}", "managementListenAddress": "{management}",
                "certificate": "certificate.pem", "privateKey": "key.pem",
                "httpPort": {http}, "tlsPort": {https}, "domainBlocklist": ["{REFUSED}"],
                "certificateValidityPeriod": 7776000
            }}}}"#
        );
        self.daemon.write("pebble.json", &configuration);
        let variables = [
            "PEBBLE_VA_NOSLEEP=1".to_owned(),
            format!("PEBBLE_WFE_NONCEREJECT={}", mood.bad_nonces),
            // Each order is asked about, and nothing is remembered by luck.
            "PEBBLE_AUTHZREUSE=0".to_owned(),
        ];
        let program = [self.program.display().to_string(), "-config".to_owned(), "pebble.json".to_owned()];
        let arguments = [&variables[..], &program].concat();
        let answers = || [directory, management].iter().all(|address| TcpStream::connect(address).is_ok());
        self.daemon.start(&PathBuf::from("env"), || arguments.clone(), answers);
        self.door.lead(Leads::To(directory));
    }

    /// Stops: later connections are refused.
    pub(crate) fn go_away(&mut self) {
        self.door.lead(Leads::Nowhere);
        self.daemon.kill();
    }

    /// How many were turned away.
    pub(crate) fn turned_away(&self) -> usize {
        self.door.shared.turned_away.load(Ordering::Relaxed)
    }

    /// How many were let in.
    pub(crate) fn let_in(&self) -> usize {
        self.door.shared.let_in.load(Ordering::Relaxed)
    }

    /// The certificate that vouches for all that it issues.
    pub(crate) fn root(&self) -> PathBuf {
        let url = format!("https://{}:{MANAGEMENT}/roots/0", self.own);
        let output = Command::new("curl")
            .args(["--silent", "--fail", "--insecure", "--max-time", "60", &url])
            .output()
            .unwrap();
        assert!(output.status.success(), "{url}: {}", output.status);
        let path = self.daemon.path().join("root.pem");
        fs::write(&path, output.stdout).unwrap();
        path
    }
}

/// A port that leads to another, or nowhere, or nowhere yet.
struct Door {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    leads: Mutex<Leads>,
    changed: Condvar,
    turned_away: AtomicUsize,
    let_in: AtomicUsize,
}

#[derive(Debug, Clone, Copy, Default)]
enum Leads {
    #[default]
    NowhereYet,
    Nowhere,
    To(SocketAddr),
}

impl Door {
    fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        // It ends with the process, as do those who wait.
        thread::spawn(move || {
            for socket in listener.incoming().filter_map(Result::ok) {
                let shared = Arc::clone(&own);
                thread::spawn(move || shared.serve(&socket));
            }
        });
        Self { port, shared }
    }

    fn lead(&self, leads: Leads) {
        *self.shared.leads.lock().unwrap() = leads;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn serve(&self, client: &TcpStream) {
        let leads = self.leads.lock().unwrap();
        let leads = *self.changed.wait_while(leads, |leads| matches!(leads, Leads::NowhereYet)).unwrap();
        let server = match leads {
            Leads::To(address) => TcpStream::connect(address),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        };
        let Ok(server) = server else {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.let_in.fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| copy(client, &server));
            copy(&server, client);
        });
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
