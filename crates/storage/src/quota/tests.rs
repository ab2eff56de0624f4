use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::{LocalOptions, LocalStorage, MemoryStorage, Uploads};

const UNLIMITED: Allowance = Allowance { bytes: None, files: None };

/// A folder of this machine, for as long as a test runs.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("millrace-quota-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("tree")).unwrap();
        Self(path)
    }

    fn local(&self, uploads: Uploads) -> Arc<dyn Storage> {
        let options = LocalOptions { uploads, ..LocalOptions::default() };
        Arc::new(LocalStorage::open(&self.0.join("tree"), options).unwrap())
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(Some(self.0.join("quotas.db")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::root().join(text.as_bytes()).unwrap()
}

fn quota_of(storage: Arc<dyn Storage>, bytes: u64, files: u64) -> Quota {
    let tally = Arc::new(Tally::new("test", Arc::clone(&storage)));
    Quota::new(storage, tally, Allowance { bytes: Some(bytes), files: Some(files) }, QuotaScope::Account)
}

/// Back ends that stage, and one that writes in place.
fn quotas(bytes: u64, files: u64) -> Vec<(Quota, Option<Folder>)> {
    let (staged, in_place) = (Folder::new(), Folder::new());
    vec![
        (quota_of(Arc::new(MemoryStorage::new()), bytes, files), None),
        (quota_of(staged.local(Uploads::Staged), bytes, files), Some(staged)),
        (quota_of(in_place.local(Uploads::InPlace), bytes, files), Some(in_place)),
    ]
}

fn store(quota: &Quota, name: &str, mode: WriteMode, size: usize) -> Result<u64, FileError> {
    let mut upload = quota.open_write(&path(name), mode, Wait::Allowed)?;
    for piece in vec![7; size].chunks(10) {
        upload.write_all(piece)?;
    }
    upload.commit().map(|committed| committed.size)
}

/// Checks that the tally equals the result of a walk.
#[track_caller]
fn check(quota: &Quota, bytes: u64, files: u64) {
    assert_eq!(quota.0.tally.used(), (bytes, files));
    let walked = Tally::new("walk", Arc::clone(&quota.0.inner)).recount().unwrap();
    assert_eq!((walked.bytes, walked.files), (bytes, files));
}

#[track_caller]
fn is_over<T: std::fmt::Debug>(result: Result<T, FileError>, counted: Counted) {
    match result {
        Err(FileError::OverQuota(over)) => assert_eq!(over.counted, counted),
        other => panic!("not over a quota: {other:?}"),
    }
}

#[test]
fn it_is_a_storage_like_any_other() {
    for (quota, _folder) in quotas(u64::MAX, u64::MAX) {
        millrace_vfs::conformance::run(&quota);
        let held = Tally::new("walk", Arc::clone(&quota.0.inner)).recount().unwrap();
        check(&quota, held.bytes, held.files);
    }
}

#[test]
fn bytes_end_at_the_quota_and_come_back_with_what_is_removed() {
    for (quota, _folder) in quotas(100, 10) {
        assert_eq!(store(&quota, "a", WriteMode::Replace, 60).unwrap(), 60);
        is_over(store(&quota, "b", WriteMode::Replace, 41), Counted::Bytes);
        // In place, what came is there.
        if quota.entry(&path("b")).is_ok() {
            assert_eq!(quota.0.tally.used(), (100, 2));
            quota.remove_file(&path("b")).unwrap();
        }
        check(&quota, 60, 1);
        assert_eq!(store(&quota, "b", WriteMode::CreateNew, 40).unwrap(), 40);
        is_over(store(&quota, "a", WriteMode::Append, 1), Counted::Bytes);
        is_over(store(&quota, "c", WriteMode::Replace, 0), Counted::Bytes);
        let space = quota.space(&path("a")).unwrap();
        assert_eq!((space.available, space.total), (0, 100));
        let held = Held { bytes: 100, most_bytes: Some(100), files: 2, most_files: Some(10) };
        assert_eq!(space.held, Some(held));
        quota.remove_file(&path("b")).unwrap();
        check(&quota, 60, 1);
        assert_eq!(store(&quota, "a", WriteMode::Append, 5).unwrap(), 65);
        assert_eq!(store(&quota, "a", WriteMode::At(60), 10).unwrap(), 70);
        check(&quota, 70, 1);
        // Over an existing file only the difference counts, up and down.
        assert_eq!(store(&quota, "a", WriteMode::Replace, 100).unwrap(), 100);
        check(&quota, 100, 1);
        assert_eq!(store(&quota, "a", WriteMode::Replace, 30).unwrap(), 30);
        check(&quota, 30, 1);
    }
}

#[test]
fn files_end_at_the_quota() {
    for (quota, _folder) in quotas(1000, 2) {
        store(&quota, "a", WriteMode::Replace, 1).unwrap();
        store(&quota, "b", WriteMode::Replace, 1).unwrap();
        is_over(store(&quota, "c", WriteMode::Replace, 1), Counted::Files);
        is_over(quota.copy(&path("a"), &path("c"), &mut |_| true), Counted::Files);
        store(&quota, "a", WriteMode::Replace, 2).unwrap();
        quota.make_directory(&path("d")).unwrap();
        quota.rename(&path("a"), &path("b")).unwrap();
        check(&quota, 2, 1);
        quota.copy(&path("b"), &path("d/c"), &mut |_| true).unwrap();
        check(&quota, 4, 2);
        assert!(quota.copy(&path("b"), &path("d/c"), &mut |_| false).is_err());
        check(&quota, 4, 2);
        store(&quota, "d/c", WriteMode::Replace, 7).unwrap();
        quota.copy(&path("b"), &path("d/c"), &mut |_| true).unwrap();
        check(&quota, 4, 2);
    }
}

#[test]
fn an_upload_that_is_given_up_counts_what_it_leaves() {
    for (quota, _folder) in quotas(100, 1) {
        let mut upload = quota.open_write(&path("a"), WriteMode::Replace, Wait::Allowed).unwrap();
        upload.write_all(&[7; 100]).unwrap();
        assert_eq!(quota.0.tally.used(), (100, 1));
        drop(upload);
        match quota.entry(&path("a")) {
            Ok(_) => check(&quota, 100, 1),
            Err(_) => check(&quota, 0, 0),
        }
    }
}

#[test]
fn an_upload_of_which_nothing_came_counts_nothing() {
    for (quota, _folder) in quotas(100, 2) {
        store(&quota, "a", WriteMode::Replace, 60).unwrap();
        for name in ["a", "new"] {
            for mode in [WriteMode::Replace, WriteMode::Append] {
                drop(quota.open_write(&path(name), mode, Wait::Allowed).unwrap());
                quota.open_write(&path(name), mode, Wait::Allowed).unwrap().undo();
            }
        }
        let made = u64::from(quota.entry(&path("new")).is_ok());
        check(&quota, 60, 1 + made);
    }
}

/// No data came, so none is freed, wherever the file is by then.
#[test]
fn a_file_that_is_renamed_under_an_upload_that_is_given_up_gives_no_credit() {
    for (quota, _folder) in quotas(100, 5) {
        store(&quota, "a", WriteMode::Replace, 60).unwrap();
        for (from, to, mode) in
            [("a", "b", WriteMode::Append), ("b", "a", WriteMode::Replace), ("a", "b", WriteMode::At(60))]
        {
            let upload = quota.open_write(&path(from), mode, Wait::Allowed).unwrap();
            quota.rename(&path(from), &path(to)).unwrap();
            upload.abort();
            check(&quota, 60, 1);
            let upload = quota.open_write(&path(to), mode, Wait::Allowed).unwrap();
            quota.rename(&path(to), &path(from)).unwrap();
            upload.undo();
            check(&quota, 60, 1);
            quota.rename(&path(from), &path(to)).unwrap();
        }
    }
}

#[test]
fn a_file_that_vanishes_under_its_replacement_gives_no_credit() {
    let quota = quota_of(Arc::new(MemoryStorage::new()), 100, 10);
    store(&quota, "a", WriteMode::Replace, 60).unwrap();
    let mut upload = quota.open_write(&path("a"), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(&[7; 60]).unwrap();
    quota.remove_file(&path("a")).unwrap();
    store(&quota, "b", WriteMode::Replace, 100).unwrap();
    is_over(upload.commit(), Counted::Bytes);
    check(&quota, 100, 1);
}

#[test]
fn uploads_at_once_are_never_over_together() {
    for (quota, _folder) in quotas(1000, 100) {
        thread::scope(|scope| {
            for number in 0..8 {
                let quota = &quota;
                scope.spawn(move || {
                    let name = format!("{number}");
                    for _ in 0..20 {
                        let _ = store(quota, &name, WriteMode::Replace, 300);
                        let (bytes, files) = quota.0.tally.used();
                        assert!(bytes <= 1000 && files <= 100, "{bytes} {files}");
                        if number % 2 == 0 {
                            let _ = quota.remove_file(&path(&name));
                        }
                    }
                });
            }
        });
        let (bytes, files) = quota.0.tally.used();
        check(&quota, bytes, files);
    }
}

/// The same names, replaced, renamed over, copied over and removed by many at once.
#[test]
fn changes_of_the_same_names_at_once_are_counted_once_each() {
    let quotas = quotas(100_000, 1000);
    for (quota, _folder) in quotas.iter().take(2) {
        thread::scope(|scope| {
            for number in 0..8_usize {
                scope.spawn(move || {
                    for round in 0..40 {
                        let name = format!("{}", (number + round) % 3);
                        let _ = match (number * 7 + round) % 4 {
                            0 => quota.remove_file(&path(&name)),
                            1 => {
                                let own = format!("own-{number}");
                                store(quota, &own, WriteMode::Replace, 10 + number).unwrap();
                                quota.rename(&path(&own), &path(&name))
                            }
                            _ => store(quota, &name, WriteMode::Replace, round * 10).map(drop),
                        };
                    }
                });
            }
        });
        let (bytes, files) = quota.0.tally.used();
        check(quota, bytes, files);
    }
}

#[test]
fn spliced_bytes_are_counted_and_end_at_the_quota() {
    let folder = Folder::new();
    let quota = quota_of(folder.local(Uploads::InPlace), 3 << 20, 10);
    let mut upload = quota.open_write(&path("a"), WriteMode::Replace, Wait::Allowed).unwrap();
    for _ in 0..2 {
        let (file, position) = upload.file().unwrap().expect("there is room for a pipe");
        std::os::unix::fs::FileExt::write_all_at(file, &vec![7; 1 << 20], position).unwrap();
        upload.advance(1 << 20);
    }
    upload.write_all(&[7; 10]).unwrap();
    assert!(upload.file().unwrap().is_none(), "a pipe would not fit");
    upload.write_all(&vec![7; (1 << 20) - 10]).unwrap();
    is_over(upload.write_all(&[7]), Counted::Bytes);
    drop(upload);
    check(&quota, 3 << 20, 1);
}

#[test]
fn quiet_trees_are_stored_and_others_counted_again() {
    let folder = Folder::new();
    let tree = folder.local(Uploads::InPlace);
    let allowance = Allowance { bytes: Some(100), files: None };
    let quota = |ledger: &Ledger| {
        Quota::new(Arc::clone(&tree), ledger.tally("t", &tree), allowance, QuotaScope::Account)
    };
    let stray = |name: &str| std::fs::write(folder.0.join("tree").join(name), [7; 10]).unwrap();
    let used = |quota: &Quota| quota.space(&path("")).unwrap().held.unwrap().bytes;

    let first = folder.ledger();
    store(&quota(&first), "a", WriteMode::Replace, 40).unwrap();
    first.keep(true).unwrap();
    drop(first);
    stray("b");
    // The count was stored: the tree was not walked again.
    let second = folder.ledger();
    assert_eq!(used(&quota(&second)), 40);
    assert_eq!(second.recount(Some("other")).unwrap(), []);
    let report = second.recount(None).unwrap();
    assert_eq!((report[0].bytes, report[0].files, report[0].exact), (50, 2, true));
    let upload = quota(&second).open_write(&path("c"), WriteMode::Replace, Wait::Allowed).unwrap();
    second.keep(true).unwrap();
    // Killed while an upload runs: the row is not to be believed.
    std::mem::forget(upload);
    std::mem::forget(second);
    stray("d");
    assert_eq!(used(&quota(&folder.ledger())), 60);
}

/// Another number of bytes each time that a test says so.
#[derive(Debug)]
struct Changing(Arc<AtomicU64>);

impl Allowances for Changing {
    fn now(&self) -> Allowance {
        Allowance { bytes: Some(self.0.load(Ordering::Relaxed)), files: None }
    }
}

#[test]
fn an_allowance_that_changes_holds_for_uploads_that_run_and_takes_nothing_away() {
    for (quota, _folder) in quotas(u64::MAX, u64::MAX) {
        let (most, storage) = (Arc::new(AtomicU64::new(100)), Arc::clone(&quota.0.inner));
        let tally = Arc::clone(&quota.0.tally);
        let quota = Quota::new(storage, tally, Changing(Arc::clone(&most)), QuotaScope::Account);
        let mut upload = quota.open_write(&path("a"), WriteMode::Replace, Wait::Allowed).unwrap();
        upload.write_all(&[7; 60]).unwrap();
        most.store(50, Ordering::Relaxed);
        is_over(upload.write_all(b"x"), Counted::Bytes);
        most.store(61, Ordering::Relaxed);
        upload.write_all(b"x").unwrap();
        most.store(10, Ordering::Relaxed);
        upload.commit().unwrap();
        check(&quota, 61, 1);
        is_over(store(&quota, "b", WriteMode::Replace, 1), Counted::Bytes);
        let space = quota.space(&path("a")).unwrap();
        assert_eq!((space.available, space.held.unwrap().most_bytes), (0, Some(10)));
        quota.remove_file(&path("a")).unwrap();
        assert_eq!(store(&quota, "b", WriteMode::Replace, 10).unwrap(), 10);
    }
}

#[test]
fn a_reactor_never_waits_for_a_count() {
    let folder = Folder::new();
    let tree = folder.local(Uploads::InPlace);
    tree.open_write(&path("a"), WriteMode::Append, Wait::Allowed).unwrap().commit().unwrap();
    let ledger = folder.ledger();
    let quota = Quota::new(Arc::clone(&tree), ledger.tally("t", &tree), UNLIMITED, QuotaScope::Account);
    let open = |wait| quota.open_write(&path("a"), WriteMode::Append, wait).map(drop);
    assert!(matches!(open(Wait::Never), Err(FileError::WouldWait)));
    open(Wait::Allowed).unwrap();
    quota.metadata(&path("a"), Wait::Allowed).unwrap();
    open(Wait::Never).unwrap();
    ledger.keep(true).unwrap();
    assert!(matches!(open(Wait::Never), Err(FileError::WouldWait)), "the ledger has to be told first");
}

#[test]
fn a_tally_that_is_used_no_more_is_dropped_with_its_storage() {
    let folder = Folder::new();
    let tree = folder.local(Uploads::Staged);
    let held = Arc::downgrade(&tree);
    let ledger = folder.ledger();
    let quota = Quota::new(Arc::clone(&tree), ledger.tally("t", &tree), UNLIMITED, QuotaScope::Account);
    store(&quota, "a", WriteMode::Replace, 10).unwrap();
    drop((quota, tree));
    // Changed, then quiet, then in the ledger.
    for _ in 0..3 {
        ledger.keep(false).unwrap();
    }
    assert!(held.upgrade().is_none(), "nothing needs it any more");
    assert_eq!(ledger.kept("t").map(|kept| (kept.bytes, kept.exact)), Some((10, true)));
}

#[test]
fn a_ledger_that_cannot_be_used_is_told_of_and_the_tree_counted() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("quotas.db"), "no database at all, but long enough to be looked at")
        .unwrap();
    let tree = folder.local(Uploads::InPlace);
    let ledger = folder.ledger();
    assert!(ledger.open().is_err());
    let quota = Quota::new(
        Arc::clone(&tree),
        ledger.tally("t", &tree),
        Allowance { bytes: Some(50), files: None },
        QuotaScope::Account,
    );
    is_over(store(&quota, "a", WriteMode::Replace, 51), Counted::Bytes);
    let told = ledger.keep(false).unwrap_err().to_string();
    assert!(told.contains("quotas.db cannot be used"), "{told}");
}

#[test]
fn partial_uploads_count_whether_they_are_open_or_not() {
    let folder = Folder::new();
    let quota = quota_of(folder.local(Uploads::Staged), 100, 3);
    let open = |name: &str, key: u8, mode| {
        quota.open_partial(&path(name), &PartialKey::new([key; 16]), WriteMode::Replace, mode)
    };
    let mut first = open("one", 1, PartialMode::New).unwrap().upload;
    first.write_all(&[7; 60]).unwrap();
    assert_eq!(quota.0.tally.used(), (60, 1));
    first.abort();
    // It is not open and not yet a file, and its bytes are not available to others.
    assert_eq!(quota.0.tally.used(), (0, 0));
    assert_eq!(quota.space(&VirtualPath::root()).unwrap().available, 40);
    is_over(store(&quota, "big", WriteMode::Replace, 50), Counted::Bytes);
    let mut second = open("two", 2, PartialMode::New).unwrap().upload;
    is_over(second.write_all(&[7; 50]), Counted::Bytes);
    second.write_all(&[7; 30]).unwrap();
    second.abort();
    let third = open("three", 3, PartialMode::New).unwrap();
    is_over(store(&quota, "fourth", WriteMode::Replace, 1), Counted::Files);
    drop(third);
    quota.remove_partial(&path("three"), &PartialKey::new([3; 16])).unwrap();
    let mut first = open("one", 1, PartialMode::Resume).unwrap();
    assert_eq!(first.size, 60);
    first.upload.write_all(&[7; 10]).unwrap();
    is_over(first.upload.write_all(&[7; 1]), Counted::Bytes);
    first.upload.commit().unwrap();
    assert_eq!(quota.0.tally.used(), (70, 1));
    open("two", 2, PartialMode::Resume).unwrap().upload.commit().unwrap();
    check(&quota, 100, 2);
    // A file that replaces another reuses its reservation.
    let mut again = open("one", 4, PartialMode::New).unwrap();
    again.upload.write_all(&[7; 70]).unwrap();
    is_over(again.upload.write_all(&[7; 1]), Counted::Bytes);
    again.upload.commit().unwrap();
    check(&quota, 100, 2);
}

#[test]
fn uploads_that_are_joined_are_paid_for_once() {
    let folder = Folder::new();
    let quota = quota_of(folder.local(Uploads::Staged), 100, 3);
    let parts: Vec<_> =
        (1..=2_u8).map(|key| (path(&format!("part{key}")), PartialKey::new([key; 16]))).collect();
    for (path, key) in &parts {
        let mut part = quota.open_partial(path, key, WriteMode::CreateNew, PartialMode::New).unwrap().upload;
        part.write_all(&[7; 45]).unwrap();
        part.abort();
    }
    is_over(store(&quota, "big", WriteMode::Replace, 11), Counted::Bytes);
    drop(quota.join_partials(&path("whole"), &parts, WriteMode::Replace).unwrap());
    assert_eq!((quota.0.tally.used(), quota.resting().unwrap().bytes), ((0, 0), 90));
    quota.join_partials(&path("whole"), &parts, WriteMode::Replace).unwrap().upload.commit().unwrap();
    check(&quota, 90, 1);
    // And not at all where there is less than they hold by now.
    let mut late =
        quota.open_partial(&parts[0].0, &parts[0].1, WriteMode::CreateNew, PartialMode::New).unwrap();
    late.upload.write_all(&[7; 10]).unwrap();
    late.upload.abort();
    let smaller = quota_of(folder.local(Uploads::Staged), 95, 3);
    assert!(matches!(
        smaller.join_partials(&path("late"), &parts[..1], WriteMode::Replace),
        Err(FileError::OverQuota(_))
    ));
    assert_eq!(smaller.find_partial(&parts[0].0, &parts[0].1).unwrap().size, 10);
}
