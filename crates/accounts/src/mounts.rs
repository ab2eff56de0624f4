//! Virtual folders: other storages in the trees of the users that they are meant for.
//!
//! ```text
//! the user's folder     <- mounted folders      each held to its own access, and maybe encrypted
//!                       <- the user's rules     (Account::ruled) about paths as the user sees them
//!                       <- archives             pack what the rules show
//!                       <- conversions          compress and decompress that, by FTP
//! ```
//!
//! A folder that cannot be opened does not prevent logins: it is not listed, and access to it is an error. It is tried
//! again at the next login; a PostgreSQL database, with each call.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_ftp::session::{Permission, Permissions, Rules};
use millrace_storage::{
    Archives, Conversions, Encrypted, Folders, Key, Ledger, LocalOptions, LocalStorage, Quota, SqlError,
    SqlStorage, Tally, Withheld,
};
use millrace_vfs::hash::Algorithms;
use millrace_vfs::{FileError, QuotaScope, Storage, VirtualPath};

use super::bucket::MountedBucket;
use super::effective::{Effective, TemplateError};
use super::guard;
use super::homes::{HomeError, Homes};
use super::source_error::SetupError;
use super::sql::Sql;
use super::{Account, Protocol};
#[cfg(not(feature = "postgres"))]
use crate::absent::absent;
#[cfg(feature = "postgres")]
use crate::postgres;
use millrace_limits::{HeldQuota, Quotas};

/// A place that is shown in the trees of users.
#[derive(Debug)]
pub struct Mount {
    /// Where users see it: `"/archive"`, `"/in/{user}"`.
    pub path: String,
    /// The files.
    pub files: MountedFiles,
    /// The key that its files' content is encrypted under, if it is.
    pub key: Option<Key>,
    /// The permissions there, at most.
    pub access: Permissions,
    /// The most that it may hold.
    pub quota: Option<HeldQuota>,
    /// The users that see it. Where neither users nor groups are named all see it, anonymous users too.
    pub users: Vec<String>,
    /// The groups that see it.
    pub groups: Vec<String>,
}

/// Where the files of a mounted folder are.
#[derive(Debug)]
pub enum MountedFiles {
    /// In a folder of this machine.
    Directory(MountedDirectory),
    /// In a database.
    Database(MountedDatabase),
    /// In a bucket.
    Bucket(MountedBucket),
    /// In a storage of an embedding program.
    Storage(Arc<dyn Storage>),
}

/// A folder of this machine, anywhere on it.
#[derive(Debug)]
pub struct MountedDirectory {
    homes: Homes,
    /// The rest after the part without templates.
    beneath: String,
}

/// A database that has files as rows.
#[derive(Debug)]
pub struct MountedDatabase {
    rows: Rows,
    hashes: Algorithms,
}

#[derive(Debug)]
enum Rows {
    /// In SQLite: opened, and made, when it is first needed.
    Sqlite { path: PathBuf, open: Mutex<Option<SqlStorage>> },
    /// In PostgreSQL, which is asked with each call, and need not be there.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "there is only SQLite then"))]
    Postgres { name: String, storage: SqlStorage },
}

/// The folders that are mounted, and whether folders are archives too, and files other forms of themselves.
#[derive(Debug, Default)]
pub struct Mounts {
    mounts: Vec<Mount>,
    archives: bool,
    conversions: bool,
    withheld: Withheld,
    /// Where there are quotas.
    quotas: Option<Arc<Quotas>>,
}

/// Why a folder cannot be mounted; a sentence without its full stop.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The folder cannot be found.
    #[error("the folder {} cannot be served: {source}; make it first, or name another", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is a file.
    #[error("{} is not a folder; name the folder that it is in", .0.display())]
    NoFolder(PathBuf),
    /// The folder of a user cannot be opened.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The path of a folder cannot be made of its template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The SQLite database cannot be opened.
    #[error(transparent)]
    Database(#[from] SqlError),
}

/// A mount for a user: where, and what, unless that is away.
type Mounted = (VirtualPath, Option<Arc<dyn Storage>>);

impl MountedDirectory {
    /// The folder `path`, absolute; `{user}` and `{group}` in it stand for the user's names, and its last
    /// component is made when it is first needed. The part without templates has to be there.
    pub fn new(path: &Path, options: LocalOptions) -> Result<Self, MountError> {
        let is_plain = |part: &&std::ffi::OsStr| !part.to_string_lossy().contains('{');
        let plain: PathBuf = path.iter().take_while(is_plain).collect();
        let beneath = path.strip_prefix(&plain).unwrap_or(Path::new("")).to_string_lossy().into_owned();
        let root = match plain.canonicalize() {
            Ok(root) if root.is_dir() => root,
            Ok(_) => return Err(MountError::NoFolder(plain)),
            Err(source) => return Err(MountError::Missing { path: plain, source }),
        };
        Ok(Self { homes: Homes::new(root, options), beneath })
    }

