//! Hashes that are computed as uploads pass, and stored with their files.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_storage::{Encrypted, Key, LocalOptions, LocalStorage, SqlStorage, Uploads};
use millrace_vfs::hash::{Algorithm, Algorithms, Hashers};
use millrace_vfs::{
    Change, PartialKey, PartialMode, Storage, Timestamp, Upload, VirtualPath, Wait, WriteMode, conformance,
};

const KINDS: Algorithms = Algorithms::NONE.with(Algorithm::Sha256).with(Algorithm::Crc32c);

/// A folder of a test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("millrace-hashes-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn serve(&self, uploads: Uploads) -> LocalStorage {
        let options = LocalOptions { uploads, hashes: KINDS, ..LocalOptions::default() };
        LocalStorage::open(&self.0, options).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn path(name: &str) -> VirtualPath {
    VirtualPath::root().resolve(name.as_bytes()).unwrap()
}

fn open(storage: &dyn Storage, name: &str, mode: WriteMode) -> Box<dyn Upload> {
    storage.open_write(&path(name), mode, Wait::Allowed).unwrap()
}

fn put(storage: &dyn Storage, name: &str, mode: WriteMode, pieces: &[&str]) {
    let mut upload = open(storage, name, mode);
    pieces.iter().for_each(|piece| upload.write_all(piece.as_bytes()).unwrap());
    upload.commit().unwrap();
}

/// What is stored with a file, if it holds.
fn stored(storage: &dyn Storage, name: &str) -> Option<String> {
    storage.stored_hashes(&path(name), Wait::Allowed).unwrap().map(|hashes| hashes.to_string())
}

#[track_caller]
fn assert_of(storage: &dyn Storage, name: &str, content: &str) {
    let mut hashers = Hashers::new(KINDS);
    hashers.update(content.as_bytes());
    assert_eq!(stored(storage, name), Some(hashers.finish().to_string()));
}

#[test]
fn back_ends_conform_while_they_hash() {
    for uploads in [Uploads::Staged, Uploads::InPlace] {
        conformance::run_with(&Scratch::new().serve(uploads), 700);
    }
    let scratch = Scratch::new();
    conformance::run_with(&SqlStorage::open(&scratch.0.join("db")).unwrap().hashing(KINDS), 100);
}

#[test]
fn an_upload_stores_the_hashes_of_what_came() {
    for uploads in [Uploads::Staged, Uploads::InPlace] {
        let scratch = Scratch::new();
        let storage = scratch.serve(uploads);
        let mut upload = open(&storage, "f", WriteMode::Replace);
        assert!(upload.file().unwrap().is_none(), "no byte passes by");
        upload.write_all(b"a longer ").unwrap();
        upload.write_all(b"text").unwrap();
        let said = upload.hashes().unwrap().to_string();
        upload.commit().unwrap();
        assert_of(&storage, "f", "a longer text");
        assert_eq!(stored(&storage, "f"), Some(said));
        put(&storage, "f", WriteMode::Replace, &["short"]);
        assert_of(&storage, "f", "short");
        put(&storage, "empty", WriteMode::CreateNew, &[]);
        assert_of(&storage, "empty", "");
        drop(open(&storage, "f", WriteMode::Replace));
        assert!(matches!(uploads, Uploads::InPlace) || stored(&storage, "f").is_some());
    }
}

#[test]
fn a_change_by_another_program_is_noticed() {
    let scratch = Scratch::new();
    let storage = scratch.serve(Uploads::Staged);
    put(&storage, "f", WriteMode::Replace, &["content"]);
    let file = File::options().write(true).open(scratch.0.join("f")).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.set_times(FileTimes::new().set_modified(before - std::time::Duration::from_nanos(1))).unwrap();
    assert_eq!(stored(&storage, "f"), None);
    file.set_times(FileTimes::new().set_modified(before)).unwrap();
    assert_of(&storage, "f", "content");
    file.write_at(b"longer", 7).unwrap();
    file.set_times(FileTimes::new().set_modified(before)).unwrap();
    assert_eq!(stored(&storage, "f"), None);
}

#[test]
fn a_time_that_a_client_sets_neither_loses_nor_makes_a_hash() {
    let scratch = Scratch::new();
    let local = scratch.serve(Uploads::Staged);
    let sql = SqlStorage::open(&scratch.0.join("db")).unwrap().hashing(KINDS);
    let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 7 };
    let change = Change { modified: Some(time), ..Change::default() };
    for storage in [&local as &dyn Storage, &sql] {
        put(storage, "f", WriteMode::Replace, &["content"]);
        storage.change(&path("f"), change).unwrap();
        storage.change(&path("f"), Change { mode: Some(0o600), ..Change::default() }).unwrap();
        assert_of(storage, "f", "content");
    }
    let before = local.metadata(&path("f"), Wait::Allowed).unwrap().modified;
    fs::write(scratch.0.join("f"), "CONTENT").unwrap();
    for modified in [time, before] {
        local.change(&path("f"), Change { modified: Some(modified), ..Change::default() }).unwrap();
        assert_eq!(stored(&local, "f"), None);
    }
}

