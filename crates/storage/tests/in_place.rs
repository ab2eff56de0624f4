//! Uploads in place that meet: of two to one file the later one has it.

mod common;

use common::{Scratch, download, path, upload};
use millrace_storage::{LocalOptions, LocalStorage, Uploads};
use millrace_vfs::{FileError, Storage, Upload, Wait, WriteMode};

fn in_place(scratch: &Scratch) -> LocalStorage {
    let options = LocalOptions { uploads: Uploads::InPlace, ..LocalOptions::default() };
    LocalStorage::open(scratch.path(), options).unwrap()
}

fn begun(storage: &LocalStorage, mode: WriteMode, content: &[u8]) -> Box<dyn Upload> {
    let mut upload = storage.open_write(&path("/f"), mode, Wait::Allowed).unwrap();
    upload.write_all(content).unwrap();
    upload
}

/// The first one's client is gone, and back with the second, before the server has given the first one up.
#[test]
fn an_upload_that_is_given_up_takes_nothing_from_the_next() {
    let scratch = Scratch::new();
    // The same folder may be served by several trees.
    let (storage, other) = (in_place(&scratch), in_place(&scratch));
    for mode in [WriteMode::Replace, WriteMode::At(3), WriteMode::Append] {
        upload(&storage, "/f", &[b'o'; 100]).unwrap();
        let first = begun(&storage, WriteMode::Replace, b"new");
        begun(&other, mode, &[b'n'; 200]).commit().unwrap();
        first.abort();
        let expected = match mode {
            WriteMode::Append => [&b"new"[..], &[b'o'; 97], &[b'n'; 200]].concat(),
            WriteMode::At(_) => [&b"new"[..], &[b'n'; 200]].concat(),
            _ => vec![b'n'; 200],
        };
        assert_eq!(download(&storage, "/f").unwrap(), expected, "{mode:?}");
    }
}

#[test]
fn of_two_concurrent_replacements_the_first_fails_and_the_second_succeeds() {
    let scratch = Scratch::new();
    let storage = in_place(&scratch);
    upload(&storage, "/f", &[b'o'; 100]).unwrap();
    let mut first = begun(&storage, WriteMode::Replace, b"one");
    let second = begun(&storage, WriteMode::Replace, b"second");
    assert!(matches!(first.write_all(b"more"), Err(FileError::Busy)));
    assert!(matches!(first.file(), Err(FileError::Busy)));
    assert!(matches!(first.commit(), Err(FileError::Busy)));
    second.commit().unwrap();
    assert_eq!(download(&storage, "/f").unwrap(), b"second");
}

#[test]
fn an_upload_without_a_successor_cuts_the_rest_of_the_old_file() {
    let scratch = Scratch::new();
    let storage = in_place(&scratch);
    upload(&storage, "/f", &[b'o'; 100]).unwrap();
    begun(&storage, WriteMode::Replace, b"new").abort();
    assert_eq!(download(&storage, "/f").unwrap(), b"new");
}

/// So nothing of an upload comes into the file behind the back of the one that has taken it over.
#[test]
fn a_takeover_waits_for_the_end_of_a_write() {
    let scratch = Scratch::new();
    let storage = in_place(&scratch);
    upload(&storage, "/f", b"old").unwrap();
    let mut first = begun(&storage, WriteMode::Replace, b"one");
    let mut taken = None;
    let mut write = |file: &std::fs::File, position| {
        taken = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Never).err();
        std::os::unix::fs::FileExt::write_all_at(file, b"!", position).unwrap();
    };
    assert!(first.with_file(&mut write).unwrap());
    assert!(matches!(taken, Some(FileError::WouldWait)), "{taken:?}");
    first.advance(1);
    first.commit().unwrap();
    assert_eq!(download(&storage, "/f").unwrap(), b"one!");
}
