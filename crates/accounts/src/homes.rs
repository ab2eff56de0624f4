//! The folders of users: opened at a login, shared by all of that folder's sessions.
//!
//! A folder is found beneath the root's descriptor and served by its own ([`RootDirectory`]): between a look at its
//! name and the first file of its tree there is no moment in which a link put in its place would lead anywhere.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrace_privsep::{HelperError, UserFiles, helper};
use millrace_storage::{
    FoundDirectory, LocalError, LocalOptions, LocalStorage, RootDirectory, Uploads, UserStorage, as_user,
};
use millrace_vfs::Wait;
use millrace_vfs::hash::Algorithms;

use super::effective::TemplateError;

/// The most unused folders that are kept open: each is a descriptor.
const KEPT: usize = 1024;

/// Why a user's folder cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Its path leads up, or begins at the root of the file system.
    #[error("the folder {} has to lie within {}, without .. or a leading /", folder.display(), root.display())]
    Outside {
        /// As the account names it.
        folder: PathBuf,
        /// The served folder.
        root: PathBuf,
    },
    /// It is a link that leads out of the served folder.
    #[error("the folder {} is a link that leads out of {}", folder.display(), root.display())]
    LeadsOut {
        /// As the account names it.
        folder: PathBuf,
        /// The served folder.
        root: PathBuf,
    },
    /// It is a file.
    #[error("the folder {} is not a folder", .0.display())]
    NoFolder(PathBuf),
    /// It is not there, or cannot be reached.
    #[error("the folder {} is not there in {} ({error}); make it first", folder.display(), root.display())]
    Missing {
        /// As the account names it.
        folder: PathBuf,
        /// The served folder.
        root: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The folder in which it would be made is not there.
    #[error(
        "the folder {}, in which {} would be made, is not there in {}; make it first",
        parent.display(), folder.display(), root.display()
    )]
    NoParent {
        /// Where it would be made.
        parent: PathBuf,
        /// As the account names it.
        folder: PathBuf,
        /// The served folder.
        root: PathBuf,
    },
    /// Its files cannot be served.
    #[error(transparent)]
    Unserved(LocalError),
    /// Its name cannot be made of the template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The rights of the user are not to be had.
    #[error("{0}, so the files cannot have the rights of the user")]
    Rights(#[from] HelperError),
}

/// Opens folders within one folder, and nothing outside it.
#[derive(Debug)]
pub struct Homes {
    root: RootDirectory,
    options: LocalOptions,
    /// Guarded for a look-up.
    open: Mutex<HashMap<Key, Arc<LocalStorage>>>,
    /// Those that are used with the rights of a user, as long as sessions use them. Guarded for a look-up.
    of_users: Mutex<HashMap<(u32, Key), Weak<UserStorage>>>,
}

/// A folder as it was named, and whether it is opened to read only.
type Key = (String, bool);

impl Homes {
    /// Folders within `root`, which is absolute and has no links in it.
    pub fn new(root: PathBuf, options: LocalOptions) -> Self {
        Self { root: RootDirectory::new(root), options, open: Mutex::default(), of_users: Mutex::default() }
    }

    /// From now on every upload that replaces a file is staged, and none is hashed: what comes is encrypted.
    pub(super) fn stage_unhashed(&mut self) {
        self.options.uploads = Uploads::Staged;
        self.options.hashes = Algorithms::NONE;
    }

    /// The folder that all lie in.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The key under which others store data about a folder: its path in a canonical form.
    pub(super) fn key(&self, folder: &str) -> String {
        let plain: PathBuf =
            Path::new(folder).components().filter(|part| *part != Component::CurDir).collect();
        self.root().join(plain).to_string_lossy().trim_end_matches('/').to_owned()
    }

    /// The folder, if it is open already, and still the one of that name.
    pub(super) fn ready(&self, folder: &str, read_only: bool) -> Option<Arc<LocalStorage>> {
        self.kept(folder, read_only, Wait::Never)
    }

    fn kept(&self, folder: &str, read_only: bool, wait: Wait) -> Option<Arc<LocalStorage>> {
        let storage = self.lock().get(&(folder.to_owned(), read_only)).cloned()?;
        let found = self.root.find(Path::new(folder), wait).ok()?;
        storage.is_served_from(&found).then_some(storage)
    }

