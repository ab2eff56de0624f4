//! Listing: in the order of names, from where it stood.

use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError, Metadata};

use super::Shared;
use super::tree::{self, COLUMN_COUNT, COLUMNS, SOURCE};

/// Rows at most in one answer.
const MOST: usize = 1024;

/// An open directory: the place after the last name that was shown.
#[derive(Debug)]
pub(super) struct Cursor {
    shared: Arc<Shared>,
    id: i64,
    last: Vec<u8>,
}

impl Cursor {
    pub(super) fn new(shared: Arc<Shared>, id: i64) -> Self {
        // No name is empty, so all of them come after this.
        Self { shared, id, last: Vec::new() }
    }

    fn next(&mut self, most: usize) -> Result<Vec<DirEntry>, FileError> {
        let sql = format!(
            "SELECT {COLUMNS}, name FROM {SOURCE} WHERE parent = ?1 AND name > ?2 ORDER BY name LIMIT ?3"
        );
        let most = most.clamp(1, MOST) as i64;
        let entries: Vec<DirEntry> = self.shared.pool.look(|look| {
            let rows = look.rows(&sql, &[self.id.into(), self.last[..].into(), most.into()])?;
            let entry = |mut row| {
                let metadata = self.shared.told(tree::node(&row)?);
                Ok(DirEntry { name: row.bytes(COLUMN_COUNT)?, metadata, link: None })
            };
            rows.into_iter().map(entry).collect()
        })?;
        if let Some(entry) = entries.last() {
            self.last.clone_from(&entry.name);
        }
        Ok(entries)
    }
}

impl Directory for Cursor {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        entries.append(&mut self.next(most)?);
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        let entries = self.next(most)?;
        entries.iter().for_each(|entry| visit(&entry.name));
        Ok(entries.len())
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        self.shared.pool.look(|look| tree::by_id(look, self.id)).map(|node| self.shared.told(node))
    }
}
