//! The server's side of `user-files`: has calls made with the rights of a user.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{Access, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Timestamps, Uid};
use rustix::io::{Errno, Result};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::call::{FileCall, LONGEST_LOOKED_AT, MOST_LOOKED_AT};
use crate::policy::Setup;
use crate::question::Answer;
use crate::wire::{LONGEST, malformed, pair, pairs, receive, send};

/// How long a process may take to become the user.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many calls of a user may run at once.
pub(crate) const CONNECTIONS: usize = 4;

/// Bytes of an answer: an error. The buffer is longer, so that a longer one is noticed.
const ANSWER: usize = size_of::<i32>();

/// The files of a user, with the user's own rights. Its process ends when this is dropped.
#[derive(Debug)]
pub struct UserFiles {
    user: u32,
    /// The connections without a call. Guarded for a push or a pop.
    idle: Mutex<Vec<OwnedFd>>,
    /// A connection was put back.
    returned: Condvar,
    /// Whether a call has found that the process has ended.
    has_ended: AtomicBool,
}

impl UserFiles {
    /// Names that [`UserFiles::look_at`] opens by one call, if they are not long ones.
    pub const LOOKED_AT: usize = MOST_LOOKED_AT;

    pub(crate) fn new(user: u32, connections: Vec<OwnedFd>) -> Self {
        let (idle, returned) = (Mutex::new(connections), Condvar::new());
        Self { user, idle, returned, has_ended: AtomicBool::new(false) }
    }

    /// Starts its process by this command, which has to call [`run_user_files`](crate::run_user_files), without a helper:
    /// that takes the rights to become the user.
    pub fn start(command: Command, setup: &Setup) -> io::Result<Self> {
        let (ours, theirs) = pairs(CONNECTIONS)?;
        let (mut child, begun) = start(command, setup, &theirs)?;
        thread::Builder::new().spawn(move || child.wait())?;
        match begun? {
            Answer::Done => Ok(Self::new(setup.user, ours)),
            Answer::Failed(why) => Err(io::Error::other(why)),
            _ => Err(malformed()),
        }
    }

    /// The number of the user.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Returns whether its process has ended, so that every call fails.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Opens a path beneath a directory.
    pub fn open(
        &self,
        directory: BorrowedFd<'_>,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd> {
        let call =
            FileCall::Open { path, flags: flags.bits(), mode: mode.as_raw_mode(), resolve: resolve.bits() };
        let (made, mut opened) = self.call(&call, &[directory]);
        made?;
        opened.pop().ok_or(Errno::IO)
    }

    /// Opens names of a directory to be looked at, links too; returns as many results as there are names.
    pub fn look_at(&self, directory: BorrowedFd<'_>, names: &[&[u8]]) -> Vec<Result<OwnedFd>> {
        let mut found = Vec::with_capacity(names.len());
        while let Some(rest @ [first, ..]) = names.get(found.len()..) {
            let mut lengths = rest.iter().take(MOST_LOOKED_AT).scan(0, |all, name| {
                *all += name.len() + 1;
                Some(*all)
            });
            let count = lengths
                .position(|length| length > LONGEST_LOOKED_AT)
                .unwrap_or(rest.len().min(MOST_LOOKED_AT));
            let joined = rest[..count].join(&b'/');
            let (made, opened) = self.call(&FileCall::LookAt { names: &joined }, &[directory]);
            let before = found.len();
            found.extend(opened.into_iter().take(count).map(Ok));
            match made {
                // Of the process of an older server, which a hot upgrade has handed over: it does not know the call.
                Err(Errno::PERM) if found.len() == before => {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW;
                    found.push(self.open(directory, first, flags, Mode::empty(), ResolveFlags::empty()));
                }
                Err(errno) if found.len() < before + count => found.push(Err(errno)),
                _ if found.len() == before => found.push(Err(Errno::IO)),
                _ => {}
            }
        }
        found
    }

    /// Makes a directory.
    pub fn make_directory(&self, parent: BorrowedFd<'_>, name: &[u8], mode: Mode) -> Result<()> {
        self.done(&FileCall::MakeDirectory { name, mode: mode.as_raw_mode() }, &[parent])
    }

    /// Removes a name.
    pub fn remove(&self, parent: BorrowedFd<'_>, name: &[u8], is_directory: bool) -> Result<()> {
        self.done(&FileCall::Remove { name, is_directory }, &[parent])
    }

