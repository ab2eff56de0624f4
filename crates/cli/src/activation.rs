//! Socket activation (`sd_listen_fds(3)`): a service manager has opened the sockets, and says by the environment
//! variables `LISTEN_FDS` and `LISTEN_FDNAMES` which of the first descriptors they are.

use std::env;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use millrace_server::{Door, Inherited, Predecessor};
use millrace_terminal::Failure;
use rustix::io::Errno;
use rustix::net::{SocketType, getsockname, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use thiserror::Error;

/// The variable with the number of sockets.
pub(crate) const LISTEN_FDS: &str = "LISTEN_FDS";

/// The descriptor of the first of them (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// Why a descriptor that was handed over cannot be used; follows its number and name.
#[derive(Debug, PartialEq, Eq, Error)]
enum ActivationError {
    #[error("cannot be used: {0}")]
    Descriptor(Errno),
    #[error("is no socket: {0}")]
    NoSocket(Errno),
    #[error("does not listen for connections; with Accept=yes, start \"millrace serve --inetd\"")]
    NoListener,
    #[error("is no TCP socket; only that of \"control\" is a Unix socket")]
    Family,
    #[error(
        "has a name that tells no protocol; set FileDescriptorName= to ftp, ftps, http, https or control"
    )]
    Name,
    #[error("is a control socket without a path")]
    NoPath,
    #[error("is a control socket that other users may open ({}, mode {mode:o}); set SocketMode=0600", path.display())]
    Open { path: PathBuf, mode: u32 },
}

/// Sockets that were handed to this process.
#[derive(Debug, Default)]
pub(crate) struct Activated {
    pub(crate) listeners: Vec<Inherited>,
    /// The control socket, and its path.
    pub(crate) control: Option<(PathBuf, UnixListener)>,
}

impl Activated {
    /// Takes the sockets over, where there are any.
    pub(crate) fn receive() -> Result<Option<Self>, Failure> {
        // Meant for another process, which has started this one.
        let is_own = env::var("LISTEN_PID").is_ok_and(|pid| pid == process::id().to_string());
        let Some(count) = env::var(LISTEN_FDS).ok().filter(|_| is_own) else { return Ok(None) };
        let count: i32 = count
            .parse()
            .map_err(|_| Failure::Configuration(format!("{LISTEN_FDS} is {count:?}, which is no number.")))?;
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut activated = Self::default();
        for descriptor in FIRST..FIRST.saturating_add(count) {
            let name = names.next().unwrap_or_default();
            let wrong = |why: ActivationError| {
                let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
                Failure::Configuration(format!("socket activation: descriptor {descriptor}{name} {why}."))
            };
            let socket = take(descriptor).map_err(|error| wrong(ActivationError::Descriptor(error)))?;
            activated.add(name, socket).map_err(wrong)?;
        }
        Ok(Some(activated))
    }

    /// The listeners of a server that was activated so, in the one that replaces it; `None` if it was not.
    pub(crate) fn of_predecessor(before: &Predecessor) -> Option<Vec<(Door, SocketAddr)>> {
        env::var_os(LISTEN_FDS).map(|_| before.addresses())
    }

    /// Where they listen.
    pub(crate) fn addresses(&self) -> Vec<(Door, SocketAddr)> {
        self.listeners.iter().map(|listener| (listener.door, listener.address)).collect()
    }

    fn add(&mut self, name: &str, socket: OwnedFd) -> Result<(), ActivationError> {
        let kind = sockopt::socket_type(&socket).map_err(ActivationError::NoSocket)?;
        let listens = sockopt::socket_acceptconn(&socket).map_err(ActivationError::NoSocket)?;
        if kind != SocketType::STREAM || !listens {
            return Err(ActivationError::NoListener);
        }
        let bound = getsockname(&socket).map_err(ActivationError::NoSocket)?;
        match SocketAddr::try_from(bound) {
            Ok(address) => {
                let door = door(name)?;
                self.listeners.push(Inherited { door, address, socket: Arc::new(socket) });
            }
            Err(_) if role(name) == "control" => {
                let listener = UnixListener::from(socket);
                let bound = listener.local_addr().ok();
                let path = bound.as_ref().and_then(|bound| bound.as_pathname());
                let path = path.ok_or(ActivationError::NoPath)?.to_owned();
                refuse_open(&path)?;
                self.control = Some((path, listener));
            }
            Err(_) => return Err(ActivationError::Family),
        }
        Ok(())
    }
}

/// A copy of a descriptor, which this process was started with: it is closed when a program is started.
fn take(descriptor: i32) -> rustix::io::Result<OwnedFd> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    pidfd_getfd(own, descriptor, PidfdGetfdFlags::empty())
}

/// The part of a name that tells the protocol: `http` of `millrace-http.socket`, which is the name of a unit that sets
/// none.
fn role(name: &str) -> &str {
    let stem = name.strip_suffix(".socket").unwrap_or(name);
    stem.rsplit('-').next().unwrap_or(stem)
}

fn door(name: &str) -> Result<Door, ActivationError> {
    match role(name) {
        "ftps" => Ok(Door::Ftps),
        "http" => Ok(Door::Http),
        "https" => Ok(Door::Https),
        // "unknown" is what systemd calls a socket without a name.
        "ftp" | "" | "unknown" => Ok(Door::Ftp),
        _ => Err(ActivationError::Name),
    }
}

/// The mode of its file is all that protects a control socket.
fn refuse_open(path: &Path) -> Result<(), ActivationError> {
    let mode = path.symlink_metadata().map_err(|_| ActivationError::NoPath)?.mode() & 0o777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(ActivationError::Open { path: path.to_owned(), mode }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_protocol_also_that_of_a_unit() {
        for (name, expected) in [
            ("ftp", Door::Ftp),
            ("https", Door::Https),
            ("millrace-ftps.socket", Door::Ftps),
            ("millrace-http.socket", Door::Http),
            ("unknown", Door::Ftp),
            ("", Door::Ftp),
        ] {
            assert_eq!(door(name), Ok(expected), "{name}");
        }
        assert_eq!(door("millrace.socket"), Err(ActivationError::Name));
    }
}
