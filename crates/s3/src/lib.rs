//! Files as the objects of an S3-compatible store, one object a file: the key is the path, so that other tools see the same
//! files in the bucket.
//!
//! | operation | requests to the store | what holds |
//! |---|---|---|
//! | open to read | `GET` of the first 8 MiB, which is all of a small file | one version from start to end, or an error |
//! | read on | `GET` of 4 MiB, two ahead as far as there is memory | |
//! | upload of less than 5 MiB | 1 `PUT` | the old file or all of the new |
//! | larger upload | create, `PUT` of each 5 MiB, complete | the same |
//! | append, upload at an offset | `HEAD`, create, copy parts, `PUT` parts, complete | the same; nothing is downloaded but a part at a seam |
//! | metadata | `HEAD`; of a folder 2 or 3 requests | |
//! | listing | a `GET` for each 1,000 entries | times and modes as the store has them |
//! | make a folder | `PUT` of the marker `name/` | |
//! | remove | `HEAD`, `DELETE` | a folder stays when its last file goes |
//! | change | `HEAD`, copy of the object onto itself by the store | |
//! | copy | `HEAD`, copy by the store | the old file or all of the new |
//! | rename a file | `HEAD`, copy by the store, `HEAD`, `DELETE` | killed in between, both names have it |
//! | rename a folder | note, copies, removals of 250 at a time, note | finished by the next start, where it was killed |
//!
//! An upload or a change also asks what its folder has, once in five seconds ([`folders`]). Where the process is killed
//! nothing half-written is seen. There are no symbolic links, and no partial uploads. Everything may wait; calls wait on
//! the threads of their callers, the sockets belong to a runtime of one thread that each store has.

mod answers;
mod attributes;
mod bucket;
mod buffers;
mod client;
mod copying;
mod error;
mod folders;
mod honours;
mod housekeeping;
mod http;
mod keys;
mod listing;
mod objects;
mod owner;
mod parts;
mod patch;
mod probe;
mod read;
mod renaming;
mod settings;
mod sign;
mod site;
mod splice;
#[cfg(test)]
mod tests;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use millrace_storage::Hashed;
use millrace_vfs::hash::{Algorithms, Hashers, Hashes};
use millrace_vfs::{
    Change, DirEntry, Directory, FileError, Metadata, ReadHandle, Space, Storage, Upload, VirtualPath, Wait,
    WriteMode,
};

use attributes::Attributes;
use bucket::{Bucket, Node};
use buffers::PartMemory;
use client::Condition;
use copying::copy_object;
use folders::Kind;
use listing::Cursor;
use patch::Patch;
use read::ObjectReader;
use upload::Staged;

pub use error::StoreError;
pub use objects::{ObjectStore, ObjectUpload};
pub use patch::start as upload_start;
pub use settings::{Settings, SettingsError};
pub use sign::Credentials;

/// A tree of files in a bucket. Clones share it.
#[derive(Debug, Clone)]
pub struct S3Storage {
    bucket: Arc<Bucket>,
    /// What uploads are hashed by on their way.
    hashes: Algorithms,
}

/// Sets how many bytes the parts of all uploads, and what downloads fetch ahead, may have in memory.
pub fn set_part_memory(bytes: u64) {
    PartMemory::of_process().resize(bytes);
}

