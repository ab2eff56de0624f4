//! Child processes: [`Start`] starts one at the least cost, for servers that start one a request (CGI); [`Program`] runs
//! one to its end within limits of time and output.
//!
//! `posix_spawn`, which [`std::process::Command`] uses, maps a stack for each child and unmaps it, which in a process of
//! several threads interrupts all processors, and asks in some 120 system calls what each signal does. That is a fifth
//! of what a server spends on starting a small program. [`Start::start`] does without: one `clone3`, and the few calls
//! that a child has to make (`vfork.rs`). Where that is not to be had (another processor, a seccomp filter that knows no
//! `clone3`), `Command` does the same.
//!
//! In a sandbox a server starts nothing itself: a process beside it does ([`connect_spawner`]), and makes children of the
//! server.
//!
//! The invariant: a child has the three streams that it is given and no other descriptor, the variables that it is
//! given and no other, its own process group, and signals as a shell's child has them. (By `Command` it also has
//! descriptors that this process itself was started with, unless those are close-on-exec.)

#![cfg(target_os = "linux")]

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};

use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, pidfd_open, waitpid};

mod limits;
mod program;
mod slots;
mod spare;
mod spawner;
#[cfg(target_arch = "x86_64")]
mod vfork;

/// What [`slots`] share between threads; `tests/loom.rs` tries every order instead.
mod sync {
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

pub use limits::{ProgramLimits, limit_programs};
pub use program::{Ended, How, Program, Purpose, Recall};
pub use slots::keep_descriptors;
pub use spawner::{Policy, Request, Word, connect_spawner, has_spawner, run_spawner, start_successor};

/// A program that is to be started, in a process group of its own.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// Its file.
    pub program: &'a CStr,
    /// Its arguments, its name first, each ended by a NUL byte.
    pub arguments: &'a [u8],
    /// Its variables, `NAME=value`, each ended by a NUL byte.
    pub environment: &'a [u8],
    /// Where it runs.
    pub folder: &'a CStr,
    /// Its standard input, output and error.
    pub streams: [BorrowedFd<'a>; 3],
}

/// A program that was started. Dropping it neither ends it nor waits for it: that is the owner's task.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    status: Option<ExitStatus>,
    /// Where the spawner tells of its end, if it is the spawner's child and not this process's.
    spawner: Option<OwnedFd>,
}

/// Why there is no child.
#[derive(Debug)]
enum Failure {
    /// It was not tried, because it is not available here.
    Unavailable,
    Failed(io::Error),
    /// The child has ended before it was the program. It is for its parent to wait for it, which is another process.
    Ended(Pid, io::Error),
}

impl<E: Into<io::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The parent of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    ThisProcess,
    /// The parent of this process: the server, where this process is its spawner.
    OfThisProcess,
}

impl Start<'_> {
    /// Starts it; returns when it is loaded, or has failed to be, with the error of the call that has failed.
    ///
    /// Fails with [`io::ErrorKind::InvalidInput`] where arguments or variables do not end with a NUL byte.
    pub fn start(&self) -> io::Result<Process> {
        spawner::start(self).unwrap_or_else(|| self.start_here())
    }

    /// Starts it as a child of this process.
    fn start_here(&self) -> io::Result<Process> {
        match self.start_quickly(Parent::ThisProcess) {
            Ok(pid) => Ok(Process::own(pid)),
            Err(Failure::Failed(error) | Failure::Ended(_, error)) => Err(error),
            Err(Failure::Unavailable) => self.start_by_command(),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn start_quickly(&self, parent: Parent) -> Result<Pid, Failure> {
        // A stream that is one of the first three already would be overwritten, or closed.
        match self.streams.iter().all(|stream| stream.as_raw_fd() > 2) {
            true => vfork::start(self, parent),
            false => Err(Failure::Unavailable),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn start_quickly(&self, _: Parent) -> Result<Pid, Failure> {
        Err(Failure::Unavailable)
    }

    fn start_by_command(&self) -> io::Result<Process> {
        let stream = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map(Stdio::from);
        let [input, output, errors] = self.streams;
        let mut arguments = strings(self.arguments)?;
        let mut command = Command::new(OsStr::from_bytes(self.program.to_bytes()));
        if let Some(name) = arguments.next() {
            command.arg0(OsStr::from_bytes(name));
        }
        command.args(arguments.map(OsStr::from_bytes)).env_clear();
        for variable in strings(self.environment)? {
            let equals = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
            let value = variable.get(equals + 1..).unwrap_or_default();
            command.env(OsStr::from_bytes(&variable[..equals]), OsStr::from_bytes(value));
        }
        command
            .current_dir(OsStr::from_bytes(self.folder.to_bytes()))
            .process_group(0)
            .stdin(stream(input)?)
            .stdout(stream(output)?)
            .stderr(stream(errors)?);
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        limits::hold(pid);
        Ok(Process::own(pid))
    }
}

/// The strings of a block, each without its NUL byte.
fn strings(block: &[u8]) -> io::Result<impl Iterator<Item = &[u8]>> {
    let are_there = !block.is_empty();
    let Some(block) = block.strip_suffix(&[0]).or(block.is_empty().then_some(block)) else {
        let error = "arguments and variables have to end with a NUL byte";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
    };
    Ok(block.split(|&byte| byte == 0).filter(move |_| are_there))
}

impl Process {
    /// A child of this process.
    fn own(pid: Pid) -> Self {
        Self { pid, status: None, spawner: None }
    }

    /// A child of the spawner, which tells of its end there.
    fn spawned(pid: Pid, spawner: OwnedFd) -> Self {
        Self { pid, status: None, spawner: Some(spawner) }
    }

    /// Its process ID, which is its process group's as well. It may be reused once its end is known.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// A descriptor that is readable once it has ended; to be asked for before its end is known.
    pub fn end(&self) -> io::Result<OwnedFd> {
        match &self.spawner {
            None => Ok(pidfd_open(self.pid, PidfdFlags::empty())?),
            Some(spawner) => spawner.try_clone(),
        }
    }

    /// Ends it, without what it has started.
    pub fn kill(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::KILL)?)
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.collect(WaitOptions::NOHANG)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            match self.collect(WaitOptions::empty()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                ended => return Ok(ended?.unwrap_or_default()),
            }
        }
    }

    fn collect(&mut self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = match &self.spawner {
                None => waitpid(Some(self.pid), options)?.map(|(_, status)| exit_status(status)),
                Some(spawner) => told_by(spawner, options)?,
            };
        }
        Ok(self.status)
    }
}

/// The status that the spawner tells, if it has.
fn told_by(spawner: &OwnedFd, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
    let flags = match options.contains(WaitOptions::NOHANG) {
        true => RecvFlags::DONTWAIT,
        false => RecvFlags::empty(),
    };
    match spawner::receive(spawner, flags) {
        Ok(Some(status)) => Ok(Some(ExitStatus::from_raw(status))),
        Ok(None) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the spawner has ended")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn exit_status(status: WaitStatus) -> ExitStatus {
    ExitStatus::from_raw(status.as_raw())
}

#[cfg(test)]
mod tests;
