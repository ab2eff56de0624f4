//! The server's side: asks the spawner.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::Pid;

use super::policy::Policy;
use super::request::Request;
use super::wire::{DESCRIPTORS, receive_with};
use crate::{Process, Start};

/// How many programs may be about to start at once; others wait until one has started.
pub(super) const CONNECTIONS: usize = DESCRIPTORS;

/// Bytes of an answer: the process number, 0 for none, and the error, 0 for none.
pub(super) const ANSWER: usize = 2 * size_of::<i32>();

/// A spawner, by its connections.
#[derive(Debug)]
pub(super) struct Spawner {
    /// The connections without a request. Guarded for a push or a pop: the one that was used last is used next, so that
    /// the thread behind it is still in the processor's caches.
    idle: Mutex<Vec<OwnedFd>>,
    /// A connection was put back.
    returned: Condvar,
}

/// The spawner of this process.
static SPAWNER: OnceLock<Spawner> = OnceLock::new();

/// Starts a spawner by this command, which has to call [`run_spawner`](super::run_spawner), and has it start every program
/// of this process from now on.
pub fn connect_spawner(mut command: Command, policy: &Policy) -> io::Result<()> {
    let (socket, theirs) = pair()?;
    // It ends when this process closes its connections.
    command.stdin(Stdio::from(theirs)).spawn()?;
    drop(command);
    let spawner = Spawner::new(&socket, policy)?;
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
    /// Sends the policy, and the spawner's ends of the connections.
    pub(super) fn new(socket: &OwnedFd, policy: &Policy) -> io::Result<Self> {
        let pairs = (0..CONNECTIONS).map(|_| pair()).collect::<io::Result<Vec<_>>>()?;
        let (idle, theirs): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs.into_iter().unzip();
        let theirs: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
        policy.written().send(socket.as_fd(), &theirs)?;
        Ok(Self { idle: Mutex::new(idle), returned: Condvar::new() })
    }

    pub(super) fn start(&self, start: &Start<'_>) -> io::Result<Process> {
        let request = Request::of(start);
        match self.request(&request, start.streams) {
            // What starts programs best is not to be had there: from now on it uses another way.
            Err(Refusal { error, had_begun: true }) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(self.request(&request, start.streams)?)
            }
            started => Ok(started?),
        }
    }

    pub(super) fn start_successor(&self, socket: &OwnedFd) -> io::Result<Process> {
        let (output, errors) = (io::stdout(), io::stderr());
        Ok(self.request(&Request::Successor, [socket.as_fd(), output.as_fd(), errors.as_fd()])?)
    }

    fn request(&self, request: &Request<'_>, streams: [BorrowedFd<'_>; 3]) -> Result<Process, Refusal> {
        let connection = self.take();
        let answer = ask(&connection, request, streams).map_err(gone);
        self.put_back(connection, answer.is_ok());
        let (pid, error, end) = answer?;
        match (pid, error) {
            (Some(pid), None) => Ok(end.map_or(Process::own(pid), |end| Process::spawned(pid, end))),
            (pid, error) => {
                // What has ended before it was a program is this process's to collect.
                let collected = pid.map(|pid| Process::own(pid).wait());
                let error = error.unwrap_or_else(|| io::ErrorKind::InvalidData.into());
                Err(Refusal { error, had_begun: collected.is_some() })
            }
        }
    }

    fn take(&self) -> OwnedFd {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match idle.pop() {
                Some(connection) => return connection,
                None => idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// One that has failed is the last to be used again.
    fn put_back(&self, connection: OwnedFd, is_sound: bool) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let place = if is_sound { idle.len() } else { 0 };
        idle.insert(place, connection);
        drop(idle);
        self.returned.notify_one();
    }
}

/// Why there is no program.
struct Refusal {
    error: io::Error,
    /// Whether a child has failed to become the program.
    had_begun: bool,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self { error, had_begun: false }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

/// A process number and an error, as far as there are; where the spawner waits for the end, the socket that it tells of
/// it by.
type Answer = (Option<Pid>, Option<io::Error>, Option<OwnedFd>);

fn ask(connection: &OwnedFd, request: &Request<'_>, streams: [BorrowedFd<'_>; 3]) -> io::Result<Answer> {
    request.written().send(connection.as_fd(), &streams)?;
    let mut answer = [0; ANSWER];
    // It is sent by one call on an empty socket, and so comes whole.
    let (count, mut descriptors) = receive_with(connection.as_fd(), &mut answer)?;
    if count < ANSWER {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let [pid, error] = [0, 4].map(|at| i32::from_le_bytes([0, 1, 2, 3].map(|byte| answer[at + byte])));
    let error = (error != 0).then(|| io::Error::from_raw_os_error(error));
    Ok((Pid::from_raw(pid.max(0)), error, descriptors.pop()))
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
