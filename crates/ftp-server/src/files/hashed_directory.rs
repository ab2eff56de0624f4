//! A directory whose files' stored hashes are looked up before their lines of facts are written.

use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError, Metadata, Storage, VirtualPath};

use super::DigestCache;

/// A directory to be listed with the fact `x.hash`.
#[derive(Debug)]
pub(super) struct HashedDirectory {
    pub(super) inner: Box<dyn Directory>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) digests: Arc<DigestCache>,
    pub(super) path: VirtualPath,
}

impl Directory for HashedDirectory {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        let start = entries.len();
        self.inner.next_batch(entries, most)?;
        for entry in &entries[start..] {
            if let Ok(path) = self.path.join(&entry.name) {
                self.digests.note_stored(&*self.storage, &path, &entry.metadata);
            }
        }
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        self.inner.next_names(visit, most)
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        self.inner.metadata()
    }
}
