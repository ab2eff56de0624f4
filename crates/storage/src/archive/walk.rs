//! A walk through a folder, an entry at a time, with one open directory for each level.

use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError, FileKind, Storage, VirtualPath};

/// Entries that are asked for at a time.
const BATCH: usize = 256;

/// The remaining entries of a directory.
#[derive(Debug)]
struct Level {
    path: VirtualPath,
    directory: Box<dyn Directory>,
    /// The last first.
    entries: Vec<DirEntry>,
}

/// A walk, parents before their children.
#[derive(Debug)]
pub(super) struct Walk {
    storage: Arc<dyn Storage>,
    levels: Vec<Level>,
}

impl Walk {
    /// Begins with the entries of `folder`.
    pub(super) fn new(storage: Arc<dyn Storage>, folder: &VirtualPath) -> Result<Self, FileError> {
        let directory = storage.open_directory(folder)?;
        let level = Level { path: folder.clone(), directory, entries: Vec::new() };
        Ok(Self { storage, levels: vec![level] })
    }

    /// The next entry and its path; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(VirtualPath, DirEntry)>, FileError> {
        while let Some(level) = self.levels.last_mut() {
            let Some(entry) = level.entries.pop() else {
                level.directory.next_batch(&mut level.entries, BATCH)?;
                if level.entries.is_empty() {
                    self.levels.pop();
                } else {
                    level.entries.reverse();
                }
                continue;
            };
            let path = level.path.join(&entry.name).map_err(|_| FileError::NameTooLong)?;
            // A link is not descended into: it could lead back here.
            if entry.metadata.kind == FileKind::Directory && entry.link.is_none() {
                match self.storage.open_directory(&path) {
                    Ok(directory) => {
                        self.levels.push(Level { path: path.clone(), directory, entries: Vec::new() });
                    }
                    Err(FileError::NotFound) => continue,
                    Err(error) => return Err(super::pack::about(&path, error)),
                }
            }
            return Ok(Some((path, entry)));
        }
        Ok(None)
    }
}
