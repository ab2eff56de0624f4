//! One process to a database, and in that process one storage: another would take its unfinished uploads for
//! leftovers of a killed server.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
            return Ok(SqlStorage { shared });
        }
        let device = place.device();
        let shared = Arc::new(Shared { pool: open()?, contents: Contents::default(), device });
        self.0.push((place, Arc::downgrade(&shared)));
        Ok(SqlStorage { shared })
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

/// Keeps other processes out for as long as the file is held. A file beside the database: closing a descriptor of
/// the database itself would end the locks that SQLite holds on it.
pub(super) fn lock(database: &Path) -> io::Result<File> {
    let mut path = database.as_os_str().to_owned();
    path.push("-lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another process has it open")
        }
        error => error.into(),
    })?;
    Ok(file)
}