impl S3Storage {
    /// A store, which need not be reachable yet.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        Ok(Self { bucket: Arc::new(Bucket::new(settings)?), hashes: Algorithms::NONE })
    }

    /// The same, whose uploads are hashed on their way.
    #[must_use]
    pub fn hashing(self, hashes: Algorithms) -> Self {
        Self { hashes, ..self }
    }

    /// Begins to use the store: finds out what it honours, finishes renames and removes uploads that were left behind, and
    /// does so again, every five minutes and every hour. Returns what the operator should know, a sentence without its full stop each; a store that
    /// cannot be asked is tried again.
    pub fn start(&self) -> Vec<String> {
        let bucket = &self.bucket;
        let begun = bucket.wait(housekeeping::begin(bucket));
        housekeeping::go_on(bucket, begun.is_ok());
        begun.unwrap_or_else(|error| {
            vec![format!("cannot be asked: {error}; its files are out of reach until it can")]
        })
    }

    /// Gives up multipart uploads that were begun so long ago, also those that still go on; returns how many.
    pub fn sweep(&self, left_after: Duration) -> Result<usize, StoreError> {
        self.bucket.wait(self.bucket.sweep_uploads(left_after))
    }

    /// Makes the bucket, unless it is there.
    pub fn make_bucket(&self) -> Result<(), StoreError> {
        self.bucket.wait(self.bucket.client.make_bucket())
    }

    /// Removes a name that is a file's.
    async fn remove(&self, path: &VirtualPath) -> Result<(), FileError> {
        if path.is_root() {
            return Err(FileError::PermissionDenied);
        }
        let bucket = &self.bucket;
        bucket.file(path).await?;
        bucket.client.delete(&bucket.key(path)?).await?;
        bucket.known.note(path, None);
        bucket.keep_folder(&path.parent()).await
    }

    async fn remove_empty(&self, path: &VirtualPath) -> Result<(), FileError> {
        if path.is_root() {
            return Err(FileError::PermissionDenied);
        }
        let (bucket, key) = (&self.bucket, self.bucket.folder_key(path)?);
        let page = bucket.client.list(&key, true, None, 2).await?;
        match &page.objects[..] {
            [] if matches!(bucket.node(path).await?, Node::File(_)) => return Err(FileError::NotDirectory),
            // Some stores do not list the marker of an empty folder.
            [] => {}
            [marker] if marker.key == key => {}
            _ => return Err(FileError::NotEmpty),
        }
        bucket.client.delete(&key).await?;
        bucket.known.note(path, None);
        bucket.known.forget(path);
        bucket.keep_folder(&path.parent()).await
    }

    async fn make_folder(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        if path.is_root() || self.bucket.kind(path).await?.is_some() {
            return Err(FileError::AlreadyExists);
        }
        let attributes = Attributes { mode: bits, ..Attributes::default() };
        let condition = if self.bucket.honours.new_only() { Condition::New } else { Condition::None };
        let key = self.bucket.folder_key(path)?;
        self.bucket.client.put_marker(&key, &attributes, &condition).await?;
        self.bucket.known.note(path, Some(Kind::Folder));
        Ok(())
    }

    async fn change_attributes(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        let bucket = &self.bucket;
        match bucket.node(path).await? {
            Node::File(object) => {
                let key = bucket.key(path)?;
                let attributes = object.attributes.clone().changed(change);
                copy_object(&self.bucket, (&key, &object), &key, &attributes, &mut |_| true).await
            }
            Node::Folder(_) if path.is_root() => Err(FileError::Unsupported),
            Node::Folder(attributes) => bucket.mark(path, &attributes.changed(change)).await,
        }
    }

    async fn copy_file(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut (dyn FnMut(u64) -> bool + '_),
    ) -> Result<u64, FileError> {
        let (bucket, object) = (&self.bucket, self.bucket.file(from).await?);
        let old = bucket.place(to).await?;
        if !progress(0) {
            return Err(FileError::Cancelled);
        }
        if from != to {
            let inherited = old.map(|old| old.attributes.inherited()).unwrap_or_default();
            let attributes = Attributes { hashes: object.attributes.hashes.clone(), ..inherited };
            copy_object(&self.bucket, (&bucket.key(from)?, &object), &bucket.key(to)?, &attributes, progress)
                .await?;
            bucket.known.note(to, Some(Kind::File));
        }
        progress(object.size);
        Ok(object.size)
    }

    async fn rename_entry(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        if from.is_root() || to.is_root() {
            return Err(FileError::PermissionDenied);
        }
        let bucket = &self.bucket;
        let node = bucket.node(from).await?;
        if from == to {
            return Ok(());
        }
        if to.starts_with(from) {
            return Err(FileError::InvalidName);
        }
        match (node, bucket.kind(to).await?) {
            (Node::File(_), Some(Kind::Folder)) => Err(FileError::IsDirectory),
            (Node::File(object), _) => {
                let (source, target) = (bucket.key(from)?, bucket.key(to)?);
                copy_object(&self.bucket, (&source, &object), &target, &object.attributes, &mut |_| true)
                    .await?;
                bucket.known.note(to, Some(Kind::File));
                // What another upload has put there meanwhile was not copied.
                if bucket.client.find(&source).await?.is_some_and(|now| now.etag != object.etag) {
                    return Ok(());
                }
                bucket.client.delete(&source).await?;
                bucket.known.note(from, None);
                bucket.keep_folder(&from.parent()).await
            }
            (Node::Folder(_), Some(_)) => Err(FileError::AlreadyExists),
            (Node::Folder(_), None) => {
                let (source, target) = (bucket.folder_key(from)?, bucket.folder_key(to)?);
                let moved = bucket.rename_folder(source, target).await;
                bucket.known.forget(from);
                bucket.known.forget(to);
                bucket.known.note(to, Some(Kind::Folder));
                moved?;
                bucket.known.note(from, None);
                bucket.keep_folder(&from.parent()).await
            }
        }
    }
}

