//! Partial uploads, also behind a kill.

use std::path::PathBuf;

use millrace_vfs::{Storage, VirtualPath, WriteMode};

use super::*;
use crate::{Durability, LocalOptions, LocalStorage};

struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("millrace-partial-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn open(&self, partial_age: Duration) -> LocalStorage {
        LocalStorage::open(&self.0, LocalOptions { partial_age, ..LocalOptions::default() }).unwrap()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The mark of an upload whose bytes behind this length are being checked.
fn mark_unchecked(staging: &std::path::Path, key: &PartialKey, sure: u64) {
    let staging = OwnedFd::from(File::open(staging).unwrap());
    Mark::new(sure, true).append(&staging, key).unwrap();
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const KEY: PartialKey = PartialKey::new([7; 16]);

fn open(storage: &LocalStorage, mode: PartialMode) -> Result<Partial, FileError> {
    storage.open_partial(&VirtualPath::parse(b"/d/f").unwrap(), &KEY, WriteMode::Replace, mode)
}

fn find(storage: &LocalStorage) -> Result<u64, String> {
    let state = storage.find_partial(&VirtualPath::parse(b"/d/f").unwrap(), &KEY);
    state.map(|state| state.size).map_err(|error| error.to_string())
}

#[test]
fn an_upload_goes_on_in_another_process_and_is_seen_when_it_is_whole() {
    let tree = Tree::new("resumed");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    std::fs::write(tree.0.join("d/f"), b"old").unwrap();
    let mut first = open(&tree.open(DAY), PartialMode::New).unwrap();
    assert!(matches!(open(&tree.open(DAY), PartialMode::Resume), Err(FileError::Busy)));
    first.upload.write_all(b"one, ").unwrap();
    drop(first);

    let storage = tree.open(DAY);
    let mut names = Vec::new();
    storage.open_directory(&VirtualPath::root()).unwrap().next_batch(&mut names, 10).unwrap();
    assert_eq!(names.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"d"]);
    assert_eq!(storage.resting().unwrap(), Resting { bytes: 5, files: 1 });
    let mut second = open(&storage, PartialMode::Resume).unwrap();
    assert_eq!((second.size, storage.resting().unwrap()), (5, Resting::default()));
    second.upload.write_all(b"two").unwrap();
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"old");
    second.upload.commit().unwrap();
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"one, two");
    assert_eq!(find(&storage), Err(FileError::NotFound.to_string()));
    drop(storage);
    assert!(!tree.0.join(".millrace-staging").exists(), "nothing is left");
}

#[test]
fn an_upload_whose_name_was_taken_leaves_nothing_behind() {
    let tree = Tree::new("taken");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    let storage = tree.open(DAY);
    open(&storage, PartialMode::New).unwrap().upload.abort();
    let path = VirtualPath::parse(b"/d/f").unwrap();
    let partial = storage.open_partial(&path, &KEY, WriteMode::CreateNew, PartialMode::Checked).unwrap();
    std::fs::write(tree.0.join("d/f"), b"another's").unwrap();
    assert!(matches!(partial.upload.commit(), Err(FileError::AlreadyExists)));
    assert_eq!(find(&storage), Err(FileError::NotFound.to_string()));
    let left: Vec<_> = std::fs::read_dir(tree.0.join(".millrace-staging")).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"another's");
}

/// A full disk is temporary, and so is a folder in the way.
#[test]
fn an_upload_that_cannot_have_its_name_now_waits_and_so_do_parts() {
    let tree = Tree::new("waits");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    let storage = tree.open(DAY);
    let parts = parts(&storage, &[b"one", b"two"]);
    let write = |mode, bytes: &[u8]| {
        let mut partial = open(&storage, mode).unwrap();
        partial.upload.write_all(bytes).unwrap();
        partial.upload
    };
    write(PartialMode::New, b"sure").abort();
    for (mode, size) in [(PartialMode::Resume, 9), (PartialMode::Checked, 9)] {
        let upload = write(mode, b" more");
        std::fs::create_dir(tree.0.join("d/f")).unwrap();
        assert!(matches!(upload.commit(), Err(FileError::IsDirectory)), "{mode:?}");
        assert_eq!(find(&storage), Ok(size), "what was not acknowledged of a piece that is checked is gone");
        std::fs::remove_dir(tree.0.join("d/f")).unwrap();
    }
    open(&storage, PartialMode::Resume).unwrap().upload.commit().unwrap();
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"sure more");
    std::fs::remove_file(tree.0.join("d/f")).unwrap();

    let joined = join(&storage, &parts).unwrap();
    std::fs::create_dir(tree.0.join("d/f")).unwrap();
    assert!(joined.upload.commit().is_err());
    assert_eq!(storage.resting().unwrap(), Resting { bytes: 6, files: 2 });
    std::fs::remove_dir(tree.0.join("d/f")).unwrap();
    join(&storage, &parts).unwrap().upload.commit().unwrap();
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"onetwo");
}

