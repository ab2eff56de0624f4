//! Open files, for as long as they are what their names stand for.
//!
//! The invariant: no answer is older than the client can detect. An entry is compared with the file system once a turn
//! of the reactor, however many requests the turn serves: the requests that a turn's poll reported had begun to arrive
//! before any answer of that turn, so no client can have seen an answer and changed a file before it sent such a
//! request. (A request that began before such a change, and whose rest was sent after it, may be answered with the
//! state at its beginning.) Connections that were accepted together, and had sent data before the first of them was
//! answered, have a turn of their own. Data read later, from a connection that was answered in this turn, counts as
//! another turn. Files are not watched, and nothing expires by the clock, except that unused descriptors are closed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_vfs::{Storage, VirtualPath, Wait};

use crate::lookup::Entry;

/// Entries at most.
const ENTRIES: usize = 4096;

/// Bytes of memory at most.
const MEMORY: usize = 16 << 20;

/// How long an unused entry is kept: the space of a removed file is the disk's again then.
const IDLE: Duration = Duration::from_secs(10);

/// The open files of a worker.
#[derive(Debug)]
pub(crate) struct Cache {
    /// By tree; there are few.
    trees: Vec<Tree>,
    /// In the order in which they came: the first one makes room.
    order: VecDeque<(Arc<dyn Storage>, Key)>,
    memory: usize,
    open: usize,
    most_open: usize,
    /// When idle entries are next looked for.
    sweep_at: Option<Instant>,
}

#[derive(Debug)]
struct Tree {
    storage: Arc<dyn Storage>,
    slots: HashMap<VirtualPath, [Option<Slot>; 3]>,
}

/// The path as asked for, and as what.
pub(crate) type Key = (VirtualPath, As);

/// What a path is asked for as: one may stand for something else each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    File,
    /// With a slash behind it.
    Directory,
    /// As the coding of the file beside it, which has a type of its own.
    Coding,
}

#[derive(Debug)]
struct Slot {
    entry: Arc<Entry>,
    /// The turn in which it was last found to be true.
    turn: u64,
    used: Instant,
}

impl Cache {
    /// Room for this many open descriptors.
    pub(crate) fn new(most_open: usize) -> Self {
        Self { trees: Vec::new(), order: VecDeque::new(), memory: 0, open: 0, most_open, sweep_at: None }
    }

    /// The file that a path stands for, if that is known and still true.
    pub(crate) fn look_up(
        &mut self,
        storage: &Arc<dyn Storage>,
        path: &VirtualPath,
        wanted: As,
        turn: u64,
        now: Instant,
    ) -> Option<Arc<Entry>> {
        let tree = self.trees.iter_mut().find(|tree| Arc::ptr_eq(&tree.storage, storage))?;
        let place = &mut tree.slots.get_mut(path)?[wanted as usize];
        let slot = place.as_mut()?;
        if slot.turn != turn && !is_unchanged(&**storage, &slot.entry) {
            let entry = Arc::clone(&slot.entry);
            *place = None;
            self.forget(&entry);
            return None;
        }
        (slot.turn, slot.used) = (turn, now);
        Some(Arc::clone(&slot.entry))
    }

    /// Keeps what a path stands for.
    pub(crate) fn keep(
        &mut self,
        storage: &Arc<dyn Storage>,
        key: Key,
        entry: &Arc<Entry>,
        turn: u64,
        now: Instant,
    ) {
        if !entry.may_be_kept() || (entry.is_open() && self.most_open == 0) {
            return;
        }
        while self.order.len() >= ENTRIES
            || self.memory > MEMORY
            || (entry.is_open() && self.open >= self.most_open)
        {
            let Some((storage, key)) = self.order.pop_front() else { break };
            self.remove(&storage, &key);
        }
        let at =
            self.trees.iter().position(|tree| Arc::ptr_eq(&tree.storage, storage)).unwrap_or_else(|| {
                self.trees.push(Tree { storage: Arc::clone(storage), slots: HashMap::new() });
                self.trees.len() - 1
            });
        let slot = Slot { entry: Arc::clone(entry), turn, used: now };
        let place = &mut self.trees[at].slots.entry(key.0.clone()).or_default()[key.1 as usize];
        let old = place.replace(slot);
        self.memory += entry.memory();
        self.open += usize::from(entry.is_open());
        match old {
            Some(old) => self.forget(&old.entry),
            None => self.order.push_back((Arc::clone(storage), key)),
        }
        self.sweep_at.get_or_insert(now + IDLE);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.most_open);
    }

    /// When [`Cache::sweep`] is to be called.
    pub(crate) fn sweep_due(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Closes unused entries.
    pub(crate) fn sweep(&mut self, now: Instant) {
        if self.sweep_at.is_none_or(|at| now < at) {
            return;
        }
        for (storage, key) in std::mem::take(&mut self.order) {
            let fresh = self.slot(&storage, &key).is_some_and(|slot| now < slot.used + IDLE);
            match fresh {
                true => self.order.push_back((storage, key)),
                false => self.remove(&storage, &key),
            }
        }
        self.trees.retain(|tree| !tree.slots.is_empty());
        self.sweep_at = (!self.order.is_empty()).then(|| now + IDLE);
    }

    fn slot(&self, storage: &Arc<dyn Storage>, key: &Key) -> Option<&Slot> {
        let tree = self.trees.iter().find(|tree| Arc::ptr_eq(&tree.storage, storage))?;
        tree.slots.get(&key.0)?[key.1 as usize].as_ref()
    }

    fn remove(&mut self, storage: &Arc<dyn Storage>, key: &Key) {
        let Some(tree) = self.trees.iter_mut().find(|tree| Arc::ptr_eq(&tree.storage, storage)) else {
            return;
        };
        let Some(places) = tree.slots.get_mut(&key.0) else { return };
        let removed = places[key.1 as usize].take();
        if places.iter().all(Option::is_none) {
            tree.slots.remove(&key.0);
        }
        if let Some(slot) = removed {
            self.forget(&slot.entry);
        }
    }

    fn forget(&mut self, entry: &Entry) {
        self.memory -= entry.memory();
        self.open -= usize::from(entry.is_open());
    }
}

