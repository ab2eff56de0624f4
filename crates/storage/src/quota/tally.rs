//! The count of a tree's content, and the reservations of changes under way.
//!
//! While a change is under way ([`Charge`]), the ledger marks the count as invalid, so that after a kill the tree is
//! counted again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_vfs::{Counted, FileError, FileKind, Storage, VirtualPath, Wait};

use super::Allowance;
use super::ledger::Book;
use super::share::{NameLock, SharePart, Unpaid};
use super::shared::SharedCounts;

/// Entries of a folder that are read at a time.
const BATCH: usize = 1000;

/// Changes of names in one shard are counted one after the other.
const SHARDS: usize = 16;

/// How often a tree that is being changed is counted before the count is taken as it is.
const TRIES: usize = 3;

/// The count of a tree's content. All users of the tree share it.
#[derive(Debug)]
pub struct Tally {
    /// Names the tree in the ledger.
    key: String,
    storage: Arc<dyn Storage>,
    keeping: Keeping,
    /// Guarded for a sum.
    counts: Mutex<Counts>,
    /// Held while the tree is counted, or the ledger written.
    pub(super) counting: Mutex<()>,
    /// Held while other servers are told of the count.
    pub(super) asking: Mutex<()>,
    /// The number of name changes in each shard. Locked while a name is given to another file, or taken.
    shards: [Mutex<u64>; SHARDS],
}

/// Where a count outlives the process.
#[derive(Debug)]
pub(super) enum Keeping {
    /// Nowhere.
    Nowhere,
    /// In the ledger of this server.
    Own(Arc<Book>),
    /// With other servers.
    Shared(Arc<dyn SharedCounts>),
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) state: State,
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) reserved_bytes: u64,
    pub(super) reserved_files: u64,
    /// Changes under way.
    pub(super) open: usize,
    /// Changes that have ended, and how many there were when the ledger was last thought of.
    pub(super) changes: u64,
    pub(super) seen: u64,
    /// All that was ever added.
    grown_bytes: u64,
    grown_files: u64,
    /// Where other servers change the tree, too.
    pub(super) share: SharePart,
}

impl Counts {
    /// Bytes and files, with those that changes under way have reserved, here and elsewhere.
    pub(super) fn used(&self) -> (u64, u64) {
        let (bytes, files) = self.share.others();
        (self.bytes + self.reserved_bytes + bytes, self.files + self.reserved_files + files)
    }

    /// Returns what there would be too much of with so much more.
    pub(super) fn over(&self, bytes: u64, files: u64, most: Allowance) -> Option<Counted> {
        let is_over = |more: u64, used: u64, most: Option<u64>| {
            more > 0 && most.is_some_and(|most| used.saturating_add(more) > most)
        };
        let used = self.used();
        if is_over(files, used.1, most.files) {
            return Some(Counted::Files);
        }
        is_over(bytes, used.0, most.bytes).then_some(Counted::Bytes)
    }
}

/// How current the count and the ledger are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It has to be counted, unless the ledger has it.
    #[default]
    Unknown,
    /// The ledger has the current count.
    Kept,
    /// The ledger knows that what it has is not to be believed.
    Changing,
}

/// The state of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyReport {
    /// Which tree.
    pub tree: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Whether that was counted while nothing was changed.
    pub exact: bool,
}

impl Tally {
    /// A tally of `storage` without a ledger: it is counted when it is first needed.
    pub fn new(key: &str, storage: Arc<dyn Storage>) -> Self {
        Self::kept(key, storage, Keeping::Nowhere)
    }

    pub(super) fn kept(key: &str, storage: Arc<dyn Storage>, keeping: Keeping) -> Self {
        let (counts, shards) = (Mutex::default(), Default::default());
        let [counting, asking] = Default::default();
        Self { key: key.to_owned(), storage, keeping, counts, counting, asking, shards }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// The counts of other servers, if the tree is theirs as well.
    pub(super) fn shared(&self) -> Option<&dyn SharedCounts> {
        match &self.keeping {
            Keeping::Shared(shared) => Some(&**shared),
            Keeping::Nowhere | Keeping::Own(_) => None,
        }
    }

    /// Bytes and files, with those that changes under way have reserved.
    pub(super) fn used(&self) -> (u64, u64) {
        self.counts().used()
    }

    /// The same without what others have reserved, which is more than they need.
    pub(super) fn held(&self) -> (u64, u64) {
        let counts = self.counts();
        (counts.bytes + counts.reserved_bytes, counts.files + counts.reserved_files)
    }

    /// Returns true if not a byte more may be held.
    pub(super) fn is_full(&self, allowance: Allowance) -> bool {
        allowance.bytes.is_some_and(|most| self.used().0 >= most)
    }

    /// Locks the shard of a name, for giving the name to another file or taking it; with other servers, the name as well.
    pub(super) fn shard(&self, path: &VirtualPath) -> Shard<'_> {
        let turn = self.turn(path);
        Shard { _name: self.name(path), turn }
    }

