//! Files as rows of a real PostgreSQL, which goes away and comes back.

mod common;
#[path = "../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
#[path = "../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{path, upload};
use millrace_storage::{Connecting, PostgresServer, SqlStorage};
use millrace_vfs::{FileError, ReadHandle, ReadStream, Storage, Wait, WriteMode, conformance};
use postgresql::Postgres;
use tokio_postgres::{Config, NoTls};

/// How long a call may take where the test is not about that.
const PATIENT: Duration = Duration::from_secs(30);

/// A way to a database without TLS. Ways of different names are to this process different databases.
#[derive(Debug)]
struct Way {
    name: String,
    config: Config,
}

impl PostgresServer for Way {
    fn place(&self) -> String {
        self.name.clone()
    }

    fn connect(&self) -> Connecting {
        let config = self.config.clone();
        Box::pin(async move {
            let connected = config.connect(NoTls).await;
            let (client, connection) = connected?;
            tokio::spawn(connection);
            Ok(client)
        })
    }
}

fn open_as(name: &str, server: &Postgres, time: Duration) -> SqlStorage {
    let config = server.connection().parse().unwrap();
    let name = format!("{name} {}", server.connection());
    SqlStorage::postgres(Arc::new(Way { name, config }), time).unwrap()
}

fn open(server: &Postgres) -> SqlStorage {
    open_as("one", server, PATIENT)
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
fn rows(server: &Postgres) -> String {
    server.run(
        "SELECT (SELECT count(*) FROM millrace_files.content), (SELECT count(*) FROM millrace_files.chunk)",
    )
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn assert_away<T: std::fmt::Debug>(result: Result<T, FileError>, told: &str) {
    match result {
        Err(FileError::Io(error)) if error.kind() == std::io::ErrorKind::NotConnected => {
            assert!(error.to_string().contains(told), "{error}");
        }
        other => panic!("not away: {other:?}"),
    }
}

#[test]
fn files_as_rows_of_postgresql_conform() {
    let Some(server) = Postgres::new() else { return };
    conformance::run_with(&open(&server), 1500);
    assert_eq!(rows(&server), "0|0", "what was removed is gone");
}

#[test]
fn committed_files_survive_and_others_are_swept() {
    let Some(server) = Postgres::new() else { return };
    let storage = open(&server);
    upload(&storage, "/f", &[7; 200_000]).unwrap();
    // What a kill in the middle of an upload leaves.
    server.run(
        "SET search_path = millrace_files; INSERT INTO content (size) VALUES (3);
        INSERT INTO chunk SELECT max(id), 0, 'abc' FROM content",
    );
    assert_eq!(rows(&server), "2|5");
    drop(storage);
    // The lock goes with the connection, whose end the server has to see.
    let storage = open(&server);
    eventually("it is opened anew", || storage.metadata(&path("/f"), Wait::Allowed).is_ok());
    eventually("it is swept", || rows(&server) == "1|4");
    assert_eq!(read(&storage, "/f"), [7; 200_000]);
}

#[test]
fn a_reader_keeps_what_it_opened_and_then_it_goes() {
    let Some(server) = Postgres::new() else { return };
    let storage = open(&server);
    upload(&storage, "/f", &[1; 100_000]).unwrap();
    let mut old = stream(&storage, "/f");
    upload(&storage, "/f", b"new").unwrap();
    storage.remove_file(&path("/f")).unwrap();
    let mut buffer = vec![0; 100_000];
    assert_eq!(old.read_at(0, &mut buffer).unwrap(), 100_000);
    assert_eq!(buffer, [1; 100_000]);
    drop(old);
    assert_eq!(rows(&server), "0|0");
}

#[test]
fn changes_side_by_side_each_arrive_whole() {
    let Some(server) = Postgres::new() else { return };
    let storage = open(&server);
    let threads: Vec<_> = (0..12_u8)
        .map(|number| {
            let storage = storage.clone();
            std::thread::spawn(move || {
                for round in 0..3 {
                    upload(&storage, &format!("/own{number}"), &vec![round; 150_000]).unwrap();
                    upload(&storage, "/shared", &vec![number; 150_000]).unwrap();
                    // A reader, while the file is replaced.
                    let shared = read(&storage, "/shared");
                    assert!(shared.iter().all(|byte| *byte == shared[0]) && shared.len() == 150_000);
                    let mut more =
                        storage.open_write(&path("/log"), WriteMode::Append, Wait::Allowed).unwrap();
                    more.write_all(&[number; 10]).unwrap();
                    more.commit().unwrap();
                }
                // Of all who make it or remove it, each is told what was.
                let _ = storage.make_directory(&path("/d"));
                let _ = storage.make_directory(&path(&format!("/d/{number}")));
                let _ = storage.remove_directory(&path("/d"));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for number in 0..12 {
        assert_eq!(read(&storage, &format!("/own{number}")), [2; 150_000]);
    }
    assert_eq!(server.run("SELECT count(*) FROM millrace_files.content"), "14");
    let lost =
        "SELECT count(*) FROM millrace_files.node WHERE parent NOT IN (SELECT id FROM millrace_files.node)";
    assert_eq!(server.run(lost), "0");
}

#[test]
fn a_database_that_is_away_fails_calls_at_once_and_is_found_again() {
    let Some(mut server) = Postgres::new() else { return };
    let storage = open(&server);
    upload(&storage, "/f", &[1; 100_000]).unwrap();
    let mut reader = stream(&storage, "/f");
    let mut unfinished = storage.open_write(&path("/g"), WriteMode::Replace, Wait::Allowed).unwrap();
    unfinished.write_all(&[2; 300_000]).unwrap();
    server.daemon.kill();
    let mut buffer = vec![0; 100_000];
    eventually("its end is noticed", || storage.metadata(&path("/f"), Wait::Allowed).is_err());
    assert_away(storage.metadata(&path("/f"), Wait::Allowed), "");
    assert_away(storage.make_directory(&path("/d")), "");
    assert_away(reader.read_at(0, &mut buffer), "");
    server.start();
    eventually("it is found again", || storage.metadata(&path("/f"), Wait::Allowed).is_ok());
    // What was open goes on.
    assert_eq!(reader.read_at(0, &mut buffer).unwrap(), 100_000);
    unfinished.write_all(&[3; 300_000]).unwrap();
    unfinished.commit().unwrap();
    assert_eq!(read(&storage, "/g"), [vec![2; 300_000], vec![3; 300_000]].concat());
}

#[test]
fn failed_removals_are_retried_later() {
    let Some(mut server) = Postgres::new() else { return };
    let storage = open(&server);
    let mut unfinished = storage.open_write(&path("/g"), WriteMode::Replace, Wait::Allowed).unwrap();
    unfinished.write_all(&[2; 300_000]).unwrap();
    server.daemon.kill();
    drop(unfinished);
    server.start();
    eventually("it is found again", || upload(&storage, "/f", b"content").is_ok());
    storage.remove_file(&path("/f")).unwrap();
    assert_eq!(rows(&server), "0|0");
}

#[test]
fn a_database_that_hangs_blocks_callers_for_its_time_limit_at_most() {
    let Some(server) = Postgres::new() else { return };
    let storage = open_as("one", &server, Duration::from_secs(2));
    eventually("it is opened", || storage.metadata(&path("/"), Wait::Allowed).is_ok());
    // A table locked by another client: the server gives up the query, or the pool does.
    let mut psql = server.daemon.command(&server.psql);
    let mut psql = psql.args(server.to_reach()).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = psql.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"BEGIN; LOCK TABLE millrace_files.node;\n").unwrap();
    eventually("a call waits for the table", || storage.metadata(&path("/"), Wait::Allowed).is_err());
    drop(input);
    psql.wait().unwrap();
    eventually("it answers again", || storage.metadata(&path("/"), Wait::Allowed).is_ok());
}

#[test]
fn a_second_server_is_kept_out_until_the_first_has_gone() {
    let Some(server) = Postgres::new() else { return };
    let first = open(&server);
    upload(&first, "/f", b"content").unwrap();
    let second = open_as("two", &server, PATIENT);
    assert_away(second.metadata(&path("/f"), Wait::Allowed), "another server has the database open");
    assert!(second.check().unwrap_err().to_string().contains("another server"));
    // Within a process the same database is one storage.
    assert_eq!(read(&open(&server), "/f"), b"content");
    drop(first);
    eventually("the second has it", || second.metadata(&path("/f"), Wait::Allowed).is_ok());
    second.check().unwrap();
}

#[test]
fn tables_of_another_program_are_reported() {
    let Some(server) = Postgres::new() else { return };
    server.run(
        "CREATE SCHEMA millrace_files; CREATE TABLE millrace_files.form AS SELECT 7::bigint AS number;
        CREATE TABLE millrace_files.content (id bigint)",
    );
    let storage = open_as("one", &server, PATIENT);
    let told = storage.check().unwrap_err().to_string();
    assert!(told.ends_with("it was written by a later version of Millrace (form 7)"), "{told}");
    server.run("DROP TABLE millrace_files.form");
    eventually("it is tried again", || storage.check().unwrap_err().to_string().contains("cannot be made"));
    let told = storage.check().unwrap_err().to_string();
    assert!(
        told.ends_with("the tables for files cannot be made: relation \"content\" already exists"),
        "{told}"
    );
    server.run("DROP SCHEMA millrace_files CASCADE");
    eventually("they are made", || storage.check().is_ok());
    server.run("ALTER TABLE millrace_files.node DROP COLUMN mode");
    let told = storage.check().unwrap_err().to_string();
    assert!(told.contains("column \"mode\" does not exist"), "{told}");
}
