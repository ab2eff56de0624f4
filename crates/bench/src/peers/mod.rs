//! Servers that a race knows by name: where they are installed, how each is configured, started and stopped.
//!
//! [`PEERS`] has a row for each. Whoever is started gets a fresh folder and ports of its own, and is gone, with all
//! that descends from it, when its [`Running`] is dropped. `peers/README.md` says why the configurations are fair.

mod daemons;
mod find;
mod running;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use self::find::{Installed, peers_folder};
pub use self::running::{Ports, Running, end_all};

/// A server that a race can start.
#[derive(Debug)]
pub struct Peer {
    /// As on the command line.
    pub name: &'static str,
    /// What it speaks: `ftp`, `http` or `https`.
    pub scheme: &'static str,
    /// How it serves many, in a line.
    pub model: &'static str,
    /// How a login is checked here.
    pub auth: &'static str,
    /// How one gets it.
    pub source: &'static str,
    /// Where it is, and the words that make it say its version.
    place: find::Place,
    /// Writes its configuration and answers how it is started.
    configure: fn(&Setting<'_>) -> io::Result<Launch>,
}

/// Every server that is known by name.
pub const PEERS: [Peer; 9] = [
    daemons::MILLRACE,
    daemons::VSFTPD,
    daemons::PURE_FTPD,
    daemons::PROFTPD,
    daemons::PYFTPDLIB,
    daemons::UNFTP,
    daemons::NGINX,
    daemons::LIGHTTPD,
    daemons::FLOOR,
];

/// Where a server runs and what it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    installed: &'a Installed,
    /// What it serves.
    root: &'a Path,
    /// An empty folder for its configuration.
    state: &'a Path,
    ports: Ports,
}

/// How a configured server is started, and who may log in.
#[derive(Debug)]
struct Launch {
    argv: Vec<String>,
    user: &'static str,
    password: &'static str,
}

/// Why a server cannot be raced.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The name.
    #[error(
        "{0:?} is neither a URL nor a server that is known by name ({names})",
        names = PEERS.map(|peer| peer.name).join(", ")
    )]
    Unknown(String),
    /// It is not here.
    #[error("{name} is not installed: {remedy}")]
    NotInstalled {
        /// Which.
        name: &'static str,
        /// How one gets it.
        remedy: &'static str,
    },
    /// What it needs cannot be made.
    #[error("{name} cannot be set up: {error}")]
    SetUp {
        /// Which.
        name: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// It did not come up.
    #[error("{name} did not answer on port {port}{after}. It said: {said}")]
    Silent {
        /// Which.
        name: &'static str,
        /// Where it should have.
        port: u16,
        /// `` or how it ended.
        after: String,
        /// The end of its output.
        said: String,
    },
    /// Nobody waited for it.
    #[error("nobody waited for it")]
    Left,
}

impl Peer {
    /// A server by its name, or by the path of a program of that name.
    pub fn named(name: &str) -> Result<&'static Self, PeerError> {
        let last = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or(name);
        PEERS.iter().find(|peer| peer.name == last).ok_or_else(|| PeerError::Unknown(name.to_owned()))
    }

    /// Claims that it is spoken to by HTTP, in clear or in TLS.
    pub(crate) fn is_over_http(&self) -> bool {
        self.scheme.starts_with("http")
    }

    /// The same server over HTTP, where it speaks both.
    pub(crate) fn over_http(&'static self) -> Option<&'static Self> {
        const MILLRACE: &Peer = &daemons::MILLRACE_HTTP;
        match self.name {
            _ if self.is_over_http() => Some(self),
            name if name == MILLRACE.name => Some(MILLRACE),
            _ => None,
        }
    }

    /// The same server of HTTP in TLS, where it is known how that is configured.
    pub(crate) fn over_https(&'static self) -> Option<&'static Self> {
        const SECRET: [&Peer; 2] = [&daemons::MILLRACE_HTTPS, &daemons::NGINX_HTTPS];
        SECRET.into_iter().find(|peer| peer.name == self.name)
    }

    /// Looks for it: at a path, in `PATH`, and where `peers/install` puts servers.
    pub fn installed(&'static self, path: Option<PathBuf>) -> Result<Installed, PeerError> {
        find::find(self, path).ok_or(PeerError::NotInstalled { name: self.name, remedy: self.source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_find_the_same_server() {
        assert_eq!(Peer::named("vsftpd").unwrap().name, "vsftpd");
        assert_eq!(Peer::named("/old/release/millrace").unwrap().name, "millrace");
        let unknown = Peer::named("wu-ftpd").unwrap_err().to_string();
        assert!(unknown.contains("wu-ftpd") && unknown.contains("pyftpdlib"), "{unknown}");
    }

    #[test]
    fn what_is_not_there_says_how_to_get_it() {
        let missing = Peer::named("vsftpd").unwrap().installed(Some("/nowhere/vsftpd".into())).unwrap_err();
        assert!(missing.to_string().contains("peers/install"), "{missing}");
    }
}
