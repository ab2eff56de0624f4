//! What a server that starts after a power cut makes of a state: on a real directory, by the back end's own code.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

use millrace_vfs::{FileError, PartialMode, Storage, WriteMode};

use super::super::disk::recorder::{Kind, Node};
use super::super::partial::BOOT_OF_TEST;
use super::super::staging::{is_kept_file, is_reserved};
use super::super::{LocalOptions, LocalStorage};
use super::operations::{key, path};
use super::states::{Disk, State};

/// What was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Recovered {
    /// What tus uploads have.
    pub(super) pieces: BTreeMap<u8, Vec<u8>>,
    pub(super) problem: Option<String>,
}

/// Starts a server on a state that is made in an empty directory, and lets every tus upload go on.
pub(super) fn recover(
    place: &Path,
    disk: &Disk,
    links: &BTreeMap<Node, Vec<u8>>,
    state: &State<'_>,
) -> Recovered {
    make(place, disk, links, state);
    // The machine was started again.
    BOOT_OF_TEST.set(Some([1; 16]));
    let storage = LocalStorage::open(place, LocalOptions::default()).unwrap();
    let report = storage.sweep();
    let mut found = Recovered::default();
    if report.failed > 0 || report.living > 0 {
        found.problem = Some(format!("{report:?}"));
    }
    if let Some(left) = left_over(place) {
        found.problem = Some(format!("{left} is left"));
    }
    for number in [1, 2] {
        match go_on(place, &storage, number) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                found.pieces.insert(number, bytes);
            }
            Err(problem) => found.problem = Some(problem),
        }
    }
    drop(storage);
    BOOT_OF_TEST.set(None);
    if let Some(left) = left_over(place) {
        found.problem = Some(format!("{left} is left at the end"));
    }
    found
}

/// What the upload has: its offset says that, and the file that it becomes with one more piece.
fn go_on(place: &Path, storage: &LocalStorage, number: u8) -> Result<Option<Vec<u8>>, String> {
    let size = match storage.find_partial(&path("done"), &key(number)) {
        Err(FileError::NotFound) => return Ok(None),
        found => found.map_err(|error| format!("upload {number} cannot be found: {error}"))?.size,
    };
    let opened = storage.open_partial(&path("done"), &key(number), WriteMode::Replace, PartialMode::Resume);
    let mut partial = opened.map_err(|error| format!("upload {number} cannot go on: {error}"))?;
    if partial.size != size {
        return Err(format!("upload {number} goes on at {}, and had {size}", partial.size));
    }
    partial.upload.write_all(b"!").unwrap();
    partial.upload.commit().unwrap();
    let mut content = fs::read(place.join("done")).unwrap();
    fs::remove_file(place.join("done")).unwrap();
    match content.pop() {
        Some(b'!') if content.len() as u64 == size => Ok(Some(content)),
        _ => Err(format!("upload {number} was continued elsewhere than at its end")),
    }
}

/// A file that no client sees, and that neither is a tus upload's nor belongs to one.
pub(super) fn left_over(place: &Path) -> Option<String> {
    let mut directories = vec![place.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let kept = name.strip_suffix(".mark").unwrap_or(&name);
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            } else if is_reserved(name.as_bytes())
                && !(is_kept_file(kept.as_bytes()) && directory.join(kept).exists())
            {
                return Some(name);
            }
        }
    }
    None
}

fn make(place: &Path, disk: &Disk, links: &BTreeMap<Node, Vec<u8>>, state: &State<'_>) {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    // Directories sort before what they hold.
    for (name, &node) in state.names {
        let path = place.join(OsStr::from_bytes(name));
        match disk.kind(node) {
            Kind::Directory => fs::DirBuilder::new().mode(0o700).create(&path).unwrap(),
            Kind::File => fs::write(&path, state.content(node)).unwrap(),
            Kind::Link => symlink(OsStr::from_bytes(&links[&node]), &path).unwrap(),
        }
    }
}