    /// Returns true if each user has a folder of its own there.
    pub fn is_template(&self) -> bool {
        !self.beneath.is_empty()
    }
}

impl MountedDatabase {
    /// The SQLite database `path`.
    pub fn sqlite(path: PathBuf) -> Self {
        Self { rows: Rows::Sqlite { path, open: Mutex::default() }, hashes: Algorithms::NONE }
    }

    /// A PostgreSQL database, which is not in this build.
    #[cfg(not(feature = "postgres"))]
    pub fn postgres(_: &Sql) -> Result<Self, SetupError> {
        absent("PostgreSQL", "postgres")
    }

    /// A PostgreSQL database. It does not connect yet.
    #[cfg(feature = "postgres")]
    pub fn postgres(settings: &Sql) -> Result<Self, SetupError> {
        let server = postgres::Server::new(settings)?;
        let name = server.name();
        let storage = SqlStorage::postgres(Arc::new(server), settings.time)?;
        Ok(Self { rows: Rows::Postgres { name, storage }, hashes: Algorithms::NONE })
    }

    /// The same, whose uploads are hashed on their way.
    #[must_use]
    pub fn hashing(self, hashes: Algorithms) -> Self {
        Self { hashes, ..self }
    }

    /// Opens the database.
    fn open(&self) -> Result<SqlStorage, SqlError> {
        self.open_by(SqlStorage::open)
    }

    fn open_by(&self, by: fn(&Path) -> Result<SqlStorage, SqlError>) -> Result<SqlStorage, SqlError> {
        match &self.rows {
            Rows::Postgres { storage, .. } => Ok(storage.clone()),
            Rows::Sqlite { path, open } => {
                let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                if open.is_none() {
                    *open = Some(by(path)?);
                }
                Ok(open.clone().expect("it was opened just now"))
            }
        }
    }

    /// Returns true if opening it waits for nothing.
    fn is_ready(&self) -> bool {
        match &self.rows {
            Rows::Postgres { .. } => true,
            Rows::Sqlite { open, .. } => open.try_lock().is_ok_and(|open| open.is_some()),
        }
    }

    /// Checks that it is reachable. A temporary problem is returned as a message, not as an error.
    fn check(&self, beside_predecessor: bool) -> Result<Option<String>, SqlError> {
        let by = if beside_predecessor { SqlStorage::open_beside_predecessor } else { SqlStorage::open };
        match &self.rows {
            Rows::Postgres { name, storage } => {
                let why = storage.check().err().map(|error| match error {
                    FileError::Io(error) => error.to_string(),
                    error => error.to_string(),
                });
                let out = "its files are out of reach until it can";
                Ok(why.map(|why| format!("{name} cannot be asked: {why}; {out}")))
            }
            Rows::Sqlite { .. } => self.open_by(by).map(|_| None),
        }
    }

    fn shown(&self) -> String {
        match &self.rows {
            Rows::Sqlite { path, .. } => format!("the database {}", path.display()),
            Rows::Postgres { name, .. } => name.clone(),
        }
    }
}

impl MountedFiles {
    /// Where they are, in words: `the folder /srv/archive`.
    pub fn shown(&self) -> String {
        match self {
            Self::Directory(directory) => {
                let root = directory.homes.root();
                let path =
                    if directory.is_template() { root.join(&directory.beneath) } else { root.to_owned() };
                format!("the folder {}", path.display())
            }
            Self::Database(database) => database.shown(),
            Self::Bucket(bucket) => bucket.shown(),
            Self::Storage(_) => "elsewhere".to_owned(),
        }
    }
}

impl Mount {
    fn is_for(&self, user: &Effective) -> bool {
        (self.users.is_empty() && self.groups.is_empty())
            || self.users.contains(&user.user)
            || user.groups.iter().any(|group| self.groups.contains(group))
    }

    /// An encrypted file is written anew as a whole, also by `APPE` and `REST`, out of the old one: in place that would
    /// destroy what it reads.
    fn stage_what_is_encrypted(&mut self) {
        match (&mut self.files, &self.key) {
            (MountedFiles::Directory(directory), Some(_)) => directory.homes.stage_unhashed(),
            (MountedFiles::Database(database), Some(_)) => database.hashes = Algorithms::NONE,
            (MountedFiles::Bucket(bucket), Some(_)) => bucket.leave_unhashed(),
            _ => {}
        }
    }

