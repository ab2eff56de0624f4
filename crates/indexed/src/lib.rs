//! Files whose names are rows of PostgreSQL, and whose contents are immutable objects of an S3-compatible store.
//!
//! | operation | database | store | what holds |
//! |---|---|---|---|
//! | open to read | 1 question | `GET` of the first 8 MiB, which is all of a small file | one version from start to end |
//! | upload of less than 5 MiB | 2 | 1 `PUT` | the old file or all of the new |
//! | larger upload | 2 | create, `PUT` of each 5 MiB, complete | the same |
//! | append, upload at an offset | 3 | create, copy parts, `PUT` parts, complete | the same; nothing is downloaded but a part at a seam |
//! | metadata | 1 | none | |
//! | listing | 1 for each 512 entries | none | times and modes as they were set |
//! | make, remove, rename, change; a folder with all that is in it, too | 1 | none | at once, or not at all |
//! | copy | 3 | copy by the store | the old file or all of the new |
//!
//! A question is one statement, and a change one transaction. Several servers may share a tree.
//!
//! An object is written once, under a random name. Its life:
//!
//! ```text
//!          begin_upload              commit_upload
//! (none) ───────────────► pending ─────────────────► named
//!                            │                          │ replaced or removed: in the same transaction
//!            upload given up │                          ▼
//!       or its server silent └─────────────────────► garbage ─────► (none)
//!             for 5 minutes                                  removed when it is due
//! ```
//!
//! It is *named* where a row of `node` has it, *pending* or *garbage* where a row of `unnamed` has it; the store has none
//! without a row. So what a server has left that died is known, and no listing of the bucket is needed to find it. A server
//! that was silent for too long finds its upload given up, and its commit is refused. Garbage is due after a while
//! ([`IndexSettings::keep`]), so that a download of a file that was replaced goes on.

mod database;
mod error;
mod housekeeping;
mod listing;
mod pending;
mod schema;
mod tree;
mod upload;

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_s3::{ObjectStore, SettingsError};
use millrace_storage::{Hashed, PostgresServer};
use millrace_vfs::hash::{Algorithms, Hashers, Hashes};
use millrace_vfs::{
    Change, DirEntry, Directory, FileError, Metadata, ReadHandle, Space, Storage, Upload, VirtualPath, Wait,
    WriteMode,
};

use database::{Database, lock};
use listing::Cursor;
use pending::{Pending, PendingObjects};
use tree::{Insists, NewFile, Tree};
use upload::{Patch, Staged};

pub use housekeeping::Swept;

/// The settings of a tree.
#[derive(Debug, Clone)]
pub struct IndexSettings {
    /// Where the contents are.
    pub store: millrace_s3::Settings,
    /// How long the database may take for an answer.
    pub time: Duration,
    /// How long the objects of files that were replaced or removed are kept.
    pub keep: Duration,
}

/// What follows from a database or store that cannot be asked.
const OUT_OF_REACH: &str = "its files are out of reach until it can";

/// A tree of files. Clones share it.
#[derive(Debug, Clone)]
pub struct IndexedStorage {
    shared: Arc<Shared>,
    /// What uploads are hashed by on their way.
    hashes: Algorithms,
}

/// The state shared by the storage and its open files.
#[derive(Debug)]
struct Shared {
    tree: Arc<Tree>,
    store: ObjectStore,
    pending: PendingObjects,
    /// Dropped, they end the housekeeping. Locked while that begins.
    housekeeping: Mutex<Vec<Sender<()>>>,
}

impl IndexedStorage {
    /// A tree, whose database and store need not be reachable yet.
    pub fn new(server: Arc<dyn PostgresServer>, settings: &IndexSettings) -> Result<Self, SettingsError> {
        let store = ObjectStore::new(&settings.store)?;
        // The same from all servers, by whatever address they reach the store.
        let name = format!("{}/{}", settings.store.bucket, settings.store.prefix.trim_matches('/'));
        let database = Database::new(server, settings.time, name.clone())?;
        let tree = Arc::new(Tree::new(database, &name, settings.keep));
        let (pending, housekeeping) = Default::default();
        let shared = Arc::new(Shared { tree, store, pending, housekeeping });
        Ok(Self { shared, hashes: Algorithms::NONE })
    }

    /// The same, whose uploads are hashed on their way.
    #[must_use]
    pub fn hashing(self, hashes: Algorithms) -> Self {
        Self { hashes, ..self }
    }

