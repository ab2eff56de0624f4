use std::sync::atomic::{AtomicU64, Ordering};

use millrace_storage::MemoryStorage;
use millrace_vfs::{
    Change, Directory, FileKind, Metadata, Owner, ReadHandle, Space, Timestamp, Upload, Wait, WriteMode,
};

use super::*;

/// A tree that is made up as it is read: the top has this many folders and then this many files, each folder has a file.
#[derive(Debug)]
struct MadeUp {
    folders: u64,
    files: u64,
    /// This many of the top's files were removed.
    removed: AtomicU64,
}

#[derive(Debug)]
struct Reading {
    /// Entries that come, and of these first folders.
    entries: std::ops::Range<u64>,
    folders: u64,
}

fn metadata(kind: FileKind) -> Metadata {
    Metadata {
        kind,
        size: 1,
        modified: Timestamp { seconds: 1, nanoseconds: 0 },
        created: None,
        changed: None,
        mode: 0o644,
        owner: Owner { user: 0, group: 0 },
        links: 1,
        identity: (0, 0),
    }
}

impl Directory for Reading {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        assert!(entries.is_empty() && most <= BATCH, "{} entries are held", entries.len());
        let folders = self.folders;
        entries.extend(self.entries.by_ref().take(most).map(|number| DirEntry {
            name: format!("{number:020}").into(),
            metadata: metadata(if number < folders { FileKind::Directory } else { FileKind::File }),
            link: None,
        }));
        Ok(())
    }

    fn next_names(&mut self, _: &mut dyn FnMut(&[u8]), _: usize) -> Result<usize, FileError> {
        Err(FileError::Unsupported)
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        Ok(metadata(FileKind::Directory))
    }
}

impl Storage for MadeUp {
    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        let removed = self.removed.load(Ordering::Relaxed);
        Ok(Box::new(match path.is_root() {
            true => Reading { entries: removed..self.folders + self.files, folders: self.folders },
            false => Reading { entries: 0..1, folders: 0 },
        }))
    }

    fn remove_file(&self, _: &VirtualPath) -> Result<(), FileError> {
        self.removed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn may_replace(&self, _: &VirtualPath, _: bool) -> Result<(), FileError> {
        Ok(())
    }

    fn open_read(&self, _: &VirtualPath, _: Wait) -> Result<ReadHandle, FileError> {
        Err(FileError::Unsupported)
    }

    fn open_write_with(
        &self,
        _: &VirtualPath,
        _: WriteMode,
        _: Option<u32>,
        _: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        Err(FileError::Unsupported)
    }

    fn metadata(&self, _: &VirtualPath, _: Wait) -> Result<Metadata, FileError> {
        Err(FileError::Unsupported)
    }

    fn entry(&self, _: &VirtualPath) -> Result<DirEntry, FileError> {
        Err(FileError::Unsupported)
    }

    fn make_directory_with(&self, _: &VirtualPath, _: Option<u32>) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }

    fn remove_directory(&self, _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }

    fn rename(&self, _: &VirtualPath, _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }

    fn change(&self, _: &VirtualPath, _: Change) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }

    fn make_symlink(&self, _: &[u8], _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }

    fn copy(
        &self,
        _: &VirtualPath,
        _: &VirtualPath,
        _: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        Err(FileError::Unsupported)
    }

    fn space(&self, _: &VirtualPath) -> Result<Space, FileError> {
        Err(FileError::Unsupported)
    }
}

fn made_up(folders: u64, files: u64) -> MadeUp {
    MadeUp { folders, files, removed: AtomicU64::new(0) }
}

fn looked_at(storage: &dyn Storage) -> Result<u64, FileError> {
    let mut count = 0;
    look(storage, &VirtualPath::root(), &Shared::default(), &mut |_, _| count += 1).map(|_| count)
}

#[test]
fn a_large_folder_is_never_held_as_a_whole() {
    assert_eq!(looked_at(&made_up(10_000, 200_000)).unwrap(), 220_000);
    let storage = made_up(0, 200_000);
    let removed = clear(&storage, &VirtualPath::root(), &Shared::default());
    assert!(matches!(removed, Ok(200_000)), "{removed:?}");
}

#[test]
fn what_waits_is_bounded_and_so_is_what_is_looked_at() {
    assert!(matches!(looked_at(&made_up(300_000, 0)), Err(FileError::Exhausted)));
    assert!(matches!(looked_at(&made_up(0, MOST + 1)), Err(FileError::Exhausted)));
}

#[test]
fn who_gives_up_is_not_kept_waiting() {
    let shared = Shared::default();
    shared.cancelled.store(true, Ordering::Relaxed);
    let (storage, top) = (made_up(1, 1), VirtualPath::root());
    assert!(matches!(look(&storage, &top, &shared, &mut |_, _| {}), Err(FileError::Cancelled)));
    assert!(matches!(clear(&storage, &top, &shared), Err((_, FileError::Cancelled))));
}

#[test]
fn a_tree_is_looked_at_and_cleared_to_its_depths() {
    let (storage, top) = (MemoryStorage::new(), VirtualPath::parse(b"/t").unwrap());
    let mut folder = top.clone();
    for _ in 0..100 {
        storage.make_directory(&folder).unwrap();
        for number in 0..3 {
            let path = folder.join(format!("f{number}").as_bytes()).unwrap();
            storage.open_write(&path, WriteMode::Replace, Wait::Allowed).unwrap().commit().unwrap();
        }
        folder = folder.join(b"d").unwrap();
    }
    let mut paths = Vec::new();
    look(&storage, &top, &Shared::default(), &mut |path, _| paths.push(path.clone())).unwrap();
    paths.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    paths.dedup();
    assert_eq!(paths.len(), 399);
    assert!(matches!(clear(&storage, &top, &Shared::default()), Ok(399)));
    storage.remove_directory(&top).unwrap();
}
