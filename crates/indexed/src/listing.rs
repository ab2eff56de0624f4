//! Listing: pages of rows in the order of names, each from where the one before ended.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError, Metadata};

use crate::tree::Tree;

/// Rows of the first page, which has to be quick, and of the others.
const FIRST: usize = 128;
const PAGE: usize = 512;

/// An open folder: what is left of a page, and the last name that came.
#[derive(Debug)]
pub(crate) struct Cursor {
    tree: Arc<Tree>,
    id: i64,
    entries: VecDeque<(Vec<u8>, Metadata)>,
    /// Empty before the first page: no name is.
    last: Vec<u8>,
    has_more: bool,
}

impl Cursor {
    pub(crate) fn new(tree: Arc<Tree>, id: i64) -> Self {
        Self { tree, id, entries: VecDeque::new(), last: Vec::new(), has_more: true }
    }

    /// The next entries, some where there are some.
    fn next(&mut self, most: usize) -> Result<impl Iterator<Item = (Vec<u8>, Metadata)>, FileError> {
        if self.entries.is_empty() && self.has_more {
            let page = if self.last.is_empty() { FIRST } else { PAGE };
            self.entries = self.tree.entries(self.id, &self.last, page)?.into();
            self.has_more = self.entries.len() == page;
            if let Some((name, _)) = self.entries.back() {
                self.last.clone_from(name);
            }
        }
        let count = most.clamp(1, PAGE).min(self.entries.len());
        Ok(self.entries.drain(..count))
    }
}

impl Directory for Cursor {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        entries.extend(self.next(most)?.map(|(name, metadata)| DirEntry { name, metadata, link: None }));
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        Ok(self.next(most)?.map(|(name, _)| visit(&name)).count())
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        self.tree.by_id(self.id).map(|node| node.metadata)
    }
}
