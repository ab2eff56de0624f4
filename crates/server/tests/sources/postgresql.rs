//! A PostgreSQL server for one test. Tests of other crates include this file, too.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::daemon::{Daemon, program};

/// A database that nothing but its socket leads to, unless it has a port.
pub(crate) struct Postgres {
    pub(crate) daemon: Daemon,
    postgres: PathBuf,
    /// Part of the name of the socket, too.
    pub(crate) port: Cell<u16>,
    pub(crate) psql: PathBuf,
}

impl Postgres {
    pub(crate) fn new() -> Option<Self> {
        let mut server = Self::make()?;
        server.start();
        Some(server)
    }

    /// One that speaks TLS at a port, with this certificate and its key.
    pub(crate) fn with_tls(certificate: &Path, key: &Path, free: impl FnMut() -> u16) -> Option<Self> {
        let mut server = Self::make()?;
        for (from, name) in [(certificate, "certificate.pem"), (key, "key.pem")] {
            let path = server.daemon.write(name, &fs::read_to_string(from).unwrap());
            let setting = if name == "key.pem" { "ssl_key_file" } else { "ssl_cert_file" };
            server.configure(&format!("{setting} = '{}'", path.display()));
        }
        server.configure("ssl = on");
        server.launch("127.0.0.1", free);
        Some(server)
    }

    fn make() -> Option<Self> {
        let initdb = program("initdb", "postgresql")?;
        let (postgres, psql) = (program("postgres", "postgresql")?, program("psql", "postgresql")?);
        let server = Self { daemon: Daemon::new(), postgres, port: Cell::new(5432), psql };
        server.daemon.run(
            initdb,
            &["-A", "trust", "-U", "millrace", "-E", "UTF8", "--locale=C", "--no-sync", "-D", "data"],
        );
        Some(server)
    }

    fn configure(&self, line: &str) {
        let file = self.daemon.path().join("data/postgresql.conf");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, format!("{text}\n{line}\n")).unwrap();
    }

    pub(crate) fn start(&mut self) {
        self.launch("", || 5432);
    }

    fn launch(&mut self, address: &str, mut port: impl FnMut() -> u16) {
        let Self { daemon, postgres, port: chosen, psql } = self;
        let folder = daemon.path().to_owned();
        let listen = format!("listen_addresses={address}");
        let arguments = || {
            chosen.set(port());
            let (port, folder) = (chosen.get().to_string(), folder.display().to_string());
            let words =
                ["-F", "-c", &listen, "-c", "shared_buffers=1MB", "-D", "data", "-p", &port, "-k", &folder];
            words.map(str::to_owned).to_vec()
        };
        let mut ping = daemon.command(&*psql);
        ping.stdout(Stdio::null()).stderr(Stdio::null());
        ping.args(reach(&folder)).args(["-c", "SELECT 1"]);
        daemon.start(postgres, arguments, || {
            ping.env("PGPORT", chosen.get().to_string()).status().unwrap().success()
        });
    }

    /// The words for `psql`.
    pub(crate) fn to_reach(&self) -> [String; 7] {
        reach(self.daemon.path())
    }

    #[track_caller]
    pub(crate) fn run(&self, statement: &str) -> String {
        let (reach, port) = (self.to_reach(), self.port.get().to_string());
        let mut words: Vec<&str> = reach.iter().map(String::as_str).collect();
        words.extend(["-p", &port, "-v", "ON_ERROR_STOP=1", "-c", statement]);
        self.daemon.run(&self.psql, &words)
    }

    pub(crate) fn connection(&self) -> String {
        format!("host={} user=millrace dbname=postgres", self.daemon.path().display())
    }
}

fn reach(folder: &Path) -> [String; 7] {
    ["-qAtX", "-U", "millrace", "-d", "postgres", "-h", &folder.display().to_string()].map(str::to_owned)
}
