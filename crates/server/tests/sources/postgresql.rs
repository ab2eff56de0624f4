//! A PostgreSQL server for one test. Tests of other crates include this file, too.

use std::path::PathBuf;
use std::process::Stdio;

use super::daemon::{Daemon, program};

/// A database that nothing but its socket leads to.
pub(crate) struct Postgres {
    pub(crate) daemon: Daemon,
    postgres: PathBuf,
    pub(crate) psql: PathBuf,
}

impl Postgres {
    pub(crate) fn new() -> Option<Self> {
        let initdb = program("initdb", "postgresql")?;
        let (postgres, psql) = (program("postgres", "postgresql")?, program("psql", "postgresql")?);
        let mut server = Self { daemon: Daemon::new(), postgres, psql };
        server.daemon.run(
            initdb,
            &["-A", "trust", "-U", "millrace", "-E", "UTF8", "--locale=C", "--no-sync", "-D", "data"],
        );
        server.start();
        Some(server)
    }

    pub(crate) fn start(&mut self) {
        let folder = self.daemon.path().display().to_string();
        let arguments = ["-F", "-c", "listen_addresses=", "-c", "shared_buffers=1MB", "-D", "data", "-k"];
        let arguments: Vec<String> =
            arguments.iter().map(|text| (*text).to_owned()).chain([folder]).collect();
        let mut ping = self.daemon.command(&self.psql);
        ping.args(self.to_reach()).args(["-c", "SELECT 1"]).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemon.start(&self.postgres, || arguments.clone(), || ping.status().unwrap().success());
    }

    /// The words for `psql`.
    pub(crate) fn to_reach(&self) -> [String; 7] {
        let folder = self.daemon.path().display().to_string();
        ["-qAtX", "-U", "millrace", "-d", "postgres", "-h", &folder].map(str::to_owned)
    }

    #[track_caller]
    pub(crate) fn run(&self, statement: &str) -> String {
        let reach = self.to_reach();
        let mut words: Vec<&str> = reach.iter().map(String::as_str).collect();
        words.extend(["-v", "ON_ERROR_STOP=1", "-c", statement]);
        self.daemon.run(&self.psql, &words)
    }

    pub(crate) fn connection(&self) -> String {
        format!("host={} user=millrace dbname=postgres", self.daemon.path().display())
    }
}
