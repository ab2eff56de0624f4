//! A bucket as a tree: what is at a path, and what may be put there.

use std::collections::HashMap;
use std::future::Future;

use millrace_storage::identity_of;
use millrace_vfs::{FileError, FileKind, Metadata, Owner, Timestamp, VirtualPath};
use tokio::runtime::{Builder, Runtime};

use crate::answers::{Listed, Page};
use crate::attributes::Attributes;
use crate::client::{Client, Condition, Object};
use crate::error::StoreError;
use crate::folders::{Kind, KnownFolders, Snapshot};
use crate::honours::Honours;
use crate::keys;
use crate::settings::{Settings, SettingsError};

/// Entries of a page of a listing: the most that stores give.
pub(crate) const PAGE: usize = 1_000;

/// The name in the root that the server keeps for itself.
pub(crate) const RESERVED: &[u8] = b".millrace";

/// What is at a path.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    File(Object),
    /// With the attributes of its marker, where it has one.
    Folder(Attributes),
}

/// The state shared by the storage and its open files.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) client: Client,
    /// Stands before all keys: empty, or with a slash at its end.
    pub(crate) prefix: String,
    /// The number that tells its files from those of other stores.
    pub(crate) device: u64,
    pub(crate) known: KnownFolders,
    pub(crate) honours: Honours,
    /// `None` only while this is dropped.
    pub(crate) runtime: Option<Runtime>,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let (client, prefix) = (settings.client()?, settings.key_prefix()?);
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("millrace-s3").enable_all().build()?;
        let device = identity_of(format!("{} {} {prefix}", settings.endpoint, client.bucket).as_bytes());
        let (known, honours) = Default::default();
        Ok(Self { client, prefix, device, known, honours, runtime: Some(runtime) })
    }

    /// Waits for what the store answers, on a thread that may wait.
    pub(crate) fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime().block_on(answer)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the bucket is dropped")
    }

    /// The key of a file; the reserved folder has none.
    pub(crate) fn key(&self, path: &VirtualPath) -> Result<String, FileError> {
        self.checked(path, keys::key(&self.prefix, path))
    }

    /// The prefix of a folder's entries, which is the key of its marker.
    pub(crate) fn folder_key(&self, path: &VirtualPath) -> Result<String, FileError> {
        self.checked(path, keys::folder_key(&self.prefix, path))
    }

    fn checked(&self, path: &VirtualPath, key: String) -> Result<String, FileError> {
        match path.components().next() {
            Some(RESERVED) => Err(FileError::InvalidName),
            _ if key.len() > keys::LONGEST => Err(FileError::NameTooLong),
            _ => Ok(key),
        }
    }

    /// The key of something that the server keeps for itself.
    pub(crate) fn reserved_key(&self, rest: &str) -> String {
        format!("{}.millrace/{rest}", self.prefix)
    }

    /// Returns what is at a path, as the store says now.
    pub(crate) async fn node(&self, path: &VirtualPath) -> Result<Node, FileError> {
        if path.is_root() {
            return Ok(Node::Folder(Attributes::default()));
        }
        if let Some(object) = self.client.find(&self.key(path)?).await? {
            return Ok(Node::File(object));
        }
        match self.folder(path).await? {
            Some(attributes) => Ok(Node::Folder(attributes)),
            None => Err(self.why_missing(path).await?),
        }
    }

    /// The file at a path.
    pub(crate) async fn file(&self, path: &VirtualPath) -> Result<Object, FileError> {
        match self.node(path).await? {
            Node::File(object) => Ok(object),
            Node::Folder(_) => Err(FileError::IsDirectory),
        }
    }

    /// The folder at a path where there is no file, if there is one.
    pub(crate) async fn folder(&self, path: &VirtualPath) -> Result<Option<Attributes>, FileError> {
        let key = self.folder_key(path)?;
        if let Some(marker) = self.client.find(&key).await? {
            return Ok(Some(marker.attributes));
        }
        Ok(self.has_entries(&key).await?.then(Attributes::default))
    }

    async fn has_entries(&self, folder_key: &str) -> Result<bool, StoreError> {
        let page = self.client.list(folder_key, true, None, 1).await?;
        Ok(!page.objects.is_empty())
    }

    /// Why there is nothing at a path: because there is nothing, or because what holds it is a file.
    pub(crate) async fn why_missing(&self, path: &VirtualPath) -> Result<FileError, FileError> {
        let mut parent = path.parent();
        while !parent.is_root() {
            if self.client.find(&self.key(&parent)?).await?.is_some() {
                return Ok(FileError::NotDirectory);
            }
            parent = parent.parent();
        }
        Ok(FileError::NotFound)
    }

    /// Returns what is known of a folder, and lists it where that is nothing.
    async fn snapshot(&self, folder: &VirtualPath) -> Result<Snapshot, FileError> {
        if let Some(snapshot) = self.known.find(folder) {
            return Ok(snapshot);
        }
        let (page, key) = self.first_page(folder).await?;
        Ok(self.snapshot_of(&page, &key))
    }

    /// The first page of a folder and the key of the folder. What it has is known from now on.
    pub(crate) async fn first_page(&self, folder: &VirtualPath) -> Result<(Page, String), FileError> {
        let key = self.folder_key(folder)?;
        self.known.begin(folder);
        let listed = self.client.list(&key, false, None, PAGE).await;
        let seen = listed.as_ref().ok().filter(|page| folder.is_root() || !is_empty(page));
        self.known.end(folder, seen.map(|page| self.snapshot_of(page, &key)));
        let page = listed?;
        if is_empty(&page) && !folder.is_root() {
            let is_file = self.client.find(&self.key(folder)?).await?.is_some();
            return Err(if is_file { FileError::NotDirectory } else { self.why_missing(folder).await? });
        }
        Ok((page, key))
    }

    fn snapshot_of(&self, page: &Page, folder_key: &str) -> Snapshot {
        let has_marker = page.objects.first().is_some_and(|object| object.key == folder_key);
        let files = page.objects.iter().filter_map(|object| name_of(&object.key, folder_key));
        let folders =
            page.prefixes.iter().filter_map(|prefix| name_of(prefix.trim_end_matches('/'), folder_key));
        let folders = folders.map(|name| (name, Some(Kind::Folder)));
        let names: HashMap<_, _> = folders.chain(files.map(|name| (name, Some(Kind::File)))).collect();
        Snapshot::new(has_marker || folder_key == self.prefix, page.next.is_none(), names)
    }

    /// Returns what has a name, `None` where it is free. Its parent has to be a folder.
    pub(crate) async fn kind(&self, path: &VirtualPath) -> Result<Option<Kind>, FileError> {
        let key = self.key(path)?;
        if let Some(kind) = self.known.kind(path) {
            return Ok(kind);
        }
        let snapshot = self.snapshot(&path.parent()).await?;
        if let Some(kind) = snapshot.kind(path.name()) {
            return Ok(kind);
        }
        let kind = match self.client.find(&key).await? {
            Some(_) => Some(Kind::File),
            None => self.has_entries(&format!("{key}/")).await?.then_some(Kind::Folder),
        };
        self.known.learn(path, kind);
        Ok(kind)
    }

    /// As [`Bucket::kind`], for what is to be the name of a file: a folder there is an error. With the file that is there.
    pub(crate) async fn place(&self, path: &VirtualPath) -> Result<Option<Object>, FileError> {
        if path.is_root() {
            return Err(FileError::IsDirectory);
        }
        match self.kind(path).await? {
            Some(Kind::Folder) => Err(FileError::IsDirectory),
            Some(Kind::File) => Ok(self.client.find(&self.key(path)?).await?),
            None => Ok(None),
        }
    }

    /// Has a folder that loses an entry stay, also where nothing but that entry told of it.
    pub(crate) async fn keep_folder(&self, folder: &VirtualPath) -> Result<(), FileError> {
        if folder.is_root() {
            return Ok(());
        }
        let snapshot = match self.snapshot(folder).await {
            Ok(snapshot) => snapshot,
            Err(FileError::NotFound) => return self.mark(folder, &Attributes::default()).await,
            Err(error) => return Err(error),
        };
        match snapshot.has_marker || snapshot.has_entries() {
            true => Ok(()),
            false => self.mark(folder, &Attributes::default()).await,
        }
    }

    /// Makes the marker of a folder.
    pub(crate) async fn mark(&self, folder: &VirtualPath, attributes: &Attributes) -> Result<(), FileError> {
        let key = self.folder_key(folder)?;
        Ok(self.client.put_marker(&key, attributes, &Condition::None).await?)
    }

    /// The metadata of a file.
    pub(crate) fn metadata_of_file(&self, key: &str, object: &Object) -> Metadata {
        let Object { size, modified, attributes, .. } = object;
        let metadata = self.metadata(FileKind::File, key, *size, *modified);
        with_attributes(metadata, attributes)
    }

    /// The metadata of a file, as far as a listing tells.
    pub(crate) fn metadata_listed(&self, object: &Listed) -> Metadata {
        self.metadata(FileKind::File, &object.key, object.size, object.modified)
    }

    /// The metadata of a folder. When it was changed the store does not tell.
    pub(crate) fn metadata_of_folder(&self, key: &str, attributes: &Attributes) -> Metadata {
        let metadata = self.metadata(FileKind::Directory, key.trim_end_matches('/'), 0, Timestamp::default());
        with_attributes(metadata, attributes)
    }

    fn metadata(&self, kind: FileKind, key: &str, size: u64, modified: Timestamp) -> Metadata {
        let is_folder = kind == FileKind::Directory;
        Metadata {
            kind,
            size,
            modified,
            created: None,
            changed: None,
            mode: if is_folder { 0o755 } else { 0o644 },
            owner: Owner::default(),
            links: if is_folder { 2 } else { 1 },
            identity: (self.device, identity_of(key.as_bytes())),
        }
    }
}

fn with_attributes(metadata: Metadata, attributes: &Attributes) -> Metadata {
    Metadata {
        modified: attributes.modified.unwrap_or(metadata.modified),
        mode: attributes.mode.unwrap_or(metadata.mode),
        owner: attributes.owner.unwrap_or(metadata.owner),
        ..metadata
    }
}

fn is_empty(page: &Page) -> bool {
    page.objects.is_empty() && page.prefixes.is_empty()
}

/// The name that a key has directly in a folder; `None` of a marker, and of a key that no name has.
pub(crate) fn name_of(key: &str, folder_key: &str) -> Option<Vec<u8>> {
    keys::decode(key.strip_prefix(folder_key)?)
}
