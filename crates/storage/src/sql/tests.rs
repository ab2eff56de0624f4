//! Two processes with one SQLite database: the old and the new server of a hot upgrade.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_vfs::hash::Algorithms;
use millrace_vfs::{ReadHandle, ReadStream, Storage, VirtualPath, Wait, WriteMode};

use super::content::Contents;
use super::sole::Others;
use super::{Pool, Shared, SqlStorage, sqlite};

/// A folder of a test's own.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-sql-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens the database as another process does: with connections, a lock and open files of its own.
pub(super) fn process(folder: &Folder, others: Others) -> Result<SqlStorage, millrace_vfs::FileError> {
    let pool = Pool::Sqlite(sqlite::Pool::open(&folder.0.join("files.db"), others)?);
    Ok(SqlStorage {
        shared: Arc::new(Shared { pool, contents: Contents::default(), device: 1 }),
        hashes: Algorithms::NONE,
    })
}

pub(super) fn path(name: &str) -> VirtualPath {
    VirtualPath::root().resolve(Path::new(name).as_os_str().as_encoded_bytes()).unwrap()
}

pub(super) fn put(storage: &SqlStorage, name: &str, bytes: &[u8]) {
    let mut upload = storage.open_write(&path(name), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(bytes).unwrap();
    upload.commit().unwrap();
}

pub(super) fn reader(storage: &SqlStorage, name: &str) -> Box<dyn ReadStream> {
    match storage.open_read(&path(name), Wait::Allowed).unwrap() {
        ReadHandle::Stream(stream) => stream,
        ReadHandle::File(_) => panic!("rows are no descriptor"),
    }
}

pub(super) fn bytes(reader: &mut dyn ReadStream) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let count = reader.read_at(0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

/// How many contents the database has.
pub(super) fn contents(storage: &SqlStorage) -> i64 {
    let count = |look: &dyn super::Statements| look.row("SELECT count(*) FROM content", &[]);
    storage.shared.pool.look(count).unwrap().unwrap().number(0).unwrap()
}

#[test]
fn what_one_process_removes_the_other_reads_to_its_end() {
    let folder = Folder::new("removes");
    let old = process(&folder, Others::None).unwrap();
    put(&old, "/f", b"first");
    put(&old, "/g", b"second");
    let mut unfinished = old.open_write(&path("/u"), WriteMode::Replace, Wait::Allowed).unwrap();
    unfinished.write_all(b"unfin").unwrap();

    let new = process(&folder, Others::Predecessor).unwrap();
    let mut read_by_new = reader(&new, "/f");
    old.remove_file(&path("/f")).unwrap();
    assert_eq!(bytes(&mut *read_by_new), b"first");
    let mut read_by_old = reader(&old, "/g");
    put(&new, "/g", b"third");
    assert_eq!(bytes(&mut *read_by_old), b"second");
    unfinished.write_all(b"ished").unwrap();
    unfinished.commit().unwrap();
    assert_eq!(bytes(&mut *reader(&new, "/u")), b"unfinished");
}

#[test]
fn what_the_old_process_leaves_is_removed_by_the_new_one_when_it_is_alone() {
    let folder = Folder::new("leaves");
    let old = process(&folder, Others::None).unwrap();
    put(&old, "/f", b"first");
    put(&old, "/g", b"second");
    let new = process(&folder, Others::Predecessor).unwrap();
    let mut unfinished = new.open_write(&path("/u"), WriteMode::Replace, Wait::Allowed).unwrap();
    unfinished.write_all(b"unfin").unwrap();
    old.remove_file(&path("/f")).unwrap();
    new.remove_file(&path("/g")).unwrap();
    assert_eq!(contents(&new), 3, "the names are gone; the contents may be read by the other process");

    drop(old);
    put(&new, "/h", b"third");
    new.remove_file(&path("/h")).unwrap();
    assert_eq!(contents(&new), 1, "the unfinished upload is left");
    unfinished.write_all(b"ished").unwrap();
    unfinished.commit().unwrap();
    assert_eq!(bytes(&mut *reader(&new, "/u")), b"unfinished");
}

#[test]
fn no_other_server_joins() {
    let folder = Folder::new("joins");
    let old = process(&folder, Others::None).unwrap();
    let refused = || process(&folder, Others::None).unwrap_err().to_string();
    assert!(refused().contains("another server has it open"), "{}", refused());
    let new = process(&folder, Others::Predecessor).unwrap();
    drop(old);
    assert!(refused().contains("another server has it open"), "{}", refused());
    drop(new);
    process(&folder, Others::None).unwrap();
}
