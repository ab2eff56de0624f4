//! The tree: names and attributes.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_vfs::{Change, FileError, FileKind, Metadata, Owner, Timestamp, VirtualPath};

use super::rows::{Row, Statements, Value};

/// The root's node.
pub(super) const ROOT: i64 = 1;

/// The form of the tables, which the database remembers.
pub(super) const FORM: i64 = 1;

/// The tables have a form that this version does not know.
#[derive(Debug, thiserror::Error)]
#[error("it was written by a later version of Millrace (form {0})")]
pub(super) struct LaterForm(pub i64);

/// A node as found.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: i64,
    /// The root is in itself.
    parent: i64,
    content: Option<i64>,
    pub(super) metadata: Metadata,
}

impl Node {
    /// The content of a file.
    pub(super) fn content(&self) -> Result<i64, FileError> {
        self.content.ok_or(FileError::IsDirectory)
    }
}

/// Makes the root, if it is not there.
pub(super) fn make_root(change: &dyn Statements) -> Result<(), FileError> {
    let now = now();
    let sql = "INSERT INTO node
        (id, parent, name, mode, modified_seconds, modified_nanoseconds, created_seconds, created_nanoseconds)
        VALUES (?1, NULL, ?2, ?3, ?4, ?5, ?4, ?5) ON CONFLICT DO NOTHING";
    let (name, mode) = (Value::Bytes(b""), 0o755_u32.into());
    change.execute(sql, &[ROOT.into(), name, mode, now.seconds.into(), now.nanoseconds.into()])
}

/// The statements that remove contents without a node, up to the parameter.
pub(super) const SWEEP: [&str; 2] = [
    "DELETE FROM chunk WHERE content IN (SELECT id FROM content WHERE id <= ?1
        AND NOT EXISTS (SELECT 1 FROM node WHERE node.content = content.id))",
    "DELETE FROM content WHERE id <= ?1 AND NOT EXISTS (SELECT 1 FROM node WHERE node.content = content.id)",
];

/// The contents without a node.
pub(super) fn orphans(look: &dyn Statements) -> Result<Vec<i64>, FileError> {
    let sql = "SELECT id FROM content WHERE NOT EXISTS (SELECT 1 FROM node WHERE node.content = content.id)";
    look.rows(sql, &[])?.iter().map(|row| row.number(0)).collect()
}

/// The columns that [`node`] reads.
pub(super) const COLUMNS: &str = "node.id, node.content, content.size, mode, \"user\", grp,
    modified_seconds, modified_nanoseconds, created_seconds, created_nanoseconds, parent";
/// How many they are.
pub(super) const COLUMN_COUNT: usize = 11;
/// Where they come from.
pub(super) const SOURCE: &str = "node LEFT JOIN content ON content.id = node.content";

/// A node out of a row of [`COLUMNS`].
pub(super) fn node(row: &Row) -> Result<Node, FileError> {
    let bits = |index: usize| row.number(index).map(|number| number as u32);
    let time = |index: usize| {
        bits(index + 1).and_then(|nanoseconds| Ok(Timestamp { seconds: row.number(index)?, nanoseconds }))
    };
    let (id, content) = (row.number(0)?, row.number_if_any(1)?);
    let kind = if content.is_some() { FileKind::File } else { FileKind::Directory };
    let metadata = Metadata {
        kind,
        size: row.number_if_any(2)?.unwrap_or(0).unsigned_abs(),
        mode: bits(3)?,
        owner: Owner { user: bits(4)?, group: bits(5)? },
        modified: time(6)?,
        created: Some(time(8)?),
        changed: None,
        links: if kind == FileKind::Directory { 2 } else { 1 },
        // Identifies the database; the caller knows it.
        identity: (0, id.unsigned_abs()),
    };
    Ok(Node { id, parent: row.number_if_any(10)?.unwrap_or(ROOT), content, metadata })
}

/// The node with this number.
pub(super) fn by_id(look: &dyn Statements, id: i64) -> Result<Node, FileError> {
    let sql = format!("SELECT {COLUMNS} FROM {SOURCE} WHERE node.id = ?1");
    node(&look.row(&sql, &[id.into()])?.ok_or(FileError::NotFound)?)
}

/// The node at a path.
pub(super) fn find(look: &dyn Statements, path: &VirtualPath) -> Result<Node, FileError> {
    match deepest(look, path)? {
        (node, 0) => Ok(node),
        (node, _) if node.metadata.is_directory() => Err(FileError::NotFound),
        _ => Err(FileError::NotDirectory),
    }
}

/// The directory that holds a path, and what has the name now. The root is held by itself.
pub(super) fn find_place(
    look: &dyn Statements,
    path: &VirtualPath,
) -> Result<(i64, Option<Node>), FileError> {
    match deepest(look, path)? {
        (node, 0) => Ok((node.parent, Some(node))),
        (node, _) if !node.metadata.is_directory() => Err(FileError::NotDirectory),
        (node, 1) => Ok((node.id, None)),
        _ => Err(FileError::NotFound),
    }
}

