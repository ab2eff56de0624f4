//! Cases that a test of the whole crate cannot cause: kernels and trees that lack a feature.

use super::*;

/// A directory that vanishes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-unit-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_system_without_unnamed_files_conforms() {
    let scratch = Scratch::new("named");
    let mut storage = LocalStorage::open(&scratch.0, LocalOptions::default()).unwrap();
    storage.staged.unnamed = false;
    millrace_vfs::conformance::run(&storage);
    drop(storage);
    let storage = LocalStorage::open(&scratch.0, LocalOptions::default()).unwrap();
    let report = storage.sweep();
    assert_eq!((report.removed, report.failed), (0, 0));
    assert!(report.walked > 0, "a mark says that hidden names were beside their targets");
    assert!(scratch.is_empty());
}

/// Each append keeps its whole lines with concurrent writers: another session, or a local program with its log.
#[test]
fn concurrent_appends_do_not_overwrite_each_other() {
    use std::io::Write;
    for uploads in [Uploads::Staged, Uploads::InPlace] {
        let scratch = Scratch::new("appends");
        let storage =
            LocalStorage::open(&scratch.0, LocalOptions { uploads, ..LocalOptions::default() }).unwrap();
        let path: VirtualPath = VirtualPath::root().resolve(b"/log").unwrap();
        let open = || storage.open_write(&path, WriteMode::Append, Wait::Allowed).unwrap();
        let (mut one, mut other) = (open(), open());
        let log = scratch.0.join("log");
        let mut local = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
        for _ in 0..3 {
            one.write_all(b"1").unwrap();
            other.write_all(b"22").unwrap();
            local.write_all(b"3").unwrap();
        }
        other.undo();
        assert_eq!(one.commit().unwrap().size, 12);
        assert_eq!(std::fs::read(&log).unwrap(), b"122312231223");
    }
}

#[test]
fn a_root_that_cannot_hold_the_staging_directory_conforms() {
    let scratch = Scratch::new("no-staging");
    let in_the_way = scratch.0.join(staging::DIRECTORY);
    std::fs::write(&in_the_way, "not a directory").unwrap();
    let storage = LocalStorage::open(&scratch.0, LocalOptions::default()).unwrap();
    millrace_vfs::conformance::run(&storage);
    std::fs::write(scratch.0.join(".millrace-1-2-3.part"), "dead").unwrap();
    let report = storage.sweep();
    assert_eq!((report.removed, report.failed, report.walked), (1, 0, 1));
    std::fs::remove_file(in_the_way).unwrap();
    assert!(scratch.is_empty());
}
