//! Files as rows: whole or not at all, and nothing left behind.

mod common;

use std::sync::Arc;

use common::{Scratch, path, upload};
use millrace_storage::SqlStorage;
use millrace_vfs::{FileError, ReadHandle, ReadStream, Storage, Wait, WriteMode, conformance};

fn open(scratch: &Scratch) -> SqlStorage {
    SqlStorage::open(&scratch.path().join("files.db")).unwrap()
}

fn stream(storage: &dyn Storage, name: &str) -> Box<dyn ReadStream> {
    match storage.open_read(&path(name), Wait::Allowed).unwrap() {
        ReadHandle::Stream(stream) => stream,
        ReadHandle::File(_) => panic!("rows are no descriptor"),
    }
}

fn read(storage: &dyn Storage, name: &str) -> Vec<u8> {
    let mut stream = stream(storage, name);
    let mut content = vec![0; usize::try_from(stream.size().unwrap()).unwrap()];
    assert_eq!(stream.read_at(0, &mut content).unwrap(), content.len());
    content
}

/// Rows of contents, and of chunks, in the database.
fn rows(scratch: &Scratch) -> (i64, i64) {
    let connection = rusqlite::Connection::open(scratch.path().join("files.db")).unwrap();
    let count = |table: &str| {
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    (count("content"), count("chunk"))
}

#[test]
fn files_as_rows_conform() {
    let scratch = Scratch::new();
    conformance::run(&open(&scratch));
    assert_eq!(rows(&scratch), (0, 0), "what was removed is gone");
}

/// Locks of WebDAV are kept by it: one in one database would keep others out of another.
#[test]
fn a_folder_is_another_in_another_database_and_the_same_behind_a_restart() {
    let (one, other) = (Scratch::new(), Scratch::new());
    let identities = |scratch: &Scratch| {
        let storage = open(scratch);
        let _ = storage.make_directory(&path("/d"));
        let listed = storage.entry(&path("/d")).unwrap().metadata.identity;
        let open = storage.open_directory(&path("/d")).unwrap().metadata().unwrap().identity;
        let mut entries = Vec::new();
        storage.open_directory(&path("/")).unwrap().next_batch(&mut entries, 10).unwrap();
        let looked = storage.metadata(&path("/d"), Wait::Allowed).unwrap().identity;
        assert_eq!((listed, open, entries[0].metadata.identity), (looked, looked, looked));
        looked
    };
    assert_ne!(identities(&one), identities(&other));
    assert_eq!(identities(&one), identities(&one));
}

#[test]
fn committed_files_survive_and_others_are_swept() {
    let (living, killed) = (Scratch::new(), Scratch::new());
    let storage = open(&living);
    storage.make_directory(&path("/d")).unwrap();
    upload(&storage, "/d/f", &[7; 200_000]).unwrap();
    let mut unfinished = storage.open_write(&path("/d/g"), WriteMode::Replace, Wait::Allowed).unwrap();
    unfinished.write_all(&[8; 600_000]).unwrap();
    for file in ["files.db", "files.db-wal"] {
        // What a kill at this moment would leave.
        std::fs::copy(living.path().join(file), killed.path().join(file)).unwrap();
    }
    assert_eq!(rows(&killed).0, 2);
    let storage = open(&killed);
    assert_eq!(rows(&killed), (1, 4));
    assert_eq!(read(&storage, "/d/f"), [7; 200_000]);
    assert!(matches!(storage.metadata(&path("/d/g"), Wait::Allowed).unwrap_err(), FileError::NotFound));
}

#[test]
fn a_reader_keeps_what_it_opened_and_then_it_goes() {
    let scratch = Scratch::new();
    let storage = open(&scratch);
    upload(&storage, "/f", &[1; 100_000]).unwrap();
    let mut old = stream(&storage, "/f");
    upload(&storage, "/f", b"new").unwrap();
    storage.remove_file(&path("/f")).unwrap();
    let mut buffer = vec![0; 100_000];
    assert_eq!(old.read_at(0, &mut buffer).unwrap(), 100_000);
    assert_eq!(buffer, [1; 100_000]);
    drop(old);
    assert_eq!(rows(&scratch), (0, 0));
}

#[test]
fn uploads_side_by_side_each_arrive_whole() {
    let scratch = Scratch::new();
    let storage = Arc::new(open(&scratch));
    let threads: Vec<_> = (0..4_u8)
        .map(|number| {
            let storage = Arc::clone(&storage);
            std::thread::spawn(move || {
                for round in 0..5 {
                    upload(&*storage, &format!("/own{number}"), &vec![round; 150_000]).unwrap();
                    upload(&*storage, "/shared", &vec![number; 150_000]).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for number in 0..4 {
        assert_eq!(read(&*storage, &format!("/own{number}")), [4; 150_000]);
    }
    let shared = read(&*storage, "/shared");
    assert!(shared.iter().all(|byte| *byte == shared[0]) && shared.len() == 150_000);
    assert_eq!(rows(&scratch).0, 5);
}

#[test]
fn a_database_that_is_none_is_refused_by_name() {
    let scratch = Scratch::new();
    let file = scratch.path().join("files.db");
    std::fs::write(&file, "this is no database, however long it is: ".repeat(100)).unwrap();
    let error = SqlStorage::open(&file).unwrap_err().to_string();
    assert!(error.contains("files.db") && error.contains("not a database"), "{error}");
}

#[test]
fn a_second_opening_shares_the_first_and_takes_nothing_for_leftovers() {
    let scratch = Scratch::new();
    let first = open(&scratch);
    let mut upload = first.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(b"unfinished, ").unwrap();
    let second = open(&scratch);
    upload.write_all(b"then finished").unwrap();
    upload.commit().unwrap();
    assert_eq!(read(&second, "/f"), b"unfinished, then finished");
}

#[test]
fn a_database_that_another_process_has_open_is_refused() {
    let scratch = Scratch::new();
    let lock = scratch.path().join("files.db-lock");
    // A lock of another open file description is as good as one of another process.
    let held = std::fs::File::create(lock).unwrap();
    held.lock().unwrap();
    let error = SqlStorage::open(&scratch.path().join("files.db")).unwrap_err();
    assert!(error.to_string().contains("another server has it open"), "{error}");
    drop(held);
    open(&scratch);
}

/// A statement fails wherever a trigger has it fail, as on a disk that is full.
#[test]
fn whichever_statement_fails_the_tree_is_as_before_or_done() {
    type Change = fn(&SqlStorage) -> Result<(), FileError>;
    let changes: [(&str, Change); 6] = [
        ("STOR, old", |storage| upload(storage, "/f", b"new")),
        ("STOR, new", |storage| upload(storage, "/n", b"new")),
        ("RNTO, over", |storage| storage.rename(&path("/g"), &path("/f"))),
        ("RNTO", |storage| storage.rename(&path("/f"), &path("/d/f"))),
        ("DELE", |storage| storage.remove_file(&path("/f"))),
        ("MKD", |storage| storage.make_directory(&path("/e"))),
    ];
    let tables = ["content", "chunk", "node"];
    let look = |storage: &SqlStorage| {
        let files = ["/f", "/g", "/n", "/d/f"]
            .map(|name| storage.metadata(&path(name), Wait::Allowed).ok().map(|_| read(storage, name)));
        (files, storage.metadata(&path("/e"), Wait::Allowed).is_ok())
    };
    let mut failures = 0;
    for (name, change) in changes {
        for (table, event) in
            tables.iter().flat_map(|table| ["INSERT", "UPDATE", "DELETE"].map(|event| (table, event)))
        {
            let scratch = Scratch::new();
            let storage = open(&scratch);
            upload(&storage, "/f", b"old").unwrap();
            upload(&storage, "/g", b"other").unwrap();
            storage.make_directory(&path("/d")).unwrap();
            let before = look(&storage);
            let connection = rusqlite::Connection::open(scratch.path().join("files.db")).unwrap();
            let trigger = format!(
                "CREATE TRIGGER fault BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, 'fault'); END"
            );
            connection.execute_batch(&trigger).unwrap();
            let result = change(&storage);
            connection.execute_batch("DROP TRIGGER fault").unwrap();
            let what = format!("{name}, {event} of {table}: {result:?}");
            if result.is_err() {
                failures += 1;
                assert!(look(&storage) == before, "{what}");
                change(&storage).unwrap_or_else(|error| panic!("again: {error}: {what}"));
            }
            assert!(look(&storage) != before, "{what}");
        }
    }
    assert!(failures > 10, "{failures}");
}
