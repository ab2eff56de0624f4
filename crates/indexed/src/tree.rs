//! The questions about names: what is at a path, what a folder has, and each change.

use std::time::Duration;

use millrace_storage::identity_of;
use millrace_vfs::hash::Hashes;
use millrace_vfs::hex::Hex;
use millrace_vfs::{Change, FileError, FileKind, Metadata, Owner, Timestamp, VirtualPath};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::database::{Database, Patience};
use crate::error::IndexError;

/// A parameter, and its type: the database need not be asked for that.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The random number that names an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId(Vec<u8>);

impl ObjectId {
    pub(crate) fn random() -> Result<Self, FileError> {
        let mut bytes = [0; 16];
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| FileError::Io(error.into()))?;
        Ok(Self(bytes.to_vec()))
    }

    /// The name of the object in the bucket.
    pub(crate) fn name(&self) -> String {
        Hex(&self.0).to_string()
    }
}

/// What has a name.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: i64,
    object: Option<ObjectId>,
    pub(crate) hashes: Option<Hashes>,
    pub(crate) metadata: Metadata,
}

impl Node {
    /// The object of a file.
    pub(crate) fn object(&self) -> Result<&ObjectId, FileError> {
        self.object.as_ref().ok_or(FileError::IsDirectory)
    }
}

/// What an upload insists on when it takes its name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Insists<'a> {
    /// Nothing: it replaces what is there.
    Nothing,
    /// The name is free.
    New,
    /// The file still has this object.
    Same(&'a ObjectId),
}

/// A file that is about to get its name.
#[derive(Debug)]
pub(crate) struct NewFile<'a> {
    pub(crate) path: &'a VirtualPath,
    pub(crate) object: &'a ObjectId,
    pub(crate) size: u64,
    /// The permission bits, where no file is there.
    pub(crate) bits: Option<u32>,
    pub(crate) hashes: Option<&'a Hashes>,
    pub(crate) insists: Insists<'a>,
}

/// The names of one tree.
#[derive(Debug)]
pub(crate) struct Tree {
    database: Database,
    /// The number that tells its files from those of other trees.
    device: u64,
    /// How long the objects of files that were replaced or removed are kept.
    keep: Duration,
}

/// The columns that [`Tree::node`] reads.
const COLUMNS: &str = "n.id, n.object, n.size, n.mode, n.\"user\", n.grp, n.modified_seconds, n.modified_nanoseconds, \
                       n.created_seconds, n.created_nanoseconds, n.hashes";
/// How many they are.
const COLUMN_COUNT: usize = 11;

impl Tree {
    pub(crate) fn new(database: Database, name: &str, keep: Duration) -> Self {
        Self { database, device: identity_of(name.as_bytes()), keep }
    }

    /// Returns what is at a path.
    pub(crate) fn find(&self, path: &VirtualPath) -> Result<Node, FileError> {
        let sql = format!(
            "SELECT {COLUMNS}, w.rest FROM millrace_index.walk($1, $2) AS w \
             JOIN millrace_index.node AS n ON n.id = w.id"
        );
        let names = names(path);
        self.database.ask(Patience::None, async |client, root| {
            let row =
                client.query_typed_one(&sql, &[(&root, Type::INT8), (&names, Type::BYTEA_ARRAY)]).await?;
            let node = self.node(&row)?;
            match row.try_get::<_, i32>(COLUMN_COUNT)? {
                0 => Ok(node),
                _ if node.metadata.is_directory() => Err(FileError::NotFound.into()),
                _ => Err(FileError::NotDirectory.into()),
            }
        })
    }

    /// As [`Tree::find`], by its number.
    pub(crate) fn by_id(&self, id: i64) -> Result<Node, FileError> {
        let sql = format!("SELECT {COLUMNS} FROM millrace_index.node AS n WHERE n.id = $1");
        self.database.ask(Patience::None, async |client, _| {
            let row = client.query_typed_opt(&sql, &[(&id, Type::INT8)]).await?;
            self.node(&row.ok_or(FileError::NotFound)?)
        })
    }

    /// The entries of a folder behind a name, in the order of names.
    pub(crate) fn entries(
        &self,
        folder: i64,
        after: &[u8],
        most: usize,
    ) -> Result<Vec<(Vec<u8>, Metadata)>, FileError> {
        let sql = format!(
            "SELECT {COLUMNS}, n.name FROM millrace_index.node AS n \
             WHERE n.parent = $1 AND n.name > $2 ORDER BY n.name LIMIT $3"
        );
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.database.ask(Patience::None, async |client, _| {
            let parameters =
                [(&folder as _, Type::INT8), (&after as _, Type::BYTEA), (&most as _, Type::INT8)];
            let rows = client.query_typed(&sql, &parameters).await?;
            rows.iter().map(|row| Ok((row.try_get(COLUMN_COUNT)?, self.node(row)?.metadata))).collect()
        })
    }

