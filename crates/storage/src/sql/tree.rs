//! The tree: names and attributes.

use std::time::{SystemTime, UNIX_EPOCH};

use millrace_vfs::{Change, FileError, FileKind, Metadata, Owner, Timestamp, VirtualPath};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::pool::failed;

/// The root's node.
pub(super) const ROOT: i64 = 1;
/// The "device" of every node, as clients see it in the `unique` fact.
const DEVICE: u64 = 0x73_716c;

/// The tables, as they are made and as an older server left them. A later form gets a number of its own in
/// `user_version`.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS content (
        id      INTEGER PRIMARY KEY AUTOINCREMENT,
        size    INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS chunk (
        content INTEGER NOT NULL REFERENCES content (id),
        number  INTEGER NOT NULL,
        data    BLOB NOT NULL,
        PRIMARY KEY (content, number)
    );
    CREATE TABLE IF NOT EXISTS node (
        id      INTEGER PRIMARY KEY AUTOINCREMENT,
        parent  INTEGER REFERENCES node (id),
        name    BLOB NOT NULL,
        content INTEGER REFERENCES content (id),
        mode    INTEGER NOT NULL,
        user    INTEGER NOT NULL DEFAULT 0,
        grp     INTEGER NOT NULL DEFAULT 0,
        modified_seconds     INTEGER NOT NULL,
        modified_nanoseconds INTEGER NOT NULL,
        created_seconds      INTEGER NOT NULL,
        created_nanoseconds  INTEGER NOT NULL,
        UNIQUE (parent, name)
    );
    CREATE INDEX IF NOT EXISTS node_content ON node (content);
";

/// The form of the tables, in `user_version`.
const VERSION: i64 = 1;

/// A node as found.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: i64,
    content: Option<i64>,
    pub(super) metadata: Metadata,
}

impl Node {
    /// The content of a file.
    pub(super) fn content(&self) -> Result<i64, FileError> {
        self.content.ok_or(FileError::IsDirectory)
    }
}

/// Makes what is not there, and removes contents that no node has.
pub(super) fn set_up(change: &rusqlite::Transaction<'_>) -> Result<(), FileError> {
    let version: i64 = change.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    if version > VERSION {
        let message = format!("it was written by a later version of Millrace (form {version})");
        return Err(FileError::Io(std::io::Error::other(message)));
    }
    change.execute_batch(TABLES).map_err(failed)?;
    change.pragma_update(None, "user_version", VERSION).map_err(failed)?;
    let orphans = "NOT IN (SELECT content FROM node WHERE content IS NOT NULL)";
    change.execute(&format!("DELETE FROM chunk WHERE content {orphans}"), []).map_err(failed)?;
    change.execute(&format!("DELETE FROM content WHERE id {orphans}"), []).map_err(failed)?;
    let now = now();
    let sql = "INSERT OR IGNORE INTO node
        (id, parent, name, mode, modified_seconds, modified_nanoseconds, created_seconds, created_nanoseconds)
        VALUES (?1, NULL, x'', ?2, ?3, ?4, ?3, ?4)";
    change.execute(sql, params![ROOT, 0o755, now.seconds, now.nanoseconds]).map_err(failed)?;
    Ok(())
}

/// The columns that [`node`] reads.
pub(super) const COLUMNS: &str = "node.id, node.content, content.size, mode, user, grp,
    modified_seconds, modified_nanoseconds, created_seconds, created_nanoseconds";
/// Where they come from.
pub(super) const SOURCE: &str = "node LEFT JOIN content ON content.id = node.content";

/// A node out of a row of [`COLUMNS`].
pub(super) fn node(row: &Row<'_>) -> rusqlite::Result<Node> {
    let id: i64 = row.get(0)?;
    let content: Option<i64> = row.get(1)?;
    let kind = if content.is_some() { FileKind::File } else { FileKind::Directory };
    let metadata = Metadata {
        kind,
        size: row.get::<_, Option<i64>>(2)?.unwrap_or(0).unsigned_abs(),
        mode: row.get(3)?,
        owner: Owner { user: row.get(4)?, group: row.get(5)? },
        modified: Timestamp { seconds: row.get(6)?, nanoseconds: row.get(7)? },
        created: Some(Timestamp { seconds: row.get(8)?, nanoseconds: row.get(9)? }),
        links: if kind == FileKind::Directory { 2 } else { 1 },
        identity: (DEVICE, id.unsigned_abs()),
    };
    Ok(Node { id, content, metadata })
}

