//! Files as rows: a tree in an SQLite database, one file on disk that can be copied, queried and backed up; or in a
//! PostgreSQL database.
//!
//! ```text
//! node     parent + name -> what it is, its attributes, and the content that it has
//! content  its length                 the same file replaced has another content
//! chunk    content + number -> 64 KiB of it; number -1 has its hashes, where its upload was hashed
//! ```
//!
//! Every change is one transaction, so a name shows the old file or all of the new, also after a kill: an upload fills
//! a content without a node, and its commit links it to one. A reader keeps the content that it opened; content without
//! a name is removed with its last reader, or when the database is next opened. `APPE` and `REST` before `STOR` write
//! into the content itself, so received data stays.
//!
//! There are no symbolic links. Everything may wait. One server uses a database at a time; during a hot upgrade its two
//! processes share an SQLite database (`sole.rs`).

mod content;
mod directory;
#[cfg(test)]
mod faults;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod read;
mod rows;
mod sole;
mod sqlite;
#[cfg(test)]
mod tests;
mod tree;
mod write;

use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

use millrace_vfs::hash::{Algorithms, Hashers, Hashes, StoredHashes};
use millrace_vfs::{
    Change, DirEntry, Directory, FileError, FileKind, Metadata, ReadHandle, Space, Storage, Upload,
    VirtualPath, Wait, WriteMode,
};
use thiserror::Error;

use crate::hashed::Hashed;
use crate::through;
use content::Contents;
use directory::Cursor;
use pool::Pool;
use read::Reader;
use rows::Statements;
use sole::{Others, Place, Register};
use tree::{Node, ROOT};
use write::{InPlace, Staged};

#[cfg(feature = "postgres")]
pub use postgres::{Connecting, PostgresError, PostgresServer};

/// A tree of files in a database. Clones share it.
#[derive(Debug, Clone)]
pub struct SqlStorage {
    shared: Arc<Shared>,
    /// What uploads are hashed by on their way.
    hashes: Algorithms,
}

/// The state shared by the storage and its open files.
#[derive(Debug)]
struct Shared {
    pool: Pool,
    contents: Contents,
    /// The number that tells its nodes from those of other databases.
    device: u64,
}

impl Shared {
    /// The metadata of a node.
    fn told(&self, node: Node) -> Metadata {
        Metadata { identity: (self.device, node.metadata.identity.1), ..node.metadata }
    }
}

/// Why a database cannot be served.
#[derive(Debug, Error)]
#[error("the database {path} cannot be used: {}", reason(.error))]
pub struct SqlError {
    path: String,
    error: FileError,
}

/// What the system or the database says, which is no error of input or output.
fn reason(error: &FileError) -> &dyn std::fmt::Display {
    match error {
        FileError::Io(error) => error,
        error => error,
    }
}

impl SqlStorage {
    /// Opens an SQLite database, creates it if missing, and removes the remains of a killed server. A database that
    /// this process has open already is shared.
    pub fn open(path: &Path) -> Result<Self, SqlError> {
        Self::open_with(path, Others::None)
    }

    /// As [`SqlStorage::open`], in a process that is to replace another, which may have the database open.
    pub fn open_beside_predecessor(path: &Path) -> Result<Self, SqlError> {
        Self::open_with(path, Others::Predecessor)
    }

    fn open_with(path: &Path, others: Others) -> Result<Self, SqlError> {
        let failed = |error| SqlError { path: path.display().to_string(), error };
        let path = sole::real(path).map_err(|error| failed(error.into()))?;
        let open = || sqlite::Pool::open(&path, others).map(Pool::Sqlite).map_err(failed);
        Register::look().find_or(Place::File(path.clone()), open)
    }

    /// The tree in a PostgreSQL database, which need not be reachable yet: each call tries, and takes no longer than
    /// `time`. A database that this process has open already is shared, and from now on connected to by `server`.
    #[cfg(feature = "postgres")]
    pub fn postgres(server: Arc<dyn PostgresServer>, time: Duration) -> std::io::Result<Self> {
        let place = Place::Server(server.place());
        let open = || postgres::Pool::new(Arc::clone(&server), time).map(Pool::Postgres);
        let storage = Register::look().find_or(place, open)?;
        if let Pool::Postgres(pool) = &storage.shared.pool {
            pool.set_server(server);
        }
        Ok(storage)
    }

    /// The same, whose uploads are hashed on their way.
    #[must_use]
    pub fn hashing(self, hashes: Algorithms) -> Self {
        Self { hashes, ..self }
    }

    /// Checks that the database can be used.
    pub fn check(&self) -> Result<(), FileError> {
        self.node(&VirtualPath::root()).map(drop)
    }

    /// The node at a path.
    fn node(&self, path: &VirtualPath) -> Result<Node, FileError> {
        self.shared.pool.look(|look| tree::find(look, path))
    }

