//! Contents: rows of bytes, and who still needs one that has lost its name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_vfs::FileError;
use rusqlite::{Connection, OptionalExtension, params};

use super::Shared;
use super::pool::failed;

/// Bytes in a chunk; the last of a content may have fewer.
pub(super) const CHUNK: usize = 64 << 10;

/// The contents that are open, and by how many.
#[derive(Debug, Default)]
pub(super) struct Contents {
    open: Mutex<HashMap<i64, Open>>,
}

#[derive(Debug, Default)]
struct Open {
    holders: usize,
    /// No node has it: it goes with the last holder.
    is_orphan: bool,
}

impl Contents {
    fn open(&self) -> MutexGuard<'_, HashMap<i64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a content that has lost its name, or leaves that to its last holder. A transaction that fails
    /// later leaves the mark behind, which is looked at again before anything is removed.
    pub(super) fn release(&self, change: &Connection, content: i64) -> Result<(), FileError> {
        if let Some(open) = self.open().get_mut(&content) {
            open.is_orphan = true;
            return Ok(());
        }
        remove(change, content)
    }
}

fn remove(change: &Connection, content: i64) -> Result<(), FileError> {
    change.execute("DELETE FROM chunk WHERE content = ?1", [content]).map_err(failed)?;
    change.execute("DELETE FROM content WHERE id = ?1", [content]).map_err(failed)?;
    Ok(())
}

/// A content that stays as long as this.
#[derive(Debug)]
pub(super) struct Hold {
    shared: Arc<Shared>,
    pub(super) content: i64,
}

impl Hold {
    /// Makes an empty content that no node has.
    pub(super) fn create(shared: &Arc<Shared>) -> Result<Self, FileError> {
        let content = shared.pool.change(|change| {
            change.execute("INSERT INTO content (size) VALUES (0)", []).map_err(failed)?;
            Ok(change.last_insert_rowid())
        })?;
        shared.contents.open().insert(content, Open { holders: 1, is_orphan: true });
        Ok(Self { shared: Arc::clone(shared), content })
    }

    /// Holds a content and answers its length; `None` where it is gone.
    pub(super) fn of(shared: &Arc<Shared>, content: i64) -> Result<Option<(Self, u64)>, FileError> {
        shared.contents.open().entry(content).or_default().holders += 1;
        let hold = Self { shared: Arc::clone(shared), content };
        let size = shared.pool.look(|connection| size(connection, content))?;
        Ok(size.map(|size| (hold, size)))
    }

    /// Says whether a node has it. Said within the transaction that gives it one: whoever takes it away again
    /// comes after that.
    pub(super) fn set_named(&self, is_named: bool) {
        if let Some(open) = self.shared.contents.open().get_mut(&self.content) {
            open.is_orphan = !is_named;
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let is_left = {
            let mut open = self.shared.contents.open();
            let Some(entry) = open.get_mut(&self.content) else { return };
            entry.holders -= 1;
            let (is_last, is_orphan) = (entry.holders == 0, entry.is_orphan);
            if is_last {
                open.remove(&self.content);
            }
            is_last && is_orphan
        };
        if is_left {
            // What fails here is removed when the database is next opened.
            let _ = self.shared.pool.change(|change| {
                let sql = "SELECT EXISTS (SELECT 1 FROM node WHERE content = ?1)";
                let is_named = change.query_row(sql, [self.content], |row| row.get(0)).map_err(failed)?;
                if is_named { Ok(()) } else { remove(change, self.content) }
            });
        }
    }
}

/// The length of a content; `None` where it is gone.
pub(super) fn size(connection: &Connection, content: i64) -> Result<Option<u64>, FileError> {
    let mut statement =
        connection.prepare_cached("SELECT size FROM content WHERE id = ?1").map_err(failed)?;
    let size: Option<i64> = statement.query_row([content], |row| row.get(0)).optional().map_err(failed)?;
    Ok(size.map(i64::unsigned_abs))
}

/// A chunk's bytes; nothing where there is none.
pub(super) fn chunk(connection: &Connection, content: i64, number: u64) -> Result<Vec<u8>, FileError> {
    let sql = "SELECT data FROM chunk WHERE content = ?1 AND number = ?2";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let data = statement.query_row(params![content, number as i64], |row| row.get(0));
    Ok(data.optional().map_err(failed)?.unwrap_or_default())
}

/// Cuts a content to a length that is no more than its own.
pub(super) fn truncate(change: &Connection, content: i64, size: u64) -> Result<(), FileError> {
    let (number, length) = (size / CHUNK as u64, (size % CHUNK as u64) as usize);
    let mut last = chunk(change, content, number)?;
    last.truncate(length);
    let sql = "DELETE FROM chunk WHERE content = ?1 AND number >= ?2";
    change.execute(sql, params![content, number as i64]).map_err(failed)?;
    let sql = "UPDATE content SET size = ?1 WHERE id = ?2";
    change.execute(sql, params![size as i64, content]).map_err(failed)?;
    write(change, content, size - last.len() as u64, &last)
}

/// Writes at an offset of a content, which grows where that is beyond its end.
pub(super) fn write(
    change: &Connection,
    content: i64,
    offset: u64,
    mut bytes: &[u8],
) -> Result<(), FileError> {
    let end = offset + bytes.len() as u64;
    let sql = "INSERT INTO chunk (content, number, data) VALUES (?1, ?2, ?3)
        ON CONFLICT (content, number) DO UPDATE SET data = excluded.data";
    let mut statement = change.prepare_cached(sql).map_err(failed)?;
    let mut position = offset;
    while !bytes.is_empty() {
        let (number, start) = (position / CHUNK as u64, (position % CHUNK as u64) as usize);
        let count = bytes.len().min(CHUNK - start);
        if count == CHUNK {
            statement.execute(params![content, number as i64, &bytes[..count]]).map_err(failed)?;
        } else {
            let mut data = chunk(change, content, number)?;
            data.resize(data.len().max(start + count), 0);
            data[start..start + count].copy_from_slice(&bytes[..count]);
            statement.execute(params![content, number as i64, data]).map_err(failed)?;
        }
        position += count as u64;
        bytes = &bytes[count..];
    }
    let size = i64::try_from(end).map_err(|_| FileError::TooLarge)?;
    let sql = "UPDATE content SET size = max(size, ?1) WHERE id = ?2";
    change.execute(sql, params![size, content]).map_err(failed)?;
    Ok(())
}
