//! Changes to existing files: rename, copy, times; and the free space.

use super::{Claim, names, path, pattern, read, write};
use crate::{Change, FileError, Storage, Timestamp, VirtualPath, Wait};

pub(super) const CLAIMS: &[(&str, Claim)] = &[
    ("a rename moves a file, and replaces one", rename_file),
    ("a rename onto a directory is refused", rename_onto_directory),
    ("a rename moves a directory, but not into itself", rename_directory),
    ("the time of a change is kept to the nanosecond", modification_time),
    ("a copy has the content, and replaces", copy),
    ("a copy can be cancelled, and leaves the old file", cancelled_copy),
    ("free room is no more than there is", space),
];

fn rename_file(storage: &dyn Storage) {
    write(storage, "/a", b"content of a");
    storage.make_directory(&path("/d")).unwrap();
    storage.rename(&path("/a"), &path("/d/b")).unwrap();
    refused!(storage.metadata(&path("/a"), Wait::Allowed), NotFound);
    assert_eq!(read(storage, "/d/b").unwrap(), b"content of a");
    write(storage, "/c", b"content of c");
    storage.rename(&path("/d/b"), &path("/c")).unwrap();
    assert_eq!(read(storage, "/c").unwrap(), b"content of a");
    storage.rename(&path("/c"), &path("/c")).unwrap();
    assert_eq!(read(storage, "/c").unwrap(), b"content of a");
    refused!(storage.rename(&path("/c"), &path("/missing/c")), NotFound);
    refused!(storage.rename(&path("/c"), &path("/c/d")), NotDirectory | InvalidName);
}

fn rename_onto_directory(storage: &dyn Storage) {
    write(storage, "/f", b"file");
    storage.make_directory(&path("/d")).unwrap();
    storage.make_directory(&path("/e")).unwrap();
    refused!(storage.rename(&path("/f"), &path("/d")), IsDirectory | AlreadyExists);
    refused!(storage.rename(&path("/e"), &path("/d")), AlreadyExists);
    refused!(storage.rename(&path("/e"), &path("/f")), AlreadyExists | NotDirectory);
    assert_eq!(names(storage, "/"), [b"d", b"e", b"f"]);
}

fn rename_directory(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    write(storage, "/d/f", b"content");
    storage.rename(&path("/d"), &path("/e")).unwrap();
    assert_eq!(read(storage, "/e/f").unwrap(), b"content");
    storage.rename(&path("/e"), &path("/e")).unwrap();
    refused!(storage.rename(&path("/e"), &path("/e/inside")), InvalidName);
    assert_eq!(read(storage, "/e/f").unwrap(), b"content");
}

fn modification_time(storage: &dyn Storage) {
    write(storage, "/f", b"content");
    for (seconds, nanoseconds) in [(0, 0), (1, 999_999_999), (1_700_000_000, 123_456_789), (4_000_000_000, 1)]
    {
        let modified = Timestamp { seconds, nanoseconds };
        storage.change(&path("/f"), Change { modified: Some(modified), ..Change::default() }).unwrap();
        assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().modified, modified);
    }
    let mode = 0o640;
    storage.change(&path("/f"), Change { mode: Some(mode), ..Change::default() }).unwrap();
    assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().mode, mode);
    write(storage, "/f", b"other content");
    assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().mode, mode, "an upload keeps the mode");
}

fn copy(storage: &dyn Storage) {
    let content = pattern(1_000_000);
    write(storage, "/a", &content);
    write(storage, "/b", b"old");
    let mut told = Vec::new();
    let copied = storage
        .copy(&path("/a"), &path("/b"), &mut |bytes| {
            told.push(bytes);
            true
        })
        .unwrap();
    assert_eq!(copied, content.len() as u64);
    assert!(told.is_sorted() && told.last() == Some(&copied), "{told:?}");
    assert!(read(storage, "/b").unwrap() == content);
    assert_eq!(storage.copy(&path("/a"), &path("/a"), &mut |_| true).unwrap(), content.len() as u64);
    assert!(read(storage, "/a").unwrap() == content, "a copy onto itself changes nothing");
    write(storage, "/empty", b"");
    assert_eq!(storage.copy(&path("/empty"), &path("/b"), &mut |_| true).unwrap(), 0);
    assert_eq!(read(storage, "/b").unwrap(), b"");
}

fn cancelled_copy(storage: &dyn Storage) {
    write(storage, "/a", &pattern(1_000_000));
    write(storage, "/b", b"old");
    refused!(storage.copy(&path("/a"), &path("/b"), &mut |_| false), Cancelled);
    assert_eq!(read(storage, "/b").unwrap(), b"old");
    assert_eq!(names(storage, "/"), [b"a", b"b"]);
}

fn space(storage: &dyn Storage) {
    match storage.space(&VirtualPath::root()) {
        Ok(space) => assert!(space.available <= space.total),
        Err(FileError::Unsupported) => {}
        Err(error) => panic!("{error:?}"),
    }
}