    /// Returns true if opening it for a user waits for nothing.
    fn is_ready(&self, user: &Effective) -> bool {
        match &self.files {
            MountedFiles::Directory(directory) => {
                let folder = user.fill(&directory.beneath);
                folder.is_ok_and(|folder| directory.homes.ready(&folder, false).is_some())
            }
            MountedFiles::Database(database) => database.is_ready(),
            MountedFiles::Bucket(_) | MountedFiles::Storage(_) => true,
        }
    }

    /// The files as a user may use them.
    fn open(&self, user: &Effective, ledger: Option<&Ledger>) -> Result<Arc<dyn Storage>, MountError> {
        let files: Arc<dyn Storage> = match &self.files {
            MountedFiles::Directory(directory) => {
                let (homes, folder) = (&directory.homes, user.fill(&directory.beneath)?);
                match user.said.is_system_account {
                    true => homes.open_as(&user.user, &folder, false, directory.is_template())?,
                    false => homes.open(&folder, false, directory.is_template())?,
                }
            }
            MountedFiles::Database(database) => Arc::new(database.open()?.hashing(database.hashes)),
            MountedFiles::Bucket(bucket) => bucket.storage(),
            MountedFiles::Storage(storage) => Arc::clone(storage),
        };
        let files = match &self.key {
            Some(key) => Arc::new(Encrypted::new(files, key)),
            None => files,
        };
        let files = match self.quota.clone() {
            Some(quota) => {
                let key = self.key(user)?;
                // Without a ledger it is counted for each login anew, and by each for itself.
                let tally = match ledger {
                    Some(ledger) => ledger.tally(&key, &files),
                    None => Arc::new(Tally::new(&key, Arc::clone(&files))),
                };
                let scope = QuotaScope::Folder(user.fill(&self.path)?);
                Arc::new(Quota::new(files, tally, quota, scope))
            }
            None => files,
        };
        Ok(guard::hold(files, Rules::new(self.access)))
    }

    /// The name under which its quota is counted.
    fn key(&self, user: &Effective) -> Result<String, TemplateError> {
        Ok(match &self.files {
            MountedFiles::Directory(directory) => directory.homes.key(&user.fill(&directory.beneath)?),
            MountedFiles::Database(database) => match &database.rows {
                Rows::Sqlite { path, .. } => format!("database {}", path.display()),
                Rows::Postgres { name, .. } => name.clone(),
            },
            MountedFiles::Bucket(bucket) => bucket.name().to_owned(),
            MountedFiles::Storage(_) => format!("storage {}", user.fill(&self.path)?),
        })
    }
}

impl Mounts {
    /// These folders, later ones in place of earlier ones at the same path; with `archives` a folder can also be
    /// read as `folder.tar`, `.tar.gz`, `.tgz` and `.zip`. Encrypted files are staged, whatever the folder's options say.
    pub fn new(mut mounts: Vec<Mount>, archives: bool) -> Self {
        mounts.iter_mut().for_each(Mount::stage_what_is_encrypted);
        Self { mounts, archives, ..Self::default() }
    }

    /// Sets whether files can be read by FTP compressed, and compressed ones as what they hold.
    pub fn converting(self, conversions: bool) -> Self {
        Self { conversions, ..self }
    }

    /// Leaves these files out of archives by HTTP, because clients cannot read them otherwise either.
    pub fn withholding(mut self, withheld: Withheld) -> Self {
        self.withheld = withheld;
        self
    }

    /// Sets the counts of quotas.
    pub fn quotas(mut self, quotas: Arc<Quotas>) -> Self {
        self.quotas = Some(quotas);
        self
    }

    /// The folders.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// Whether folders can be read as archives.
    pub fn archives(&self) -> bool {
        self.archives
    }

    /// Whether files can be converted.
    pub fn conversions(&self) -> bool {
        self.conversions
    }

    /// Opens the folders that do not depend on the user, and returns messages about those that are temporarily
    /// unreachable. A process that replaces another shares databases with it.
    pub fn open(&self, beside_predecessor: bool) -> Result<Vec<String>, MountError> {
        let mut away = Vec::new();
        for mount in &self.mounts {
            match &mount.files {
                MountedFiles::Directory(directory) if !directory.is_template() => {
                    directory.homes.open("", false, false)?;
                }
                MountedFiles::Database(database) => away.extend(database.check(beside_predecessor)?),
                MountedFiles::Bucket(bucket) => away.extend(bucket.start()),
                _ => {}
            }
        }
        Ok(away)
    }

