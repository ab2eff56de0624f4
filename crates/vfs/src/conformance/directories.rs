//! Directories, and listings: every entry once, with what its metadata says.

use super::{Claim, entries, names, path, write};
use crate::{FileError, FileKind, Storage, VirtualPath, Wait};

pub(super) const CLAIMS: &[(&str, Claim)] = &[
    ("directories are made once, and removed when empty", directories),
    ("a listing has every entry once: none", listing_of_none),
    ("a listing has every entry once: one", listing_of_one),
    ("a listing says what metadata says", listing_agrees_with_metadata),
];

fn directories(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    refused!(storage.make_directory(&path("/d")), AlreadyExists);
    storage.make_directory(&path("/d/e")).unwrap();
    assert!(storage.metadata(&path("/d/e"), Wait::Allowed).unwrap().is_directory());
    refused!(storage.remove_directory(&path("/d")), NotEmpty);
    storage.remove_directory(&path("/d/e")).unwrap();
    storage.remove_directory(&path("/d")).unwrap();
    refused!(storage.metadata(&path("/d"), Wait::Allowed), NotFound);
}

fn listing_of_none(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    assert!(names(storage, "/d").is_empty());
    assert!(entries(storage, "/d", 10).is_empty());
    let directory = storage.open_directory(&path("/d")).unwrap();
    assert!(directory.metadata().unwrap().is_directory());
}

fn listing_of_one(storage: &dyn Storage) {
    write(storage, "/f", b"12345");
    assert_eq!(names(storage, "/"), [b"f"]);
    let entries = entries(storage, "/", 10);
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].metadata.size, entries[0].metadata.kind), (5, FileKind::File));
    assert_eq!(entries[0].link, None);
}

fn listing_agrees_with_metadata(storage: &dyn Storage) {
    write(storage, "/f", b"12345");
    storage.make_directory(&path("/d")).unwrap();
    for entry in entries(storage, "/", 10) {
        let path = VirtualPath::root().join(&entry.name).unwrap();
        assert_eq!(entry.metadata, storage.metadata(&path, Wait::Allowed).unwrap());
        assert_eq!(entry, storage.entry(&path).unwrap());
    }
}

pub(super) fn listing_of_many(storage: &dyn Storage, many: usize) {
    storage.make_directory(&path("/d")).unwrap();
    let mut expected: Vec<Vec<u8>> = (0..many).map(|n| format!("entry {n}").into_bytes()).collect();
    for name in &expected {
        storage.make_directory(&path("/d").join(name).unwrap()).unwrap();
    }
    expected.sort();
    assert_eq!(names(storage, "/d"), expected);
    for most in [1, 7, 1000, usize::MAX] {
        let mut listed: Vec<Vec<u8>> =
            entries(storage, "/d", most).into_iter().map(|entry| entry.name).collect();
        listed.sort();
        assert_eq!(listed, expected, "in batches of {most}");
    }
    let mut batch = Vec::new();
    storage.open_directory(&path("/d")).unwrap().next_batch(&mut batch, 100).unwrap();
    assert!((1..=400).contains(&batch.len()), "a batch of about 100 has {}", batch.len());
}
