//! The spawner's side: starts programs, tells of their ends.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use super::client::{PROGRAM, SUCCESSOR};
use super::policy::Policy;
use super::wire::{DESCRIPTORS, Reader};
use crate::{Process, ProgramLimits, Start, limit_programs};

/// A program that was started, until it has ended and its number is not needed any more.
struct Child {
    process: Process,
    /// Readable once it has ended.
    end: OwnedFd,
    /// Where the server waits for that; `None` once it has closed its end.
    server: Option<OwnedFd>,
    has_ended: bool,
}

/// Serves a server at this socket until it closes its end. Programs that run then go on by themselves.
pub fn run_spawner(socket: OwnedFd) -> io::Result<()> {
    let Some((mut message, _)) = Reader::receive(socket.as_fd())? else { return Ok(()) };
    let policy = Policy::read(&mut message)?;
    limit_programs(policy.limits);
    let mut children: Vec<Child> = Vec::new();
    loop {
        let is_asked = wait(&socket, &mut children)?;
        children.retain_mut(|child| !child.is_done());
        if is_asked {
            let Some((message, descriptors)) = Reader::receive(socket.as_fd())? else { return Ok(()) };
            children.extend(answer(&policy, message, descriptors));
        }
    }
}

/// Waits for a request or an end; returns whether there is a request.
fn wait(socket: &OwnedFd, children: &mut [Child]) -> io::Result<bool> {
    let mut watched = vec![PollFd::new(socket, PollFlags::IN)];
    for child in &*children {
        // One that has ended is waited for at the server's end alone, and the other way round.
        let end = if child.has_ended { PollFlags::empty() } else { PollFlags::IN };
        watched.push(PollFd::new(&child.end, end));
        let server = child.server.as_ref().unwrap_or(&child.end);
        let awaited = if child.server.is_some() { PollFlags::IN } else { PollFlags::empty() };
        watched.push(PollFd::new(server, awaited));
    }
    match poll(&mut watched, None) {
        Err(Errno::INTR) => return Ok(false),
        polled => polled?,
    };
    let seen: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
    let (first, rest) = seen.split_first().ok_or(io::ErrorKind::InvalidData)?;
    for (child, seen) in children.iter_mut().zip(rest.chunks(2)) {
        if seen[0] && !child.has_ended {
            child.tell_of_its_end();
        }
        // The server sends nothing there: this is its end of the socket.
        if seen[1] && child.server.is_some() {
            child.server = None;
        }
    }
    Ok(*first)
}

impl Child {
    /// Sends the status, and leaves the process as it is, so that its number is no other's.
    fn tell_of_its_end(&mut self) {
        self.has_ended = true;
        let id = WaitId::PidFd(self.end.as_fd());
        let status = waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok().flatten();
        let raw = status.map_or(0, |status| match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => (code & 0xff) << 8,
            (None, Some(signal)) => signal,
            (None, None) => 0,
        });
        if let Some(server) = &self.server {
            let _ = send(server, &raw.to_le_bytes(), SendFlags::NOSIGNAL);
        }
    }

    /// Collects it, where it has ended and the server has let go of it.
    fn is_done(&mut self) -> bool {
        self.has_ended && self.server.is_none() && !matches!(self.process.try_wait(), Ok(None))
    }
}

/// Does what a request asks for, and answers it; returns what was started.
fn answer(policy: &Policy, message: Reader, descriptors: Vec<OwnedFd>) -> Option<Child> {
    let [input, output, errors, server] = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors).ok()?;
    let started = start(policy, message, [input, output, errors]).and_then(|process| {
        let end = pidfd_open(process.pid(), PidfdFlags::empty())?;
        Ok((process, end))
    });
    let number = match &started {
        Ok((process, _)) => process.pid().as_raw_nonzero().get(),
        Err(error) => -error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()),
    };
    let _ = send(&server, &number.to_le_bytes(), SendFlags::NOSIGNAL);
    let (process, end) = started.ok()?;
    Some(Child { process, end, server: Some(server), has_ended: false })
}

fn start(policy: &Policy, mut message: Reader, streams: [OwnedFd; 3]) -> io::Result<Process> {
    match message.number()? {
        PROGRAM => {
            let (program, folder): (CString, CString) = (message.path()?, message.path()?);
            let (arguments, environment) = (message.block()?, message.block()?);
            let start = Start {
                program: &program,
                arguments: &arguments,
                environment: &environment,
                folder: &folder,
                streams: streams.each_ref().map(AsFd::as_fd),
            };
            match policy.allows(&start) {
                true => start.start_here(),
                false => Err(Errno::PERM.into()),
            }
        }
        SUCCESSOR => successor(policy, streams),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Starts the command of the policy as the server itself was started: with its variables, in its process group, and
/// without the limits of programs.
fn successor(policy: &Policy, [input, output, errors]: [OwnedFd; 3]) -> io::Result<Process> {
    let (program, arguments) = policy.successor.split_first().ok_or(Errno::PERM)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    limit_programs(ProgramLimits::default());
    let child = command.spawn();
    limit_programs(policy.limits);
    let pid = Pid::from_raw(child?.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(Process::own(pid))
}