    /// Folders of this machine that are open to be written.
    pub fn writable(&self) -> Vec<Arc<LocalStorage>> {
        let of = |mount: &Mount| match &mount.files {
            MountedFiles::Directory(directory) => directory.homes.writable(),
            _ => Vec::new(),
        };
        self.mounts.iter().flat_map(of).collect()
    }

    /// Returns true if [`Mounts::mount`] would wait for nothing.
    pub(super) fn are_ready(&self, user: &Effective) -> bool {
        self.mounts.iter().filter(|mount| mount.is_for(user)).all(|mount| mount.is_ready(user))
    }

    /// The user's tree with the folders that are for the user.
    pub(super) fn mount(&self, user: &Effective, base: Arc<dyn Storage>) -> Arc<dyn Storage> {
        let of_user = self.mounts.iter().filter(|mount| mount.is_for(user));
        let mounted: Vec<Mounted> = of_user
            .filter_map(|mount| {
                let path = user.fill(&mount.path).ok()?;
                Some((
                    VirtualPath::parse(path.as_bytes()).ok()?,
                    mount.open(user, self.quotas.as_ref().map(|quotas| quotas.ledger())).ok(),
                ))
            })
            .collect();
        if mounted.is_empty() {
            return base;
        }
        Arc::new(mounted.into_iter().fold(Folders::new(base), |folders, (at, storage)| match storage {
            Some(storage) => folders.mount(at, storage),
            None => folders.absent(at),
        }))
    }

    /// An account, and over its rules what packs its folders, where it may list what that would pack, and what converts its
    /// files. HTTP negotiates codings instead.
    pub(super) fn cover(&self, account: Account, protocol: Protocol) -> Account {
        let may = |permission| account.permissions.allows(permission);
        let (may_read, may_list) = (may(Permission::Read), may(Permission::List));
        let mut storage = account.storage;
        if self.archives && may_read && may_list {
            let archives = Archives::new(storage);
            storage = match protocol {
                Protocol::Http => Arc::new(archives.without(self.withheld.clone())),
                Protocol::Ftp => Arc::new(archives),
            };
        }
        if self.conversions && may_read && protocol == Protocol::Ftp {
            storage = Arc::new(Conversions::new(storage));
        }
        Account { storage, ..account }
    }

    /// The folders that are for a user and have quotas: where, what they are counted as, and how much they may hold.
    pub(super) fn held(&self, user: &Effective) -> Vec<(String, String, HeldQuota)> {
        let of_user = self.mounts.iter().filter(|mount| mount.is_for(user));
        of_user
            .filter_map(|mount| {
                Some((user.fill(&mount.path).ok()?, mount.key(user).ok()?, mount.quota.clone()?))
            })
            .collect()
    }

    /// The folders that are for a user: where, and the most that may be done there.
    pub fn of(&self, user: &Effective) -> Vec<(String, Permissions)> {
        let of_user = self.mounts.iter().filter(|mount| mount.is_for(user));
        of_user.filter_map(|mount| Some((user.fill(&mount.path).ok()?, mount.access))).collect()
    }
}

#[cfg(test)]
mod tests {
    use millrace_storage::Uploads;
    use millrace_vfs::{Wait, WriteMode, conformance};

    use super::super::User;
    use super::super::effective::resolve;
    use super::*;

    #[test]
    fn an_encrypted_folder_conforms_and_keeps_its_files_where_uploads_are_in_place() {
        let root = std::env::temp_dir().join(format!("millrace-mounts-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let options = LocalOptions { uploads: Uploads::InPlace, ..LocalOptions::default() };
        let mount = Mount {
            path: "/vault".to_owned(),
            files: MountedFiles::Directory(MountedDirectory::new(&root, options).unwrap()),
            key: Some(Key::new([7; 32])),
            access: Permissions::READ_WRITE.with(Permission::Admin),
            quota: None,
            users: Vec::new(),
            groups: Vec::new(),
        };
        let mounts = Mounts::new(vec![mount], false);
        let storage = mounts.mounts[0].open(&resolve(&User::default(), |_| None), None).unwrap();
        conformance::run_with(&*storage, 100);
        let path = VirtualPath::parse(b"/f").unwrap();
        let open = |mode| storage.open_write(&path, mode, Wait::Allowed).unwrap();
        let mut upload = open(WriteMode::CreateNew);
        upload.write_all(&[b'o'; 200_000]).unwrap();
        upload.commit().unwrap();
        for mode in [WriteMode::Replace, WriteMode::Append, WriteMode::At(3)] {
            let mut cut = open(mode);
            cut.write_all(&[b'n'; 100_000]).unwrap();
            drop(cut);
            assert_eq!(storage.metadata(&path, Wait::Allowed).unwrap().size, 200_000, "{mode:?}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
