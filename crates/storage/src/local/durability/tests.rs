use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use millrace_vfs::{PartialKey, PartialMode, Storage, Upload, VirtualPath, Wait, WriteMode};

use super::disk::observed::{Failure, Looks, WAITS, with_watch};
use super::*;
use crate::{LocalOptions, LocalStorage, Uploads};

/// The call that waits for a file's bytes, for a directory's names, and for what a file system says at the end.
const BYTES: &str = "fdatasync";
const NAME: &str = "fsync";
const CLOSE: &str = "close";

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNTER: AtomicUsize = AtomicUsize::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("millrace-durable-{}-{number}", std::process::id()));
        std::fs::create_dir_all(place.join("d")).unwrap();
        std::fs::write(place.join("old"), "old content").unwrap();
        Self(place)
    }

    fn storage(&self, durability: Durability, uploads: Uploads) -> LocalStorage {
        LocalStorage::open(&self.0, LocalOptions { durability, uploads, ..LocalOptions::default() }).unwrap()
    }

    fn old(&self) -> String {
        std::fs::read_to_string(self.0.join("old")).unwrap()
    }

    /// The names in the tree, without the staging directory.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != ".millrace-staging").collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text.as_bytes()).unwrap()
}

/// The calls waited for, in order; `fails` is the number of the one that fails, or 0.
fn waited<T>(fails: usize, act: impl FnOnce() -> T) -> (T, Vec<&'static str>) {
    with_watch(|watch| {
        watch.made.clear();
        watch.failure = Some(Failure { among: WAITS, at: fails, for_ever: false, errno: Errno::IO });
    });
    let result = act();
    let made = with_watch(|watch| {
        watch.failure = None;
        std::mem::take(&mut watch.made)
    });
    (result, made.into_iter().filter(|call| WAITS.contains(call)).collect())
}

fn store(storage: &LocalStorage, name: &str, mode: WriteMode) -> Result<(), FileError> {
    let mut upload = storage.open_write(&path(name), mode, Wait::Allowed)?;
    upload.write_all(b"new")?;
    upload.commit().map(drop)
}

fn piece(storage: &LocalStorage, mode: PartialMode) -> Result<Box<dyn Upload>, FileError> {
    let key = PartialKey::new([7; 16]);
    let mut upload = storage.open_partial(&path("/old"), &key, WriteMode::Replace, mode)?.upload;
    upload.write_all(b"piece").map(|()| upload)
}

/// Every changing call, and what each level waits for.
#[test]
fn each_change_waits_for_what_its_level_promises() {
    type Act = fn(&LocalStorage) -> Result<(), FileError>;
    /// The operation, the kind of upload, and the calls at `whole` and at `full`.
    type Row<'a> = (&'a str, Uploads, Act, &'a [&'a str], &'a [&'a str]);
    let changes: &[Row<'_>] = &[
        ("STOR, new", Uploads::Staged, |s| store(s, "/new", WriteMode::Replace), &[BYTES], &[BYTES, NAME]),
        ("STOR, old", Uploads::Staged, |s| store(s, "/old", WriteMode::Replace), &[BYTES], &[BYTES, NAME]),
        ("STOU", Uploads::Staged, |s| store(s, "/new", WriteMode::CreateNew), &[BYTES], &[BYTES, NAME]),
        (
            "in place, new",
            Uploads::InPlace,
            |s| store(s, "/new", WriteMode::Replace),
            &[BYTES],
            &[BYTES, NAME],
        ),
        (
            "in place, old",
            Uploads::InPlace,
            |s| store(s, "/old", WriteMode::Replace),
            &[BYTES],
            &[BYTES, NAME],
        ),
        ("APPE", Uploads::Staged, |s| store(s, "/old", WriteMode::Append), &[BYTES], &[BYTES, NAME]),
        ("REST", Uploads::Staged, |s| store(s, "/old", WriteMode::At(2)), &[BYTES], &[BYTES, NAME]),
        (
            "tus, the first piece",
            Uploads::Staged,
            |s| piece(s, PartialMode::New)?.keep(),
            &[BYTES, BYTES, NAME, NAME],
            &[BYTES, BYTES, NAME, NAME],
        ),
        (
            "tus, the last",
            Uploads::Staged,
            |s| piece(s, PartialMode::New)?.commit().map(drop),
            &[BYTES],
            &[BYTES, NAME],
        ),
        (
            "COPY",
            Uploads::Staged,
            |s| s.copy(&path("/old"), &path("/new"), &mut |_| true).map(drop),
            &[BYTES],
            &[BYTES, NAME],
        ),
        ("MKD", Uploads::Staged, |s| s.make_directory(&path("/new")), &[], &[NAME]),
        ("RMD", Uploads::Staged, |s| s.remove_directory(&path("/d")), &[], &[NAME]),
        ("DELE", Uploads::Staged, |s| s.remove_file(&path("/old")), &[], &[NAME]),
        ("RNTO", Uploads::Staged, |s| s.rename(&path("/old"), &path("/new")), &[], &[NAME]),
        (
            "RNTO, elsewhere",
            Uploads::Staged,
            |s| s.rename(&path("/old"), &path("/d/new")),
            &[],
            &[NAME, NAME],
        ),
        ("RNTO, a folder", Uploads::Staged, |s| s.rename(&path("/d"), &path("/new")), &[], &[NAME]),
        ("SITE SYMLINK", Uploads::Staged, |s| s.make_symlink(b"old", &path("/new")), &[], &[NAME]),
    ];
    for (change, uploads, act, whole, full) in changes {
        let levels = [(Durability::None, &[][..]), (Durability::Whole, *whole), (Durability::Full, *full)];
        for (level, expected) in levels {
            let scratch = Scratch::new();
            let storage = scratch.storage(level, *uploads);
            let (result, made) = waited(0, || act(&storage));
            result.unwrap_or_else(|error| panic!("{change}, {level:?}: {error:?}"));
            assert_eq!(made, expected, "{change}, {level:?}");
            // Every call that fails is told.
            for fails in 1..=expected.len() {
                let scratch = Scratch::new();
                let storage = scratch.storage(level, *uploads);
                let (result, _) = waited(fails, || act(&storage));
                assert!(
                    matches!(result, Err(FileError::Io(_))),
                    "{change}, {level:?}, call {fails}: {result:?}"
                );
            }
        }
    }
}

