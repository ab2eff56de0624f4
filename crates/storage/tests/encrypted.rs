//! Encryption at rest: it is as any other back end, and what was changed beneath it is never served.

mod common;

use std::sync::Arc;

use common::{Scratch, path, upload};
use millrace_storage::{Encrypted, Key, LocalOptions, LocalStorage, MemoryStorage};
use millrace_vfs::{FileError, ReadHandle, Storage, Wait, WriteMode, conformance};

/// The content of a stored chunk, in bytes.
const CHUNK: usize = 64 << 10;

fn key() -> Key {
    Key::new([7; 32])
}

fn read(storage: &dyn Storage, name: &str) -> Result<Vec<u8>, FileError> {
    let ReadHandle::Stream(mut stream) = storage.open_read(&path(name), Wait::Allowed)? else {
        panic!("what is decrypted is no descriptor");
    };
    let (mut content, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        match stream.read_at(content.len() as u64, &mut buffer)? {
            0 => return Ok(content),
            count => content.extend_from_slice(&buffer[..count]),
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[test]
fn encrypted_memory_conforms() {
    conformance::run(&Encrypted::new(Arc::new(MemoryStorage::new()), &key()));
}

#[test]
fn an_encrypted_folder_stages_as_the_folder_does() {
    let scratch = Scratch::new();
    let local = LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap();
    let storage = Encrypted::new(Arc::new(local), &key());
    upload(&storage, "/f", &pattern(100_000)).unwrap();
    let mut replacing = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    replacing.write_all(&pattern(70_000)).unwrap();
    drop(replacing);
    assert_eq!(read(&storage, "/f").unwrap(), pattern(100_000));
    storage.remove_file(&path("/f")).unwrap();
    scratch.assert_empty();
}

#[test]
fn nothing_of_the_content_is_stored() {
    let memory = MemoryStorage::new();
    let storage = Encrypted::new(Arc::new(memory.clone()), &key());
    upload(&storage, "/f", &b"secret ".repeat(20_000)).unwrap();
    let stored = memory.read("/f").unwrap();
    assert!(!stored.windows(6).any(|window| window == b"secret"));
    assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().size, 140_000);
    upload(&storage, "/g", &b"secret ".repeat(20_000)).unwrap();
    assert_ne!(stored[40..], memory.read("/g").unwrap()[40..], "equal files do not look equal");
}

#[test]
fn any_part_can_be_read() {
    let storage = Encrypted::new(Arc::new(MemoryStorage::new()), &key());
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 200_000] {
        let content = pattern(length);
        upload(&storage, "/f", &content).unwrap();
        assert_eq!(read(&storage, "/f").unwrap(), content);
        let ReadHandle::Stream(mut stream) = storage.open_read(&path("/f"), Wait::Allowed).unwrap() else {
            unreachable!()
        };
        for offset in [0, 1, CHUNK - 1, CHUNK, 150_000, length] {
            let mut buffer = [0; 100];
            let count = stream.read_at(offset as u64, &mut buffer).unwrap();
            let rest = content.get(offset..).unwrap_or_default();
            assert_eq!(count == 0, rest.is_empty());
            assert_eq!(buffer[..count], rest[..count]);
        }
    }
}

#[test]
fn changed_ciphertext_is_an_error_and_never_wrong_bytes() {
    let content = pattern(2 * CHUNK + 100);
    let store = || {
        let memory = MemoryStorage::new();
        upload(&Encrypted::new(Arc::new(memory.clone()), &key()), "/f", &content).unwrap();
        memory.read("/f").unwrap()
    };
    let served = |stored: &[u8]| {
        let memory = MemoryStorage::new();
        memory.insert("/f", stored);
        read(&Encrypted::new(Arc::new(memory), &key()), "/f")
    };
    let stored = store();
    assert_eq!(served(&stored).unwrap(), content);
    for flipped in (0..stored.len()).step_by(997).chain([0, 21, 39, 40, 64, stored.len() - 1]) {
        let mut stored = stored.clone();
        stored[flipped] ^= 1;
        served(&stored).unwrap_err();
    }
    let chunk = CHUNK + 40;
    for end in [0, 10, 40, 41, 80, 40 + chunk, 40 + 2 * chunk, stored.len() - 1] {
        served(&stored[..end]).unwrap_err();
    }
    let swapped = [&stored[..40], &stored[40 + chunk..40 + 2 * chunk], &stored[40..40 + chunk]].concat();
    served(&[&swapped, &stored[40 + 2 * chunk..]].concat()).unwrap_err();
    served(&[&store()[..40 + chunk], &stored[40 + chunk..]].concat()).unwrap_err();
    served(&[&stored[..], b"more"].concat()).unwrap_err();
    served(b"a file from before").unwrap_err();
}

#[test]
fn another_key_reads_nothing() {
    let memory = MemoryStorage::new();
    upload(&Encrypted::new(Arc::new(memory.clone()), &key()), "/f", b"content").unwrap();
    let error = read(&Encrypted::new(Arc::new(memory), &Key::new([8; 32])), "/f").unwrap_err();
    assert!(error.to_string().contains("another key"), "{error}");
}

#[test]
fn data_of_an_interrupted_append_stays_and_can_be_read() {
    let storage = Encrypted::new(Arc::new(MemoryStorage::new()), &key());
    upload(&storage, "/f", &pattern(100_000)).unwrap();
    let mut append = storage.open_write(&path("/f"), WriteMode::Append, Wait::Allowed).unwrap();
    append.write_all(b"more").unwrap();
    append.abort();
    assert_eq!(read(&storage, "/f").unwrap(), [&pattern(100_000)[..], b"more"].concat());
    let mut part = storage.open_write(&path("/f"), WriteMode::At(10), Wait::Allowed).unwrap();
    part.write_all(b"inside").unwrap();
    part.abort();
    let content = read(&storage, "/f").unwrap();
    assert_eq!(
        (&content[..10], &content[10..16], content.len()),
        (&pattern(10)[..], &b"inside"[..], 100_004)
    );
}
