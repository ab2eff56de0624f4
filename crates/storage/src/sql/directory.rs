//! Listing: in the order of names, from where it stood.

use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError, Metadata};
use rusqlite::params;

use super::Shared;
use super::pool::failed;
use super::tree::{self, COLUMNS, SOURCE};

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
        let (id, last) = (self.id, std::mem::take(&mut self.last));
        let sql = format!(
            "SELECT {COLUMNS}, name FROM {SOURCE} WHERE parent = ?1 AND name > ?2 ORDER BY name LIMIT ?3"
        );
        let entries: Vec<DirEntry> = self.shared.pool.look(|connection| {
            let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
            let rows = statement.query_map(params![id, last, most.clamp(1, MOST) as i64], |row| {
                Ok(DirEntry { name: row.get(10)?, metadata: tree::node(row)?.metadata, link: None })
            });
            rows.and_then(Iterator::collect).map_err(failed)
        })?;
        self.last = entries.last().map_or(last, |entry| entry.name.clone());
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
        let sql = format!("SELECT {COLUMNS} FROM {SOURCE} WHERE node.id = ?1");
        self.shared.pool.look(|connection| {
            connection.query_row(&sql, [self.id], tree::node).map(|node| node.metadata).map_err(failed)
        })
    }
}
