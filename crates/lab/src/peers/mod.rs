//! Servers that a race knows by name: where they are installed, how each is configured, started and stopped.
//!
//! [`PEERS`] has a row for each. A started server gets a fresh folder and ports of its own, and is gone, with all that
//! descends from it, when its [`Running`] is dropped. `peers/README.md` says why the configurations are fair.

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
    /// Its protocol: `ftp`, `ftpes`, `http` or `https`.
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
pub const PEERS: [Peer; 10] = [
    daemons::MILLRACE,
    daemons::VSFTPD,
    daemons::PURE_FTPD,
    daemons::PROFTPD,
    daemons::PYFTPDLIB,
    daemons::UNFTP,
    daemons::NGINX,
    daemons::LIGHTTPD,
    daemons::FLOOR,
    daemons::HTTP_FLOOR,
];

/// Those of them that can be started with TLS.
const ENCRYPTED: [&Peer; 8] = [
    &daemons::MILLRACE_FTPES,
    &daemons::VSFTPD_FTPES,
    &daemons::PURE_FTPD_FTPES,
    &daemons::PROFTPD_FTPES,
    &daemons::PYFTPDLIB_FTPES,
    &daemons::MILLRACE_HTTPS,
    &daemons::NGINX_HTTPS,
    &daemons::LIGHTTPD_HTTPS,
];

/// Where a server runs and what it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    installed: &'a Installed,
    /// The served folder.
    root: &'a Path,
    /// An empty folder for its configuration.
    state: &'a Path,
    ports: Ports,
}

/// How a configured server is started, and the account to log in with.
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
    /// A path where nothing is.
    #[error("there is no program {}", .0.display())]
    NoProgram(PathBuf),
    /// A path whose last part is no name of a server.
    #[error(
        "{}: which server that is, its file name has to say ({names})",
        .0.display(),
        names = PEERS.map(|peer| peer.name).join(", ")
    )]
    Nameless(PathBuf),
    /// It is not here.
    #[error("{name} is not installed: {remedy}")]
    NotInstalled {
        /// Which.
        name: &'static str,
        /// How one gets it.
        remedy: &'static str,
    },
    /// A path of something else, by the look of it.
    #[error("{} does not say its version, as {name} would", .path.display())]
    Dumb {
        /// Which it should be.
        name: &'static str,
        /// Where.
        path: PathBuf,
    },
    /// Something that it needs cannot be made.
    #[error("{name} cannot be set up: {error}")]
    SetUp {
        /// Which.
        name: &'static str,
        /// The system's error.
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
    /// The user cancelled the wait.
    #[error("the wait for it was cancelled")]
    Left,
}

impl PeerError {
    /// Returns true if what was asked for cannot be, whatever this machine does.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::SetUp { .. } | Self::Silent { .. } | Self::Left)
    }
}

impl Peer {
    /// A server by its name.
    pub fn named(name: &str) -> Result<&'static Self, PeerError> {
        PEERS.iter().find(|peer| peer.name == name).ok_or_else(|| PeerError::Unknown(name.to_owned()))
    }

    /// A server by the path of its program, which has its name; `peers/install` puts `millrace-` before those of its own.
    pub fn at(path: &Path) -> Result<&'static Self, PeerError> {
        if !path.is_file() {
            return Err(PeerError::NoProgram(path.to_owned()));
        }
        let last = path.file_name().and_then(|last| last.to_str()).unwrap_or_default();
        let name = last.strip_prefix("millrace-").unwrap_or(last);
        PEERS.iter().find(|peer| peer.name == name).ok_or_else(|| PeerError::Nameless(path.to_owned()))
    }

    /// Returns true if it is spoken to by HTTP, in clear or in TLS.
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

    /// Returns true if it is spoken to in TLS.
    pub(crate) fn is_over_tls(&self) -> bool {
        matches!(self.scheme, "ftpes" | "https")
    }

    /// The same server in TLS, where it is known how that is configured.
    pub(crate) fn encrypted(&self) -> Option<&'static Self> {
        let is_same = |peer: &&Peer| peer.name == self.name && peer.is_over_http() == self.is_over_http();
        ENCRYPTED.into_iter().find(is_same)
    }

    /// Looks for it: at a path, in `PATH`, and where `peers/install` puts servers.
    pub fn installed(&'static self, path: Option<PathBuf>) -> Result<Installed, PeerError> {
        let none = || match &path {
            Some(path) => PeerError::Dumb { name: self.name, path: path.clone() },
            None => PeerError::NotInstalled { name: self.name, remedy: self.source },
        };
        find::find(self, path.as_deref()).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_name() {
        assert_eq!(Peer::named("vsftpd").unwrap().name, "vsftpd");
        let unknown = Peer::named("wu-ftpd").unwrap_err().to_string();
        assert!(unknown.contains("wu-ftpd") && unknown.contains("pyftpdlib"), "{unknown}");
    }

    #[test]
    fn a_path_is_of_a_program_with_a_servers_name() {
        let folder = std::env::temp_dir().join(format!("millrace-peers-at-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [known, floor, unknown] = ["millrace", "millrace-floor", "wu-ftpd"].map(|name| folder.join(name));
        for path in [&known, &floor, &unknown] {
            std::fs::write(path, "no program").unwrap();
        }
        assert_eq!(Peer::at(&known).unwrap().name, "millrace");
        assert_eq!(Peer::at(&floor).unwrap().name, "floor");
        let said = |error: PeerError| error.to_string();
        assert!(said(Peer::at(&unknown).unwrap_err()).contains("its file name has to say (millrace, "));
        for nothing in [folder.join("vsftpd"), folder.clone()] {
            let error = said(Peer::at(&nothing).unwrap_err());
            assert_eq!(error, format!("there is no program {}", nothing.display()));
        }
        let dumb = said(Peer::at(&known).unwrap().installed(Some(known)).unwrap_err());
        assert!(dumb.ends_with("does not say its version, as millrace would"), "{dumb}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_missing_server_is_reported_with_its_package() {
        for peer in &PEERS {
            let missing = PeerError::NotInstalled { name: peer.name, remedy: peer.source }.to_string();
            assert!(missing.starts_with(peer.name) && missing.contains(peer.source), "{missing}");
        }
    }
}
