//! The life of objects: what a change costs, who may still read, and what becomes of those whose server has died.

mod common;

use std::time::Duration;

use common::stores::proxy::Proxy;
use common::{Site, append, path, read, write};
use millrace_indexed::Swept;
use millrace_vfs::{FileError, ReadHandle, ReadStream, Storage, Wait, WriteMode};

const HOUR: Duration = Duration::from_secs(3600);

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn open(storage: &dyn Storage, name: &str) -> Box<dyn ReadStream> {
    match storage.open_read(&path(name), Wait::Allowed).unwrap() {
        ReadHandle::Stream(stream) => stream,
        ReadHandle::File(_) => panic!("it is a stream"),
    }
}

#[test]
fn the_store_is_asked_for_contents_alone() {
    let Some(site) = Site::new() else { return };
    let proxy = Proxy::before(site.store.port);
    let storage = site.storage_at(proxy.port, "", HOUR);
    proxy.requests();
    let requests = |what: &dyn Fn(), expected: &[&str]| {
        what();
        let requests = proxy.requests();
        let verbs: Vec<&str> = requests.iter().filter_map(|request| request.split(' ').next()).collect();
        assert_eq!(verbs, expected, "{requests:?}");
    };
    requests(&|| write(&storage, "/f", b"content"), &["PUT"]);
    requests(&|| write(&storage, "/f", b"other"), &["PUT"]);
    requests(&|| assert_eq!(read(&storage, "/f"), b"other"), &["GET"]);
    requests(&|| assert_eq!(storage.metadata(&path("/f"), Wait::Allowed).unwrap().size, 5), &[]);
    requests(&|| storage.make_directory(&path("/d")).unwrap(), &[]);
    requests(&|| storage.rename(&path("/f"), &path("/d/f")).unwrap(), &[]);
    requests(&|| storage.rename(&path("/d"), &path("/e")).unwrap(), &[]);
    requests(&|| assert_eq!(common::names(&storage, "/e"), ["f"]), &[]);
    requests(&|| assert_eq!(read(&storage, "/e/f"), b"other"), &["GET"]);
    requests(&|| storage.remove_file(&path("/e/f")).unwrap(), &[]);
    requests(&|| assert_eq!(storage.sweep(HOUR).unwrap().removed, 0), &[]);
}

#[test]
fn the_store_copies_what_stays() {
    let Some(site) = Site::new() else { return };
    let storage = site.storage("");
    let mut content = pattern(12 << 20);
    write(&storage, "/f", &content);
    append(&storage, "/f", b"and a little more");
    content.extend_from_slice(b"and a little more");
    assert!(read(&storage, "/f") == content);
    for (offset, length) in [(6 << 20, 3), (5 << 20, 7 << 20), (100, 5), (100, 6 << 20), (12 << 20, 1 << 20)]
    {
        let at = WriteMode::At(offset as u64);
        let mut upload = storage.open_write(&path("/f"), at, Wait::Allowed).unwrap();
        let new = vec![b'x'; length];
        upload.write_all(&new).unwrap();
        let size = upload.commit().unwrap().size;
        content.resize(content.len().max(offset + length), 0);
        content[offset..offset + length].copy_from_slice(&new);
        assert_eq!(size, content.len() as u64, "{length} bytes at {offset}");
        assert!(read(&storage, "/f") == content, "{length} bytes at {offset}");
    }
    let mut appending = storage.open_write(&path("/f"), WriteMode::Append, Wait::Allowed).unwrap();
    appending.write_all(b"lost").unwrap();
    write(&storage, "/f", b"other");
    assert!(matches!(appending.commit(), Err(FileError::Busy)), "it was of what has gone");
    assert_eq!(read(&storage, "/f"), b"other");
    storage.sweep(HOUR).unwrap();
    assert_eq!((site.unnamed(), site.objects("").len()), ("0".to_owned(), 1));
}

