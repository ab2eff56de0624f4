//! Symbolic links: followed within the tree, and never out of it.

use super::{Claim, entries, path, read, write};
use crate::{FileError, FileKind, Storage, Wait, WriteMode};

pub(super) const CLAIMS: &[(&str, Claim)] = &[
    ("a link within the tree is followed", links_are_followed),
    ("a link that leads out is refused", links_that_lead_out),
    ("links in a circle end", links_in_a_circle),
    ("an upload through a link writes what it leads to", upload_through_a_link),
];

fn links_are_followed(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    write(storage, "/d/f", b"content");
    if !link(storage, b"d/f", "/to-file") {
        return;
    }
    link(storage, b"d", "/to-directory");
    link(storage, b"../d/./f", "/d/through-the-parent");
    link(storage, b"missing", "/dangling");
    for way in ["/to-file", "/to-directory/f", "/d/through-the-parent", "/to-directory/through-the-parent"] {
        assert_eq!(read(storage, way).unwrap(), b"content", "{way}");
        assert_eq!(storage.metadata(&path(way), Wait::Allowed).unwrap().kind, FileKind::File);
    }
    let entry = storage.entry(&path("/to-file")).unwrap();
    assert_eq!((entry.metadata.kind, entry.link_text()), (FileKind::Symlink, Some(&b"d/f"[..])));
    refused!(storage.metadata(&path("/dangling"), Wait::Allowed), NotFound);
    let listed = entries(storage, "/", 10);
    let listed = |name: &[u8]| listed.iter().find(|entry| entry.name == name).unwrap();
    assert_eq!(listed(b"to-file").metadata.size, 7);
    assert_eq!(listed(b"to-file").link_text(), Some(&b"d/f"[..]));
    assert_eq!(listed(b"to-file").own_metadata(), &entry.metadata, "a link itself, listed and asked for");
    assert!(listed(b"to-directory").metadata.is_directory());
    assert_eq!(listed(b"dangling").metadata.kind, FileKind::Symlink);
    refused!(storage.remove_directory(&path("/to-directory")), NotDirectory);
    storage.remove_file(&path("/to-directory")).unwrap();
    assert_eq!(read(storage, "/d/f").unwrap(), b"content");
}

fn links_that_lead_out(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    for target in [&b"/"[..], b"/etc", b"..", b"../..", b"d/../../outside", b"../../../../../../etc/passwd"] {
        if !link(storage, target, "/out") {
            return;
        }
        for way in ["/out", "/out/deeper"] {
            refused!(storage.open_read(&path(way), Wait::Allowed), PermissionDenied);
            refused!(storage.metadata(&path(way), Wait::Allowed), PermissionDenied);
            refused!(storage.open_directory(&path(way)), PermissionDenied);
            let wanted = storage.open_write(&path(way), WriteMode::Append, Wait::Allowed);
            refused!(wanted, PermissionDenied);
            // Beside a link whose last step is `..` there is no name to write to.
            let wanted = storage.open_write(&path(way), WriteMode::Replace, Wait::Allowed);
            refused!(wanted, PermissionDenied | IsDirectory);
        }
        refused!(storage.make_directory(&path("/out/d")), PermissionDenied);
        refused!(storage.remove_file(&path("/out/f")), PermissionDenied);
        refused!(storage.rename(&path("/d"), &path("/out/d")), PermissionDenied);
        storage.remove_file(&path("/out")).unwrap();
    }
}

fn links_in_a_circle(storage: &dyn Storage) {
    if !link(storage, b"b", "/a") {
        return;
    }
    link(storage, b"a", "/b");
    refused!(storage.open_read(&path("/a"), Wait::Allowed), Loop);
    refused!(storage.metadata(&path("/a/x"), Wait::Allowed), Loop);
    refused!(storage.open_write(&path("/a"), WriteMode::Replace, Wait::Allowed), Loop);
    assert_eq!(entries(storage, "/", 10).len(), 2);
}

fn upload_through_a_link(storage: &dyn Storage) {
    storage.make_directory(&path("/d")).unwrap();
    write(storage, "/d/f", b"old");
    if !link(storage, b"d/f", "/link") {
        return;
    }
    link(storage, b"link", "/link-to-link");
    link(storage, b"../d/new", "/d/to-nothing-yet");
    for (way, target) in [("/link", "/d/f"), ("/link-to-link", "/d/f"), ("/d/to-nothing-yet", "/d/new")] {
        write(storage, way, way.as_bytes());
        assert_eq!(read(storage, target).unwrap(), way.as_bytes());
        assert_eq!(storage.entry(&path(way)).unwrap().metadata.kind, FileKind::Symlink);
    }
}

/// Makes a link, or says that this back end has none.
fn link(storage: &dyn Storage, target: &[u8], link: &str) -> bool {
    match storage.make_symlink(target, &path(link)) {
        Ok(()) => true,
        Err(FileError::Unsupported) => false,
        Err(error) => panic!("a link to {target:?} is refused with {error:?}"),
    }
}
