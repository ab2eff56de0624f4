//! Trees of files: made with every oddity that a name may have, and compared byte by byte.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Names that are awkward for clients, shells, globs or servers, and legal all the same.
pub(crate) const ODD_NAMES: [&str; 20] = [
    "with space",
    "two  spaces",
    " leading blank",
    "single'quote",
    "double\"quote",
    "grüße-日本語.txt",
    ".hidden",
    "..dots",
    "-dash",
    "--help",
    "~",
    "~root",
    "[brackets]",
    "{braces,too}",
    "star*",
    "what?",
    "per%20cent",
    "#hash",
    "back\\slash",
    "semi;type=a",
];

/// The time of the oldest file that [`make`] makes: 2001-09-09 01:46:40 UTC.
const OLDEST: u64 = 1_000_000_000;

/// Bytes without a pattern that a client or a coding could hide a mistake in, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes a file, and the directories above it, with a time in the past.
pub(crate) fn write(path: &Path, contents: &[u8], seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

/// Makes a tree: `files` of them in nested directories, empty ones, and the given odd names as files and as
/// directories.
pub(crate) fn make(root: &Path, files: usize, odd: &[&str]) {
    for number in 0..files {
        let directory = root.join(format!("d{}/e{}", number % 7, number % 3));
        let length = [0, 1, 100, 1459, 4096, 70_000][number % 6] + number;
        let seconds = OLDEST + number as u64 * 86_461;
        write(&directory.join(format!("file-{number}.bin")), &noise(number as u64, length), seconds);
    }
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("nothing/in/here")).unwrap();
    for (number, name) in odd.iter().enumerate() {
        let seconds = OLDEST + 777 + number as u64;
        write(&root.join("odd").join(name), name.as_bytes(), seconds);
        write(&root.join("odd directories").join(name).join("inside"), name.as_bytes(), seconds);
    }
}

/// What a tree holds: paths relative to its root.
#[derive(Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File { length: u64, modified: Option<i64> },
    Link(Vec<u8>),
}

/// Whether modification times count, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Kept,
    Ignored,
}

/// Asserts that two trees have the same names, kinds, contents and perhaps times.
#[track_caller]
pub(crate) fn assert_same(left: &Path, right: &Path, times: Times) {
    let (before, after) = (scan(left, times), scan(right, times));
    let differences: Vec<String> = before
        .iter()
        .filter(|(path, node)| after.get(*path) != Some(node))
        .map(|(path, node)| format!("{}: {node:?}, but {:?}", show(path), after.get(path)))
        .chain(
            after
                .keys()
                .filter(|path| !before.contains_key(*path))
                .map(|path| format!("only right: {}", show(path))),
        )
        .take(20)
        .collect();
    let (left_name, right_name) = (left.display(), right.display());
    assert!(differences.is_empty(), "{left_name} and {right_name}:\n{}", differences.join("\n"));
    for (path, node) in &before {
        if let Node::File { .. } = node {
            let path = OsStr::from_bytes(path);
            let same = fs::read(left.join(path)).unwrap() == fs::read(right.join(path)).unwrap();
            assert!(same, "{left_name} and {right_name} differ in the contents of {}", path.display());
        }
    }
}

fn show(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

fn scan(root: &Path, times: Times) -> BTreeMap<Vec<u8>, Node> {
    let mut nodes = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let relative = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_owned();
            if relative.starts_with(b".millrace") {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).unwrap();
            let node = if metadata.is_dir() {
                directories.push(path);
                Node::Directory
            } else if metadata.is_symlink() {
                Node::Link(fs::read_link(&path).unwrap().into_os_string().as_bytes().to_owned())
            } else {
                Node::File {
                    length: metadata.len(),
                    modified: (times == Times::Kept).then(|| metadata.mtime()),
                }
            };
            nodes.insert(relative, node);
        }
    }
    nodes
}