fn child(connection: &Connection, parent: i64, name: &[u8]) -> Result<Option<Node>, FileError> {
    let sql = format!("SELECT {COLUMNS} FROM {SOURCE} WHERE parent = ?1 AND name = ?2");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    statement.query_row(params![parent, name], node).optional().map_err(failed)
}

fn root(connection: &Connection) -> Result<Node, FileError> {
    let sql = format!("SELECT {COLUMNS} FROM {SOURCE} WHERE node.id = ?1");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    statement.query_row([ROOT], node).map_err(failed)
}

/// The node at a path.
pub(super) fn find(connection: &Connection, path: &VirtualPath) -> Result<Node, FileError> {
    let mut found = root(connection)?;
    for name in path.components() {
        if !found.metadata.is_directory() {
            return Err(FileError::NotDirectory);
        }
        found = child(connection, found.id, name)?.ok_or(FileError::NotFound)?;
    }
    Ok(found)
}

/// The directory that holds a path, and what has the name now. The root is held by itself.
pub(super) fn find_place(
    connection: &Connection,
    path: &VirtualPath,
) -> Result<(i64, Option<Node>), FileError> {
    let parent = find(connection, &path.parent())?;
    if path.is_root() {
        return Ok((parent.id, Some(parent)));
    }
    if !parent.metadata.is_directory() {
        return Err(FileError::NotDirectory);
    }
    Ok((parent.id, child(connection, parent.id, path.name())?))
}

/// A new directory, or a file with this content, with these permission bits or the usual ones.
pub(super) fn insert(
    connection: &Connection,
    parent: i64,
    name: &[u8],
    content: Option<i64>,
    bits: Option<u32>,
) -> Result<(), FileError> {
    let now = now();
    let mode = bits.unwrap_or(if content.is_some() { 0o644 } else { 0o755 });
    let sql = "INSERT INTO node (parent, name, content, mode,
        modified_seconds, modified_nanoseconds, created_seconds, created_nanoseconds)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?5, ?6)";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let values = params![parent, name, content, mode, now.seconds, now.nanoseconds];
    statement.execute(values).map_err(failed)?;
    Ok(())
}

/// Gives a file another content; answers the old one.
pub(super) fn replace(connection: &Connection, old: &Node, content: i64) -> Result<i64, FileError> {
    let before = old.content()?;
    let now = now();
    let sql = "UPDATE node SET content = ?1, modified_seconds = ?2, modified_nanoseconds = ?3 WHERE id = ?4";
    connection.execute(sql, params![content, now.seconds, now.nanoseconds, old.id]).map_err(failed)?;
    Ok(before)
}

/// Takes the time of a change for whoever has this content.
pub(super) fn touch(connection: &Connection, content: i64) -> Result<(), FileError> {
    let now = now();
    let sql = "UPDATE node SET modified_seconds = ?1, modified_nanoseconds = ?2 WHERE content = ?3";
    connection.execute(sql, params![now.seconds, now.nanoseconds, content]).map_err(failed)?;
    Ok(())
}

pub(super) fn remove(connection: &Connection, node: &Node) -> Result<(), FileError> {
    connection.execute("DELETE FROM node WHERE id = ?1", [node.id]).map_err(failed)?;
    Ok(())
}

pub(super) fn has_entries(connection: &Connection, id: i64) -> Result<bool, FileError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM node WHERE parent = ?1)";
    connection.query_row(sql, [id], |row| row.get(0)).map_err(failed)
}

pub(super) fn set_attributes(connection: &Connection, id: i64, change: Change) -> Result<(), FileError> {
    let sql = "UPDATE node SET
        modified_seconds = coalesce(?1, modified_seconds),
        modified_nanoseconds = coalesce(?2, modified_nanoseconds),
        mode = coalesce(?3, mode), user = coalesce(?4, user), grp = coalesce(?5, grp) WHERE id = ?6";
    let seconds = change.modified.map(|time| time.seconds);
    let nanoseconds = change.modified.map(|time| time.nanoseconds);
    let values = params![seconds, nanoseconds, change.mode, change.user, change.group, id];
    connection.execute(sql, values).map_err(failed)?;
    Ok(())
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}
