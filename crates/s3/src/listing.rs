//! Listings: a page of the store at a time, in the order of keys.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError, Metadata, VirtualPath};

use crate::answers::Page;
use crate::attributes::Attributes;
use crate::bucket::{Bucket, PAGE, RESERVED, name_of};

/// An open folder: what is left of a page, and where the next one begins.
#[derive(Debug)]
pub(crate) struct Cursor {
    bucket: Arc<Bucket>,
    /// The prefix of the entries.
    key: String,
    is_root: bool,
    entries: VecDeque<DirEntry>,
    next: Option<String>,
}

impl Cursor {
    /// Opens a folder, with its first page.
    pub(crate) async fn open(bucket: &Arc<Bucket>, path: &VirtualPath) -> Result<Self, FileError> {
        let (page, key) = bucket.first_page(path).await?;
        let (bucket, entries) = (Arc::clone(bucket), VecDeque::new());
        let mut cursor = Self { bucket, key, is_root: path.is_root(), entries, next: None };
        cursor.take(page);
        Ok(cursor)
    }

    /// Takes a page: its files and its folders, each in the order of names.
    fn take(&mut self, page: Page) {
        let entry = |name, metadata| DirEntry { name, metadata, link: None };
        for object in &page.objects {
            if let Some(name) = name_of(&object.key, &self.key) {
                self.entries.push_back(entry(name, self.bucket.metadata_listed(object)));
            }
        }
        for prefix in &page.prefixes {
            let name = name_of(prefix.trim_end_matches('/'), &self.key);
            if let Some(name) = name.filter(|name| !self.is_root || name != RESERVED) {
                let metadata = self.bucket.metadata_of_folder(prefix, &Attributes::default());
                self.entries.push_back(entry(name, metadata));
            }
        }
        self.next = page.next;
    }

    /// The next entries, some where there are some.
    fn next(&mut self, most: usize) -> Result<impl Iterator<Item = DirEntry>, FileError> {
        while self.entries.is_empty()
            && let Some(next) = self.next.take()
        {
            let bucket = Arc::clone(&self.bucket);
            let page = bucket.wait(bucket.client.list(&self.key, false, Some(&next), PAGE))?;
            self.take(page);
        }
        let count = most.clamp(1, PAGE).min(self.entries.len());
        Ok(self.entries.drain(..count))
    }
}

impl Directory for Cursor {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        entries.extend(self.next(most)?);
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        Ok(self.next(most)?.map(|entry| visit(&entry.name)).count())
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        Ok(self.bucket.metadata_of_folder(&self.key, &Attributes::default()))
    }
}
