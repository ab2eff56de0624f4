//! `millrace serve --inetd`: one session, on a connection that a super-server has accepted and given as standard input
//! and output: inetd, xinetd, or systemd with `Accept=yes`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use millrace_server::Door;
use millrace_terminal::Failure;
use rustix::fs::{Stat, fstat};
use rustix::net::getpeername;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Where the system's log listens.
const SYSTEM_LOG: &str = "/dev/log";

/// Takes the connection. Nothing else is written to it afterwards: standard output leads nowhere, and standard error to
/// the system's log, where it was the connection, too.
pub(crate) fn take_connection() -> Result<OwnedFd, Failure> {
    let failed =
        |error: io::Error| Failure::Running(format!("the connection cannot be taken over: {error}."));
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    if getpeername(&socket).is_err() {
        return Err(Failure::Configuration(
            "--inetd: standard input is no connection: it is for inetd, xinetd, or systemd with Accept=yes."
                .to_owned(),
        ));
    }
    detach(&socket).map_err(failed)?;
    Ok(socket)
}

/// Tells a client of FTP that there is no server for it.
pub(crate) fn refuse(door: Door, client: &OwnedFd) {
    if door == Door::Ftp {
        let _ = rustix::io::write(client, b"421 The server cannot be started; its log says why.\r\n");
    }
}

fn detach(socket: &OwnedFd) -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    let is_connection =
        |stat: Stat| fstat(socket).is_ok_and(|own| (own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino));
    if fstat(io::stderr()).is_ok_and(is_connection) {
        let log = UnixDatagram::unbound()?;
        match log.connect(SYSTEM_LOG) {
            Ok(()) => dup2_stderr(&log)?,
            Err(_) => dup2_stderr(&nothing)?,
        }
    }
    dup2_stdin(&nothing)?;
    Ok(dup2_stdout(&nothing)?)
}
