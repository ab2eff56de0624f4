//! Folders read as archives, taken apart by libraries that read them.

mod common;

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::sync::Arc;

use common::path;
use millrace_storage::{Archives, Fault, FaultStorage, MemoryStorage};
use millrace_vfs::{FileError, ReadHandle, ReadStream, Storage, Wait, conformance};

/// What an archive holds: `None` for a folder.
type Content = BTreeMap<String, Option<Vec<u8>>>;

fn open(storage: &dyn Storage, name: &str) -> Box<dyn ReadStream> {
    match storage.open_read(&path(name), Wait::Allowed).unwrap() {
        ReadHandle::Stream(stream) => stream,
        ReadHandle::File(_) => panic!("an archive is made while it is read"),
    }
}

fn read_all(mut stream: Box<dyn ReadStream>, piece: usize) -> Result<Vec<u8>, FileError> {
    let (mut content, mut buffer) = (Vec::new(), vec![0; piece]);
    loop {
        match stream.read_at(content.len() as u64, &mut buffer)? {
            0 => return Ok(content),
            count => content.extend_from_slice(&buffer[..count]),
        }
    }
}

/// `/photos` with an empty folder, an empty file, a file of several pieces and a name too long for ustar.
fn photos() -> (MemoryStorage, Content) {
    let memory = MemoryStorage::new();
    let long = format!("photos/{}", "l".repeat(180));
    let mut content = Content::new();
    for (name, bytes) in [("photos/a", vec![]), ("photos/d/b", vec![7; 200_001]), (&long, b"long".to_vec())] {
        memory.insert(&format!("/{name}"), &bytes);
        content.insert(name.to_owned(), Some(bytes));
    }
    memory.make_directory(&path("/photos/empty")).unwrap();
    memory.make_directory(&path("/photos.tar.d")).unwrap();
    content.insert("photos/d".to_owned(), None);
    content.insert("photos/empty".to_owned(), None);
    (memory, content)
}

fn untar(bytes: &[u8]) -> Content {
    let mut content = Content::new();
    for entry in tar::Archive::new(bytes).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).unwrap();
        let is_directory = entry.header().entry_type().is_dir();
        content.insert(name.trim_end_matches('/').to_owned(), (!is_directory).then_some(data));
    }
    content
}

fn unzip(bytes: &[u8]) -> Content {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut content = Content::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).unwrap();
        let mut data = Vec::new();
        file.read_to_end(&mut data).unwrap();
        let name = file.name().unwrap().trim_end_matches('/').to_owned();
        content.insert(name, (!file.is_dir()).then_some(data));
    }
    content
}

#[test]
fn a_layer_of_archives_conforms() {
    conformance::run(&Archives::new(Arc::new(MemoryStorage::new())));
}

#[test]
fn a_folder_is_a_tar_a_tar_gz_and_a_zip() {
    let (memory, expected) = photos();
    let storage = Archives::new(Arc::new(memory));
    for piece in [1000, 1 << 20] {
        assert_eq!(untar(&read_all(open(&storage, "/photos.tar"), piece).unwrap()), expected);
        assert_eq!(unzip(&read_all(open(&storage, "/photos.zip"), piece).unwrap()), expected);
        for name in ["/photos.tar.gz", "/photos.tgz"] {
            let packed = read_all(open(&storage, name), piece).unwrap();
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
            assert_eq!(untar(&plain), expected);
        }
    }
}

#[test]
fn a_file_of_that_name_comes_first_and_a_folder_must_be_there() {
    let (memory, _) = photos();
    memory.insert("/photos.zip", "a real file").insert("/f", "no folder");
    let storage = Archives::new(Arc::new(memory));
    assert_eq!(read_all(open(&storage, "/photos.zip"), 100).unwrap(), b"a real file");
    for missing in ["/f.tar", "/nothing.zip", "/.tar", "/photos.rar"] {
        let error = storage.open_read(&path(missing), Wait::Allowed).unwrap_err();
        assert!(matches!(error, FileError::NotFound), "{missing}: {error}");
    }
}

#[test]
fn links_are_packed_as_links_and_a_circle_ends() {
    let (memory, expected) = photos();
    memory.make_symlink(b"..", &path("/photos/d/up")).unwrap();
    memory.make_symlink(b"a", &path("/photos/same")).unwrap();
    let storage = Archives::new(Arc::new(memory));
    let packed = read_all(open(&storage, "/photos.tar"), 4096).unwrap();
    let mut links = BTreeMap::new();
    for entry in tar::Archive::new(&packed[..]).entries().unwrap() {
        let entry = entry.unwrap();
        if let Some(target) = entry.link_name_bytes() {
            links.insert(entry.path_bytes().into_owned(), target.into_owned());
        }
    }
    let link = |name: &str, target: &str| (name.as_bytes().to_vec(), target.as_bytes().to_vec());
    assert_eq!(links, BTreeMap::from([link("photos/d/up", ".."), link("photos/same", "a")]));
    let mut zipped = unzip(&read_all(open(&storage, "/photos.zip"), 4096).unwrap());
    assert_eq!(zipped.remove("photos/same"), Some(Some(vec![])), "zip has what the link leads to");
    assert_eq!(zipped, expected);
}

#[test]
fn a_download_can_be_taken_up_again() {
    let (memory, _) = photos();
    let storage = Archives::new(Arc::new(memory));
    let whole = read_all(open(&storage, "/photos.tar"), 4096).unwrap();
    let mut stream = open(&storage, "/photos.tar");
    for offset in [150_000, 100, whole.len() - 1, 0] {
        let mut buffer = [0; 64];
        let count = stream.read_at(offset as u64, &mut buffer).unwrap();
        assert!(count > 0);
        assert_eq!(buffer[..count], whole[offset..offset + count]);
    }
    assert_eq!(stream.read_at(whole.len() as u64, &mut [0; 8]).unwrap(), 0);
}

#[test]
fn an_archive_that_arrives_whole_has_everything_and_any_failure_ends_it() {
    let (memory, expected) = photos();
    let storage = Arc::new(FaultStorage::new(memory));
    let faults = storage.faults();
    let archives = Archives::new(storage);
    let pack = || match archives.open_read(&path("/photos.tar"), Wait::Allowed)? {
        ReadHandle::Stream(stream) => read_all(stream, 4096),
        ReadHandle::File(_) => unreachable!("an archive is made while it is read"),
    };
    faults.reset();
    assert_eq!(untar(&pack().unwrap()), expected);
    for call in 1..=faults.calls() {
        faults.reset();
        faults.once(call, Fault::Io);
        pack().expect_err("a failure is not passed over");
    }
}