#[test]
fn a_download_goes_on_while_its_file_is_replaced_as_long_as_garbage_is_kept() {
    let Some(site) = Site::new() else { return };
    let content = pattern(30 << 20);
    let mut buffer = vec![0; 1 << 20];
    for (keep, is_whole) in [(HOUR, true), (Duration::ZERO, false)] {
        let storage = site.storage_at(site.store.port, "", keep);
        write(&storage, "/f", &content);
        let mut reader = open(&storage, "/f");
        reader.read_at(0, &mut buffer).unwrap();
        write(&storage, "/f", b"other");
        storage.remove_file(&path("/f")).unwrap();
        storage.sweep(HOUR).unwrap();
        match reader.read_at(25 << 20, &mut buffer) {
            Ok(count) => assert!(is_whole && buffer[..count] == content[25 << 20..26 << 20]),
            Err(error) => assert!(!is_whole, "{error}"),
        }
    }
}

#[test]
fn what_a_dead_server_has_left_is_swept_and_a_stalled_one_is_refused() {
    let Some(site) = Site::new() else { return };
    let (alive, stalled) = (site.storage(""), site.storage(""));
    write(&stalled, "/f", b"old");
    let mut large = stalled.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    large.write_all(&pattern(6 << 20)).unwrap();
    let mut small = stalled.open_write(&path("/g"), WriteMode::Replace, Wait::Allowed).unwrap();
    small.write_all(b"content").unwrap();
    let mut dead = stalled.open_write(&path("/h"), WriteMode::Replace, Wait::Allowed).unwrap();
    dead.write_all(&pattern(6 << 20)).unwrap();
    // As a process does that is killed.
    std::mem::forget(dead);
    assert_eq!(alive.sweep(HOUR).unwrap(), Swept::default(), "they were heard of lately");
    assert_eq!(site.unnamed(), "3");
    assert_eq!(site.storage("other").sweep(Duration::ZERO).unwrap(), Swept::default(), "it is another tree");
    assert_eq!(alive.sweep(Duration::ZERO).unwrap(), Swept { abandoned: 3, removed: 3 });
    assert_eq!(site.unnamed(), "0");
    assert_eq!(site.store.storage("").sweep(Duration::ZERO).unwrap(), 0, "no parts are left");
    large.commit().unwrap_err();
    let error = small.commit().unwrap_err().to_string();
    assert!(error.contains("this server was not heard of for so long"), "{error}");
    assert_eq!(read(&alive, "/f"), b"old");
    assert_eq!(common::names(&alive, "/"), ["f"]);
}

#[test]
fn an_upload_that_ends_without_a_commit_leaves_nothing() {
    let Some(site) = Site::new() else { return };
    let storage = site.storage("");
    for length in [0, 3, 6 << 20] {
        let begin = || storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
        let mut upload = begin();
        upload.write_all(&pattern(length)).unwrap();
        upload.abort();
        drop(begin());
        // A commit that fails when all is in the store.
        let mut upload = begin();
        upload.write_all(&pattern(length)).unwrap();
        storage.make_directory(&path("/f")).unwrap();
        assert!(matches!(upload.commit(), Err(FileError::IsDirectory)));
        storage.remove_directory(&path("/f")).unwrap();
    }
    storage.sweep(HOUR).unwrap();
    assert_eq!((site.unnamed(), site.objects("").len()), ("0".to_owned(), 0));
}

#[test]
fn a_commit_whose_answer_was_lost_is_told_again() {
    let Some(site) = Site::new() else { return };
    let storage = site.storage("");
    write(&storage, "/f", b"content");
    let again =
        "SELECT millrace_index.commit_upload(parent, ARRAY[name], object, size, NULL, NULL, false, NULL, '0')
        FROM millrace_index.node WHERE object IS NOT NULL";
    assert_eq!(site.database.run(again), "0");
    assert_eq!(read(&storage, "/f"), b"content");
}