    /// Opens `folder`, relative to the served root; empty for the root. With `make` a missing one is created, if its
    /// parent exists.
    pub fn open(&self, folder: &str, read_only: bool, make: bool) -> Result<Arc<LocalStorage>, HomeError> {
        if let Some(open) = self.kept(folder, read_only, Wait::Allowed) {
            return Ok(open);
        }
        let found = self.find(Path::new(folder), make)?;
        let storage = self.serve(&found, read_only)?;
        let mut open = self.lock();
        if open.len() >= KEPT {
            open.retain(|_, storage| Arc::strong_count(storage) > 1);
        }
        // In place of one that was moved or removed meanwhile, whose sessions keep it.
        open.insert((folder.to_owned(), read_only), Arc::clone(&storage));
        Ok(storage)
    }

    /// As [`Homes::open`], with the rights of a user of the system.
    pub(super) fn open_as(
        &self,
        user: &str,
        folder: &str,
        read_only: bool,
        make: bool,
    ) -> Result<Arc<UserStorage>, HomeError> {
        let user = helper()?.files_of(user)?;
        let found = as_user(&user, || self.find(Path::new(folder), make))?;
        let key = (user.user(), (folder.to_owned(), read_only));
        let mut of_users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        let open = of_users.get(&key).and_then(Weak::upgrade);
        if let Some(storage) = open.filter(|storage| storage.is_served_from(&found)) {
            return Ok(storage);
        }
        drop(of_users);
        let storage = Arc::new(self.serve_as(&found, read_only, &user)?);
        of_users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        of_users.retain(|_, storage| storage.strong_count() > 0);
        of_users.insert(key, Arc::downgrade(&storage));
        Ok(storage)
    }

    fn serve_as(
        &self,
        found: &FoundDirectory,
        read_only: bool,
        user: &Arc<UserFiles>,
    ) -> Result<UserStorage, HomeError> {
        // The attributes of a file of another user are not the server's to set.
        let options = LocalOptions { read_only, hashes: Algorithms::NONE, ..self.options };
        UserStorage::open_found(found, options, user).map_err(HomeError::Unserved)
    }

    /// Folders that are open to be written.
    pub fn writable(&self) -> Vec<Arc<LocalStorage>> {
        let open = self.lock();
        open.iter().filter(|((_, read_only), _)| !read_only).map(|(_, storage)| Arc::clone(storage)).collect()
    }

    fn serve(&self, found: &FoundDirectory, read_only: bool) -> Result<Arc<LocalStorage>, HomeError> {
        let options = LocalOptions { read_only, ..self.options };
        LocalStorage::open_found(found, options).map(Arc::new).map_err(HomeError::Unserved)
    }

    /// Finds a folder, if it is one and lies within.
    fn find(&self, folder: &Path, make: bool) -> Result<FoundDirectory, HomeError> {
        let root = || self.root().to_owned();
        let descends = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if !folder.components().all(descends) {
            return Err(HomeError::Outside { folder: folder.to_owned(), root: root() });
        }
        let found = match self.root.find(folder, Wait::Allowed) {
            Err(error) if make && error.kind() == io::ErrorKind::NotFound => {
                self.check_parent(folder)?;
                self.make(folder)
            }
            found => found,
        };
        found.map_err(|error| match error.kind() {
            io::ErrorKind::CrossesDevices => HomeError::LeadsOut { folder: folder.to_owned(), root: root() },
            io::ErrorKind::NotADirectory => HomeError::NoFolder(folder.to_owned()),
            _ => HomeError::Missing { folder: folder.to_owned(), root: root(), error },
        })
    }

    /// Checks that a folder could be opened, or made where that is wanted; does neither.
    pub fn check(&self, folder: &str, make: bool) -> Result<(), HomeError> {
        let folder = Path::new(folder);
        match self.find(folder, false) {
            Err(_) if make && self.is_missing(folder) => self.check_parent(folder),
            found => found.map(drop),
        }
    }

    fn is_missing(&self, folder: &Path) -> bool {
        let found = self.root.find(folder, Wait::Allowed);
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Checks that the parent of a folder to be made exists.
    fn check_parent(&self, folder: &Path) -> Result<(), HomeError> {
        let parent = folder.parent().unwrap_or(Path::new(""));
        match self.is_missing(parent) {
            true => Err(HomeError::NoParent {
                parent: parent.to_owned(),
                folder: folder.to_owned(),
                root: self.root().to_owned(),
            }),
            false => self.find(parent, false).map(drop),
        }
    }

    /// Makes the last component, never what it lies in: that may be a link to elsewhere.
    fn make(&self, folder: &Path) -> io::Result<FoundDirectory> {
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        self.root.find(parent, Wait::Allowed)?.make(name)?;
        self.root.find(folder, Wait::Allowed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<LocalStorage>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
