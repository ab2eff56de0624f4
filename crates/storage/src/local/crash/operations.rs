//! The operations whose sequences are tried, over few names: what FTP and HTTP clients can do to the tree.

use std::collections::BTreeMap;

use millrace_vfs::{FileError, PartialKey, PartialMode, Storage, Upload, VirtualPath, Wait, WriteMode};

use super::super::{LocalStorage, Uploads};

/// What tus uploads have, by the number of their key.
pub(super) type Pieces = BTreeMap<u8, Vec<u8>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// `STOR`, `PUT`.
    Store(&'static str),
    /// `STOR` of nothing.
    StoreEmpty(&'static str),
    /// `STOR` whose connection is cut.
    StoreCut(&'static str),
    /// `STOU`.
    StoreUnique(&'static str),
    /// `APPE`.
    Append(&'static str),
    AppendCut(&'static str),
    /// `REST` and `STOR`.
    Restart(&'static str, usize),
    /// `RNFR` and `RNTO`, `MOVE`.
    Rename(&'static str, &'static str),
    Delete(&'static str),
    MakeDirectory(&'static str),
    RemoveDirectory(&'static str),
    /// `SITE SYMLINK`.
    Link(&'static str, &'static str),
    /// `SITE CPTO`, `COPY`.
    Copy(&'static str, &'static str),
    /// A tus upload begins, with a piece or without.
    Begin(u8, &'static [u8]),
    /// A piece of it.
    Piece(u8, PartialMode),
    /// A piece whose checksum was wrong.
    WrongPiece(u8),
    /// The last piece: it becomes the file.
    Finish(u8, PartialMode, &'static str),
    /// A tus upload in one piece.
    BeginAndFinish(u8, &'static str),
    Join(&'static str),
    JoinCut(&'static str),
    GiveUp(u8),
}

use Operation::{
    Append, AppendCut, Begin, BeginAndFinish, Copy as Copied, Delete, Finish, GiveUp, Join, JoinCut, Link,
    MakeDirectory, Piece, RemoveDirectory, Rename, Restart, Store, StoreCut, StoreEmpty, StoreUnique,
    WrongPiece,
};

/// All of them. At the start there are the files `a` and `d/c`.
pub(super) const ALL: &[Operation] = &[
    Store("a"),
    Store("b"),
    Store("d/c"),
    Store("l"),
    StoreEmpty("a"),
    StoreEmpty("b"),
    StoreCut("a"),
    StoreCut("b"),
    StoreUnique("b"),
    Append("a"),
    Append("b"),
    Append("l"),
    AppendCut("a"),
    AppendCut("b"),
    Restart("a", 6),
    Restart("b", 4),
    Rename("a", "b"),
    Rename("b", "a"),
    Rename("a", "d/c"),
    Rename("d/c", "b"),
    Rename("d", "e"),
    Delete("a"),
    Delete("b"),
    Delete("d/c"),
    MakeDirectory("e"),
    RemoveDirectory("e"),
    RemoveDirectory("d"),
    Link("d/c", "l"),
    Link("d/n", "l"),
    Copied("a", "b"),
    Begin(1, b"pp1pp2p"),
    Begin(1, b""),
    Begin(2, b"qq1qq2"),
    Piece(1, PartialMode::Resume),
    Piece(1, PartialMode::Checked),
    WrongPiece(1),
    Finish(1, PartialMode::Resume, "a"),
    Finish(1, PartialMode::Checked, "b"),
    BeginAndFinish(1, "a"),
    Join("b"),
    JoinCut("b"),
    GiveUp(1),
];

/// How much of a file an upload in place leaves alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// What came before this offset.
    Before(usize),
    All,
}

impl Operation {
    /// Does it, for the `turn`th time that something is done: contents differ by that.
    pub(super) fn run(
        self,
        storage: &LocalStorage,
        turn: usize,
        pieces: &mut Pieces,
    ) -> Result<(), FileError> {
        match self {
            Store(name) => write(storage, name, WriteMode::Replace, turn)?.commit().map(drop),
            StoreEmpty(name) => {
                storage.open_write(&path(name), WriteMode::Replace, Wait::Allowed)?.commit().map(drop)
            }
            StoreCut(name) => {
                write(storage, name, WriteMode::Replace, turn)?.abort();
                Ok(())
            }
            StoreUnique(name) => write(storage, name, WriteMode::CreateNew, turn)?.commit().map(drop),
            Append(name) => write(storage, name, WriteMode::Append, turn)?.commit().map(drop),
            AppendCut(name) => {
                write(storage, name, WriteMode::Append, turn)?.abort();
                Ok(())
            }
            Restart(name, offset) => {
                write(storage, name, WriteMode::At(offset as u64), turn)?.commit().map(drop)
            }
            Rename(from, to) => storage.rename(&path(from), &path(to)),
            Delete(name) => storage.remove_file(&path(name)),
            MakeDirectory(name) => storage.make_directory(&path(name)),
            RemoveDirectory(name) => storage.remove_directory(&path(name)),
            Link(text, name) => storage.make_symlink(text.as_bytes(), &path(name)),
            Copied(from, to) => storage.copy(&path(from), &path(to), &mut |_| true).map(drop),
            Begin(number, bytes) => {
                let mut upload = open(storage, number, PartialMode::New, "a")?;
                upload.write_all(bytes)?;
                upload.keep()?;
                pieces.insert(number, bytes.to_vec());
                Ok(())
            }
            Piece(number, mode) => {
                let mut upload = open(storage, number, mode, "a")?;
                upload.write_all(&piece(turn))?;
                upload.keep()?;
                pieces.entry(number).or_default().extend(piece(turn));
                Ok(())
            }
            WrongPiece(number) => {
                let mut upload = open(storage, number, PartialMode::Checked, "a")?;
                upload.write_all(&piece(turn))?;
                upload.undo();
                Ok(())
            }
            Finish(number, mode, name) => {
                let mut upload = open(storage, number, mode, name)?;
                upload.write_all(&piece(turn))?;
                upload.commit()?;
                pieces.remove(&number);
                Ok(())
            }
            BeginAndFinish(number, name) => {
                let mut upload = open(storage, number, PartialMode::New, name)?;
                upload.write_all(&content(turn))?;
                upload.commit().map(drop)
            }
            Join(name) => {
                join(storage, name)?.commit()?;
                pieces.clear();
                Ok(())
            }
            JoinCut(name) => {
                join(storage, name)?.abort();
                Ok(())
            }
            GiveUp(number) => {
                storage.remove_partial(&path("a"), &key(number))?;
                pieces.remove(&number);
                Ok(())
            }
        }
    }

    /// The paths whose names it changes, and what lies beneath them. The link `l` leads to `d/n` or `d/c`.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Rename("a", "b") | Rename("b", "a") => &["a", "b"],
            Rename("a", _) => &["a", "d/c"],
            Rename("d/c", _) => &["d/c", "b"],
            Rename(..) => &["d", "e"],
            Store("l") | Append("l") => &["l", "d/n", "d/c"],
            Store(name)
            | StoreEmpty(name)
            | StoreCut(name)
            | StoreUnique(name)
            | Append(name)
            | AppendCut(name)
            | Restart(name, _)
            | Delete(name)
            | MakeDirectory(name)
            | RemoveDirectory(name)
            | Link(_, name)
            | Copied(_, name)
            | Finish(_, _, name)
            | BeginAndFinish(_, name)
            | Join(name) => one(name),
            JoinCut(_) | Begin(..) | Piece(..) | WrongPiece(_) | GiveUp(_) => &[],
        }
    }

    /// Whether its client hears that it is done.
    pub(super) fn is_acknowledged(self) -> bool {
        !matches!(self, StoreCut(_) | AppendCut(_) | WrongPiece(_) | JoinCut(_))
    }

    /// Whether it puts bytes into the file that has its name then.
    pub(super) fn writes(self) -> bool {
        matches!(
            self,
            Store(_)
                | StoreEmpty(_)
                | StoreCut(_)
                | StoreUnique(_)
                | Append(_)
                | AppendCut(_)
                | Restart(..)
                | Copied(..)
                | Finish(..)
                | BeginAndFinish(..)
                | Join(_)
        )
    }

    /// What it leaves of a file that it writes to itself; `None` where it writes beside it.
    pub(super) fn in_place(self, uploads: Uploads) -> Option<Keeps> {
        match self {
            Append(_) | AppendCut(_) => Some(Keeps::All),
            Restart(_, offset) => Some(Keeps::Before(offset)),
            Store(_) | StoreEmpty(_) | StoreCut(_) | StoreUnique(_) if uploads == Uploads::InPlace => {
                Some(Keeps::Before(0))
            }
            _ => None,
        }
    }

    /// The tus uploads that it takes part in.
    pub(super) fn keys(self) -> &'static [u8] {
        match self {
            Begin(1, _) | Piece(..) | WrongPiece(_) | Finish(..) | BeginAndFinish(..) | GiveUp(_) => &[1],
            Begin(..) => &[2],
            Join(_) | JoinCut(_) => &[1, 2],
            _ => &[],
        }
    }
}

fn one(name: &str) -> &'static [&'static str] {
    match name {
        "a" => &["a"],
        "b" => &["b"],
        "d" => &["d"],
        "d/c" => &["d/c"],
        "e" => &["e"],
        _ => &["l"],
    }
}

pub(super) fn path(name: &str) -> VirtualPath {
    VirtualPath::root().resolve(name.as_bytes()).expect("the names of these tests are paths")
}

pub(super) fn key(number: u8) -> PartialKey {
    PartialKey::new([number; 16])
}

/// Three blocks, none of which is in another's content.
fn content(turn: usize) -> Vec<u8> {
    format!("{turn}.a {turn}.b {turn}.c ").into_bytes()
}

/// Not at the ends of blocks.
fn piece(turn: usize) -> Vec<u8> {
    format!("{turn}+{turn}+{turn}").into_bytes()
}

fn write(
    storage: &LocalStorage,
    name: &str,
    mode: WriteMode,
    turn: usize,
) -> Result<Box<dyn Upload>, FileError> {
    let mut upload = storage.open_write(&path(name), mode, Wait::Allowed)?;
    let content = content(turn);
    let (first, second) = content.split_at(7);
    upload.write_all(first)?;
    upload.write_all(second)?;
    Ok(upload)
}

fn open(
    storage: &LocalStorage,
    number: u8,
    mode: PartialMode,
    name: &str,
) -> Result<Box<dyn Upload>, FileError> {
    storage.open_partial(&path(name), &key(number), WriteMode::Replace, mode).map(|partial| partial.upload)
}

fn join(storage: &LocalStorage, name: &str) -> Result<Box<dyn Upload>, FileError> {
    let parts = [1, 2].map(|number| (path("a"), key(number)));
    storage.join_partials(&path(name), &parts, WriteMode::Replace).map(|partial| partial.upload)
}
