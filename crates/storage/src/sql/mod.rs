//! Files as rows: a tree in an SQLite database, one file on disk that can be copied, queried and backed up.
//!
//! ```text
//! node     parent + name -> what it is, its attributes, and the content that it has
//! content  its length                 the same file replaced has another content
//! chunk    content + number -> 64 KiB of it
//! ```
//!
//! Every change is one transaction, so a name shows the old file or all of the new, whatever is killed: an
//! upload fills a content that no node has, and its commit gives it one. Who reads keeps the content that it
//! opened; one that has lost its name goes with its last reader, or when the database is next opened. `APPE`
//! and `REST` before `STOR` write into the content itself, and what came stays.
//!
//! There are no symbolic links. Everything may wait. One process uses a database at a time.

mod content;
mod directory;
mod pool;
mod read;
mod sole;
mod tree;
mod write;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use millrace_vfs::{
    Change, DirEntry, Directory, FileError, FileKind, Metadata, ReadHandle, Space, Storage, Upload,
    VirtualPath, Wait, WriteMode,
};
use rusqlite::{Transaction, params};
use thiserror::Error;

use crate::through;
use content::Contents;
use directory::Cursor;
use pool::Pool;
use read::Reader;
use sole::Register;
use tree::{Node, ROOT};
use write::{InPlace, Staged};

/// A tree of files in an SQLite database. Clones share it.
#[derive(Debug, Clone)]
pub struct SqlStorage {
    shared: Arc<Shared>,
}

/// What the storage and its open files share.
#[derive(Debug)]
struct Shared {
    pool: Pool,
    contents: Contents,
    /// Held to keep other processes out. The last field: it goes when the connections have gone.
    _lock: File,
}

/// Why a database cannot be served.
#[derive(Debug, Error)]
#[error("the database {path} cannot be used: {error}")]
pub struct SqlError {
    path: String,
    error: FileError,
}

impl SqlStorage {
    /// Opens a database, made if it is not there, and removes what a killed server left in it. One that this
    /// process has open already is shared.
    pub fn open(path: &Path) -> Result<Self, SqlError> {
        let failed = |error| SqlError { path: path.display().to_string(), error };
        let path = sole::real(path).map_err(|error| failed(error.into()))?;
        let mut register = Register::look();
        if let Some(shared) = register.find(&path) {
            return Ok(Self { shared });
        }
        let lock = sole::lock(&path).map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Shared { pool: Pool::new(&path), contents: Contents::default(), _lock: lock });
        shared.pool.change(tree::set_up).map_err(failed)?;
        register.add(path, &shared);
        Ok(Self { shared })
    }

    /// The node at a path.
    fn node(&self, path: &VirtualPath) -> Result<Node, FileError> {
        self.shared.pool.look(|connection| tree::find(connection, path))
    }

    /// A change of the tree, whole or not at all.
    fn change_tree<T>(
        &self,
        change: impl Fn(&Transaction<'_>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.shared.pool.change(change)
    }
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
                Ok(Box::new(Staged::begin(&self.shared, path, mode == WriteMode::CreateNew, bits)?))
            }
            WriteMode::Append => Ok(Box::new(InPlace::begin(&self.shared, path, None, bits)?)),
            WriteMode::At(offset) => Ok(Box::new(InPlace::begin(&self.shared, path, Some(offset), bits)?)),
        }
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        may_wait(wait)?;
        self.node(path).map(|node| node.metadata)
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        let metadata = self.node(path)?.metadata;
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
                FileKind::Directory if tree::has_entries(change, node.id)? => Err(FileError::NotEmpty),
                FileKind::Directory => tree::remove(change, &node),
                _ => Err(FileError::NotDirectory),
            }
        })
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.change_tree(|change| {
            let node = tree::find(change, path)?;
            let content = node.content()?;
            tree::remove(change, &node)?;
            self.shared.contents.release(change, content)
        })
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        if from.is_root() || to.is_root() {
            return Err(FileError::PermissionDenied);
        }
        self.change_tree(|change| {
            let node = tree::find(change, from)?;
            if from == to {
                return Ok(());
            }
            if to.starts_with(from) {
                return Err(FileError::InvalidName);
            }
            let is_directory = node.metadata.is_directory();
            let (parent, old) = tree::find_place(change, to)?;
            match old {
                Some(_) if is_directory => return Err(FileError::AlreadyExists),
                Some(old) => {
                    let content = old.content()?;
                    tree::remove(change, &old)?;
                    self.shared.contents.release(change, content)?;
                }
                None => {}
            }
            let sql = "UPDATE node SET parent = ?1, name = ?2 WHERE id = ?3";
            change.execute(sql, params![parent, to.name(), node.id]).map_err(pool::failed)?;
            Ok(())
        })
    }

    fn change(&self, path: &VirtualPath, wanted: Change) -> Result<(), FileError> {
        self.change_tree(|change| {
            let id = tree::find(change, path)?.id;
            tree::set_attributes(change, id, wanted)
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

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        self.node(path)?;
        self.shared.pool.space()
    }
}
