//! Virtual folders: other back ends, mounted at paths of a first one.
//!
//! ```text
//! base          /            a local folder
//! mounted       /media       another disk, read-only
//! mounted       /in/bank     encrypted, in memory, rows of a database ...
//! ```
//!
//! A path belongs to the deepest folder that holds it. A folder hides the base's entries at its path. A directory that
//! only leads to a folder (`/in` above, where the base has none) is shown and can be entered, and takes no entries of
//! its own. A folder cannot be removed, renamed or replaced by a client; nor can the directories that lead to it.
//! Renaming from one back end to another is [`FileError::CrossDevice`]: it could not be atomic. Copying works. Where a
//! folder hides something of a back end, no links are made in that one (`hidden.rs`).

mod hidden;

use std::io;
use std::sync::Arc;

use millrace_vfs::hash::Hashes;
use millrace_vfs::{
    Change, DirEntry, Directory, FileError, FileKind, Metadata, Owner, Partial, PartialKey, PartialMode,
    PartialState, ReadHandle, Resting, Space, Storage, Timestamp, Upload, VirtualPath, Wait, WriteMode,
};

use crate::{identity, through};

/// A back end with others mounted in it.
#[derive(Debug)]
pub struct Folders {
    base: Arc<dyn Storage>,
    /// The deepest first, so that the first that holds a path is the one that it belongs to.
    mounts: Vec<Mount>,
}

#[derive(Debug)]
struct Mount {
    at: VirtualPath,
    /// `None` while the back end is away.
    storage: Option<Arc<dyn Storage>>,
}

/// Where a path leads.
enum Route<'a> {
    /// Into a back end, at this path of its own.
    Into(&'a dyn Storage, VirtualPath),
    /// To a directory that exists only because a folder lies beneath it.
    Way,
}

impl Folders {
    /// Serves `base`, with nothing mounted yet.
    pub fn new(base: Arc<dyn Storage>) -> Self {
        Self { base, mounts: Vec::new() }
    }

    /// Mounts `storage` at a path, in place of an earlier mount there. At the root it replaces the base.
    pub fn mount(mut self, at: VirtualPath, storage: Arc<dyn Storage>) -> Self {
        if at.is_root() {
            self.base = storage;
            return self;
        }
        self.put(at, Some(storage))
    }

    /// Keeps a path for a back end that is away: what the base has there stays hidden, the folder is not listed,
    /// and whatever is asked of it is an error. Nothing at the root.
    pub fn absent(self, at: VirtualPath) -> Self {
        if at.is_root() { self } else { self.put(at, None) }
    }

    fn put(mut self, at: VirtualPath, storage: Option<Arc<dyn Storage>>) -> Self {
        self.mounts.retain(|mount| mount.at != at);
        self.mounts.push(Mount { at, storage });
        self.mounts.sort_by_key(|mount| std::cmp::Reverse(mount.at.components().count()));
        self
    }

