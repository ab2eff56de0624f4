//! What this process has lately seen in folders, so that an upload need not ask for what a listing has just told.
//!
//! Reads never look here. Uploads and changes do, to learn whether the parent is a folder and whether the name is free: what
//! is known is at most [`FRESH`] old, and changes of this process are in it at once. A change that another program has made
//! within that time can be missed, with one effect: a file and a folder of the same name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_vfs::VirtualPath;

/// How long what was seen is believed.
const FRESH: Duration = Duration::from_secs(5);

/// Folders and names in each that are remembered: a few MB.
const MOST_FOLDERS: usize = 64;
const MOST_NAMES: usize = 2_000;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
}

/// What is known of a folder.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    seen: Instant,
    /// The folder has a marker of its own, and so stays when its last entry goes.
    pub(crate) has_marker: bool,
    /// Every name is in `names`.
    is_complete: bool,
    /// `None` of a name that is free.
    names: HashMap<Vec<u8>, Option<Kind>>,
}

impl Snapshot {
    pub(crate) fn new(has_marker: bool, is_complete: bool, names: HashMap<Vec<u8>, Option<Kind>>) -> Self {
        Self { seen: Instant::now(), has_marker, is_complete, names }
    }

    /// What the name stands for, if that is known.
    pub(crate) fn kind(&self, name: &[u8]) -> Option<Option<Kind>> {
        let unknown = self.is_complete.then_some(None);
        self.names.get(name).copied().map_or(unknown, Some)
    }

    /// Returns whether there is an entry; not, where that is not known.
    pub(crate) fn has_entries(&self) -> bool {
        !self.is_complete || self.names.values().any(Option::is_some)
    }

    fn note(&mut self, name: &[u8], kind: Option<Kind>) {
        if self.names.len() >= MOST_NAMES {
            self.is_complete = false;
            self.names.clear();
        }
        self.names.insert(name.to_vec(), kind);
    }
}

/// A change of a folder.
type Noted = (Vec<u8>, Option<Kind>);

/// What is known of folders.
#[derive(Debug, Default)]
pub(crate) struct KnownFolders(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    snapshots: HashMap<VirtualPath, Snapshot>,
    /// Folders that are being listed, by how many, and what was changed meanwhile: the listing may not have it.
    listed: HashMap<VirtualPath, (usize, Vec<Noted>)>,
}

impl KnownFolders {
    /// Locked for a few lookups.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a folder, if that is fresh.
    pub(crate) fn find(&self, folder: &VirtualPath) -> Option<Snapshot> {
        self.lock().snapshots.get(folder).filter(|snapshot| snapshot.seen.elapsed() < FRESH).cloned()
    }

    /// What a name in a folder stands for, if that is known and fresh.
    pub(crate) fn kind(&self, path: &VirtualPath) -> Option<Option<Kind>> {
        let inner = self.lock();
        let snapshot =
            inner.snapshots.get(&path.parent()).filter(|snapshot| snapshot.seen.elapsed() < FRESH)?;
        snapshot.kind(path.name())
    }

    /// A listing of a folder begins.
    pub(crate) fn begin(&self, folder: &VirtualPath) {
        self.lock().listed.entry(folder.clone()).or_default().0 += 1;
    }

    /// The listing has ended, and saw this, if anything.
    pub(crate) fn end(&self, folder: &VirtualPath, seen: Option<Snapshot>) {
        let mut inner = self.lock();
        let Some((count, changes)) = inner.listed.get_mut(folder) else { return };
        *count -= 1;
        let changes = if *count == 0 { std::mem::take(changes) } else { changes.clone() };
        if *count == 0 {
            inner.listed.remove(folder);
        }
        let Some(mut seen) = seen else { return };
        changes.iter().for_each(|(name, kind)| seen.note(name, *kind));
        if inner.snapshots.len() >= MOST_FOLDERS {
            inner.snapshots.retain(|_, snapshot| snapshot.seen.elapsed() < FRESH);
        }
        if inner.snapshots.len() >= MOST_FOLDERS {
            inner.snapshots.clear();
        }
        inner.snapshots.insert(folder.clone(), seen);
    }

    /// A name has been asked for.
    pub(crate) fn learn(&self, path: &VirtualPath, kind: Option<Kind>) {
        if let Some(snapshot) = self.lock().snapshots.get_mut(&path.parent()) {
            snapshot.note(path.name(), kind);
        }
    }

    /// A name was given or taken away by this process.
    pub(crate) fn note(&self, path: &VirtualPath, kind: Option<Kind>) {
        let (mut inner, parent) = (self.lock(), path.parent());
        if let Some((_, changes)) = inner.listed.get_mut(&parent) {
            changes.push((path.name().to_vec(), kind));
        }
        if let Some(snapshot) = inner.snapshots.get_mut(&parent) {
            snapshot.note(path.name(), kind);
        }
    }

    /// Forgets a folder and all beneath it.
    pub(crate) fn forget(&self, folder: &VirtualPath) {
        self.lock().snapshots.retain(|path, _| !path.starts_with(folder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_changed_while_a_folder_is_listed_is_not_lost() {
        let known = KnownFolders::default();
        known.begin(&path("/d"));
        known.note(&path("/d/new"), Some(Kind::File));
        known.end(&path("/d"), Some(Snapshot::new(false, true, HashMap::new())));
        assert_eq!(known.kind(&path("/d/new")), Some(Some(Kind::File)));
        assert_eq!(known.kind(&path("/d/other")), Some(None));
        known.note(&path("/d/new"), None);
        assert_eq!(known.kind(&path("/d/new")), Some(None));
        assert!(!known.find(&path("/d")).unwrap().has_entries());
        known.forget(&path("/d"));
        assert_eq!(known.kind(&path("/d/new")), None);
    }

    #[test]
    fn of_a_folder_that_was_seen_in_part_other_names_are_unknown() {
        let known = KnownFolders::default();
        known.begin(&path("/d"));
        known.end(&path("/d"), Some(Snapshot::new(false, false, HashMap::new())));
        assert_eq!(known.kind(&path("/d/f")), None);
        known.learn(&path("/d/f"), None);
        assert_eq!(known.kind(&path("/d/f")), Some(None));
        assert!(known.find(&path("/d")).unwrap().has_entries());
    }
}
