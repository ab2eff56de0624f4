//! Nothing outside the tree is reachable, even if links are swapped meanwhile; and no reactor thread blocks.

mod common;

use std::os::unix::fs::{FileTypeExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Scratch, download, path, upload};
use millrace_storage::{Durability, LocalOptions, LocalStorage, Uploads};
use millrace_vfs::{Change, FileError, ReadHandle, Readiness, Storage, Wait, WriteMode};

fn local(scratch: &Scratch) -> LocalStorage {
    LocalStorage::open(scratch.path(), LocalOptions::default()).unwrap()
}

/// CVE-2017-7418 (the last component was checked, the others not) and CVE-2015-1419 (a name was compared before it was
/// resolved): while a directory is swapped for a link that leads out.
#[test]
fn a_link_swapped_in_between_never_leads_out() {
    const ROUNDS: usize = 10_000;
    let (outside, scratch) = (Scratch::new(), Scratch::new());
    std::fs::write(outside.path().join("secret"), "outside").unwrap();
    std::fs::create_dir(scratch.path().join("real")).unwrap();
    std::fs::write(scratch.path().join("real/secret"), "inside").unwrap();
    symlink(outside.path(), scratch.path().join("trap")).unwrap();
    let storage = local(&scratch);
    let done = AtomicBool::new(false);
    let (mut inside, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| swap_until(&scratch, &done));
        let _ends = SetWhenDropped(&done);
        for round in 0..ROUNDS {
            match download(&storage, "/real/secret") {
                Ok(content) => {
                    assert_eq!(content, b"inside");
                    inside += 1;
                }
                Err(FileError::PermissionDenied) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
            if round % 16 == 0 {
                let _ = upload(&storage, "/real/planted", b"planted");
                let _ = storage.make_directory(&path("/real/made"));
                let _ =
                    storage.change(&path("/real/secret"), Change { mode: Some(0o604), ..Change::default() });
                let _ = storage.rename(&path("/real/planted"), &path("/real/moved"));
                let _ = storage.remove_file(&path("/real/moved"));
                let _ = storage.remove_directory(&path("/real/made"));
            }
        }
    });
    assert!(inside > 0 && refused > 0, "the race was run: {inside} inside, {refused} refused");
    assert_eq!(outside.names(), ["secret"]);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &outside.path().join("secret").metadata().unwrap().permissions(),
    );
    assert_ne!(mode & 0o777, 0o604);
}

/// Ends the other thread when this one ends, also by a failed claim.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Exchanges the directory and the link, again and again, so that one of them always has the name.
fn swap_until(scratch: &Scratch, done: &AtomicBool) {
    let directory = std::fs::File::open(scratch.path()).unwrap();
    while !done.load(Ordering::Relaxed) {
        rustix::fs::renameat_with(&directory, "real", &directory, "trap", rustix::fs::RenameFlags::EXCHANGE)
            .unwrap();
    }
    if scratch.path().join("real").is_symlink() {
        rustix::fs::renameat_with(&directory, "real", &directory, "trap", rustix::fs::RenameFlags::EXCHANGE)
            .unwrap();
    }
}

#[test]
fn special_files_are_refused_without_blocking() {
    let scratch = Scratch::new();
    let directory = std::fs::File::open(scratch.path()).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(&directory, "pipe", rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(scratch.path().join("pipe").metadata().unwrap().file_type().is_fifo());
    let _socket = std::os::unix::net::UnixListener::bind(scratch.path().join("socket")).unwrap();
    let storage = local(&scratch);
    for name in ["/pipe", "/socket"] {
        let read = storage.open_read(&path(name), Wait::Allowed).unwrap_err();
        assert!(matches!(read, FileError::NotRegular), "{name}: {read:?}");
        for mode in [WriteMode::Replace, WriteMode::Append] {
            let write = storage.open_write(&path(name), mode, Wait::Allowed).unwrap_err();
            assert!(matches!(write, FileError::NotRegular), "{name}: {write:?}");
        }
    }
}

#[test]
fn reserved_names_are_hidden_and_refused() {
    let scratch = Scratch::new();
    let storage = local(&scratch);
    upload(&storage, "/f", b"first").unwrap();
    upload(&storage, "/f", b"second").unwrap();
    assert_eq!(scratch.names(), [".millrace-staging", "f"]);
    let mut names = Vec::new();
    storage
        .open_directory(&path("/"))
        .unwrap()
        .next_names(&mut |name| names.push(name.to_vec()), 100)
        .unwrap();
    assert_eq!(names, [b"f"]);
    for name in ["/.millrace-staging", "/.Millrace-Staging", "/.millrace-staging/f", "/.millrace-1-2-3.part"]
    {
        let reserved = path(name);
        let errors = [
            storage.open_read(&reserved, Wait::Allowed).unwrap_err(),
            storage.metadata(&reserved, Wait::Allowed).unwrap_err(),
            storage.entry(&reserved).unwrap_err(),
            storage.open_directory(&reserved).unwrap_err(),
            storage.remove_file(&reserved).unwrap_err(),
            storage.remove_directory(&reserved).unwrap_err(),
            storage.open_write(&reserved, WriteMode::Replace, Wait::Allowed).unwrap_err(),
            storage.open_write(&reserved, WriteMode::Append, Wait::Allowed).unwrap_err(),
            storage.make_directory(&reserved).unwrap_err(),
            storage.rename(&path("/f"), &reserved).unwrap_err(),
            storage.rename(&reserved, &path("/g")).unwrap_err(),
            storage.copy(&path("/f"), &reserved, &mut |_| true).unwrap_err(),
            storage.make_symlink(name.trim_start_matches('/').as_bytes(), &path("/link")).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, FileError::NotFound | FileError::InvalidName), "{name}: {error:?}");
        }
    }
    // A link created by another user is not a way in either.
    symlink(".millrace-staging", scratch.path().join("link")).unwrap();
    storage.open_write(&path("/link"), WriteMode::Replace, Wait::Allowed).unwrap_err();
    drop(storage);
    assert_eq!(scratch.names(), ["f", "link"], "an empty staging directory goes with its last user");
}

