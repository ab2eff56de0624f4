//! Every statement of an operation, and the end of each transaction, fails in turn: the error says why, the tree is the
//! old one, and nothing is left behind.

use std::cell::Cell;
use std::collections::BTreeMap;

use millrace_vfs::{Change, FileError, Storage, Upload, Wait, WriteMode};

use super::SqlStorage;
use super::rows::{Row, Statements, Value};
use super::sole::Others;
use super::tests::{Folder, bytes, contents, path, process, put, reader};

thread_local! {
    /// How many steps succeed before one fails; negative where none does.
    static LEFT: Cell<i64> = const { Cell::new(-1) };
}

/// Fails where it is the turn of this step.
pub(super) fn step() -> Result<(), FileError> {
    LEFT.with(|left| match left.replace(left.get() - 1) {
        0 => Err(FileError::NoSpace),
        _ => Ok(()),
    })
}

/// Statements that fail before they are carried out, or behind it.
pub(super) struct Observed<'a>(pub(super) &'a dyn Statements);

impl Statements for Observed<'_> {
    fn rows(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, FileError> {
        step()?;
        let rows = self.0.rows(sql, values)?;
        step()?;
        Ok(rows)
    }
}

/// An operation of a client.
type Operation = fn(&SqlStorage) -> Result<(), FileError>;

fn upload(storage: &SqlStorage, name: &str, mode: WriteMode) -> Result<(), FileError> {
    let mut upload: Box<dyn Upload> = storage.open_write(&path(name), mode, Wait::Allowed)?;
    match upload.write_all(&[b'n'; 5]) {
        Ok(()) => upload.commit().map(drop),
        Err(error) => {
            upload.undo();
            Err(error)
        }
    }
}

const OPERATIONS: [(&str, Operation); 11] = [
    ("store a new file", |storage| upload(storage, "/new", WriteMode::Replace)),
    ("replace a file", |storage| upload(storage, "/a", WriteMode::Replace)),
    ("create a file", |storage| upload(storage, "/new", WriteMode::CreateNew)),
    ("remove a file", |storage| storage.remove_file(&path("/a"))),
    ("rename a file", |storage| storage.rename(&path("/a"), &path("/d/new"))),
    ("rename over a file", |storage| storage.rename(&path("/a"), &path("/b"))),
    ("rename a directory", |storage| storage.rename(&path("/d"), &path("/new"))),
    ("make a directory", |storage| storage.make_directory(&path("/new"))),
    ("remove a directory", |storage| storage.remove_directory(&path("/e"))),
    ("change attributes", |storage| {
        storage.change(&path("/a"), Change { mode: Some(0o600), ..Change::default() })
    }),
    ("copy a file", |storage| storage.copy(&path("/a"), &path("/new"), &mut |_| true).map(drop)),
];

/// A tree with files and directories.
fn prepare(folder: &Folder) -> SqlStorage {
    let storage = process(folder, Others::None).unwrap();
    put(&storage, "/a", b"old a");
    put(&storage, "/b", b"old b");
    storage.make_directory(&path("/d")).unwrap();
    storage.make_directory(&path("/e")).unwrap();
    put(&storage, "/d/f", b"old f");
    storage
}

/// What clients see: the content of each file, and the mode of everything.
fn look(storage: &SqlStorage) -> BTreeMap<String, (Option<Vec<u8>>, u32)> {
    let names = ["/a", "/b", "/d", "/e", "/d/f", "/d/new", "/new", "/new/f"];
    let seen = names.iter().filter_map(|name| {
        let metadata = storage.metadata(&path(name), Wait::Allowed).ok()?;
        let content = (!metadata.is_directory()).then(|| bytes(&mut *reader(storage, name)));
        Some(((*name).to_owned(), (content, metadata.mode)))
    });
    seen.collect()
}

#[test]
fn whichever_statement_fails_the_old_tree_is_there_and_nothing_is_left() {
    for (what, operation) in OPERATIONS {
        let mut failures = 0;
        loop {
            let folder = Folder::new("faults");
            let storage = prepare(&folder);
            let before = look(&storage);
            LEFT.set(failures);
            let result = operation(&storage);
            let has_failed = LEFT.replace(-1) < 0;
            let after = look(&storage);
            match &result {
                // Where the removal of what no name leads to fails, the change was made.
                Ok(()) => assert_ne!(before, after, "{what}, failure {failures}"),
                Err(error) => {
                    assert!(matches!(error, FileError::NoSpace), "{what}, failure {failures}: {error}");
                    assert_eq!(before, after, "{what}, failure {failures}");
                }
            }
            drop(storage);
            let again = process(&folder, Others::None).unwrap();
            let files = after.values().filter(|(content, _)| content.is_some()).count();
            assert_eq!(contents(&again), files as i64, "{what}, failure {failures}");
            assert_eq!(look(&again), after, "{what}, failure {failures}");
            if !has_failed {
                assert!(result.is_ok() && failures > 2, "{what}: {result:?} after {failures}");
                break;
            }
            failures += 1;
        }
    }
}

#[test]
fn an_append_whose_statement_fails_leaves_the_file_a_beginning_of_the_new_one() {
    for failures in 0.. {
        let folder = Folder::new("append");
        let storage = prepare(&folder);
        LEFT.set(failures);
        let result = upload(&storage, "/a", WriteMode::Append);
        let has_failed = LEFT.replace(-1) < 0;
        let now = bytes(&mut *reader(&storage, "/a"));
        match result {
            Ok(()) => assert_eq!(now, b"old annnnn", "failure {failures}"),
            Err(_) => assert!(now == b"old a" || now == b"old annnnn", "failure {failures}: {now:?}"),
        }
        if !has_failed {
            break;
        }
    }
}