    /// Renames from one directory to another.
    pub fn rename(
        &self,
        from: BorrowedFd<'_>,
        old: &[u8],
        to: BorrowedFd<'_>,
        new: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.done(&FileCall::Rename { old, new, flags: flags.bits() }, &[from, to])
    }

    /// Makes a second name of a file.
    pub fn link(&self, from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Result<()> {
        self.done(&FileCall::Link { old, new }, &[from, to])
    }

    /// Gives an open file a name.
    pub fn link_file(&self, file: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
        self.done(&FileCall::LinkFile { name }, &[file, directory])
    }

    /// Makes a symbolic link.
    pub fn make_symlink(&self, text: &[u8], parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
        self.done(&FileCall::MakeSymlink { text, name }, &[parent])
    }

    /// Changes the permission bits of an open file, also one that is open to be looked at only.
    pub fn set_mode(&self, file: BorrowedFd<'_>, mode: Mode) -> Result<()> {
        self.done(&FileCall::SetMode { mode: mode.as_raw_mode() }, &[file])
    }

    /// Changes the owner of an open file.
    pub fn set_owner(&self, file: BorrowedFd<'_>, user: Option<Uid>, group: Option<Gid>) -> Result<()> {
        let (user, group) = (user.map(Uid::as_raw), group.map(Gid::as_raw));
        self.done(&FileCall::SetOwner { user, group }, &[file])
    }

    /// Changes the times of an open file.
    pub fn set_times(&self, file: BorrowedFd<'_>, times: &Timestamps) -> Result<()> {
        let pair = |time: &rustix::fs::Timespec| (time.tv_sec, time.tv_nsec);
        let (accessed, modified) = (pair(&times.last_access), pair(&times.last_modification));
        self.done(&FileCall::SetTimes { accessed, modified }, &[file])
    }

    /// Checks the user's rights to a name.
    pub fn check(&self, parent: BorrowedFd<'_>, name: &[u8], access: Access) -> Result<()> {
        self.done(&FileCall::Check { name, access: access.bits() as _ }, &[parent])
    }

    fn done(&self, call: &FileCall<'_>, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.call(call, descriptors).0
    }

    /// Has a call made; returns also what it opened, before it failed, too.
    fn call(&self, call: &FileCall<'_>, descriptors: &[BorrowedFd<'_>]) -> (Result<()>, Vec<OwnedFd>) {
        let connection = self.take();
        let made = ask(&connection, call, descriptors);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(connection);
        drop(idle);
        self.returned.notify_one();
        match made {
            Ok((0, opened)) => (Ok(()), opened),
            Ok((error @ 1..4096, opened)) => (Err(Errno::from_raw_os_error(error)), opened),
            Ok(_) | Err(_) => {
                self.has_ended.store(true, Ordering::Relaxed);
                (Err(Errno::IO), Vec::new())
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
}

/// Starts a process that is to serve these connections; returns what it says once it has become the user.
pub(crate) fn start(
    mut command: Command,
    setup: &Setup,
    connections: &[OwnedFd],
) -> io::Result<(Child, io::Result<Answer>)> {
    let (ours, theirs) = pair()?;
    set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE))?;
    command.env_clear().current_dir("/").stdin(Stdio::from(theirs)).stdout(Stdio::null());
    let child = command.spawn()?;
    drop(command);
    let meet = || {
        let connections: Vec<BorrowedFd<'_>> = connections.iter().map(AsFd::as_fd).collect();
        send(&ours, &setup.to_bytes(), &connections)?;
        let mut buffer = vec![0; LONGEST];
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended at once");
        let (message, _) = receive(&ours, &mut buffer)?.ok_or_else(ended)?;
        Answer::read(message)
    };
    Ok((child, meet()))
}

/// Sends a call; returns the error, 0 for none, and what was opened.
fn ask(
    connection: &OwnedFd,
    call: &FileCall<'_>,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<(i32, Vec<OwnedFd>)> {
    send(connection.as_fd(), &call.to_bytes(), descriptors)?;
    let mut buffer = [0; ANSWER + 1];
    let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
    let (message, opened) = receive(connection.as_fd(), &mut buffer)?.ok_or_else(ended)?;
    let error = <[u8; ANSWER]>::try_from(message).map_err(|_| malformed())?;
    Ok((i32::from_le_bytes(error), opened))
}
