//! The server's side: asks the spawner.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::Pid;

use super::policy::Policy;
use super::wire::Writer;
use crate::{Process, Start};

/// What a request is for.
pub(super) const PROGRAM: u64 = 0;
pub(super) const SUCCESSOR: u64 = 1;

/// A spawner that answers at this socket. Guarded while a request is sent, so that requests do not mix.
#[derive(Debug)]
pub(super) struct Spawner(Mutex<OwnedFd>);

/// The spawner of this process.
static SPAWNER: OnceLock<Spawner> = OnceLock::new();

/// Starts a spawner by this command, which has to call [`run_spawner`](super::run_spawner), and has it start every program
/// of this process from now on.
pub fn connect_spawner(mut command: Command, policy: &Policy) -> io::Result<()> {
    let (socket, theirs) = pair()?;
    // It ends when this process closes its end of the socket.
    command.stdin(Stdio::from(theirs)).spawn()?;
    drop(command);
    let spawner = Spawner::new(socket, policy)?;
    SPAWNER.set(spawner).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Returns whether programs of this process are started by a spawner.
pub fn has_spawner() -> bool {
    SPAWNER.get().is_some()
}

/// Starts another server in place of this one, with this socket as its standard input: by the spawner, where there is
/// one, which knows the command by its policy, else by `command`.
pub fn start_successor(mut command: Command, socket: OwnedFd) -> io::Result<Process> {
    match SPAWNER.get() {
        Some(spawner) => spawner.start_successor(&socket),
        None => {
            let child = command.stdin(Stdio::from(socket)).spawn()?;
            let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
            Ok(Process::own(pid))
        }
    }
}

/// Starts a program by the spawner; `None` where there is none.
pub(crate) fn start(start: &Start<'_>) -> Option<io::Result<Process>> {
    SPAWNER.get().map(|spawner| spawner.start(start))
}

pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

impl Spawner {
    /// Sends the policy.
    pub(super) fn new(socket: OwnedFd, policy: &Policy) -> io::Result<Self> {
        let mut message = Writer::default();
        policy.write(&mut message);
        message.send(socket.as_fd(), &[])?;
        Ok(Self(Mutex::new(socket)))
    }

    pub(super) fn start(&self, start: &Start<'_>) -> io::Result<Process> {
        let mut message = Writer::default();
        message.number(PROGRAM);
        message.block(start.program.to_bytes());
        message.block(start.folder.to_bytes());
        message.block(start.arguments);
        message.block(start.environment);
        let [input, output, errors] = start.streams;
        self.request(&message, [input, output, errors])
    }

    pub(super) fn start_successor(&self, socket: &OwnedFd) -> io::Result<Process> {
        let mut message = Writer::default();
        message.number(SUCCESSOR);
        let (output, errors) = (io::stdout(), io::stderr());
        self.request(&message, [socket.as_fd(), output.as_fd(), errors.as_fd()])
    }

    fn request(&self, message: &Writer, streams: [std::os::fd::BorrowedFd<'_>; 3]) -> io::Result<Process> {
        let (answers, theirs) = pair()?;
        let [input, output, errors] = streams;
        let sent = {
            let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            message.send(socket.as_fd(), &[input, output, errors, theirs.as_fd()])
        };
        drop(theirs);
        sent.map_err(gone)?;
        match receive(&answers, RecvFlags::empty())? {
            Some(pid @ 1..) => {
                let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
                Ok(Process::spawned(pid, answers))
            }
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(gone(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// The spawner has ended: a restart starts another.
fn gone(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => io::Error::new(
            error.kind(),
            "the process that starts programs for this server has ended; restart the server",
        ),
        _ => error,
    }
}

/// Receives a number; `None` where the other side has closed its end.
pub(crate) fn receive(socket: &OwnedFd, flags: RecvFlags) -> io::Result<Option<i32>> {
    let mut bytes = [0; size_of::<i32>()];
    loop {
        // A number is sent by one call on an empty socket, and so comes whole.
        match recv(socket, &mut bytes[..], flags | RecvFlags::WAITALL) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok((_, count)) => return Ok((count == bytes.len()).then(|| i32::from_le_bytes(bytes))),
        }
    }
}