    /// A change of the tree, whole or not at all.
    fn change_tree<T>(
        &self,
        change: impl Fn(&dyn Statements) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.shared.pool.change_tree(change)
    }
}

/// Returns whether stored hashes are those of a file as it is.
fn fits(stored: &StoredHashes, node: &Node) -> bool {
    stored.fit(node.metadata.size, node.metadata.modified)
}

/// Nothing is answered from memory.
fn may_wait(wait: Wait) -> Result<(), FileError> {
    if wait == Wait::Never { Err(FileError::WouldWait) } else { Ok(()) }
}

impl Storage for SqlStorage {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        may_wait(wait)?;
        loop {
            let node = self.node(path)?;
            let content = node.content()?;
            // Between the look and the hold it may have been replaced: then look again.
            if let Some(reader) = Reader::open(&self.shared, content)? {
                return Ok(ReadHandle::Stream(Box::new(reader)));
            }
        }
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        may_wait(wait)?;
        match mode {
            WriteMode::Replace | WriteMode::CreateNew => {
                let staged = Staged::begin(&self.shared, path, mode == WriteMode::CreateNew, bits)?;
                Ok(match self.hashes.is_empty() {
                    true => Box::new(staged),
                    false => Hashed::begin(Box::new(staged), self.hashes, Hashers::new(self.hashes)),
                })
            }
            WriteMode::Append => Ok(Box::new(InPlace::begin(&self.shared, path, None, bits)?)),
            WriteMode::At(offset) => Ok(Box::new(InPlace::begin(&self.shared, path, Some(offset), bits)?)),
        }
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        may_wait(wait)?;
        self.node(path).map(|node| self.shared.told(node))
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        let metadata = self.shared.told(self.node(path)?);
        Ok(DirEntry { name: path.name().to_owned(), metadata, link: None })
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        let node = self.node(path)?;
        if node.metadata.kind != FileKind::Directory {
            return Err(FileError::NotDirectory);
        }
        Ok(Box::new(Cursor::new(Arc::clone(&self.shared), node.id)))
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        self.change_tree(|change| {
            let (parent, old) = tree::find_place(change, path)?;
            match old {
                Some(_) => Err(FileError::AlreadyExists),
                None => tree::insert(change, parent, path.name(), None, bits),
            }
        })
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.change_tree(|change| {
            let node = tree::find(change, path)?;
            match node.metadata.kind {
                _ if node.id == ROOT => Err(FileError::PermissionDenied),
                FileKind::Directory if !tree::remove_empty(change, &node)? => Err(FileError::NotEmpty),
                FileKind::Directory => Ok(()),
                _ => Err(FileError::NotDirectory),
            }
        })
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        let content = self.change_tree(|change| {
            let node = tree::find(change, path)?;
            let content = node.content()?;
            tree::remove(change, &node)?;
            Ok(content)
        })?;
        self.shared.release(content);
        Ok(())
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        if from.is_root() || to.is_root() {
            return Err(FileError::PermissionDenied);
        }
        let replaced = self.change_tree(|change| {
            let node = tree::find(change, from)?;
            if from == to {
                return Ok(None);
            }
            if to.starts_with(from) {
                return Err(FileError::InvalidName);
            }
            let is_directory = node.metadata.is_directory();
            let (parent, old) = tree::find_place(change, to)?;
            let replaced = match old {
                Some(_) if is_directory => return Err(FileError::AlreadyExists),
                Some(old) => {
                    tree::remove(change, &old)?;
                    Some(old.content()?)
                }
                None => None,
            };
            tree::rename(change, node.id, parent, to.name())?;
            Ok(replaced)
        })?;
        replaced.into_iter().for_each(|content| self.shared.release(content));
        Ok(())
    }

    fn change(&self, path: &VirtualPath, wanted: Change) -> Result<(), FileError> {
        self.change_tree(|change| {
            let node = tree::find(change, path)?;
            tree::set_attributes(change, node.id, wanted)?;
            if let (Ok(content), Some(modified)) = (node.content(), wanted.modified) {
                let stored = content::hashes(change, content)?.filter(|stored| fits(stored, &node));
                let stored = stored.map(|stored| StoredHashes { modified, ..stored });
                content::set_hashes(change, content, stored.as_ref())?;
            }
            Ok(())
        })
    }

    fn make_symlink(&self, _: &[u8], _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }

    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        through::copy((self, from), (self, to), progress)
    }

    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        may_wait(wait)?;
        self.shared.pool.look(|look| {
            let node = tree::find(look, path)?;
            let stored = content::hashes(look, node.content()?)?;
            Ok(stored.filter(|stored| fits(stored, &node)).map(|stored| stored.hashes))
        })
    }

    /// The back end has no rules of its own.
    fn may_replace(&self, _: &VirtualPath, _: bool) -> Result<(), FileError> {
        Ok(())
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        self.node(path)?;
        self.shared.pool.space()
    }
}
