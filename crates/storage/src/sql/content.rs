//! Contents: rows of bytes, and who still needs one that has lost its name.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_vfs::FileError;
use millrace_vfs::hash::StoredHashes;

use super::Shared;
use super::rows::{Statements, Value};
use super::sole::Lock;
use super::tree;

/// Bytes in a chunk; the last of a content may have fewer.
pub(super) const CHUNK: usize = 64 << 10;

/// The chunk that has the hashes of a content, in place of bytes of it: -1.
const HASHES: u64 = u64::MAX;

/// Chunks that are removed at a time: 64 MiB.
const PART: i64 = 1024;

/// The contents that are open, and by how many.
#[derive(Debug, Default)]
pub(super) struct Contents {
    open: Mutex<HashMap<i64, Open>>,
    /// These are no longer needed, but could not be removed yet.
    left: Mutex<Vec<i64>>,
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

    fn left(&self) -> MutexGuard<'_, Vec<i64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Removes content that has lost its name, or leaves that to its last holder. Called after the transaction that
    /// removed the name: a reader that found it by that name holds it by now, or looks it up again.
    pub(super) fn release(&self, content: i64) {
        match self.contents.open().get_mut(&content) {
            Some(open) => open.is_orphan = true,
            None => self.contents.left().push(content),
        }
        self.remove_left();
    }

    /// A failed removal is retried with the next one, and when the database is next opened.
    fn remove_left(&self) {
        if self.take_over().is_err() {
            return;
        }
        let left = std::mem::take(&mut *self.contents.left());
        for (index, content) in left.iter().enumerate() {
            loop {
                let remove = |change: &dyn Statements| match self.is_sole()? {
                    true => remove_part(change, *content),
                    // The other process may have it open.
                    false => Err(FileError::Exhausted),
                };
                match self.pool.change(remove) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(_) => return self.contents.left().extend(&left[index..]),
                }
            }
        }
    }
}

impl Shared {
    /// Returns whether no other process has the database open. Called within a change.
    fn is_sole(&self) -> Result<bool, FileError> {
        Ok(self.pool.lock().map_or(Ok(true), Lock::is_sole)?)
    }

    /// Where another process had the database open and has gone, takes over what it has left.
    fn take_over(&self) -> Result<(), FileError> {
        let Some(lock) = self.pool.lock().filter(|lock| lock.had_others()) else { return Ok(()) };
        let orphans = self.pool.change(|change| match lock.is_sole()? {
            true => tree::orphans(change),
            false => Err(FileError::Exhausted),
        })?;
        lock.forget_others();
        let open = self.contents.open();
        self.contents.left().extend(orphans.into_iter().filter(|content| !open.contains_key(content)));
        Ok(())
    }
}

/// Removes the end of a content, unless a node has it after all: no transaction lasts for as long as a large file
/// takes. Answers whether nothing is left to be done.
fn remove_part(change: &dyn Statements, content: i64) -> Result<bool, FileError> {
    let id = Value::from(content);
    if change.row("SELECT id FROM node WHERE content = ?1 LIMIT 1", &[id])?.is_some() {
        return Ok(true);
    }
    let last = change.row("SELECT max(number) FROM chunk WHERE content = ?1", &[id])?;
    let last = last.map(|row| row.number_if_any(0)).transpose()?.flatten();
    let first = last.map_or(0, |last| last.saturating_sub(PART - 1).max(0));
    change.execute("DELETE FROM chunk WHERE content = ?1 AND number >= ?2", &[id, first.into()])?;
    if first > 0 {
        return Ok(false);
    }
    set_hashes(change, content, None)?;
    change.execute("DELETE FROM content WHERE id = ?1", &[id])?;
    Ok(true)
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
        let last = Cell::new(None);
        let made = shared.pool.change(|change| {
            let sql = "INSERT INTO content (size) VALUES (?1) RETURNING id";
            let content = change.row(sql, &[0_i64.into()])?.ok_or(FileError::NotFound)?.number(0)?;
            // Before others can see it: an orphan that is not open is removed.
            let mut open = shared.contents.open();
            open.insert(content, Open { holders: 1, is_orphan: true });
            last.replace(Some(content)).and_then(|failed| open.remove(&failed));
            Ok(content)
        });
        if let (Err(_), Some(failed)) = (&made, last.get()) {
            shared.contents.open().remove(&failed);
        }
        Ok(Self { shared: Arc::clone(shared), content: made? })
    }

    /// Holds a content that a node has, and answers its length; `None` where it has lost its name.
    pub(super) fn of(shared: &Arc<Shared>, content: i64) -> Result<Option<(Self, u64)>, FileError> {
        shared.contents.open().entry(content).or_default().holders += 1;
        let hold = Self { shared: Arc::clone(shared), content };
        let sql = "SELECT content.size FROM node JOIN content ON content.id = node.content
            WHERE node.content = ?1";
        let size = shared.pool.look(|look| look.row(sql, &[content.into()]))?;
        Ok(size.map(|row| row.number(0)).transpose()?.map(|size| (hold, size.unsigned_abs())))
    }

    /// Holds it a second time.
    pub(super) fn again(&self) -> Self {
        self.shared.contents.open().entry(self.content).or_default().holders += 1;
        Self { shared: Arc::clone(&self.shared), content: self.content }
    }

    /// Records whether a node refers to it. Called within the transaction that sets the reference, so that a later
    /// removal follows.
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
            self.shared.contents.left().push(self.content);
            self.shared.remove_left();
        }
    }
}

