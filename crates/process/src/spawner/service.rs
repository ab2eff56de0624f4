//! The spawner's side: starts programs.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, WaitId, WaitIdOptions, getppid, waitid};

use super::client::{ANSWER, pair};
use super::policy::Policy;
use super::request::Request;
use super::wire::{Receiver, send_with};
use crate::{Failure, Parent, Process, Start, limit_programs};

/// What a thread of the spawner needs: a request is read, looked at and answered.
const STACK: usize = 128 * 1024;

/// Serves a server at this socket until it closes its connections. Programs that run then go on by themselves.
pub fn run_spawner(socket: OwnedFd) -> io::Result<()> {
    let mut receiver = Receiver::new();
    let Some((message, connections)) = receiver.receive(socket.as_fd())? else { return Ok(()) };
    let policy = Arc::new(Policy::read(message)?);
    limit_programs(policy.limits);
    // The server is the process that made the socket. Programs are its children where this process is one.
    let parent = match getppid() {
        Some(parent) if parent == socket_peercred(&socket)?.pid => Parent::OfThisProcess,
        _ => Parent::ThisProcess,
    };
    let serve = |connection| {
        let policy = Arc::clone(&policy);
        thread::Builder::new().stack_size(STACK).spawn(move || serve(&policy, parent, &connection))
    };
    let threads = connections.into_iter().map(serve).collect::<io::Result<Vec<JoinHandle<_>>>>()?;
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
}

/// Answers the requests of a connection until it is closed.
fn serve(policy: &Policy, parent: Parent, connection: &OwnedFd) -> io::Result<()> {
    let mut receiver = Receiver::new();
    while let Some((message, descriptors)) = receiver.receive(connection.as_fd())? {
        let started = <[OwnedFd; 3]>::try_from(descriptors)
            .map_err(|_| Failure::from(Errno::INVAL))
            .and_then(|streams| start(policy, parent, message, streams));
        answer(connection, started)?;
    }
    Ok(())
}

fn answer(connection: &OwnedFd, started: Result<Started, Failure>) -> io::Result<()> {
    let (pid, error, child) = match started {
        Ok(Started::Adopted(pid)) => (Some(pid), None, None),
        Ok(Started::Own(child)) => (Some(child.pid()), None, Some(child)),
        Err(Failure::Ended(pid, error)) => (Some(pid), Some(error), None),
        Err(Failure::Failed(error)) => (None, Some(error), None),
        Err(Failure::Unavailable) => (None, Some(Errno::NOSYS.into()), None),
    };
    let told = child.map(tell_of_its_end).transpose()?;
    let pid = pid.map_or(0, |pid| pid.as_raw_nonzero().get());
    let error = error.map_or(0, |error| error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()));
    let mut answer = [0; ANSWER];
    answer[..4].copy_from_slice(&pid.to_le_bytes());
    answer[4..].copy_from_slice(&error.to_le_bytes());
    // The socket is empty, so that this is sent whole.
    send_with(connection.as_fd(), &[IoSlice::new(&answer)], told.as_ref().map(AsFd::as_fd).as_slice())?;
    Ok(())
}

/// Whose child a started program is.
enum Started {
    /// The server's, which waits for it.
    Adopted(Pid),
    Own(Process),
}

fn start(policy: &Policy, parent: Parent, message: &[u8], streams: [OwnedFd; 3]) -> Result<Started, Failure> {
    let request = Request::read(message).map_err(|_| Errno::INVAL)?;
    if !policy.allows(&request) {
        return Err(Errno::PERM.into());
    }
    let Request::Program { program, folder, arguments, environment } = request else {
        return Ok(Started::Own(successor(policy, streams)?));
    };
    let streams = streams.each_ref().map(AsFd::as_fd);
    let start = Start { program, arguments, environment, folder, streams };
    match start.start_quickly(parent) {
        Ok(pid) if parent == Parent::OfThisProcess => Ok(Started::Adopted(pid)),
        Ok(pid) => Ok(Started::Own(Process::own(pid))),
        Err(Failure::Unavailable) => Ok(Started::Own(start.start_by_command()?)),
        Err(failure) => Err(failure),
    }
}

/// Has a thread wait for a child of this process, and returns the socket by which it sends the status. The child is
/// collected once the other end of that is closed: its number is no other's until then.
fn tell_of_its_end(mut child: Process) -> io::Result<OwnedFd> {
    let (ours, theirs) = pair()?;
    let wait = move || {
        let id = WaitId::Pid(child.pid());
        let status = loop {
            match waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Err(Errno::INTR) => {}
                status => break status.ok().flatten(),
            }
        };
        let raw = status.map_or(0, |status| match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => (code & 0xff) << 8,
            (None, Some(signal)) => signal,
            (None, None) => 0,
        });
        let _ = send(&ours, &raw.to_le_bytes(), SendFlags::NOSIGNAL);
        // The server sends nothing there: this is its end of the socket.
        let mut watched = [PollFd::new(&ours, PollFlags::IN)];
        while matches!(poll(&mut watched, None), Err(Errno::INTR)) {}
        let _ = child.wait();
    };
    thread::Builder::new().stack_size(STACK).spawn(wait)?;
    Ok(theirs)
}

/// Starts the command of the policy as the server itself was started: with its variables, in its process group, and
/// without the limits of programs.
fn successor(policy: &Policy, [input, output, errors]: [OwnedFd; 3]) -> io::Result<Process> {
    let (program, arguments) = policy.successor.split_first().ok_or(Errno::PERM)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    let child = command.spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(Process::own(pid))
}
