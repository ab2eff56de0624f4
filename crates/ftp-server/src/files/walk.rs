//! Ways through trees for what sessions ask of them (`DSIZ`, `SITE NEWER`, `SITE MINFO`, `RMDA`), in bounded memory.
//!
//! Any reader can start one, and a tree may hold more than the server's memory. So entries are looked at as they are
//! read, a batch at a time, and only the names of folders that are still to be entered wait: one behind the other, up to
//! [`WAITING`] bytes. Recursion there is none.

use millrace_runtime::transfer::Shared;
use millrace_vfs::{DirEntry, FileError, Storage, VirtualPath};

/// Entries that a walk looks at, at most.
const MOST: u64 = 1_000_000;

/// Entries of a folder that are read at a time.
const BATCH: usize = 256;

/// Bytes of names that wait, at most.
const WAITING: usize = 4 << 20;

/// What each name costs besides its bytes.
const EACH: usize = size_of::<u16>();

/// Names that wait, the last one first.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    lengths: Vec<u16>,
}

impl Names {
    fn push(&mut self, name: &[u8]) -> Result<(), FileError> {
        self.lengths.push(u16::try_from(name.len()).map_err(|_| FileError::NameTooLong)?);
        self.bytes.extend_from_slice(name);
        Ok(())
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let length = usize::from(self.lengths.pop()?);
        Some(self.bytes.split_off(self.bytes.len() - length))
    }

    fn held(&self) -> usize {
        self.bytes.len() + self.lengths.len() * EACH
    }
}

/// Looks at every entry beneath a folder; links are not followed. A folder below the first that cannot be read is
/// passed over, and counted in the answer. [`FileError::Exhausted`] where there is more than a walk looks at.
pub(super) fn look(
    storage: &dyn Storage,
    top: &VirtualPath,
    shared: &Shared,
    visit: &mut dyn FnMut(&VirtualPath, &DirEntry),
) -> Result<u64, FileError> {
    let (mut unreadable, mut visited, mut waiting) = (0, 0, 0);
    let mut levels: Vec<(VirtualPath, Names)> = Vec::new();
    let mut entered = Some(top.clone());
    loop {
        if let Some(folder) = entered.take() {
            let mut names = Names::default();
            match look_into(storage, &folder, shared, &mut visited, WAITING - waiting, &mut names, visit) {
                // One that has been removed meanwhile has nothing in it.
                Err(FileError::NotFound) if !levels.is_empty() => {}
                Err(FileError::PermissionDenied | FileError::Io(_)) if !levels.is_empty() => {
                    unreadable += 1;
                }
                read => read?,
            }
            waiting += names.held();
            levels.push((folder, names));
        }
        let Some((folder, names)) = levels.last_mut() else { return Ok(unreadable) };
        match names.pop() {
            Some(name) => {
                waiting -= name.len() + EACH;
                entered = Some(folder.join(&name).map_err(|_| FileError::NameTooLong)?);
            }
            None => drop(levels.pop()),
        }
    }
}

/// Looks at the entries of one folder, and has the folders among them wait.
fn look_into(
    storage: &dyn Storage,
    folder: &VirtualPath,
    shared: &Shared,
    visited: &mut u64,
    room: usize,
    names: &mut Names,
    visit: &mut dyn FnMut(&VirtualPath, &DirEntry),
) -> Result<(), FileError> {
    let mut directory = storage.open_directory(folder)?;
    let mut entries = Vec::new();
    loop {
        let read = directory.next_batch(&mut entries, BATCH);
        if shared.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        *visited += entries.len() as u64;
        if *visited > MOST {
            return Err(FileError::Exhausted);
        }
        let is_end = entries.is_empty();
        for entry in entries.drain(..) {
            visit(&folder.join(&entry.name).map_err(|_| FileError::NameTooLong)?, &entry);
            if is_folder(&entry) {
                names.push(&entry.name)?;
                if names.held() > room {
                    return Err(FileError::Exhausted);
                }
            }
        }
        read?;
        if is_end {
            return Ok(());
        }
    }
}

/// A folder that is being cleared, and the rest of the part of it that was read.
#[derive(Debug)]
struct Cleared {
    folder: VirtualPath,
    part: Vec<(Vec<u8>, bool)>,
}

/// Removes all that is in a folder, and answers how many entries that were. An error is of the path that it comes with.
pub(super) fn clear(
    storage: &dyn Storage,
    top: &VirtualPath,
    shared: &Shared,
) -> Result<u64, (VirtualPath, FileError)> {
    let (mut removed, mut waiting) = (0, 0);
    let mut levels = vec![Cleared { folder: top.clone(), part: Vec::new() }];
    // A part of a folder is read, removed, and then the next part is read, because removals during a read may hide
    // later entries. Parent folders wait with the rest of their parts.
    while let Some(Cleared { folder, part }) = levels.last_mut() {
        if part.is_empty() {
            let most = if waiting < WAITING { BATCH } else { 1 };
            *part = first_part(storage, folder, most, shared).map_err(|error| (folder.clone(), error))?;
            waiting += part.iter().map(cost).sum::<usize>();
        }
        let Some((name, descends)) = part.pop() else {
            let Some(cleared) = levels.pop().filter(|_| !levels.is_empty()) else { break };
            storage.remove_directory(&cleared.folder).map_err(|error| (cleared.folder, error))?;
            removed += 1;
            continue;
        };
        let member = folder.join(&name).map_err(|_| (folder.clone(), FileError::NameTooLong))?;
        waiting -= cost(&(name, descends));
        if descends {
            levels.push(Cleared { folder: member, part: Vec::new() });
        } else {
            storage.remove_file(&member).map_err(|error| (member, error))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// What a name costs while it waits to be removed.
fn cost((name, _): &(Vec<u8>, bool)) -> usize {
    name.len() + size_of::<(Vec<u8>, bool)>()
}

/// The first names of a folder, and whether they are folders'.
fn first_part(
    storage: &dyn Storage,
    folder: &VirtualPath,
    most: usize,
    shared: &Shared,
) -> Result<Vec<(Vec<u8>, bool)>, FileError> {
    if shared.is_cancelled() {
        return Err(FileError::Cancelled);
    }
    let mut entries = Vec::new();
    storage.open_directory(folder)?.next_batch(&mut entries, most)?;
    Ok(entries
        .into_iter()
        .map(|entry| {
            let descends = is_folder(&entry);
            (entry.name, descends)
        })
        .collect())
}

/// Returns whether an entry is a folder itself, and not a link to one.
fn is_folder(entry: &DirEntry) -> bool {
    entry.metadata.is_directory() && entry.link.is_none()
}

#[cfg(test)]
mod tests;
