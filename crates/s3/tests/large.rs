//! Objects of several parts: appended to and patched by the store's own copies, read by ranges.

mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{Server, path, read, write};
use millrace_s3::S3Storage;
use millrace_vfs::{FileError, ReadHandle, Storage, Wait, WriteMode};

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn the_store_copies_what_stays() {
    let Some(server) = Server::seaweed() else { return };
    server.storage("");
    let proxy = Proxy::before(server.port);
    let storage = S3Storage::new(&common::settings(proxy.port, "")).unwrap();
    let mut content = pattern(12 << 20);
    write(&storage, "/f", &content);
    proxy.requests();
    let mut upload = storage.open_write(&path("/f"), WriteMode::Append, Wait::Allowed).unwrap();
    upload.write_all(b"and a little more").unwrap();
    upload.commit().unwrap();
    content.extend_from_slice(b"and a little more");
    let expected =
        ["HEAD /files/f", "POST /files/f?uploads=", "PUT /files/f?partNumber=1", "PUT /files/f?partNumber=2"];
    let mut requests = proxy.requests();
    // The folder, where that was seen too long ago.
    requests.retain(|request| !request.starts_with("GET /files?delimiter"));
    assert_eq!(requests[..4], expected);
    assert_eq!(requests.len(), 5, "nothing is downloaded: {requests:?}");
    assert!(read(&storage, "/f") == content);
    for (offset, length) in [(6 << 20, 3), (5 << 20, 7 << 20), (100, 5), (100, 6 << 20), (12 << 20, 1 << 20)]
    {
        let new = vec![b'x'; length];
        let mut upload =
            storage.open_write(&path("/f"), WriteMode::At(offset as u64), Wait::Allowed).unwrap();
        upload.write_all(&new).unwrap();
        let committed = upload.commit().unwrap();
        content.resize(content.len().max(offset + length), 0);
        content[offset..offset + length].copy_from_slice(&new);
        assert_eq!(committed.size, content.len() as u64, "{length} bytes at {offset}");
        assert!(read(&storage, "/f") == content, "{length} bytes at {offset}");
    }
}

#[test]
fn a_reader_sees_one_version() {
    let Some(server) = Server::seaweed() else { return };
    let storage = server.storage("");
    let content = pattern(30 << 20);
    write(&storage, "/f", &content);
    let open = || match storage.open_read(&path("/f"), Wait::Allowed).unwrap() {
        ReadHandle::Stream(stream) => stream,
        ReadHandle::File(_) => panic!("it is a stream"),
    };
    let mut buffer = vec![0; 1 << 20];
    let mut reader = open();
    for offset in [20 << 20, 3, 29 << 20, (29 << 20) + 1000] {
        let count = reader.read_at(offset as u64, &mut buffer).unwrap();
        assert!(buffer[..count] == content[offset..content.len().min(offset + buffer.len())], "at {offset}");
    }
    let mut reader = open();
    reader.read_at(0, &mut buffer).unwrap();
    write(&storage, "/f", b"another");
    assert!(matches!(reader.read_at(25 << 20, &mut buffer), Err(FileError::Io(_))));
}

#[test]
fn uploads_that_were_left_behind_are_swept() {
    let Some(server) = Server::seaweed() else { return };
    let storage = server.storage("tree");
    let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(&pattern(6 << 20)).unwrap();
    // As a process does that is killed.
    std::mem::forget(upload);
    assert_eq!(server.storage("other").sweep(Duration::ZERO).unwrap(), 0, "that of another prefix stays");
    assert_eq!(storage.sweep(Duration::from_secs(3600)).unwrap(), 0, "a young one stays");
    assert_eq!(storage.sweep(Duration::ZERO).unwrap(), 1);
    assert_eq!(storage.sweep(Duration::ZERO).unwrap(), 0);
    assert!(common::names(&storage, "/").is_empty());
}