/// Returns whether a name still stands for the file that was opened, and that nothing was written to it, also where the
/// date of that was put back.
fn is_unchanged(storage: &dyn Storage, entry: &Entry) -> bool {
    !entry.is_young
        && storage.metadata(&entry.path, Wait::Never).is_ok_and(|now| {
            now.identity == entry.identity
                && now.size == entry.size
                && now.modified == entry.modified
                && now.changed == entry.changed
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use millrace_storage::{LocalOptions, LocalStorage};

    use super::*;
    use crate::config::HttpConfig;
    use crate::lookup::{self, Found};
    use crate::web::{CompiledWebConfig, Web};

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("millrace-http-cache-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn storage(&self) -> Arc<dyn Storage> {
            Arc::new(LocalStorage::open(&self.0, LocalOptions::default()).unwrap())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn found(storage: &Arc<dyn Storage>, path: &VirtualPath) -> Arc<Entry> {
        let config = HttpConfig::for_tests();
        match lookup::find(
            (&CompiledWebConfig::new(Web::default(), Default::default()), &config),
            &**storage,
            path,
            false,
            Wait::Allowed,
        )
        .unwrap()
        {
            Found::File(entry) => entry,
            other => panic!("{other:?}"),
        }
    }

    /// The same once it is old enough to be trusted.
    fn settled(storage: &Arc<dyn Storage>, path: &VirtualPath) -> Arc<Entry> {
        let begin = Instant::now();
        loop {
            let entry = found(storage, path);
            if !entry.is_young {
                return entry;
            }
            assert!(begin.elapsed() < Duration::from_secs(30));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_change_is_noticed_in_the_next_turn() {
        let folder = Folder::new("change");
        let storage = folder.storage();
        let path = VirtualPath::parse(b"/a").unwrap();
        let (mut cache, now) = (Cache::new(8), Instant::now());
        std::fs::write(folder.0.join("a"), "one").unwrap();
        let young = found(&storage, &path);
        if young.is_young {
            cache.keep(&storage, (path.clone(), As::File), &young, 1, now);
            assert!(cache.look_up(&storage, &path, As::File, 1, now).is_some());
            assert!(cache.look_up(&storage, &path, As::File, 2, now).is_none(), "it is not trusted yet");
        }
        cache.keep(&storage, (path.clone(), As::File), &settled(&storage, &path), 1, now);
        assert!(cache.look_up(&storage, &path, As::File, 1, now).is_some());
        assert!(cache.look_up(&storage, &path, As::File, 2, now).is_some());
        assert!(cache.look_up(&storage, &path, As::Directory, 2, now).is_none());
        let file = std::fs::File::options().write(true).open(folder.0.join("a")).unwrap();
        file.write_all_at(b"two!", 0).unwrap();
        assert!(cache.look_up(&storage, &path, As::File, 3, now).is_none());
        assert_eq!(cache.memory, 0);

        // The same length, and the date put back.
        let entry = settled(&storage, &path);
        cache.keep(&storage, (path.clone(), As::File), &entry, 4, now);
        let date = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"2wo!", 0).unwrap();
        file.set_modified(date).unwrap();
        assert!(cache.look_up(&storage, &path, As::File, 5, now).is_none());
        assert_ne!(found(&storage, &path).validators.etag, entry.validators.etag);

        cache.keep(&storage, (path.clone(), As::File), &settled(&storage, &path), 6, now);
        std::fs::write(folder.0.join("b"), "two!").unwrap();
        std::fs::rename(folder.0.join("b"), folder.0.join("a")).unwrap();
        assert!(cache.look_up(&storage, &path, As::File, 7, now).is_none());
    }

    #[test]
    fn descriptors_are_bounded_and_given_back() {
        let folder = Folder::new("bounds");
        let storage = folder.storage();
        let (mut cache, now) = (Cache::new(3), Instant::now());
        for number in 0..10 {
            let name = format!("/{number}");
            std::fs::write(folder.0.join(&name[1..]), vec![b'x'; 100_000]).unwrap();
            let path = VirtualPath::parse(name.as_bytes()).unwrap();
            cache.keep(&storage, (path.clone(), As::File), &found(&storage, &path), 1, now);
            assert!(cache.open <= 3);
        }
        cache.sweep(now + IDLE);
        assert_eq!((cache.open, cache.memory, cache.trees.len()), (0, 0, 0));
        assert_eq!(cache.sweep_due(), None);
    }
}
