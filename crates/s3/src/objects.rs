//! Immutable objects under keys that their owner keeps elsewhere: each key is written once and never again.
//!
//! Uploads share the memory for parts with all others of the process, as downloads do. An upload that is not finished
//! leaves nothing but a multipart upload where the process is killed, which [`ObjectStore::give_up`] ends.

use std::sync::Arc;
use std::time::Duration;

use millrace_vfs::{FileError, ReadHandle};

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::client::{Condition, Object, Source};
use crate::copying::copy_object;
use crate::error::StoreError;
use crate::honours::Promise;
use crate::probe;
use crate::read::ObjectReader;
use crate::settings::{Settings, SettingsError};
use crate::splice::Splice;
use crate::upload::Body;

/// A bucket of such objects. Clones share it.
#[derive(Debug, Clone)]
pub struct ObjectStore {
    bucket: Arc<Bucket>,
}

impl ObjectStore {
    /// A store, which need not be reachable yet.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        Ok(Self { bucket: Arc::new(Bucket::new(settings)?) })
    }

    /// Makes the bucket, unless it is there.
    pub fn make_bucket(&self) -> Result<(), StoreError> {
        self.bucket.wait(self.bucket.client.make_bucket())
    }

    /// Finds out what the store honours, with an object of 5 MiB that is removed. Returns what the operator should know, a
    /// sentence without its full stop each.
    pub fn probe(&self) -> Result<Vec<String>, StoreError> {
        let broken = self.bucket.wait(async {
            // A look first: what changes the store waits for longer until it answers.
            self.bucket.client.list(&self.bucket.reserved_key("probe/"), true, None, 1).await?;
            self.bucket.sweep_probes().await?;
            probe::probe(&self.bucket).await
        })?;
        // No key is written twice, and names are not listed.
        let matters = |promise: &Promise| {
            matches!(promise, Promise::CopiedParts | Promise::UnequalParts | Promise::Ranges)
        };
        Ok(broken.into_iter().filter(matters).map(|promise| promise.to_string()).collect())
    }

    /// The key of the object with a name, behind the prefix.
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.bucket.prefix)
    }

    /// Begins to upload an object.
    pub fn upload(&self, name: &str) -> ObjectUpload {
        let body = Body::new(&self.bucket, self.key(name), of_upload(name));
        ObjectUpload { bucket: Arc::clone(&self.bucket), inner: Inner::New(body) }
    }

    /// Begins to upload an object that has what another one, of this name and size, has before an offset, then what comes,
    /// then what the other has behind that.
    pub fn splice(&self, name: &str, source: (&str, u64), offset: u64) -> Result<ObjectUpload, FileError> {
        let source = Source { key: self.key(source.0), etag: None, size: source.1 };
        let splice = Splice::begin(&self.bucket, self.key(name), &of_upload(name), Some(source), offset)?;
        Ok(ObjectUpload { bucket: Arc::clone(&self.bucket), inner: Inner::Splice(splice) })
    }

    /// Opens an object; its first bytes are on their way. [`FileError::NotFound`] where there is none.
    pub fn read(&self, name: &str) -> Result<ReadHandle, FileError> {
        let opened = self.bucket.wait(ObjectReader::open(&self.bucket, self.key(name)));
        Ok(ReadHandle::Stream(Box::new(opened?)))
    }

    /// Copies an object of this size by the store's own means.
    pub fn copy(
        &self,
        from: (&str, u64),
        to: &str,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), FileError> {
        let object = Object {
            size: from.1,
            modified: Default::default(),
            etag: String::new(),
            attributes: Attributes::default(),
        };
        let (from, target) = (self.key(from.0), self.key(to));
        self.bucket.wait(copy_object(&self.bucket, (&from, &object), &target, &of_upload(to), progress))
    }

    /// Removes objects, up to 1,000; success too where some are not there.
    pub fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        let keys: Vec<String> = names.iter().map(|name| self.key(name)).collect();
        self.bucket.wait(self.bucket.client.delete_all(&keys))
    }

    /// Ends all unfinished uploads that were begun so long ago, also those that still go on.
    pub fn sweep(&self, left_after: Duration) -> Result<usize, StoreError> {
        self.bucket.wait(self.bucket.sweep_uploads(left_after))
    }

    /// Ends the unfinished uploads of an object.
    pub fn give_up(&self, name: &str) -> Result<(), StoreError> {
        let (client, key) = (&self.bucket.client, self.key(name));
        self.bucket.wait(async {
            for upload in client.pending_uploads(&key, None).await?.uploads {
                if upload.key == key {
                    client.abort_upload(&key, &upload.id).await?;
                }
            }
            Ok(())
        })
    }
}

/// The attributes of an object: which upload has made it, so that an answer that was lost can be told from a failure.
fn of_upload(name: &str) -> Attributes {
    Attributes { upload: Some(name.to_owned()), ..Attributes::default() }
}

/// An object on its way. Dropped, it is given up.
#[derive(Debug)]
pub struct ObjectUpload {
    bucket: Arc<Bucket>,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    New(Body),
    Splice(Splice),
}

impl ObjectUpload {
    /// Takes the next bytes. Waits where there is no memory for them.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        match &mut self.inner {
            Inner::New(body) => body.write(bytes),
            Inner::Splice(splice) => splice.write(bytes),
        }
    }

    /// Returns how many bytes came of a new object.
    pub fn size(&self) -> u64 {
        match &self.inner {
            Inner::New(body) => body.size(),
            Inner::Splice(_) => 0,
        }
    }

    /// Returns what came of a new object, as long as all of it is in memory.
    pub fn preview(&self) -> Option<ReadHandle> {
        match &self.inner {
            Inner::New(body) => body.preview(),
            Inner::Splice(_) => None,
        }
    }

    /// Makes the object; returns its length.
    pub fn finish(self) -> Result<u64, FileError> {
        match self.inner {
            Inner::New(mut body) => {
                self.bucket.wait(body.finish(&Condition::None))?;
                Ok(body.size())
            }
            Inner::Splice(splice) => splice.finish(&Condition::None),
        }
    }
}
