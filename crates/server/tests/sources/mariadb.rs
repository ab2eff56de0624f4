//! A MariaDB server for one test. Tests of other crates include this file, too.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::daemon::{Daemon, program};

/// A database that nothing but its socket leads to.
pub(crate) struct Mariadb {
    pub(crate) daemon: Daemon,
    mariadbd: PathBuf,
    mariadb: PathBuf,
    /// What it listens to beside its socket.
    network: Vec<String>,
    pub(crate) port: Cell<u16>,
}

impl Mariadb {
    pub(crate) fn new() -> Option<Self> {
        let mut server = Self::make()?;
        server.start();
        server.run("CREATE DATABASE accounts");
        Some(server)
    }

    /// One that speaks TLS at a port, with this certificate and its key.
    pub(crate) fn with_tls(certificate: &Path, key: &Path, mut free: impl FnMut() -> u16) -> Option<Self> {
        let mut server = Self::make()?;
        for (from, name, option) in
            [(certificate, "certificate.pem", "ssl-cert"), (key, "key.pem", "ssl-key")]
        {
            let path = server.daemon.write(name, &fs::read_to_string(from).unwrap());
            server.network.push(format!("--{option}={}", path.display()));
        }
        server.network.push("--bind-address=127.0.0.1".to_owned());
        server.launch(|| Some(free()));
        server.run("CREATE DATABASE accounts");
        Some(server)
    }

    fn make() -> Option<Self> {
        let install = program("mariadb-install-db", "mariadb-server")?;
        let (mariadbd, mariadb) =
            (program("mariadbd", "mariadb-server")?, program("mariadb", "mariadb-client")?);
        let server =
            Self { daemon: Daemon::new(), mariadbd, mariadb, network: Vec::new(), port: Cell::new(0) };
        let data = format!("--datadir={}", server.daemon.path().join("data").display());
        server.daemon.run(
            install,
            &["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"],
        );
        Some(server)
    }

    pub(crate) fn start(&mut self) {
        self.launch(|| None);
    }

    fn launch(&mut self, mut port: impl FnMut() -> Option<u16>) {
        let folder = self.daemon.path().display();
        let arguments = [
            "--no-defaults".to_owned(),
            format!("--datadir={folder}/data"),
            format!("--socket={folder}/socket"),
            format!("--pid-file={folder}/pid"),
            "--skip-log-bin".to_owned(),
            "--innodb-buffer-pool-size=8M".to_owned(),
            // What was answered outlives the server, not the machine.
            "--innodb-flush-log-at-trx-commit=2".to_owned(),
        ];
        let (network, chosen) = (&self.network, &self.port);
        let arguments = || {
            let port = port();
            chosen.set(port.unwrap_or(0));
            let network = match port {
                Some(port) => [&network[..], &[format!("--port={port}")]].concat(),
                None => vec!["--skip-networking".to_owned()],
            };
            [&arguments[..], &network].concat()
        };
        let mut ping = self.daemon.command(&self.mariadb);
        ping.args(self.to_reach()).args(["-e", "SELECT 1"]).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemon.start(&self.mariadbd, arguments, || ping.status().unwrap().success());
    }

    fn to_reach(&self) -> [String; 5] {
        let socket = format!("--socket={}/socket", self.daemon.path().display());
        ["--no-defaults".to_owned(), socket, "--user=root".to_owned(), "--batch".to_owned(), "-N".to_owned()]
    }

    #[track_caller]
    pub(crate) fn run(&self, statement: &str) -> String {
        let reach = self.to_reach();
        let mut words: Vec<&str> = reach.iter().map(String::as_str).collect();
        let statement = match statement.starts_with("CREATE DATABASE") {
            true => statement.to_owned(),
            false => format!("USE accounts; {statement}"),
        };
        words.extend(["-e", &statement]);
        self.daemon.run(&self.mariadb, &words)
    }

    pub(crate) fn connection(&self) -> String {
        let socket = self.daemon.path().join("socket").display().to_string();
        format!("mysql://root@localhost/accounts?socket={}", socket.replace('/', "%2F"))
    }
}