#[test]
fn cached_names_are_answered_on_a_reactor_thread_and_creations_are_not() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("f"), "content").unwrap();
    for (uploads, durability) in [
        (Uploads::Staged, Durability::None),
        (Uploads::InPlace, Durability::None),
        (Uploads::InPlace, Durability::Whole),
    ] {
        let options = LocalOptions { uploads, durability, ..LocalOptions::default() };
        let storage = LocalStorage::open(scratch.path(), options).unwrap();
        let ReadHandle::File(range) = storage.open_read(&path("/f"), Wait::Never).unwrap() else { panic!() };
        assert_eq!((range.size, range.readiness), (7, Readiness::Cached));
        assert_eq!(storage.metadata(&path("/f"), Wait::Never).unwrap().size, 7);
        assert!(storage.metadata(&path("/"), Wait::Never).unwrap().is_directory());
        let over_old = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Never).unwrap();
        let expected = if uploads == Uploads::Staged { Readiness::MayHang } else { Readiness::Cached };
        assert_eq!(over_old.readiness(), expected);
        // Nothing came, and the old file is longer than nothing.
        assert_eq!(over_old.commit_readiness(), Readiness::MayHang);
        drop(over_old);
        std::fs::write(scratch.path().join("f"), "content").unwrap();
        let append = storage.open_write(&path("/f"), WriteMode::Append, Wait::Never).unwrap();
        // Bytes that are to survive a power cut have to be waited for.
        let at_the_end = if durability == Durability::None { Readiness::Cached } else { Readiness::MayHang };
        assert_eq!((append.readiness(), append.commit_readiness()), (Readiness::Cached, at_the_end));
        let made = storage.open_write(&path("/new"), WriteMode::Append, Wait::Never).unwrap_err();
        assert!(matches!(made, FileError::WouldWait), "{made:?}");
    }
}

/// `/proc` is as foreign as a network file system: unknown, so nothing of it is touched inline.
#[test]
fn an_unknown_file_system_is_never_touched_on_a_reactor_thread() {
    let storage =
        LocalStorage::open("/proc".as_ref(), LocalOptions { read_only: true, ..LocalOptions::default() })
            .unwrap();
    for name in ["/", "/version"] {
        let error = storage.metadata(&path(name), Wait::Never).unwrap_err();
        assert!(matches!(error, FileError::WouldWait), "{error:?}");
    }
    let ReadHandle::File(range) = storage.open_read(&path("/version"), Wait::Allowed).unwrap() else {
        panic!()
    };
    assert_eq!(range.readiness, Readiness::MayHang);
    // `/proc/self` is a link, and `/proc/self/cwd` a magic one.
    let error = storage.metadata(&path("/self/cwd"), Wait::Allowed).unwrap_err();
    assert!(matches!(error, FileError::Loop | FileError::PermissionDenied), "{error:?}");
    let error = storage.remove_file(&path("/version")).unwrap_err();
    assert!(matches!(error, FileError::ReadOnly), "{error:?}");
}

#[test]
fn a_directory_renamed_under_an_upload_takes_the_upload_with_it() {
    let scratch = Scratch::new();
    let storage = local(&scratch);
    storage.make_directory(&path("/before")).unwrap();
    let mut begun = storage.open_write(&path("/before/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    storage.rename(&path("/before"), &path("/after")).unwrap();
    begun.write_all(b"content").unwrap();
    begun.commit().unwrap();
    assert_eq!(download(&storage, "/after/f").unwrap(), b"content");
    let mut begun = storage.open_write(&path("/after/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    begun.write_all(b"lost").unwrap();
    storage.remove_file(&path("/after/f")).unwrap();
    storage.remove_directory(&path("/after")).unwrap();
    let error = begun.commit().unwrap_err();
    assert!(matches!(error, FileError::NotFound), "{error:?}");
}

/// The owner of one account's folder may be another account.
#[test]
fn a_root_removed_under_an_upload_is_reported_and_blocks_no_other_upload() {
    for old in [None, Some("old")] {
        let scratch = Scratch::new();
        let root = scratch.path().join("root");
        std::fs::create_dir(&root).unwrap();
        if let Some(old) = old {
            std::fs::write(root.join("f"), old).unwrap();
        }
        let storage = LocalStorage::open(&root, LocalOptions::default()).unwrap();
        let mut begun = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
        begun.write_all(&[7; 300_000]).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let ends = [begun.commit().unwrap_err(), upload(&storage, "/g", b"content").unwrap_err()];
            tell.send(ends).unwrap();
        });
        let ends = told.recv_timeout(std::time::Duration::from_secs(30)).expect("it ends");
        assert!(ends.iter().all(|error| matches!(error, FileError::NotFound)), "{ends:?}");
    }
}

#[test]
fn a_root_that_cannot_be_served_is_named() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("f"), "").unwrap();
    for name in ["missing", "f"] {
        let root = scratch.path().join(name);
        let error = LocalStorage::open(&root, LocalOptions::default()).unwrap_err();
        assert!(error.to_string().contains(root.to_str().unwrap()), "{error}");
    }
}
