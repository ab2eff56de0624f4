//! Full devices, and other file systems within the tree. Needs leave to mount; says so where there is none.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Scratch, download, path, upload};
use millrace_storage::{LocalOptions, LocalStorage};
use millrace_vfs::{FileError, Storage, Wait};

/// One test at a time: a process that another one starts has our descriptors until it becomes `mount`, and
/// with them the space of files that we have long deleted.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A small file system, gone with the test.
struct Mounted<'a> {
    path: &'a Path,
    _alone: MutexGuard<'static, ()>,
}

impl<'a> Mounted<'a> {
    fn new(path: &'a Path, options: &str) -> Option<Self> {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "millrace-test"]).arg(path).status();
        status.is_ok_and(|status| status.success()).then_some(Self { path, _alone })
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path).status();
    }
}

#[test]
fn a_full_device_leaves_the_old_file_and_nothing_else() {
    let scratch = Scratch::new();
    let Some(_mounted) = Mounted::new(scratch.path(), "size=1m") else {
        println!("skipped: a tmpfs cannot be mounted here");
        return;
    };
    let storage = LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap();
    upload(&storage, "/f", b"old").unwrap();
    for name in ["/f", "/new"] {
        let error = upload(&storage, name, &vec![b'x'; 2 << 20]).unwrap_err();
        assert!(matches!(error, FileError::NoSpace), "{error:?}");
        assert_eq!(download(&storage, "/f").unwrap(), b"old");
    }
    upload(&storage, "/f", b"newer").unwrap();
    assert_eq!(download(&storage, "/f").unwrap(), b"newer");
    drop(storage);
    assert_eq!(scratch.names(), ["f"]);
}

/// Nothing can be renamed from the root's staging directory into another mount.
#[test]
fn another_mount_in_the_tree_is_staged_beside_the_name_and_swept_by_a_walk() {
    let scratch = Scratch::new();
    let mount = scratch.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let Some(_mounted) = Mounted::new(&mount, "size=1m") else {
        println!("skipped: a tmpfs cannot be mounted here");
        return;
    };
    let storage = LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap();
    let inline = storage.metadata(&path("/mount"), Wait::Never);
    assert!(matches!(inline, Err(FileError::WouldWait)), "{inline:?}");
    for content in [b"first", b"again"] {
        upload(&storage, "/mount/f", content).unwrap();
        assert_eq!(download(&storage, "/mount/f").unwrap(), content);
    }
    upload(&storage, "/f", b"content").unwrap();
    let error = storage.rename(&path("/f"), &path("/mount/g")).unwrap_err();
    assert!(matches!(error, FileError::CrossDevice), "{error:?}");
    assert_eq!(storage.copy(&path("/f"), &path("/mount/g"), &mut |_| true).unwrap(), 7);
    assert_eq!(std::fs::read_dir(&mount).unwrap().count(), 2, "nothing hidden stays");
    std::fs::write(mount.join(".millrace-1-2-3.part"), "dead").unwrap();
    drop(storage);
    assert!(scratch.path().join(".millrace-staging/elsewhere").exists());
    let storage = LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap();
    let report = storage.sweep();
    assert_eq!((report.removed, report.failed), (1, 0));
    assert_eq!(scratch.names(), ["f", "mount"]);
}
