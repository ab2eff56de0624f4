//! One server to a database, and in each of its processes one storage: another would take its unfinished uploads for
//! leftovers of a killed server.
//!
//! During a hot upgrade the server has two processes. Both hold the lock of an SQLite database together, and neither
//! removes contents, which the other may have open, before it is alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrace_vfs::hash::Algorithms;
use rustix::fs::{FlockOperation, flock};

use super::content::Contents;
use super::pool::Pool;
use super::{Shared, SqlStorage};
use crate::identity;

/// Which database it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A file, by its path without links.
    File(PathBuf),
    /// A database of a server, as `PostgresServer::place` has it.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "there are only files then"))]
    Server(String),
}

impl Place {
    /// The "device" of all nodes of the database, which tells them from those of others, behind a restart too; clients
    /// see it in the `unique` fact.
    fn device(&self) -> u64 {
        match self {
            Self::File(path) => identity::number(path.as_os_str().as_bytes()),
            Self::Server(place) => identity::number(place.as_bytes()),
        }
    }
}

/// The databases that this process has open.
static OPEN: Mutex<Vec<(Place, Weak<Shared>)>> = Mutex::new(Vec::new());

/// The open databases, locked against another open.
pub(super) struct Register(MutexGuard<'static, Vec<(Place, Weak<Shared>)>>);

impl Register {
    pub(super) fn look() -> Self {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, shared)| shared.strong_count() > 0);
        Self(open)
    }

    /// The storage that is open at a place, or else one of a new pool.
    pub(super) fn find_or<E>(
        mut self,
        place: Place,
        open: impl FnOnce() -> Result<Pool, E>,
    ) -> Result<SqlStorage, E> {
        let found = self.0.iter().find(|(open, _)| *open == place).and_then(|(_, shared)| shared.upgrade());
        if let Some(shared) = found {
            return Ok(SqlStorage { shared, hashes: Algorithms::NONE });
        }
        let device = place.device();
        let shared = Arc::new(Shared { pool: open()?, contents: Contents::default(), device });
        self.0.push((place, Arc::downgrade(&shared)));
        Ok(SqlStorage { shared, hashes: Algorithms::NONE })
    }
}

/// The path without links in it, whether the database is there already or not.
pub(super) fn real(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(folder.unwrap_or(Path::new(".")).canonicalize()?.join(name))
        }
        found => found,
    }
}

/// The processes that may have a database open when another opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// None: what is unfinished is the remains of a killed server.
    None,
    /// The one that this process replaces.
    Predecessor,
}

/// A lock on a file beside an SQLite database: closing a descriptor of the database itself would end the locks that
/// SQLite holds on it. Each process holds it as shared.
///
/// It is taken and examined within transactions that change the database, so that no two processes do so at once: a
/// conversion to exclusive gives up the shared lock for a moment.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// Whether other processes have had the database open.
    had_others: AtomicBool,
}

impl Lock {
    /// Opens the file, and locks nothing yet.
    pub(super) fn new(database: &Path) -> io::Result<Self> {
        let mut path = database.as_os_str().to_owned();
        path.push("-lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        Ok(Self { file, had_others: AtomicBool::new(false) })
    }

    /// Takes it. The caller is alone until [`Lock::share`], unless it joins a predecessor.
    pub(super) fn take(&self, others: Others) -> io::Result<()> {
        self.had_others.store(others == Others::Predecessor, Ordering::Relaxed);
        let operation = match others {
            Others::None => FlockOperation::NonBlockingLockExclusive,
            Others::Predecessor => FlockOperation::NonBlockingLockShared,
        };
        flock(&self.file, operation).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another server has it open; stop that one, or name another database",
            ),
            error => error.into(),
        })
    }

    /// Lets a successor join.
    pub(super) fn share(&self) -> io::Result<()> {
        Ok(flock(&self.file, FlockOperation::NonBlockingLockShared)?)
    }

    /// Returns whether no other process has the database open now.
    pub(super) fn is_sole(&self) -> io::Result<bool> {
        let is_sole = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        self.share()?;
        if !is_sole {
            self.had_others.store(true, Ordering::Relaxed);
        }
        Ok(is_sole)
    }

    /// Returns whether other processes had it open, and what they left is not removed yet.
    pub(super) fn had_others(&self) -> bool {
        self.had_others.load(Ordering::Relaxed)
    }

    /// Notes that what they left is about to be removed.
    pub(super) fn forget_others(&self) {
        self.had_others.store(false, Ordering::Relaxed);
    }
}
