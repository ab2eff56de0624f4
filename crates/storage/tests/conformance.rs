//! The suite for every back end.

mod common;

use common::{Scratch, download, path};
use millrace_storage::{Durability, FaultStorage, LocalOptions, LocalStorage, MemoryStorage, Uploads};
use millrace_vfs::{Readiness, Storage, Wait, WriteMode, conformance};

fn local(scratch: &Scratch, options: LocalOptions) -> LocalStorage {
    LocalStorage::open(scratch.path(), options).unwrap()
}

#[test]
fn local_staged_conforms() {
    let scratch = Scratch::new();
    conformance::run(&local(&scratch, LocalOptions::default()));
    scratch.assert_empty();
}

#[test]
fn local_in_place_conforms() {
    let scratch = Scratch::new();
    conformance::run(&local(&scratch, LocalOptions { uploads: Uploads::InPlace, ..LocalOptions::default() }));
    scratch.assert_empty();
}

#[test]
fn a_commit_can_wait_for_the_device() {
    let scratch = Scratch::new();
    for uploads in [Uploads::Staged, Uploads::InPlace] {
        let storage = local(
            &scratch,
            LocalOptions { uploads, durability: Durability::Full, ..LocalOptions::default() },
        );
        for content in [&b"longer"[..], b"short"] {
            let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
            upload.write_all(content).unwrap();
            assert_eq!(upload.commit_readiness(), Readiness::MayHang);
            assert_eq!(upload.commit().unwrap().size, content.len() as u64);
            assert_eq!(download(&storage, "/f").unwrap(), content);
        }
        storage.remove_file(&path("/f")).unwrap();
    }
    scratch.assert_empty();
}

#[test]
fn memory_conforms() {
    conformance::run(&MemoryStorage::new());
}

#[test]
fn a_fault_layer_without_faults_conforms() {
    conformance::run(&FaultStorage::new(MemoryStorage::new()));
}
