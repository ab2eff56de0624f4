//! Confines this process, so that code that takes it over reaches little.
//!
//! - [`enter`] leaves it the files that a server needs (Landlock) and the system calls that it makes (seccomp). It
//!   starts no program any more.
//! - [`enter_as_helper`] leaves a process that runs modules of PAM as root what these need: it starts programs, reads any
//!   file, and writes where modules keep theirs.
//! - [`Identity`] changes the user: [`Identity::assume`] while files are opened and ports are bound,
//!   [`Identity::drop_privileges`] for good.
//!
//! The kernel confines threads. What is called here holds for the calling thread and for those that it starts, so that
//! it belongs before the first of them; [`Confinement::other_threads`] says how many were there already.
//!
//! Landlock decides which files are opened, made, renamed and removed. It does not hide names and metadata (`stat`), nor
//! does it restrict changes of modes, owners and times, or connections to sockets.

mod denied;
mod grants;
mod landlock;
mod privileges;
mod seccomp;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use grants::{Access, Grant, covers, of_the_system};
pub use privileges::{Identity, IdentityError, lock};
use seccomp::Sockets;

/// What holds for this process, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The version of Landlock's interface that holds, or why none does.
    pub landlock: Result<u32, Missing>,
    /// Whether system calls are filtered, or why they are not.
    pub seccomp: Result<(), Missing>,
    /// Threads that were there before, and are not confined.
    pub other_threads: usize,
}

/// Why something does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Missing(String);

/// Why this process cannot be confined.
#[derive(Debug, Error)]
pub enum EnterError {
    /// A path of a grant.
    #[error("cannot open {path} for the sandbox: {source}")]
    Path {
        /// The path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The rules, or the filter.
    #[error("cannot enter the sandbox: {0}")]
    Rules(String),
}

/// Confines the calling thread, and all that it starts, to these files and those [of the system](of_the_system). Paths
/// that are not there are left out. Where the kernel lacks something, the rest holds, and the answer says so.
pub fn enter(grants: &[Grant]) -> Result<Confinement, EnterError> {
    enter_with(grants, Sockets::Allowed)
}

/// As [`enter`], for what uses only the sockets that it has: it makes none, and reaches no address.
pub fn enter_without_network(grants: &[Grant]) -> Result<Confinement, EnterError> {
    enter_with(grants, Sockets::Refused)
}

fn enter_with(grants: &[Grant], sockets: Sockets) -> Result<Confinement, EnterError> {
    let other_threads = threads().saturating_sub(1);
    privileges::lock().map_err(|error| EnterError::Rules(error.to_string()))?;
    let landlock = landlock::restrict(grants)?;
    let seccomp = seccomp::restrict(sockets);
    Ok(Confinement { landlock, seccomp, other_threads })
}

/// Where modules of PAM keep what they write: failed attempts, codes that were used, caches, logs, files of users. No
/// devices but those that every program uses: root could write to disks.
const WRITTEN_BY_MODULES: [&str; 15] = [
    "/run",
    "/var/lib",
    "/var/log",
    "/var/cache",
    "/var/db",
    "/var/tmp",
    "/tmp",
    "/home",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/random",
    "/dev/urandom",
    "/dev/shm",
];

/// Confines the calling thread, which is root's and runs modules of PAM, and all that it starts: it keeps the capabilities
/// that these and a change to any user take, writes only in these trees and where modules keep their files, and makes none
/// of the system calls that reach the kernel or other processes.
pub fn enter_as_helper(trees: &[PathBuf]) -> Result<Confinement, EnterError> {
    let other_threads = threads().saturating_sub(1);
    privileges::lock_helper().map_err(|error| EnterError::Rules(error.to_string()))?;
    let folders = WRITTEN_BY_MODULES.iter().map(Path::new).chain(trees.iter().map(PathBuf::as_path));
    let landlock = landlock::restrict_changes(&folders.collect::<Vec<_>>())?;
    let seccomp = denied::refuse();
    Ok(Confinement { landlock, seccomp, other_threads })
}

/// Returns what [`enter`] would do on this machine, tried in a thread of its own.
pub fn probe() -> Confinement {
    let tried = std::thread::spawn(|| enter(&[])).join();
    let failed = |why: String| Confinement {
        landlock: Err(Missing(why.clone())),
        seccomp: Err(Missing(why)),
        other_threads: 0,
    };
    match tried {
        Ok(Ok(confinement)) => Confinement { other_threads: 0, ..confinement },
        Ok(Err(error)) => failed(error.to_string()),
        Err(_) => failed("it could not be tried".to_owned()),
    }
}

impl Confinement {
    /// Returns whether all of it holds, for all threads.
    pub fn is_complete(&self) -> bool {
        self.landlock.is_ok() && self.seccomp.is_ok() && self.other_threads == 0
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.landlock {
            Ok(abi) => write!(f, "files by Landlock (ABI {abi})")?,
            Err(why) => write!(f, "files not ({why})")?,
        }
        match &self.seccomp {
            Ok(()) => f.write_str(", system calls by seccomp")?,
            Err(why) => write!(f, ", system calls not ({why})")?,
        }
        match self.other_threads {
            0 => Ok(()),
            1 => f.write_str(", but not a thread that was there before"),
            count => write!(f, ", but not {count} threads that were there before"),
        }
    }
}

/// Returns how many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}