    /// Where a path leads. Asks the base about a path on the way to a folder, which may wait.
    fn route(&self, path: &VirtualPath, wait: Wait) -> Result<Route<'_>, FileError> {
        if let Some(mount) = self.mounts.iter().find(|mount| path.starts_with(&mount.at)) {
            let away = || io::Error::new(io::ErrorKind::NotConnected, "the folder is away");
            let storage = mount.storage.as_deref().ok_or_else(away)?;
            return Ok(Route::Into(storage, beneath(path, &mount.at)));
        }
        if !path.is_root() && self.leads_to_a_folder(path) {
            match self.base.metadata(path, wait) {
                Ok(metadata) if metadata.is_directory() => {}
                Err(FileError::WouldWait) => return Err(FileError::WouldWait),
                _ => return Ok(Route::Way),
            }
        }
        Ok(Route::Into(&*self.base, path.clone()))
    }

    /// Where a path leads that is to be changed itself: neither a folder, nor on the way to one.
    fn route_to_change(&self, path: &VirtualPath) -> Result<(&dyn Storage, VirtualPath), FileError> {
        if self.leads_to_a_folder(path) {
            return Err(FileError::PermissionDenied);
        }
        self.route_within(path, Wait::Allowed)
    }

    /// Where a path leads, the directory that holds it being one that takes entries.
    fn route_within(&self, path: &VirtualPath, wait: Wait) -> Result<(&dyn Storage, VirtualPath), FileError> {
        match self.route(path, wait)? {
            Route::Way => Err(FileError::IsDirectory),
            Route::Into(storage, inner) => match self.route(&path.parent(), wait)? {
                Route::Way if !self.is_folder(path) => Err(FileError::ReadOnly),
                _ => Ok((storage, inner)),
            },
        }
    }

    fn is_folder(&self, path: &VirtualPath) -> bool {
        self.mounts.iter().any(|mount| mount.at == *path)
    }

    /// Returns true if a folder lies at or beneath the path.
    fn leads_to_a_folder(&self, path: &VirtualPath) -> bool {
        self.mounts.iter().any(|mount| mount.at.starts_with(path))
    }

    /// The names directly in `directory` that folders, and ways to them, have.
    fn names_in(&self, directory: &VirtualPath) -> Vec<Vec<u8>> {
        let depth = directory.components().count();
        let leading =
            self.mounts.iter().filter(|mount| mount.at != *directory && mount.at.starts_with(directory));
        let mut names: Vec<_> =
            leading.filter_map(|mount| mount.at.components().nth(depth).map(<[u8]>::to_vec)).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The path beneath `ancestor`, as the back end that is mounted there calls it.
fn beneath(path: &VirtualPath, ancestor: &VirtualPath) -> VirtualPath {
    let rest = &path.as_bytes()[ancestor.as_bytes().len()..];
    VirtualPath::parse(rest).expect("a part of a path is no longer than the path")
}

/// A directory that exists only because a folder lies beneath it.
fn way(path: &VirtualPath) -> Metadata {
    Metadata {
        kind: FileKind::Directory,
        size: 0,
        modified: Timestamp::default(),
        created: None,
        changed: None,
        mode: 0o555,
        owner: Owner::default(),
        links: 2,
        // No device has the number 0.
        identity: (0, identity::number(path.as_bytes())),
    }
}

impl Storage for Folders {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        match self.route(path, wait)? {
            Route::Into(storage, inner) => storage.open_read(&inner, wait),
            Route::Way => Err(FileError::IsDirectory),
        }
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        let (storage, inner) = self.route_within(path, wait)?;
        storage.open_write_with(&inner, mode, bits, wait)
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        match self.route(path, wait)? {
            Route::Into(storage, inner) => storage.metadata(&inner, wait),
            Route::Way => Ok(way(path)),
        }
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        match self.route(path, Wait::Allowed)? {
            Route::Into(storage, inner) => {
                let entry = storage.entry(&inner)?;
                Ok(DirEntry { name: path.name().to_owned(), ..entry })
            }
            Route::Way => Ok(DirEntry { name: path.name().to_owned(), metadata: way(path), link: None }),
        }
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        let names = self.names_in(path);
        let inner = match self.route(path, Wait::Allowed)? {
            Route::Into(storage, inner) => Some(storage.open_directory(&inner)?),
            Route::Way => None,
        };
        let inner = match inner {
            Some(inner) if names.is_empty() => return Ok(inner),
            inner => inner,
        };
        let mut folders = Vec::with_capacity(names.len());
        for name in &names {
            // A folder whose back end is away is not listed; the rest of the directory is.
            let child = path.join(name).map_err(|_| FileError::NameTooLong)?;
            if let Ok(metadata) = self.metadata(&child, Wait::Allowed) {
                folders.push(DirEntry { name: name.clone(), metadata, link: None });
            }
        }
        Ok(Box::new(Merged { path: path.clone(), inner, hidden: names, folders }))
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        if self.leads_to_a_folder(path) {
            return Err(FileError::AlreadyExists);
        }
        let (storage, inner) = self.route_within(path, Wait::Allowed)?;
        storage.make_directory_with(&inner, bits)
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        let (storage, inner) = self.route_to_change(path)?;
        storage.remove_directory(&inner)
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        let (storage, inner) = self.route_to_change(path)?;
        storage.remove_file(&inner)
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        let (source, inner_from) = self.route_to_change(from)?;
        let (target, inner_to) = self.route_to_change(to)?;
        if !std::ptr::addr_eq(source, target) {
            source.entry(&inner_from)?;
            return Err(FileError::CrossDevice);
        }
        source.rename(&inner_from, &inner_to)
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        match self.route(path, Wait::Allowed)? {
            Route::Into(storage, inner) => storage.change(&inner, change),
            Route::Way => Err(FileError::ReadOnly),
        }
    }

    fn make_symlink(&self, target: &[u8], path: &VirtualPath) -> Result<(), FileError> {
        if self.leads_to_a_folder(path) {
            return Err(FileError::AlreadyExists);
        }
        let (storage, inner) = self.route_within(path, Wait::Allowed)?;
        self.refuse_ways_round(storage)?;
        storage.make_symlink(target, &inner)
    }

    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        let Route::Into(source, inner_from) = self.route(from, Wait::Allowed)? else {
            return Err(FileError::IsDirectory);
        };
        let (target, inner_to) = self.route_within(to, Wait::Allowed)?;
        if std::ptr::addr_eq(source, target) {
            return source.copy(&inner_from, &inner_to, progress);
        }
        through::copy((source, &inner_from), (target, &inner_to), progress)
    }

    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        match self.route(path, wait)? {
            Route::Into(storage, inner) => storage.stored_hashes(&inner, wait),
            Route::Way => Ok(None),
        }
    }

    fn may_replace(&self, path: &VirtualPath, all_beneath: bool) -> Result<(), FileError> {
        for mount in self.mounts.iter().filter(|mount| all_beneath && mount.at.starts_with(path)) {
            match &mount.storage {
                Some(storage) => storage.may_replace(&VirtualPath::root(), true)?,
                // Its own answer is unknown.
                None => return Err(FileError::PermissionDenied),
            }
        }
        match self.route(path, Wait::Allowed)? {
            Route::Into(storage, inner) => storage.may_replace(&inner, all_beneath),
            Route::Way => Err(FileError::ReadOnly),
        }
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        match self.route(path, Wait::Allowed)? {
            Route::Into(storage, inner) => storage.space(&inner),
            Route::Way => self.base.space(&VirtualPath::root()),
        }
    }

    fn open_partial(
        &self,
        path: &VirtualPath,
        key: &PartialKey,
        write: WriteMode,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        let (storage, inner) = self.route_within(path, Wait::Allowed)?;
        storage.open_partial(&inner, key, write, mode)
    }

    fn find_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<PartialState, FileError> {
        let (storage, inner) = self.route_within(path, Wait::Allowed)?;
        storage.find_partial(&inner, key)
    }

    /// The content of a mounted folder counts towards it.
    fn resting(&self) -> Result<Resting, FileError> {
        self.base.resting()
    }

    fn remove_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<(), FileError> {
        let (storage, inner) = self.route_within(path, Wait::Allowed)?;
        storage.remove_partial(&inner, key)
    }

    fn join_partials(
        &self,
        path: &VirtualPath,
        parts: &[(VirtualPath, PartialKey)],
        write: WriteMode,
    ) -> Result<Partial, FileError> {
        let (storage, inner) = self.route_within(path, Wait::Allowed)?;
        let mut parts_of_it = Vec::with_capacity(parts.len());
        for (part, key) in parts {
            let (its, part) = self.route_within(part, Wait::Allowed)?;
            if !std::ptr::addr_eq(its, storage) {
                return Err(FileError::CrossDevice);
            }
            parts_of_it.push((part, *key));
        }
        storage.join_partials(&inner, &parts_of_it, write)
    }
}

