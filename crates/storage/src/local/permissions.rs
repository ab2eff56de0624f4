//! Changes permission bits by an `O_PATH` descriptor, which needs no right to read the file, and which `fchmod` refuses
//! with `EBADF`.
//!
//! The kernel takes such a descriptor by the name that `/proc` has for it. Where `/proc` is not mounted (a container, a
//! `chroot`), a directory is reached by its own `.`, and anything else by being opened to read or to write; what lets the
//! server do neither keeps its bits. `fchmodat2` (Linux 6.6) would take the descriptor itself: no crate offers that
//! without `unsafe` yet.

use std::os::fd::{AsFd, OwnedFd};

use millrace_vfs::{FileError, FileKind, VirtualPath, Wait};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::disk;
use super::errno::file_error;
use super::metadata;
use super::tree::{DESCRIPTORS, Tree};

/// Gives what `path` led to these bits. May wait.
pub(super) fn change(tree: &Tree, path: &VirtualPath, place: &OwnedFd, bits: Mode) -> Result<(), FileError> {
    if let Some(changed) = disk::set_mode(place, bits) {
        return changed.map_err(file_error);
    }
    change_by(DESCRIPTORS, tree, path, place, bits)
}

fn change_by(
    descriptors: &str,
    tree: &Tree,
    path: &VirtualPath,
    place: &OwnedFd,
    bits: Mode,
) -> Result<(), FileError> {
    use std::os::fd::AsRawFd;
    let name = format!("{descriptors}/{}", place.as_fd().as_raw_fd());
    match disk::chmodat(CWD, name, bits, AtFlags::empty()) {
        // An open file has such a name wherever `/proc` is mounted.
        Err(Errno::NOENT | Errno::NOTDIR) => change_without_names(tree, path, place, bits),
        result => result.map_err(file_error),
    }
}

fn change_without_names(
    tree: &Tree,
    path: &VirtualPath,
    place: &OwnedFd,
    bits: Mode,
) -> Result<(), FileError> {
    let found = metadata::of_descriptor(place)?;
    if found.is_directory() {
        match disk::chmodat(place, c".", bits, AtFlags::empty()) {
            // It may be readable, though not searchable.
            Err(Errno::ACCESS) => {}
            result => return result.map_err(file_error),
        }
    } else if found.kind != FileKind::File {
        // To open a pipe or a device does something.
        return Err(FileError::Unsupported);
    }
    let open =
        |how| tree.open_at(path, how | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty(), Wait::Allowed);
    let opened = match open(OFlags::RDONLY) {
        Err(FileError::PermissionDenied) if !found.is_directory() => open(OFlags::WRONLY),
        opened => opened,
    };
    let opened = opened.map_err(|error| match error {
        FileError::PermissionDenied => FileError::Unsupported,
        error => error,
    })?;
    if metadata::of_descriptor(&opened)?.identity != found.identity {
        // Another file has taken its place, which was not to be changed.
        return Err(FileError::Busy);
    }
    disk::fchmod(&opened, bits).map_err(file_error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Where no descriptor has a name, as where `/proc` is not mounted.
    const NOWHERE: &str = "/proc-is-not-mounted/self/fd";

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("millrace-unit-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn mode(&self, name: &str) -> u32 {
            self.0.join(name).metadata().unwrap().permissions().mode() & 0o7777
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn path(text: &str) -> VirtualPath {
        VirtualPath::root().resolve(text.as_bytes()).unwrap()
    }

    fn place(tree: &Tree, text: &str) -> OwnedFd {
        tree.open_at(&path(text), OFlags::PATH, Mode::empty(), Wait::Allowed).unwrap()
    }

    fn change_to(descriptors: &str, root: &Path, text: &str, bits: u32) -> Result<(), FileError> {
        let tree = Tree::open(root).unwrap();
        let place = place(&tree, text);
        change_by(descriptors, &tree, &path(text), &place, Mode::from_raw_mode(bits))
    }

    #[test]
    fn bits_are_changed_whether_proc_is_mounted_or_not() {
        let scratch = Scratch::new("bits");
        std::fs::create_dir(scratch.0.join("d")).unwrap();
        std::fs::write(scratch.0.join("d/f"), "f").unwrap();
        std::os::unix::fs::symlink("d/f", scratch.0.join("link")).unwrap();
        for descriptors in [DESCRIPTORS, NOWHERE] {
            for (text, name, bits) in [
                ("/d/f", "d/f", 0o604),
                ("/link", "d/f", 0o640),
                ("/d", "d", 0o2750),
                ("/", "", 0o711),
                ("/d/f", "d/f", 0o444),
                ("/d/f", "d/f", 0o200),
                ("/d/f", "d/f", 0o644),
            ] {
                change_to(descriptors, &scratch.0, text, bits).unwrap();
                assert_eq!(scratch.mode(name), bits, "{descriptors} {text}");
            }
        }
    }

    #[test]
    fn unreadable_files_keep_their_bits_without_proc() {
        let scratch = Scratch::new("no-bits");
        let _listener = UnixListener::bind(scratch.0.join("socket")).unwrap();
        rustix::fs::mknodat(CWD, scratch.0.join("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for name in ["socket", "pipe"] {
            let before = scratch.mode(name);
            let refused = change_to(NOWHERE, &scratch.0, &format!("/{name}"), 0o604);
            assert!(matches!(refused, Err(FileError::Unsupported)), "{name}: {refused:?}");
            assert_eq!(scratch.mode(name), before);
            change_to(DESCRIPTORS, &scratch.0, &format!("/{name}"), 0o604).unwrap();
            assert_eq!(scratch.mode(name), 0o604, "{name}");
        }
        // Root reads everything.
        std::fs::write(scratch.0.join("f"), "f").unwrap();
        change_to(DESCRIPTORS, &scratch.0, "/f", 0).unwrap();
        match change_to(NOWHERE, &scratch.0, "/f", 0o604) {
            Ok(()) => assert_eq!(scratch.0.metadata().unwrap().uid(), 0),
            refused => assert!(matches!(refused, Err(FileError::Unsupported)), "{refused:?}"),
        }
    }

    #[test]
    fn a_file_put_in_its_place_meanwhile_is_left_alone() {
        let scratch = Scratch::new("swapped");
        std::fs::write(scratch.0.join("f"), "asked for").unwrap();
        std::fs::write(scratch.0.join("other"), "another").unwrap();
        let tree = Tree::open(&scratch.0).unwrap();
        let place = place(&tree, "/f");
        std::fs::rename(scratch.0.join("other"), scratch.0.join("f")).unwrap();
        let before = scratch.mode("f");
        let refused = change_by(NOWHERE, &tree, &path("/f"), &place, Mode::from_raw_mode(0o604));
        assert!(matches!(refused, Err(FileError::Busy)), "{refused:?}");
        assert_eq!(scratch.mode("f"), before);
    }
}
