//! The side of `user-files`: becomes the user, and makes its calls.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::thread::{self, JoinHandle};

use millrace_sandbox::{Access, Grant};
use nix::unistd::{self, Gid, Uid};
use rustix::io::Errno;
use thiserror::Error;

use crate::call::FileCall;
use crate::policy::Setup;
use crate::question::Answer;
use crate::wire::{LONGEST, receive, send};

/// What a thread needs: a call is read, made and answered.
const STACK: usize = 128 * 1024;

/// The longest call: two paths, and some numbers.
const LONGEST_CALL: usize = 10 * 1024;

/// Serves the connections that a helper sends to this socket, with the rights of the user that it names, until the
/// server closes them. For a process with one thread and no descriptors but its streams and this socket.
pub fn run_user_files(socket: OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; LONGEST];
    let Some((message, connections)) = receive(&socket, &mut buffer)? else { return Ok(()) };
    let begun = Setup::read(message).map_err(SetupError::from).and_then(|setup| {
        setup.assume()?;
        connections
            .into_iter()
            .map(spawn)
            .collect::<io::Result<Vec<JoinHandle<_>>>>()
            .map_err(SetupError::from)
    });
    match begun {
        Err(error) => send(&socket, &Answer::Failed(error.to_string()).to_bytes(), &[]),
        Ok(threads) => {
            send(&socket, &Answer::Done.to_bytes(), &[])?;
            drop(socket);
            threads.into_iter().for_each(|thread| drop(thread.join()));
            Ok(())
        }
    }
}

/// Closes the descriptors behind the streams: a module of PAM may have left some open to every process that the helper
/// starts.
pub fn close_inherited() -> io::Result<()> {
    let numbers: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // One of them was the directory's, which is closed by now.
        let _ = unistd::close(number);
    }
    Ok(())
}

/// Why this process cannot serve; a sentence without its full stop.
#[derive(Debug, Error)]
enum SetupError {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("it cannot become the user: {0}")]
    Become(#[from] nix::Error),
    #[error("it has kept rights that are not the user's")]
    Kept,
    #[error(transparent)]
    Sandbox(#[from] millrace_sandbox::EnterError),
}

impl Setup {
    /// Becomes the user for good, and enters the sandbox.
    fn assume(&self) -> Result<(), SetupError> {
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        if user.is_root() {
            return Err(SetupError::Kept);
        }
        if unistd::geteuid().is_root() {
            let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
            unistd::setgroups(&groups)?;
            unistd::setresgid(group, group, group)?;
            unistd::setresuid(user, user, user)?;
        }
        let (users, groups) = (unistd::getresuid()?, unistd::getresgid()?);
        let is_user = [users.real, users.effective, users.saved].iter().all(|id| *id == user);
        let is_of_group = [groups.real, groups.effective, groups.saved].iter().all(|id| *id == group);
        if !is_user || !is_of_group {
            return Err(SetupError::Kept);
        }
        match &self.sandbox {
            None => millrace_sandbox::lock()?,
            Some(trees) => {
                let grants: Vec<Grant> =
                    trees.iter().map(|tree| Grant::new(tree.clone(), Access::Write)).collect();
                millrace_sandbox::enter_without_network(&grants)?;
            }
        }
        Ok(())
    }
}

fn spawn(connection: OwnedFd) -> io::Result<JoinHandle<io::Result<()>>> {
    thread::Builder::new().stack_size(STACK).spawn(move || serve(&connection))
}

/// Makes the calls of a connection until it is closed. A malformed one fails as one that is not permitted.
fn serve(connection: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; LONGEST_CALL];
    while let Some((message, descriptors)) = receive(connection, &mut buffer)? {
        let mut opened = Vec::new();
        let made = match FileCall::read(message) {
            Ok(call) => call.perform(&descriptors, &mut opened),
            Err(_) => Err(Errno::PERM),
        };
        let error = made.map_or_else(Errno::raw_os_error, |()| 0);
        let opened: Vec<BorrowedFd<'_>> = opened.iter().map(AsFd::as_fd).collect();
        send(connection, &error.to_le_bytes(), &opened)?;
    }
    Ok(())
}
