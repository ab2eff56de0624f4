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

/// So many names that two threads share them; links are followed by either.
#[test]
fn a_large_batch_has_every_entry_once_and_in_the_order_of_the_names() {
    let scratch = Scratch::new("shared-batch");
    for number in 0..1500_usize {
        match number % 100 {
            0 => std::os::unix::fs::symlink("entry-0001", scratch.0.join(format!("entry-{number:04}")))
                .unwrap(),
            _ => std::fs::write(scratch.0.join(format!("entry-{number:04}")), vec![0; number]).unwrap(),
        }
    }
    let storage = LocalStorage::open(&scratch.0, LocalOptions::default()).unwrap();
    let (mut names, mut batch) = (Vec::new(), Vec::new());
    let root = VirtualPath::root();
    storage.open_directory(&root).unwrap().next_names(&mut |name| names.push(name.to_vec()), 2048).unwrap();
    storage.open_directory(&root).unwrap().next_batch(&mut batch, 2048).unwrap();
    assert_eq!((batch.len(), names.len()), (1500, 1500));
    assert!(batch.iter().map(|entry| &entry.name).eq(&names));
    for entry in batch {
        let number: u64 = String::from_utf8_lossy(&entry.name)[6..].parse().unwrap();
        let size = if entry.link.is_some() { 1 } else { number };
        assert_eq!(
            (entry.metadata.size, entry.link.is_some()),
            (size, number.is_multiple_of(100)),
            "{number}"
        );
    }
}

/// While a large batch is used the next one has begun: names may follow entries, and a listing may be given up.
#[test]
fn batches_that_are_begun_ahead_are_neither_lost_nor_doubled() {
    let scratch = Scratch::new("batches");
    (0..5000).for_each(|number| drop(std::fs::File::create(scratch.0.join(format!("entry-{number:04}")))));
    let storage = LocalStorage::open(&scratch.0, LocalOptions::default()).unwrap();
    let open = || storage.open_directory(&VirtualPath::root()).unwrap();
    let (mut entries, mut batches, mut all) = (Vec::new(), 0, open());
    while {
        let before = entries.len();
        all.next_batch(&mut entries, 1000).unwrap();
        entries.len() > before
    } {
        batches += 1;
    }
    assert!(batches > 3, "{batches}");
    let (mut names, mut mixed, mut batch) = (Vec::new(), open(), Vec::new());
    mixed.next_batch(&mut batch, 1000).unwrap();
    names.extend(batch.iter().map(|entry| entry.name.clone()));
    while mixed.next_names(&mut |name| names.push(name.to_vec()), 1000).unwrap() > 0 {}
    assert!(entries.iter().map(|entry| &entry.name).eq(&names));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5000);
    // What vanishes meanwhile is left out, and the folder is not held by who gave up.
    let (mut given_up, mut batch) = (open(), Vec::new());
    given_up.next_batch(&mut batch, 1000).unwrap();
    drop(given_up);
    names
        .iter()
        .for_each(|name| std::fs::remove_file(scratch.0.join(std::str::from_utf8(name).unwrap())).unwrap());
    assert!(scratch.is_empty());
}