/// The last node that there is on a path, and how many names then follow.
fn deepest(look: &dyn Statements, path: &VirtualPath) -> Result<(Node, usize), FileError> {
    let names: Vec<&[u8]> = path.components().collect();
    if names.is_empty() {
        return by_id(look, ROOT).map(|node| (node, 0));
    }
    let values: Vec<Value<'_>> =
        std::iter::once(ROOT.into()).chain(names.iter().map(|name| Value::Bytes(name))).collect();
    let row = look.row(&walk(names.len()), &values)?.ok_or(FileError::NotFound)?;
    let depth = usize::try_from(row.number(COLUMN_COUNT)?).unwrap_or(0);
    Ok((node(&row)?, names.len().saturating_sub(depth)))
}

/// The statement that goes down a path of this many names, and answers the last node that there is and its depth.
fn walk(depth: usize) -> String {
    let mut sql = String::from("WITH RECURSIVE names (depth, name) AS (VALUES ");
    for index in 1..=depth {
        let comma = if index == 1 { "" } else { ", " };
        let _ = write!(sql, "{comma}({index}, ?{})", index + 1);
    }
    let _ = write!(
        sql,
        "), walk (depth, id) AS (SELECT 0, ?1 UNION ALL
             SELECT names.depth, node.id FROM walk JOIN names ON names.depth = walk.depth + 1
             JOIN node ON node.parent = walk.id AND node.name = names.name)
         SELECT {COLUMNS}, CAST(walk.depth AS bigint) FROM walk JOIN node ON node.id = walk.id
         LEFT JOIN content ON content.id = node.content ORDER BY walk.depth DESC LIMIT 1"
    );
    sql
}

/// A new directory, or a file with this content, with these permission bits or the usual ones.
pub(super) fn insert(
    change: &dyn Statements,
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
    let (seconds, nanoseconds) = (now.seconds.into(), now.nanoseconds.into());
    change.execute(sql, &[parent.into(), name.into(), content.into(), mode.into(), seconds, nanoseconds])
}

/// Gives a file another content; answers the old one.
pub(super) fn replace(change: &dyn Statements, old: &Node, content: i64) -> Result<i64, FileError> {
    let before = old.content()?;
    let now = now();
    let sql = "UPDATE node SET content = ?1, modified_seconds = ?2, modified_nanoseconds = ?3 WHERE id = ?4";
    change.execute(sql, &[content.into(), now.seconds.into(), now.nanoseconds.into(), old.id.into()])?;
    Ok(before)
}

/// Updates the change time of the node with this content.
pub(super) fn touch(change: &dyn Statements, content: i64) -> Result<(), FileError> {
    let now = now();
    let sql = "UPDATE node SET modified_seconds = ?1, modified_nanoseconds = ?2 WHERE content = ?3";
    change.execute(sql, &[now.seconds.into(), now.nanoseconds.into(), content.into()])
}

/// Gives a node another name, in the same directory or elsewhere.
pub(super) fn rename(change: &dyn Statements, id: i64, parent: i64, name: &[u8]) -> Result<(), FileError> {
    let sql = "UPDATE node SET parent = ?1, name = ?2 WHERE id = ?3";
    change.execute(sql, &[parent.into(), name.into(), id.into()])
}

pub(super) fn remove(change: &dyn Statements, node: &Node) -> Result<(), FileError> {
    change.execute("DELETE FROM node WHERE id = ?1", &[node.id.into()])
}

/// Removes a directory, unless it has entries; answers whether it has gone.
pub(super) fn remove_empty(change: &dyn Statements, node: &Node) -> Result<bool, FileError> {
    let sql = "DELETE FROM node WHERE id = ?1
        AND NOT EXISTS (SELECT 1 FROM node AS entry WHERE entry.parent = ?1) RETURNING id";
    Ok(change.row(sql, &[node.id.into()])?.is_some())
}

pub(super) fn set_attributes(change: &dyn Statements, id: i64, wanted: Change) -> Result<(), FileError> {
    let sql = "UPDATE node SET
        modified_seconds = coalesce(?1, modified_seconds),
        modified_nanoseconds = coalesce(?2, modified_nanoseconds),
        mode = coalesce(?3, mode), \"user\" = coalesce(?4, \"user\"), grp = coalesce(?5, grp) WHERE id = ?6";
    let seconds = wanted.modified.map(|time| time.seconds).into();
    let nanoseconds = wanted.modified.map(|time| time.nanoseconds).into();
    let (mode, user, group) = (wanted.mode.into(), wanted.user.into(), wanted.group.into());
    change.execute(sql, &[seconds, nanoseconds, mode, user, group, id.into()])
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}