#[test]
fn renames_and_copies_carry_hashes_and_writes_into_a_file_end_them() {
    let scratch = Scratch::new();
    let local = scratch.serve(Uploads::Staged);
    let sql = SqlStorage::open(&scratch.0.join("db")).unwrap().hashing(KINDS);
    for storage in [&local as &dyn Storage, &sql] {
        put(storage, "f", WriteMode::Replace, &["content"]);
        storage.rename(&path("f"), &path("g")).unwrap();
        storage.copy(&path("g"), &path("h"), &mut |_| true).unwrap();
        assert_of(storage, "g", "content");
        assert_of(storage, "h", "content");
        put(storage, "h", WriteMode::At(2), &["XX"]);
        assert_eq!(stored(storage, "h"), None);
        storage.copy(&path("h"), &path("i"), &mut |_| true).unwrap();
        storage.remove_file(&path("g")).unwrap();
        assert!(storage.stored_hashes(&path("g"), Wait::Allowed).is_err());
    }
    assert_eq!(stored(&local, "i"), None, "the kernel has copied what was not hashed");
}

#[test]
fn an_append_goes_on_with_what_was_stored_and_with_nothing_else() {
    for uploads in [Uploads::Staged, Uploads::InPlace] {
        let scratch = Scratch::new();
        let storage = scratch.serve(uploads);
        put(&storage, "f", WriteMode::Append, &["one, "]);
        put(&storage, "f", WriteMode::Append, &["two, ", "three"]);
        assert_of(&storage, "f", "one, two, three");
        // One that is cut leaves what came.
        let mut cut = open(&storage, "f", WriteMode::Append);
        cut.write_all(b"!").unwrap();
        cut.abort();
        assert_eq!(stored(&storage, "f"), None);
        put(&storage, "f", WriteMode::Append, &["?"]);
        assert_eq!(stored(&storage, "f"), None);
        // What has decayed is not passed off as sound.
        put(&storage, "g", WriteMode::Replace, &["content"]);
        let file = File::options().write(true).open(scratch.0.join("g")).unwrap();
        let before = file.metadata().unwrap().modified().unwrap();
        file.write_at(b"X", 1).unwrap();
        file.set_times(FileTimes::new().set_modified(before)).unwrap();
        put(&storage, "g", WriteMode::Append, &["more"]);
        assert_eq!(stored(&storage, "g"), None);
        // Two at once: neither knows all.
        put(&storage, "h", WriteMode::Replace, &["h"]);
        let (mut one, mut two) =
            (open(&storage, "h", WriteMode::Append), open(&storage, "h", WriteMode::Append));
        one.write_all(b"1").unwrap();
        two.write_all(b"2").unwrap();
        one.commit().unwrap();
        two.commit().unwrap();
        assert_eq!(stored(&storage, "h"), None);
    }
}

#[test]
fn an_upload_in_pieces_has_the_hash_of_the_whole() {
    let scratch = Scratch::new();
    let storage = scratch.serve(Uploads::Staged);
    let key = |number| PartialKey::new([number; 16]);
    let piece = |storage: &LocalStorage, number, mode| {
        storage.open_partial(&path("f"), &key(number), WriteMode::Replace, mode).unwrap().upload
    };
    let mut upload = piece(&storage, 1, PartialMode::New);
    upload.write_all(b"one, ").unwrap();
    upload.keep().unwrap();
    let mut upload = piece(&storage, 1, PartialMode::Resume);
    upload.write_all(b"two, ").unwrap();
    drop(upload);
    let mut upload = piece(&storage, 1, PartialMode::Checked);
    upload.write_all(b"wrong").unwrap();
    upload.undo();
    // The hashes so far went with the wrong piece; the whole is small enough to be read again.
    let mut upload = piece(&storage, 1, PartialMode::Resume);
    assert!(upload.hashes().is_none());
    upload.write_all(b"three").unwrap();
    upload.commit().unwrap();
    assert_of(&storage, "f", "one, two, three");
    for number in [2, 3] {
        let mut upload = piece(&storage, number, PartialMode::New);
        upload.write_all(b"part").unwrap();
        upload.keep().unwrap();
    }
    let parts = [(path("f"), key(2)), (path("f"), key(3))];
    storage.join_partials(&path("j"), &parts, WriteMode::Replace).unwrap().upload.commit().unwrap();
    assert_of(&storage, "j", "partpart");
}

#[test]
fn the_hash_of_what_is_encrypted_is_not_told() {
    let scratch = Scratch::new();
    let inner = Arc::new(scratch.serve(Uploads::Staged));
    put(&*inner, "left", WriteMode::Replace, &["content"]);
    let storage = Encrypted::new(inner, &Key::new([7; 32]));
    assert_eq!(stored(&storage, "left"), None);
}