/// The bytes are on the device before the name leads to them: where that fails there is no new name.
#[test]
fn a_failed_wait_for_the_bytes_leaves_the_old_file_and_nothing_else() {
    for level in [Durability::Whole, Durability::Full] {
        for name in ["/old", "/new"] {
            let scratch = Scratch::new();
            let storage = scratch.storage(level, Uploads::Staged);
            waited(1, || store(&storage, name, WriteMode::Replace)).0.unwrap_err();
            drop(storage);
            assert_eq!(
                (scratch.old().as_str(), scratch.names()),
                ("old content", vec!["d".into(), "old".into()])
            );
        }
    }
}

/// The kernel reports an error once: an affected write is never acknowledged later.
#[test]
fn a_piece_that_could_not_be_written_is_gone_with_those_before_it() {
    let scratch = Scratch::new();
    let storage = scratch.storage(Durability::Whole, Uploads::Staged);
    piece(&storage, PartialMode::New).unwrap().keep().unwrap();
    waited(1, || piece(&storage, PartialMode::Resume).unwrap().keep()).0.unwrap_err();
    assert!(matches!(piece(&storage, PartialMode::Resume), Err(FileError::NotFound)));
    // The last piece, too.
    piece(&storage, PartialMode::New).unwrap().keep().unwrap();
    waited(1, || piece(&storage, PartialMode::Resume).unwrap().commit()).0.unwrap_err();
    assert!(matches!(piece(&storage, PartialMode::Resume), Err(FileError::NotFound)));
    assert_eq!(scratch.old(), "old content");
}

/// btrfs synchronises nothing of a file without a name.
#[test]
fn a_file_has_a_name_before_its_bytes_are_synchronised_where_that_counts() {
    with_watch(|watch| watch.file_system = Some(Looks::Btrfs));
    for level in [Durability::Whole, Durability::Full] {
        let scratch = Scratch::new();
        let storage = scratch.storage(level, Uploads::Staged);
        store(&storage, "/new", WriteMode::Replace).unwrap();
        store(&storage, "/newer", WriteMode::CreateNew).unwrap();
        store(&storage, "/old", WriteMode::Replace).unwrap();
        assert!(store(&storage, "/old", WriteMode::CreateNew).is_err());
        piece(&storage, PartialMode::New).unwrap().commit().unwrap();
        storage.copy(&path("/old"), &path("/copy"), &mut |_| true).unwrap();
    }
    with_watch(|watch| watch.file_system = None);
}

#[test]
fn concurrent_callers_share_the_next_call() {
    let group = GroupCommit::default();
    let (calls, arrived) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (begun, has_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            group.run((1, 1), || {
                begun.send(()).unwrap();
                // Until all the others wait.
                while group.groups.lock().unwrap()[&(1, 1)].next.as_ref().map_or(0, Arc::strong_count) < 8 {
                    std::thread::yield_now();
                }
                calls.fetch_add(1, Ordering::Relaxed);
                Err(Errno::IO)
            })
        });
        has_begun.recv().unwrap();
        let others: Vec<_> = (0..7)
            .map(|_| {
                scope.spawn(|| {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    group.run((1, 1), || {
                        calls.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    })
                })
            })
            .collect();
        // Another directory is not affected.
        group.run((1, 2), || Ok(())).unwrap();
        assert_eq!(first.join().unwrap(), Err(Errno::IO), "every caller that it was done for gets the error");
        others.into_iter().for_each(|other| other.join().unwrap().unwrap());
    });
    assert_eq!((calls.into_inner(), arrived.into_inner()), (2, 7));
    assert!(group.groups.into_inner().unwrap().is_empty());
}

/// NFS, CIFS and FUSE say at the end that there is no room: before the reply, at every level.
#[test]
fn errors_at_close_are_seen_before_the_file_gets_its_name() {
    with_watch(|watch| watch.file_system = Some(Looks::Nfs));
    for level in [Durability::None, Durability::Whole] {
        let scratch = Scratch::new();
        let storage = scratch.storage(level, Uploads::Staged);
        for fails in 1..=2 {
            waited(fails, || store(&storage, "/old", WriteMode::Replace)).0.unwrap_err();
            waited(fails, || piece(&storage, PartialMode::New).unwrap().keep()).0.unwrap_err();
            assert_eq!(scratch.old(), "old content");
        }
        for mode in [WriteMode::Replace, WriteMode::Append] {
            let (result, made) = waited(0, || store(&storage, "/old", mode));
            result.unwrap();
            assert_eq!(made, [BYTES, CLOSE], "{level:?} {mode:?}");
        }
    }
    with_watch(|watch| watch.file_system = None);
}