    /// Begins to use it: looks whether the database can be asked and what the store honours, and removes garbage from now
    /// on. Returns what the operator should know, a sentence without its full stop each.
    pub fn start(&self) -> Vec<String> {
        let mut messages = Vec::new();
        if let Err(error) = self.shared.tree.find(&VirtualPath::root()) {
            let why = if let FileError::Io(error) = &error { error.to_string() } else { error.to_string() };
            messages.push(format!("has its names in a database that cannot be asked: {why}; {OUT_OF_REACH}"));
        }
        let probed = self.shared.store.probe();
        let has_probed = probed.is_ok();
        messages
            .extend(probed.unwrap_or_else(|error| vec![format!("cannot be asked: {error}; {OUT_OF_REACH}")]));
        let mut housekeeping = lock(&self.shared.housekeeping);
        if housekeeping.is_empty() {
            *housekeeping = housekeeping::begin(&self.shared, has_probed);
        }
        messages
    }

    /// Gives up uploads of servers that were not heard of for so long, and removes garbage that is due.
    pub fn sweep(&self, silent: Duration) -> Result<Swept, FileError> {
        self.shared.sweep(silent)
    }

    /// Makes the bucket, unless it is there.
    pub fn make_bucket(&self) -> Result<(), millrace_s3::StoreError> {
        self.shared.store.make_bucket()
    }

    fn metadata_of(&self, path: &VirtualPath) -> Result<Metadata, FileError> {
        self.shared.tree.find(path).map(|node| node.metadata)
    }
}

/// Nothing is answered from memory.
fn may_wait(wait: Wait) -> Result<(), FileError> {
    if wait == Wait::Never { Err(FileError::WouldWait) } else { Ok(()) }
}

impl Storage for IndexedStorage {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        may_wait(wait)?;
        let mut before = None;
        loop {
            let node = self.shared.tree.find(path)?;
            let object = node.object()?;
            match self.shared.store.read(&object.name()) {
                // Between the look and the request it may have been replaced, and removed where nothing is kept.
                Err(FileError::NotFound) if before.as_ref() != Some(object) => before = Some(object.clone()),
                Err(FileError::NotFound) => {
                    let what = format!("the object {} of the file is not in the bucket", object.name());
                    return Err(FileError::Io(std::io::Error::other(what)));
                }
                result => return result,
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
            WriteMode::Append => Ok(Box::new(Patch::begin(&self.shared, path, None, bits)?)),
            WriteMode::At(offset) => Ok(Box::new(Patch::begin(&self.shared, path, Some(offset), bits)?)),
        }
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        may_wait(wait)?;
        self.metadata_of(path)
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        Ok(DirEntry { name: path.name().to_owned(), metadata: self.metadata_of(path)?, link: None })
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        let node = self.shared.tree.find(path)?;
        match node.metadata.is_directory() {
            true => Ok(Box::new(Cursor::new(Arc::clone(&self.shared.tree), node.id))),
            false => Err(FileError::NotDirectory),
        }
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        self.shared.tree.make_folder(path, bits)
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.shared.tree.remove(path, true)
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.shared.tree.remove(path, false)
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        self.shared.tree.rename(from, to)
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        self.shared.tree.set_attributes(path, change)
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
        let node = self.shared.tree.find(from)?;
        let (source, size) = (node.object()?, node.metadata.size);
        let mut pending = Pending::begin(&self.shared, to, false)?;
        if !progress(0) {
            return Err(FileError::Cancelled);
        }
        pending.set_begun();
        let object = pending.object.clone();
        self.shared.store.copy((&source.name(), size), &object.name(), progress)?;
        let (hashes, insists) = (node.hashes.as_ref(), Insists::Nothing);
        pending.commit(&NewFile { path: to, object: &object, size, bits: None, hashes, insists })?;
        progress(size);
        Ok(size)
    }

    /// They are those of the object, which does not change.
    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        may_wait(wait)?;
        let node = self.shared.tree.find(path)?;
        node.object()?;
        Ok(node.hashes)
    }

    /// The back end has no rules of its own.
    fn may_replace(&self, _: &VirtualPath, _: bool) -> Result<(), FileError> {
        Ok(())
    }

    /// No store tells it.
    fn space(&self, _: &VirtualPath) -> Result<Space, FileError> {
        Err(FileError::Unsupported)
    }
}