    /// Locks a name on all servers, where there are others.
    pub(super) fn name(&self, path: &VirtualPath) -> Option<NameLock<'_>> {
        self.shared().map(|shared| self.lock_name(shared, path))
    }

    /// Locks the shard of a name on this server alone.
    pub(super) fn turn(&self, path: &VirtualPath) -> MutexGuard<'_, u64> {
        let mut hasher = DefaultHasher::new();
        path.as_bytes().hash(&mut hasher);
        lock(&self.shards[(hasher.finish() % SHARDS as u64) as usize])
    }

    /// Counts the tree anew, while it may be changed.
    pub(super) fn recount(&self) -> Result<TallyReport, FileError> {
        if let Some(shared) = self.shared() {
            let exact = self.recount_shared(shared)?;
            return Ok(TallyReport { exact, ..self.report() });
        }
        let _only = lock(&self.counting);
        if self.counts().state != State::Changing {
            self.note();
        }
        let mut exact = false;
        for _ in 0..TRIES {
            let (changes, grown) = {
                let counts = self.counts();
                (counts.changes, (counts.grown_bytes, counts.grown_files))
            };
            let (bytes, files) = count(&*self.storage)?;
            let mut counts = self.counts();
            counts.state = State::Changing;
            // Nothing that is there is left out; what was added meanwhile may be counted twice.
            counts.bytes = bytes + (counts.grown_bytes - grown.0);
            counts.files = files + (counts.grown_files - grown.1);
            exact = counts.open == 0 && counts.changes == changes;
            if exact {
                break;
            }
        }
        Ok(TallyReport { exact, ..self.report() })
    }

    pub(super) fn report(&self) -> TallyReport {
        let (bytes, files) = self.held();
        TallyReport { tree: self.key.clone(), bytes, files, exact: self.counts().state != State::Unknown }
    }

    /// Returns true if the ledger of this server does not have the current count.
    pub(super) fn is_changing(&self) -> bool {
        self.shared().is_none() && self.counts().state == State::Changing
    }

    /// Returns whether the ledger is up to date.
    pub(super) fn is_kept(&self) -> bool {
        let counts = self.counts();
        counts.state != State::Changing && !counts.share.may_be_left()
    }

    /// Stores the count in the ledger, if nothing has changed since the last call, or if this is the `last` time.
    /// Returns true if the ledger is up to date.
    pub(super) fn keep(&self, last: bool) -> bool {
        if let Some(shared) = self.shared() {
            return self.keep_share(shared, last);
        }
        let Ok(_only) = self.counting.try_lock() else { return false };
        let (bytes, files) = {
            let mut counts = self.counts();
            if counts.state != State::Changing {
                return true;
            }
            let is_quiet = counts.changes == counts.seen;
            counts.seen = counts.changes;
            if counts.open > 0 || !(is_quiet || last) {
                return false;
            }
            // From here on, who changes something waits for us, and then tells the ledger first.
            counts.state = State::Kept;
            (counts.bytes, counts.files)
        };
        if let Keeping::Own(book) = &self.keeping {
            book.keep(&self.key, bytes, files);
        }
        true
    }

    /// Makes sure that the count is known, and marked as invalid in the ledger in case of a kill. Other servers hear what
    /// the tree may hold, to which the change is held.
    fn ready(&self, most: Allowance, wait: Wait) -> Result<MutexGuard<'_, Counts>, FileError> {
        let counts = self.counts();
        if counts.state == State::Changing {
            return Ok(counts);
        }
        drop(counts);
        if wait == Wait::Never {
            return Err(FileError::WouldWait);
        }
        let _only = lock(&self.counting);
        let state = self.counts().state;
        if state != State::Changing
            && let Some(shared) = self.shared()
        {
            self.begin_share(shared, most)?;
        } else if state != State::Changing {
            let kept = self.note();
            if state == State::Unknown {
                let (bytes, files) = kept.map_or_else(|| count(&*self.storage), Ok)?;
                let mut counts = self.counts();
                (counts.bytes, counts.files) = (bytes, files);
            }
        }
        let mut counts = self.counts();
        counts.state = State::Changing;
        // Before the next can have it kept again.
        Ok(counts)
    }

    fn note(&self) -> Option<(u64, u64)> {
        match &self.keeping {
            Keeping::Own(book) => book.take(&self.key),
            Keeping::Nowhere | Keeping::Shared(_) => None,
        }
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts)
    }
}

