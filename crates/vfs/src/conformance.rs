//! The suite that every storage back end must pass.
//!
//! [`run`] takes an empty, writable [`Storage`] and leaves it empty. It panics with the name of the failed test, so a
//! back end's own test is one line. Optional features (staged uploads, links, owners, free space) are detected by use,
//! and then tested.

/// Asserts that a result is an error of one kind.
macro_rules! refused {
    ($result:expr, $($kind:ident)|+) => {
        match $result {
            Err($(FileError::$kind)|+) => {}
            Err(error) => panic!("{} is refused with {error:?}", stringify!($result)),
            Ok(_) => panic!("{} is not refused", stringify!($result)),
        }
    };
}

mod changes;
mod directories;
mod links;
mod paths;
mod uploads;

use crate::{DirEntry, FileError, ReadHandle, Storage, VirtualPath, Wait, WriteMode};

/// A single test; it panics where the back end fails.
type Claim = fn(&dyn Storage);

/// Entries of the largest directory of [`run`].
const MANY: usize = 10_000;

/// Runs the whole suite on an empty, writable storage, and leaves it empty.
///
/// # Panics
/// Where a claim does not hold.
pub fn run(storage: &dyn Storage) {
    run_with(storage, MANY);
}

/// As [`run`], with this many entries in its largest directory: a back end that is asked over a network takes a while
/// for each. They should be more than it answers at a time.
///
/// # Panics
/// Where a claim does not hold.
pub fn run_with(storage: &dyn Storage, many: usize) {
    assert!(names(storage, "/").is_empty(), "the suite begins with an empty storage");
    let claims = [paths::CLAIMS, uploads::CLAIMS, directories::CLAIMS, changes::CLAIMS, links::CLAIMS];
    for (name, claim) in claims.into_iter().flatten() {
        hold_to(storage, name, claim);
    }
    hold_to(storage, "a listing has every entry once: many", &|storage| {
        directories::listing_of_many(storage, many)
    });
}

fn hold_to(storage: &dyn Storage, name: &str, claim: &dyn Fn(&dyn Storage)) {
    // The harness shows this only when the claim panics.
    println!("conformance: {name}");
    claim(storage);
    clear(storage, &VirtualPath::root());
    assert!(names(storage, "/").is_empty(), "{name}: something is left that cannot be removed");
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text.as_bytes()).expect("the suite's own paths are well-formed")
}

/// Bytes that differ from place to place.
fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Whether an upload shows only when it is committed.
fn stages(storage: &dyn Storage) -> bool {
    let probe = path("/does-it-stage");
    let mut upload = storage.open_write(&probe, WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(b"x").unwrap();
    let shows = storage.metadata(&probe, Wait::Allowed).is_ok();
    upload.abort();
    if shows {
        storage.remove_file(&probe).unwrap();
    }
    !shows
}

fn write(storage: &dyn Storage, name: &str, content: &[u8]) {
    write_path(storage, &path(name), content);
}

fn write_path(storage: &dyn Storage, path: &VirtualPath, content: &[u8]) {
    let mut upload = storage.open_write(path, WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(content).unwrap();
    assert_eq!(upload.commit().unwrap().size, content.len() as u64);
}

/// The whole content, or `None` where there is no such file.
fn read(storage: &dyn Storage, name: &str) -> Option<Vec<u8>> {
    read_path(storage, &path(name))
}

fn read_path(storage: &dyn Storage, path: &VirtualPath) -> Option<Vec<u8>> {
    match storage.open_read(path, Wait::Allowed) {
        Err(FileError::NotFound) => None,
        result => Some(read_all(result.unwrap())),
    }
}

fn read_all(mut handle: ReadHandle) -> Vec<u8> {
    let size = handle.size();
    let mut content = Vec::new();
    loop {
        let part = read_at(&mut handle, content.len() as u64, 1 << 16);
        if part.is_empty() {
            assert!(size.is_none_or(|size| size == content.len() as u64), "the handle says how long it is");
            return content;
        }
        content.extend(part);
    }
}

fn read_at(handle: &mut ReadHandle, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    let count = match handle {
        ReadHandle::File(range) => {
            std::os::unix::fs::FileExt::read_at(&*range.file, &mut buffer, offset).unwrap()
        }
        ReadHandle::Stream(stream) => stream.read_at(offset, &mut buffer).unwrap(),
    };
    buffer.truncate(count);
    buffer
}

/// All names of a directory, sorted.
fn names(storage: &dyn Storage, name: &str) -> Vec<Vec<u8>> {
    let mut directory = storage.open_directory(&path(name)).unwrap();
    let mut names = Vec::new();
    while directory.next_names(&mut |name| names.push(name.to_vec()), 100).unwrap() > 0 {}
    names.sort();
    names
}

/// All entries of a directory, read in batches.
fn entries(storage: &dyn Storage, name: &str, most: usize) -> Vec<DirEntry> {
    let mut directory = storage.open_directory(&path(name)).unwrap();
    let mut entries = Vec::new();
    loop {
        let before = entries.len();
        directory.next_batch(&mut entries, most).unwrap();
        if entries.len() == before {
            return entries;
        }
    }
}

/// Removes everything beneath a directory.
fn clear(storage: &dyn Storage, path: &VirtualPath) {
    let text = std::str::from_utf8(path.as_bytes()).expect("the suite's directories are text");
    for name in names(storage, text) {
        let path = path.join(&name).expect("a listed name is well-formed");
        if storage.entry(&path).unwrap().metadata.is_directory() {
            clear(storage, &path);
            storage.remove_directory(&path).unwrap();
        } else {
            storage.remove_file(&path).unwrap();
        }
    }
}