    fn node(&self, row: &Row) -> Result<Node, IndexError> {
        let number = |index| row.try_get::<_, i64>(index);
        let bits = |index| number(index).map(|number| number as u32);
        let time =
            |index| Ok::<_, IndexError>(Timestamp { seconds: number(index)?, nanoseconds: bits(index + 1)? });
        let (id, object) = (number(0)?, row.try_get::<_, Option<Vec<u8>>>(1)?.map(ObjectId));
        let kind = if object.is_some() { FileKind::File } else { FileKind::Directory };
        let metadata = Metadata {
            kind,
            size: number(2)?.unsigned_abs(),
            mode: bits(3)?,
            owner: Owner { user: bits(4)?, group: bits(5)? },
            modified: time(6)?,
            created: Some(time(8)?),
            changed: None,
            links: if object.is_some() { 1 } else { 2 },
            identity: (self.device, id.unsigned_abs()),
        };
        let hashes = row.try_get::<_, Option<&str>>(10)?.and_then(Hashes::parse);
        Ok(Node { id, object, hashes, metadata })
    }

    /// Calls a function that says what became of it.
    fn change(&self, patience: Patience, call: &str, parameters: &[Parameter<'_>]) -> Result<(), FileError> {
        let sql = format!("SELECT millrace_index.{call}");
        self.database.ask(patience, async |client, root| {
            let parameters: Vec<Parameter<'_>> =
                std::iter::once((&root as _, Type::INT8)).chain(parameters.iter().cloned()).collect();
            let row = client.query_typed_one(&sql, &parameters).await?;
            Ok(outcome(row.try_get(0)?)?)
        })
    }

    /// Makes an object pending, if its file may be made.
    pub(crate) fn begin_upload(
        &self,
        path: &VirtualPath,
        object: &ObjectId,
        is_new: bool,
    ) -> Result<(), FileError> {
        let names = names(path);
        let parameters: [Parameter<'_>; 3] =
            [(&names, Type::BYTEA_ARRAY), (&object.0, Type::BYTEA), (&is_new, Type::BOOL)];
        self.change(Patience::None, "begin_upload($1, $2, $3, $4)", &parameters)
    }

    /// Gives a pending object its name.
    pub(crate) fn commit_upload(&self, file: &NewFile<'_>) -> Result<(), FileError> {
        let names = names(file.path);
        let size = i64::try_from(file.size).map_err(|_| FileError::TooLarge)?;
        let bits = file.bits.map(i64::from);
        let hashes = file.hashes.map(Hashes::to_string);
        let is_new = matches!(file.insists, Insists::New);
        let same = if let Insists::Same(object) = file.insists { Some(&object.0) } else { None };
        let keep = self.keep.as_secs_f64();
        let parameters: [Parameter<'_>; 8] = [
            (&names, Type::BYTEA_ARRAY),
            (&file.object.0, Type::BYTEA),
            (&size, Type::INT8),
            (&bits, Type::INT8),
            (&hashes, Type::TEXT),
            (&is_new, Type::BOOL),
            (&same, Type::BYTEA),
            (&keep, Type::FLOAT8),
        ];
        let call = "commit_upload($1, $2, $3, $4, $5, $6, $7, $8, make_interval(secs => $9))";
        self.change(Patience::Upload, call, &parameters)
    }

    pub(crate) fn make_folder(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        let (names, bits) = (names(path), bits.map(i64::from));
        let parameters: [Parameter<'_>; 2] = [(&names, Type::BYTEA_ARRAY), (&bits, Type::INT8)];
        self.change(Patience::Once, "make_folder($1, $2, $3)", &parameters)
    }

    /// Removes a file, or an empty folder.
    pub(crate) fn remove(&self, path: &VirtualPath, is_folder: bool) -> Result<(), FileError> {
        if path.is_root() {
            return Err(FileError::PermissionDenied);
        }
        let (names, keep) = (names(path), self.keep.as_secs_f64());
        let parameters: [Parameter<'_>; 3] =
            [(&names, Type::BYTEA_ARRAY), (&is_folder, Type::BOOL), (&keep, Type::FLOAT8)];
        self.change(Patience::Once, "remove($1, $2, $3, make_interval(secs => $4))", &parameters)
    }

    pub(crate) fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        if from.is_root() || to.is_root() {
            return Err(FileError::PermissionDenied);
        }
        let (from, to, keep) = (names(from), names(to), self.keep.as_secs_f64());
        let parameters: [Parameter<'_>; 3] =
            [(&from, Type::BYTEA_ARRAY), (&to, Type::BYTEA_ARRAY), (&keep, Type::FLOAT8)];
        self.change(Patience::Once, "rename($1, $2, $3, make_interval(secs => $4))", &parameters)
    }

    /// Changes attributes.
    pub(crate) fn set_attributes(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        const SET: &str = "UPDATE millrace_index.node AS n SET
            modified_seconds = coalesce($3, n.modified_seconds),
            modified_nanoseconds = coalesce($4, n.modified_nanoseconds),
            mode = coalesce($5, n.mode), \"user\" = coalesce($6, n.\"user\"), grp = coalesce($7, n.grp)
            FROM millrace_index.walk($1, $2) AS w WHERE n.id = w.id AND w.rest = 0 RETURNING n.id";
        let names = names(path);
        let seconds = change.modified.map(|time| time.seconds);
        let nanoseconds = change.modified.map(|time| i64::from(time.nanoseconds));
        let [mode, user, group] = [change.mode, change.user, change.group].map(|bits| bits.map(i64::from));
        let changed = self.database.ask(Patience::None, async |client, root| {
            let parameters: [Parameter<'_>; 7] = [
                (&root, Type::INT8),
                (&names, Type::BYTEA_ARRAY),
                (&seconds, Type::INT8),
                (&nanoseconds, Type::INT8),
                (&mode, Type::INT8),
                (&user, Type::INT8),
                (&group, Type::INT8),
            ];
            Ok(client.query_typed_opt(SET, &parameters).await?.is_some())
        })?;
        // Why it was not.
        if changed { Ok(()) } else { self.find(path).map(drop) }
    }

    /// Has the objects of uploads that go on stay pending.
    pub(crate) fn hear(&self, objects: &[ObjectId]) -> Result<(), FileError> {
        const HEAR: &str = "UPDATE millrace_index.unnamed SET heard = clock_timestamp() \
                            WHERE object = ANY($1) AND due IS NULL";
        self.about(HEAR, objects)
    }

    /// An upload has ended without a name. The next sweep abandons what of it is in the store.
    pub(crate) fn give_up(&self, object: &ObjectId) -> Result<(), FileError> {
        const GIVE_UP: &str = "UPDATE millrace_index.unnamed SET heard = '-infinity' \
                               WHERE object = ANY($1) AND due IS NULL";
        self.about(GIVE_UP, std::slice::from_ref(object))
    }

    /// As [`Tree::give_up`], of an object that was not begun.
    pub(crate) fn forget(&self, object: &ObjectId) -> Result<(), FileError> {
        const FORGET: &str = "DELETE FROM millrace_index.unnamed WHERE object = ANY($1) AND due IS NULL";
        self.about(FORGET, std::slice::from_ref(object))
    }

    /// Garbage was removed.
    pub(crate) fn removed(&self, objects: &[ObjectId]) -> Result<(), FileError> {
        const REMOVED: &str = "DELETE FROM millrace_index.unnamed WHERE object = ANY($1) AND due IS NOT NULL";
        self.about(REMOVED, objects)
    }

    fn about(&self, sql: &str, objects: &[ObjectId]) -> Result<(), FileError> {
        let objects: Vec<&[u8]> = objects.iter().map(|object| &object.0[..]).collect();
        self.database.ask(Patience::None, async |client, _| {
            client.query_typed(sql, &[(&objects, Type::BYTEA_ARRAY)]).await?;
            Ok(())
        })
    }

    /// Declares objects garbage whose uploads were not heard of for so long; returns them. They stay garbage for as long as
    /// that of files does, so that what a stalled server still sends goes, too.
    pub(crate) fn abandon(&self, silent: Duration) -> Result<Vec<ObjectId>, FileError> {
        const ABANDON: &str = "UPDATE millrace_index.unnamed
            SET due = clock_timestamp() + make_interval(secs => $3)
            WHERE tree = $1 AND due IS NULL AND heard <= clock_timestamp() - make_interval(secs => $2)
            RETURNING object";
        let (silent, keep) = (silent.as_secs_f64(), self.keep.as_secs_f64());
        self.database.ask(Patience::None, async |client, root| {
            objects(client, ABANDON, &[(&root, Type::INT8), (&silent, Type::FLOAT8), (&keep, Type::FLOAT8)])
                .await
        })
    }

    /// Garbage that is due, up to so much.
    pub(crate) fn garbage(&self, most: usize) -> Result<Vec<ObjectId>, FileError> {
        const GARBAGE: &str = "SELECT object FROM millrace_index.unnamed
            WHERE tree = $1 AND due <= clock_timestamp() ORDER BY due LIMIT $2";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.database.ask(Patience::None, async |client, root| {
            objects(client, GARBAGE, &[(&root, Type::INT8), (&most, Type::INT8)]).await
        })
    }
}

async fn objects(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<ObjectId>, IndexError> {
    let rows = client.query_typed(sql, parameters).await?;
    rows.iter().map(|row| Ok(ObjectId(row.try_get(0)?))).collect()
}

fn names(path: &VirtualPath) -> Vec<&[u8]> {
    path.components().collect()
}

/// What a function says.
fn outcome(number: i32) -> Result<(), FileError> {
    Err(match number {
        0 => return Ok(()),
        1 => FileError::NotFound,
        2 => FileError::NotDirectory,
        3 => FileError::IsDirectory,
        4 => FileError::AlreadyExists,
        5 => FileError::NotEmpty,
        7 => FileError::InvalidName,
        8 => {
            let why = "this server was not heard of for so long that the upload was given up";
            FileError::Io(std::io::Error::other(why))
        }
        9 => FileError::Busy,
        number => FileError::Io(std::io::Error::other(format!("the database answers {number}"))),
    })
}
