//! What a name resolves to: a file, of which any part can be read, a directory, or nothing. Names are bytes.

use super::{Claim, names, path, pattern, read, read_at, read_path, write, write_path};
use crate::{Change, FileError, Storage, VirtualPath, Wait, WriteMode};

pub(super) const CLAIMS: &[(&str, Claim)] = &[
    ("the root is a directory that stays", root_stays),
    ("what is missing is not found", missing_is_not_found),
    ("a file is no directory, nor a directory a file", kinds_are_told_apart),
    ("names are bytes", names_are_bytes),
    ("names of 255 bytes are held", long_names),
    ("a reader can read any part", read_parts),
];

fn root_stays(storage: &dyn Storage) {
    let root = VirtualPath::root();
    assert!(storage.metadata(&root, Wait::Allowed).unwrap().is_directory());
    assert!(storage.entry(&root).unwrap().metadata.is_directory());
    storage.remove_directory(&root).unwrap_err();
    storage.remove_file(&root).unwrap_err();
    storage.rename(&root, &path("/elsewhere")).unwrap_err();
    refused!(storage.make_directory(&root), AlreadyExists);
    refused!(storage.open_read(&root, Wait::Allowed), IsDirectory);
    storage.open_write(&root, WriteMode::Replace, Wait::Allowed).unwrap_err();
    assert!(storage.metadata(&root, Wait::Allowed).unwrap().is_directory());
}

fn missing_is_not_found(storage: &dyn Storage) {
    for missing in ["/missing", "/missing/deeper"] {
        let missing = path(missing);
        refused!(storage.open_read(&missing, Wait::Allowed), NotFound);
        refused!(storage.metadata(&missing, Wait::Allowed), NotFound);
        refused!(storage.entry(&missing), NotFound);
        refused!(storage.open_directory(&missing), NotFound);
        refused!(storage.remove_file(&missing), NotFound);
        refused!(storage.remove_directory(&missing), NotFound);
        refused!(storage.rename(&missing, &path("/to")), NotFound);
        refused!(storage.change(&missing, Change { mode: Some(0o600), ..Change::default() }), NotFound);
        refused!(storage.copy(&missing, &path("/to"), &mut |_| true), NotFound);
    }
    refused!(storage.open_write(&path("/missing/f"), WriteMode::Replace, Wait::Allowed), NotFound);
    refused!(storage.open_write(&path("/missing/f"), WriteMode::Append, Wait::Allowed), NotFound);
    refused!(storage.open_write(&path("/f"), WriteMode::At(1), Wait::Allowed), NotFound);
    refused!(storage.make_directory(&path("/missing/d")), NotFound);
    assert!(names(storage, "/").is_empty());
}

fn kinds_are_told_apart(storage: &dyn Storage) {
    write(storage, "/f", b"file");
    storage.make_directory(&path("/d")).unwrap();
    write(storage, "/d/inside", b"file");
    refused!(storage.open_directory(&path("/f")), NotDirectory);
    refused!(storage.metadata(&path("/f/x"), Wait::Allowed), NotDirectory);
    refused!(storage.open_read(&path("/f/x"), Wait::Allowed), NotDirectory);
    refused!(storage.open_write(&path("/f/x"), WriteMode::Replace, Wait::Allowed), NotDirectory);
    refused!(storage.remove_directory(&path("/f")), NotDirectory);
    refused!(storage.make_directory(&path("/f")), AlreadyExists);
    refused!(storage.open_read(&path("/d"), Wait::Allowed), IsDirectory);
    for mode in [WriteMode::Replace, WriteMode::Append, WriteMode::At(0)] {
        refused!(storage.open_write(&path("/d"), mode, Wait::Allowed), IsDirectory);
    }
    refused!(storage.remove_file(&path("/d")), IsDirectory);
    refused!(storage.remove_directory(&path("/d")), NotEmpty);
    refused!(storage.copy(&path("/d"), &path("/e"), &mut |_| true), IsDirectory);
}

fn names_are_bytes(storage: &dyn Storage) {
    let mut expected = Vec::new();
    for byte in (1..=255).filter(|&byte| byte != b'/') {
        let name = [b"<", &[byte][..], b">"].concat();
        expected.push(name);
    }
    expected.extend([&b"..."[..], b" ", b"-rf", b"~", b"*", b"a\r\nb", b"\xff\xfe"].map(<[u8]>::to_vec));
    for name in &expected {
        write_path(storage, &VirtualPath::root().join(name).unwrap(), name);
    }
    expected.sort();
    assert_eq!(names(storage, "/"), expected);
    for name in &expected {
        let path = VirtualPath::root().join(name).unwrap();
        assert_eq!(&read_path(storage, &path).unwrap(), name);
    }
}

fn long_names(storage: &dyn Storage) {
    let name = "n".repeat(VirtualPath::MAX_NAME);
    write(storage, &name, b"content");
    assert_eq!(read(storage, &name).unwrap(), b"content");
    write(storage, &name, b"again");
    assert_eq!(names(storage, "/"), [name.as_bytes()]);
}

fn read_parts(storage: &dyn Storage) {
    let content = pattern(100_000);
    write(storage, "/f", &content);
    let mut handle = storage.open_read(&path("/f"), Wait::Allowed).unwrap();
    for (offset, length) in [(0, 1), (99_999, 10), (50_000, 20_000), (100_000, 1), (200_000, 1)] {
        let end = content.len().min(offset + length);
        let expected = content.get(offset..end).unwrap_or_default();
        assert_eq!(read_at(&mut handle, offset as u64, length), expected);
    }
}