/// Counts a tree. Links are not followed: what they lead to is counted where it is.
pub(super) fn count(storage: &dyn Storage) -> Result<(u64, u64), FileError> {
    let (mut bytes, mut files) = (0, 0);
    let mut folders = vec![VirtualPath::root()];
    let mut entries = Vec::new();
    while let Some(folder) = folders.pop() {
        let mut directory = match storage.open_directory(&folder) {
            Ok(directory) => directory,
            // It has been removed meanwhile, or is not readable.
            Err(FileError::NotFound | FileError::NotDirectory | FileError::PermissionDenied) => continue,
            Err(error) => return Err(error),
        };
        loop {
            entries.clear();
            directory.next_batch(&mut entries, BATCH)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries.iter().filter(|entry| entry.link.is_none()) {
                match entry.metadata.kind {
                    FileKind::Directory => folders.extend(folder.join(&entry.name).ok()),
                    FileKind::File => {
                        bytes += entry.metadata.size;
                        files += 1;
                    }
                    _ => {}
                }
            }
        }
    }
    Ok((bytes, files))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shard that is locked, and the name for whose sake it is, on all servers.
#[derive(Debug)]
pub(super) struct Shard<'a> {
    /// How often a name in it has been changed.
    pub(super) turn: MutexGuard<'a, u64>,
    _name: Option<NameLock<'a>>,
}

/// A change under way, and what it has reserved; given back when this is dropped, unless it is settled.
#[derive(Debug)]
pub(super) struct Charge {
    tally: Arc<Tally>,
    bytes: u64,
    files: u64,
}

impl Charge {
    /// Begins a change of a tree that may hold so much.
    pub(super) fn begin(tally: &Arc<Tally>, most: Allowance, wait: Wait) -> Result<Self, FileError> {
        tally.ready(most, wait)?.open += 1;
        Ok(Self { tally: Arc::clone(tally), bytes: 0, files: 0 })
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The reserved amount.
    pub(super) fn paid(&self) -> (u64, u64) {
        (self.bytes, self.files)
    }

    /// Reserves more, if that is not too much; otherwise answers what there is too much of.
    pub(super) fn pay(&mut self, bytes: u64, files: u64, most: Allowance, wait: Wait) -> Result<(), Unpaid> {
        let mut counts = match self.tally.shared() {
            Some(shared) => self.pay_shared(shared, (bytes, files), most, wait == Wait::Allowed)?,
            None => {
                let counts = self.tally.counts();
                match counts.over(bytes, files, most) {
                    Some(counted) => return Err(Unpaid::Over(counted)),
                    None => counts,
                }
            }
        };
        counts.reserved_bytes += bytes;
        counts.reserved_files += files;
        drop(counts);
        self.bytes += bytes;
        self.files += files;
        Ok(())
    }

    /// Counts a change of a file's length, where `None` is no file.
    pub(super) fn settle(mut self, before: Option<u64>, after: Option<u64>) {
        let mut counts = self.tally.counts();
        // In one step, so that no reader sees it twice.
        counts.reserved_bytes -= std::mem::take(&mut self.bytes);
        counts.reserved_files -= std::mem::take(&mut self.files);
        let (less, more) = (before.unwrap_or(0), after.unwrap_or(0));
        counts.grown_bytes += more.saturating_sub(less);
        counts.grown_files += u64::from(after.is_some() && before.is_none());
        let files = i64::from(after.is_some()) - i64::from(before.is_some());
        counts.share.grow((more.cast_signed() - less.cast_signed(), files));
        // Never below nothing: others may have changed the tree.
        counts.bytes = (counts.bytes + more).saturating_sub(less);
        counts.files =
            (counts.files + u64::from(after.is_some())).saturating_sub(u64::from(before.is_some()));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut counts = self.tally.counts();
        counts.reserved_bytes -= self.bytes;
        counts.reserved_files -= self.files;
        counts.open -= 1;
        counts.changes += 1;
        counts.share.end();
    }
}