/// A directory of the base (or none) with folders in it.
#[derive(Debug)]
struct Merged {
    path: VirtualPath,
    inner: Option<Box<dyn Directory>>,
    /// Names that folders have: what the base has under them is not shown.
    hidden: Vec<Vec<u8>>,
    /// Still to be shown, before what the base has.
    folders: Vec<DirEntry>,
}

impl Merged {
    fn hides(&self, name: &[u8]) -> bool {
        self.hidden.iter().any(|hidden| hidden == name)
    }
}

impl Directory for Merged {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        if !self.folders.is_empty() {
            entries.append(&mut self.folders);
            return Ok(());
        }
        let Some(inner) = &mut self.inner else { return Ok(()) };
        let start = entries.len();
        loop {
            let before = entries.len();
            inner.next_batch(entries, most)?;
            // An empty batch is the end; a batch of hidden entries only is not.
            let is_end = entries.len() == before;
            let hidden = &self.hidden;
            let mut position = 0;
            entries.retain(|entry| {
                position += 1;
                position <= start || !hidden.contains(&entry.name)
            });
            if is_end || entries.len() > start {
                return Ok(());
            }
        }
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        if !self.folders.is_empty() {
            let folders = std::mem::take(&mut self.folders);
            folders.iter().for_each(|entry| visit(&entry.name));
            return Ok(folders.len());
        }
        let Some(mut inner) = self.inner.take() else { return Ok(0) };
        let visited = inner.next_names(
            &mut |name| {
                if !self.hides(name) {
                    visit(name);
                }
            },
            most,
        );
        self.inner = Some(inner);
        visited
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        match &self.inner {
            Some(inner) => inner.metadata(),
            None => Ok(way(&self.path)),
        }
    }
}