/// The length of a content; `None` where it is gone.
pub(super) fn size(look: &dyn Statements, content: i64) -> Result<Option<u64>, FileError> {
    let row = look.row("SELECT size FROM content WHERE id = ?1", &[content.into()])?;
    Ok(row.map(|row| row.number(0)).transpose()?.map(i64::unsigned_abs))
}

/// A chunk's bytes; empty if it does not exist.
pub(super) fn chunk(look: &dyn Statements, content: i64, number: u64) -> Result<Vec<u8>, FileError> {
    let sql = "SELECT data FROM chunk WHERE content = ?1 AND number = ?2";
    let row = look.row(sql, &[content.into(), (number as i64).into()])?;
    row.map_or(Ok(Vec::new()), |mut row| row.bytes(0))
}

/// The hashes that are stored with a content.
pub(super) fn hashes(look: &dyn Statements, content: i64) -> Result<Option<StoredHashes>, FileError> {
    Ok(StoredHashes::parse(&chunk(look, content, HASHES)?))
}

/// Stores the hashes of a content, or removes them.
pub(super) fn set_hashes(
    change: &dyn Statements,
    content: i64,
    stored: Option<&StoredHashes>,
) -> Result<(), FileError> {
    let number = Value::from(HASHES as i64);
    change.execute("DELETE FROM chunk WHERE content = ?1 AND number = ?2", &[content.into(), number])?;
    let Some(stored) = stored else { return Ok(()) };
    let sql = "INSERT INTO chunk (content, number, data) VALUES (?1, ?2, ?3)";
    change.execute(sql, &[content.into(), number, Value::Bytes(stored.to_string().as_bytes())])
}

/// Cuts a content to a length that is no more than its own.
pub(super) fn truncate(change: &dyn Statements, content: i64, size: u64) -> Result<(), FileError> {
    let sql = "UPDATE content SET size = ?1 WHERE id = ?2";
    change.execute(sql, &[(size as i64).into(), content.into()])?;
    let (number, length) = (size / CHUNK as u64, (size % CHUNK as u64) as usize);
    let mut last = chunk(change, content, number)?;
    last.truncate(length);
    let sql = "DELETE FROM chunk WHERE content = ?1 AND number >= ?2";
    change.execute(sql, &[content.into(), (number as i64).into()])?;
    write(change, content, size - last.len() as u64, &last)
}

/// Writes at an offset of a content, which grows where that is beyond its end.
pub(super) fn write(
    change: &dyn Statements,
    content: i64,
    offset: u64,
    mut bytes: &[u8],
) -> Result<(), FileError> {
    let end = i64::try_from(offset + bytes.len() as u64).map_err(|_| FileError::TooLarge)?;
    // First, so that of two who write into the same content one waits for the other.
    let sql = "UPDATE content SET size = CASE WHEN size < ?1 THEN ?1 ELSE size END WHERE id = ?2";
    change.execute(sql, &[end.into(), content.into()])?;
    let sql = "INSERT INTO chunk (content, number, data) VALUES (?1, ?2, ?3)
        ON CONFLICT (content, number) DO UPDATE SET data = excluded.data";
    let mut position = offset;
    while !bytes.is_empty() {
        let (number, start) = (position / CHUNK as u64, (position % CHUNK as u64) as usize);
        let count = bytes.len().min(CHUNK - start);
        let put = |data| change.execute(sql, &[content.into(), (number as i64).into(), Value::Bytes(data)]);
        if count == CHUNK {
            put(&bytes[..count])?;
        } else {
            let mut data = chunk(change, content, number)?;
            data.resize(data.len().max(start + count), 0);
            data[start..start + count].copy_from_slice(&bytes[..count]);
            put(&data)?;
        }
        position += count as u64;
        bytes = &bytes[count..];
    }
    Ok(())
}
