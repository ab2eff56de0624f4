//! Every call of an upload fails in turn: the old file stays, and nothing hidden is left.

mod common;

use common::{Scratch, download, upload};
use millrace_storage::{Fault, FaultStorage, LocalOptions, LocalStorage, ReadOnly};
use millrace_vfs::{FileError, Storage};

#[test]
fn whichever_call_of_an_upload_fails_the_old_file_stays_and_nothing_is_left() {
    let scratch = Scratch::new();
    let storage = FaultStorage::new(LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap());
    let faults = storage.faults();
    upload(&storage, "/f", b"old").unwrap();
    let calls = faults.calls();
    for fault in Fault::ERRORS {
        for n in 1..=calls {
            faults.reset();
            faults.once(n, fault);
            upload(&storage, "/f", b"new").unwrap_err();
            upload(&storage, "/new", b"new").unwrap();
            faults.reset();
            storage.remove_file(&common::path("/new")).unwrap();
            assert_eq!(download(storage.inner(), "/f").unwrap(), b"old");
        }
    }
    drop(storage);
    assert_eq!(scratch.names(), ["f"]);
}

#[test]
fn a_read_only_storage_takes_no_upload_and_makes_nothing() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("f"), "old").unwrap();
    let options = LocalOptions { read_only: true, ..LocalOptions::default() };
    let by_option = LocalStorage::open(scratch.path(), options).unwrap();
    let wrapped = ReadOnly::new(LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap());
    for storage in [&by_option as &dyn Storage, &wrapped] {
        assert!(matches!(upload(storage, "/f", b"new"), Err(FileError::ReadOnly)));
        assert!(matches!(upload(storage, "/g", b"new"), Err(FileError::ReadOnly)));
        assert_eq!(download(storage, "/f").unwrap(), b"old");
    }
    assert_eq!(by_option.sweep(), millrace_storage::SweepReport::default());
    assert_eq!(scratch.names(), ["f"]);
}