/// Without them the parts would be lost to another file of that name.
#[test]
fn parts_of_a_file_whose_name_was_taken_wait_on() {
    let tree = Tree::new("parts-wait");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    let storage = tree.open(DAY);
    let parts = parts(&storage, &[b"one", b"two"]);
    let path = VirtualPath::parse(b"/d/f").unwrap();
    let joined = storage.join_partials(&path, &parts, WriteMode::CreateNew).unwrap();
    std::fs::write(tree.0.join("d/f"), b"another's").unwrap();
    assert!(matches!(joined.upload.commit(), Err(FileError::AlreadyExists)));
    assert_eq!(storage.resting().unwrap(), Resting { bytes: 6, files: 2 });
    std::fs::remove_file(tree.0.join("d/f")).unwrap();
    join(&storage, &parts).unwrap().upload.commit().unwrap();
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"onetwo");
}

#[test]
fn unverified_data_is_not_kept_even_after_a_kill() {
    let tree = Tree::new("checked");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    let storage = tree.open(DAY);
    let write = |mode, bytes: &[u8]| {
        let mut partial = open(&storage, mode).unwrap();
        partial.upload.write_all(bytes).unwrap();
        partial.upload
    };
    write(PartialMode::New, b"sure").abort();
    drop(write(PartialMode::Checked, b" wrong"));
    assert_eq!(find(&storage), Ok(4));
    write(PartialMode::Checked, b" wrong").undo();
    assert_eq!(find(&storage), Ok(4));
    write(PartialMode::Checked, b" right").abort();
    assert_eq!(find(&storage), Ok(10));
    // As a kill leaves it: bytes, and the mark from before they came.
    let staging = tree.0.join(".millrace-staging");
    write(PartialMode::Resume, b" unchecked").abort();
    mark_unchecked(&staging, &KEY, 10);
    assert_eq!(find(&storage), Ok(10));
    assert_eq!(open(&storage, PartialMode::Resume).unwrap().size, 10);
    storage.remove_partial(&VirtualPath::parse(b"/d/f").unwrap(), &KEY).unwrap();
    assert_eq!(find(&storage), Err(FileError::NotFound.to_string()));
    assert_eq!(storage.resting().unwrap(), Resting::default());
    assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
}

#[test]
fn abandoned_partial_uploads_are_swept_but_not_open_ones() {
    let tree = Tree::new("swept");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    let storage = tree.open(Duration::ZERO);
    let partial = open(&storage, PartialMode::New).unwrap();
    storage.sweep();
    assert_eq!(find(&storage), Ok(0));
    drop(partial);
    storage.sweep();
    assert_eq!(find(&storage), Err(FileError::NotFound.to_string()));
}

/// Parts of these contents, with keys 1, 2...
fn parts(storage: &LocalStorage, contents: &[&[u8]]) -> Vec<(VirtualPath, PartialKey)> {
    let path = VirtualPath::parse(b"/d/part").unwrap();
    let make = |(number, bytes): (usize, &&[u8])| {
        let key = PartialKey::new([u8::try_from(number).unwrap() + 1; 16]);
        let mut part = storage.open_partial(&path, &key, WriteMode::CreateNew, PartialMode::New).unwrap();
        part.upload.write_all(bytes).unwrap();
        part.upload.abort();
        (path.clone(), key)
    };
    contents.iter().enumerate().map(make).collect()
}

fn join(storage: &LocalStorage, parts: &[(VirtualPath, PartialKey)]) -> Result<Partial, FileError> {
    storage.join_partials(&VirtualPath::parse(b"/d/f").unwrap(), parts, WriteMode::Replace)
}

#[test]
fn uploads_that_are_joined_become_one_file_and_nothing_is_left_of_them() {
    let tree = Tree::new("joined");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    std::fs::write(tree.0.join("d/f"), b"old").unwrap();
    let storage = tree.open(DAY);
    let long = vec![b'x'; 3 << 20];
    let parts = parts(&storage, &[b"one, ", &long, b"", b"three"]);
    assert_eq!(storage.resting().unwrap(), Resting { bytes: (3 << 20) + 10, files: 4 });
    let joined = join(&storage, &parts).unwrap();
    assert_eq!((joined.size, storage.resting().unwrap()), ((3 << 20) + 10, Resting::default()));
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"old");
    joined.upload.commit().unwrap();
    assert!(std::fs::read(tree.0.join("d/f")).unwrap() == [b"one, ", &long[..], b"three"].concat());
    assert_eq!(std::fs::read_dir(tree.0.join(".millrace-staging")).unwrap().count(), 0);
    assert_eq!(storage.resting().unwrap(), Resting::default());
    assert!(matches!(join(&storage, &parts), Err(FileError::NotFound)));
}