/// Nothing is answered from memory.
fn may_wait(wait: Wait) -> Result<(), FileError> {
    if wait == Wait::Never { Err(FileError::WouldWait) } else { Ok(()) }
}

impl Storage for S3Storage {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        may_wait(wait)?;
        if path.is_root() {
            return Err(FileError::IsDirectory);
        }
        let (bucket, key) = (&self.bucket, self.bucket.key(path)?);
        bucket.wait(async {
            match ObjectReader::open(bucket, key).await {
                Ok(reader) => Ok(ReadHandle::Stream(Box::new(reader))),
                Err(error) if error.is_missing() => Err(match bucket.folder(path).await? {
                    Some(_) => FileError::IsDirectory,
                    None => bucket.why_missing(path).await?,
                }),
                Err(error) => Err(error.into()),
            }
        })
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
                let staged = Staged::begin(&self.bucket, path, mode == WriteMode::CreateNew, bits)?;
                Ok(match self.hashes.is_empty() {
                    true => Box::new(staged),
                    false => Hashed::begin(Box::new(staged), self.hashes, Hashers::new(self.hashes)),
                })
            }
            WriteMode::Append => Ok(Box::new(Patch::begin(&self.bucket, path, None, bits)?)),
            WriteMode::At(offset) => Ok(Box::new(Patch::begin(&self.bucket, path, Some(offset), bits)?)),
        }
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        may_wait(wait)?;
        let bucket = &self.bucket;
        Ok(match bucket.wait(bucket.node(path))? {
            Node::File(object) => bucket.metadata_of_file(&bucket.key(path)?, &object),
            Node::Folder(attributes) => bucket.metadata_of_folder(&bucket.folder_key(path)?, &attributes),
        })
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        let metadata = self.metadata(path, Wait::Allowed)?;
        Ok(DirEntry { name: path.name().to_owned(), metadata, link: None })
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        Ok(Box::new(self.bucket.wait(Cursor::open(&self.bucket, path))?))
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        self.bucket.wait(self.make_folder(path, bits))
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.bucket.wait(self.remove_empty(path))
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.bucket.wait(self.remove(path))
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        self.bucket.wait(self.rename_entry(from, to))
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        self.bucket.wait(self.change_attributes(path, change))
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
        self.bucket.wait(self.copy_file(from, to, progress))
    }

    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        may_wait(wait)?;
        Ok(self.bucket.wait(self.bucket.file(path))?.attributes.hashes)
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
