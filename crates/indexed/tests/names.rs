//! Names in a database that many servers change at once, and that goes away.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENT, Site, append, names, path, read, write};
use millrace_indexed::IndexedStorage;
use millrace_vfs::{FileError, Storage, Wait, WriteMode};

/// Nodes that no way leads to from a root.
const LOST: &str = "WITH RECURSIVE found (id) AS (
        SELECT root FROM millrace_index.tree UNION SELECT n.id FROM millrace_index.node AS n JOIN found ON n.parent = found.id)
    SELECT count(*) FROM millrace_index.node WHERE id NOT IN (SELECT id FROM found)";

/// Files that have no object of their own.
const SHARED: &str =
    "SELECT count(*) - count(DISTINCT object) FROM millrace_index.node WHERE object IS NOT NULL";

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENT;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::yield_now();
    }
}

#[test]
fn servers_side_by_side_change_one_tree() {
    let Some(site) = Site::new() else { return };
    let servers: Vec<IndexedStorage> = (0..3).map(|_| site.storage("")).collect();
    thread::scope(|scope| {
        for number in 0..12_u8 {
            let storage = servers[usize::from(number) % 3].clone();
            scope.spawn(move || {
                for round in 0..4 {
                    write(&storage, &format!("/own{number}"), &vec![round; 1500]);
                    write(&storage, "/shared", &vec![number; 1500]);
                    let shared = read(&storage, "/shared");
                    assert!(shared.len() == 1500 && shared.iter().all(|byte| *byte == shared[0]));
                    append(&storage, &format!("/log{number}"), b"x");
                    // Of all that make it, fill it or remove it, each is told what was.
                    let _ = storage.make_directory(&path("/d"));
                    let _ = storage.make_directory(&path(&format!("/d/{number}")));
                    let _ = storage.remove_directory(&path(&format!("/d/{}", number ^ 1)));
                    let _ = storage.remove_directory(&path("/d"));
                    // Folders that are moved into one another, and files that take one another's names.
                    let _ = storage.make_directory(&path(&format!("/m{}", number % 4)));
                    let (from, to) = (number % 4, (number + 1 + round) % 4);
                    let _ = storage.rename(&path(&format!("/m{from}")), &path(&format!("/m{to}/in")));
                    let _ = storage.rename(&path("/own0"), &path("/swapped"));
                    let _ = storage.rename(&path("/swapped"), &path("/own0"));
                }
            });
        }
    });
    for number in 1..12 {
        assert_eq!(read(&servers[0], &format!("/own{number}")), [3; 1500]);
    }
    assert_eq!((site.database.run(LOST), site.database.run(SHARED)), ("0".to_owned(), "0".to_owned()));
    servers[0].sweep(PATIENT).unwrap();
    let named = site.database.run("SELECT count(object) FROM millrace_index.node");
    assert_eq!((site.unnamed(), site.objects("").len().to_string()), ("0".to_owned(), named));
}

#[test]
fn appends_from_many_servers_lose_nothing_that_was_acknowledged() {
    let Some(site) = Site::new() else { return };
    let servers: Vec<IndexedStorage> = (0..3).map(|_| site.storage("")).collect();
    let acknowledged: usize = thread::scope(|scope| {
        let threads = servers.iter().map(|storage| {
            scope.spawn(|| {
                let append = || {
                    let mut upload = storage.open_write(&path("/log"), WriteMode::Append, Wait::Allowed)?;
                    upload.write_all(b"line\n")?;
                    upload.commit().map(drop)
                };
                let results: Vec<Result<(), FileError>> = (0..20).map(|_| append()).collect();
                let refused = |result: &Result<(), FileError>| match result {
                    Ok(()) => false,
                    Err(FileError::Busy | FileError::AlreadyExists) => true,
                    Err(error) => panic!("{error}"),
                };
                20 - results.iter().filter(|result| refused(result)).count()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(acknowledged > 0);
    assert_eq!(read(&servers[0], "/log"), b"line\n".repeat(acknowledged));
}

#[test]
fn a_database_that_is_away_fails_calls_at_once_but_the_end_of_an_upload_waits_for_it() {
    let Some(mut site) = Site::new() else { return };
    let storage = site.storage("");
    write(&storage, "/f", b"old");
    let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(b"new").unwrap();
    site.database.daemon.kill();
    eventually("its end is noticed", || storage.metadata(&path("/f"), Wait::Allowed).is_err());
    let begun = Instant::now();
    for _ in 0..20 {
        let error = storage.make_directory(&path("/d")).unwrap_err();
        assert!(
            matches!(&error, FileError::Io(error) if error.kind() == std::io::ErrorKind::NotConnected),
            "{error}"
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let committing = thread::spawn(move || upload.commit());
    site.database.start();
    assert_eq!(committing.join().unwrap().unwrap().size, 3);
    eventually("it is found again", || storage.metadata(&path("/f"), Wait::Allowed).is_ok());
    assert_eq!(read(&storage, "/f"), b"new");
}

#[test]
fn a_change_whose_answer_is_lost_is_not_asked_again() {
    let Some(site) = Site::new() else { return };
    let storage = site.storage("");
    // So that there is a connection.
    write(&storage, "/f", b"f");
    site.database.run(
        "CREATE SEQUENCE calls; ALTER FUNCTION millrace_index.remove RENAME TO real_remove;
        CREATE FUNCTION millrace_index.remove(root bigint, names bytea[], folders boolean, keep interval)
            RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
                PERFORM nextval('calls');
                PERFORM pg_terminate_backend(pg_backend_pid());
                RETURN millrace_index.real_remove(root, names, folders, keep);
            END $$",
    );
    assert!(matches!(storage.remove_file(&path("/f")), Err(FileError::Io(_))));
    assert_eq!(site.database.run("SELECT last_value FROM calls"), "1");
    assert_eq!(read(&storage, "/f"), b"f", "the next question has another connection");
}

#[test]
fn prefixes_are_trees_of_their_own() {
    let Some(site) = Site::new() else { return };
    let (one, two) = (site.storage("one"), site.storage("two"));
    write(&one, "/f", b"of one");
    assert_eq!(names(&two, "/"), Vec::<String>::new());
    write(&two, "/f", b"of two");
    assert_eq!(
        (read(&one, "/f"), read(&site.storage("/two/"), "/f")),
        (b"of one".to_vec(), b"of two".to_vec())
    );
}

#[test]
fn tables_of_a_later_version_are_left_alone() {
    let Some(site) = Site::new() else { return };
    assert_eq!(site.storage("").start(), Vec::<String>::new(), "all is well with SeaweedFS");
    site.database.run("UPDATE millrace_index.form SET number = 99");
    let told = site.storage("").start();
    let expected = "has its names in a database that cannot be asked: the tables of names are of a later version of Millrace";
    assert_eq!(told, [format!("{expected}; its files are out of reach until it can")]);
}