#[test]
fn uploads_whose_joining_did_not_end_are_as_they_were() {
    let tree = Tree::new("unjoined");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    let storage = tree.open(DAY);
    let parts = parts(&storage, &[b"one", b"two"]);
    let sizes = || {
        let size = |(path, key): &(VirtualPath, PartialKey)| storage.find_partial(path, key).unwrap().size;
        parts.iter().map(size).collect::<Vec<_>>()
    };
    let are_as_they_were = || {
        assert_eq!((sizes(), storage.resting().unwrap()), (vec![3, 3], Resting { bytes: 6, files: 2 }));
    };
    drop(join(&storage, &parts).unwrap());
    are_as_they_were();
    join(&storage, &parts).unwrap().upload.abort();
    are_as_they_were();
    let joined = join(&storage, &parts).unwrap();
    assert_eq!(sizes(), [3, 3], "also while that is not sure");
    assert!(matches!(join(&storage, &parts[1..]), Err(FileError::Busy)), "nor twice at a time");
    joined.upload.undo();
    are_as_they_were();
    // One of them is being sent, or was never begun.
    let (path, key) = &parts[1];
    let sent = storage.open_partial(path, key, WriteMode::CreateNew, PartialMode::Resume).unwrap();
    assert!(matches!(join(&storage, &parts), Err(FileError::Busy)));
    sent.upload.abort();
    let unknown = [parts[0].clone(), (path.clone(), PartialKey::new([9; 16]))];
    assert!(matches!(join(&storage, &unknown), Err(FileError::NotFound)));
    assert!(matches!(join(&storage, &[parts[0].clone(), parts[0].clone()]), Err(FileError::Busy)));
    are_as_they_were();
    // As a kill leaves them: the first with bytes of the other, and the mark from before these came.
    let staging = tree.0.join(".millrace-staging");
    let first = super::super::staging::kept_name(&parts[0].1);
    std::fs::write(staging.join(first), b"onetw").unwrap();
    mark_unchecked(&staging, &parts[0].1, 3);
    assert_eq!(sizes(), [3, 3]);
    join(&storage, &parts).unwrap().upload.commit().unwrap();
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"onetwo");
}

#[test]
fn on_another_machine_what_was_acknowledged_is_there_and_nothing_else() {
    let tree = Tree::new("elsewhere");
    std::fs::create_dir(tree.0.join("d")).unwrap();
    // Without a level of durability nothing else is noted.
    let options = LocalOptions { is_shared: true, durability: Durability::None, ..LocalOptions::default() };
    let shared = || LocalStorage::open(&tree.0, options).unwrap();
    let (here, there) = (shared(), shared());
    let mut piece = open(&here, PartialMode::New).unwrap();
    piece.upload.write_all(b"acknowledged").unwrap();
    piece.upload.keep().unwrap();
    let mut piece = open(&here, PartialMode::Resume).unwrap();
    piece.upload.write_all(b", and not").unwrap();
    BOOT_OF_TEST.set(Some([9; 16]));
    assert_eq!(find(&there).unwrap(), 12);
    BOOT_OF_TEST.set(None);
    // Its machine is gone, and with it the lock.
    std::mem::forget(piece);
    let mut staged = std::fs::read_dir(tree.0.join(".millrace-staging")).unwrap();
    let is_mark = |path: &PathBuf| path.extension().is_some_and(|end| end == "mark");
    let kept = staged.find_map(|entry| Some(entry.unwrap().path()).filter(|path| !is_mark(path))).unwrap();
    let copy = kept.with_extension("copy");
    std::fs::copy(&kept, &copy).unwrap();
    std::fs::rename(&copy, &kept).unwrap();
    BOOT_OF_TEST.set(Some([9; 16]));
    let mut piece = open(&there, PartialMode::Resume).unwrap();
    assert_eq!(piece.size, 12);
    piece.upload.write_all(b" twice").unwrap();
    piece.upload.commit().unwrap();
    BOOT_OF_TEST.set(None);
    assert_eq!(std::fs::read(tree.0.join("d/f")).unwrap(), b"acknowledged twice");
}
