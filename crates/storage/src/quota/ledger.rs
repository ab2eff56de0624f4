//! Tallies that outlive the process, in an embedded SQLite database.
//!
//! A row is believed only if it was written when nothing was under way. The first change after that says so in
//! the row, at the cost of one small transaction, which is on the device before the change begins; a tree that is quiet
//! for a while is written again. After a kill or a power cut in between, the tree is counted anew when it is first
//! changed, so a row is never wrong, only missing.

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millrace_vfs::{FileError, Storage};
use rusqlite::{Connection, OptionalExtension, params};

use super::shared::SharedCounts;
use super::tally::{Keeping, Tally, TallyReport};

/// How long a reader or writer waits for another that holds the file.
const BUSY: Duration = Duration::from_secs(5);

const VERSION: i64 = 1;

const SCHEMA: &str = "
    CREATE TABLE tally (
        tree TEXT PRIMARY KEY NOT NULL,
        bytes INTEGER NOT NULL,
        files INTEGER NOT NULL,
        changing INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE note (key TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL) WITHOUT ROWID;
    PRAGMA user_version = 1;
";

/// Why tallies cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The database's error.
    #[error("the quota ledger {path} cannot be used: {source}", path = path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// It is a database of something else, or of a later version.
    #[error("{path} is a database of something else; name another file for quotas", path = .0.display())]
    Foreign(PathBuf),
    /// The tree cannot be counted.
    #[error("{tree} cannot be counted: {source}")]
    Count {
        /// Which tree.
        tree: String,
        /// Why.
        source: FileError,
    },
}

/// All tallies of a server, and where they are kept.
#[derive(Debug)]
pub struct Ledger {
    book: Option<Arc<Book>>,
    /// Other servers that change the same trees, if there are any.
    shared: Option<Arc<dyn SharedCounts>>,
    /// Counts a tree again that others have left in doubt.
    counter: Mutex<Option<JoinHandle<()>>>,
    /// The tallies in use. Locked for a lookup.
    tallies: Mutex<HashMap<String, Arc<Tally>>>,
    /// The trees with a quota, as far as they were looked up. Locked for a lookup.
    known: Mutex<HashSet<String>>,
    /// Another process keeps them from now on.
    is_left: AtomicBool,
}

/// The database. Opened when it is first needed.
#[derive(Debug)]
pub(super) struct Book {
    path: PathBuf,
    /// Held for a transaction.
    connection: Mutex<Option<Connection>>,
    /// The last error.
    complaint: Mutex<Option<LedgerError>>,
}

impl Ledger {
    /// A ledger in the file `path`, which is made when it is first needed; `None` keeps nothing, so that trees are
    /// counted anew by each process.
    pub fn new(path: Option<PathBuf>) -> Self {
        let book = |path| Arc::new(Book { path, connection: Mutex::default(), complaint: Mutex::default() });
        Self {
            book: path.map(book),
            shared: None,
            counter: Mutex::default(),
            tallies: Mutex::default(),
            known: Mutex::default(),
            is_left: AtomicBool::new(false),
        }
    }

    /// Shares the counts of trees with other servers. The file keeps notes alone then.
    pub fn share(mut self, shared: Arc<dyn SharedCounts>) -> Self {
        self.shared = Some(shared);
        self
    }

    /// Opens the file now.
    pub fn open(&self) -> Result<(), LedgerError> {
        self.book.as_ref().map_or(Ok(()), |book| book.with(|_| Ok(())))
    }

    /// The tally of a tree, which is the same for all who ask for the same tree.
    pub fn tally(&self, tree: &str, storage: &Arc<dyn Storage>) -> Arc<Tally> {
        let mut tallies = lock(&self.tallies);
        if let Some(tally) = tallies.get(tree) {
            return Arc::clone(tally);
        }
        let keeping = match (self.shared.as_ref().filter(|shared| shared.is_in_use()), &self.book) {
            (Some(shared), _) => Keeping::Shared(Arc::clone(shared)),
            (None, Some(book)) => Keeping::Own(Arc::clone(book)),
            (None, None) => Keeping::Nowhere,
        };
        let tally = Arc::new(Tally::kept(tree, Arc::clone(storage), keeping));
        tallies.insert(tree.to_owned(), Arc::clone(&tally));
        lock(&self.known).insert(tree.to_owned());
        tally
    }

    /// The tally of a tree in which other users have a quota, or had one; `None` for any other tree. Quotas from before
    /// this process are looked up only where that may block.
    pub fn tally_of_others(
        &self,
        tree: &str,
        storage: &Arc<dyn Storage>,
        may_wait: bool,
    ) -> Option<Arc<Tally>> {
        let is_known = lock(&self.known).contains(tree)
            || self.shared.as_ref().is_some_and(|shared| shared.knows(tree))
            || (may_wait && self.kept(tree).is_some());
        is_known.then(|| self.tally(tree, storage))
    }

    /// Another process counts from now on: this one stores nothing any more, and [reports](Self::changed) its remaining
    /// changes.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Returns true if another process keeps them.
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Trees that have changed since they were last kept.
    pub fn changed(&self) -> Vec<String> {
        let tallies = lock(&self.tallies);
        tallies.iter().filter(|(_, tally)| tally.is_changing()).map(|(tree, _)| tree.clone()).collect()
    }

    /// Stores the counts of trees that are quiet; with `last`, of all that have no change under way. To be called about
    /// every second. Returns each error of the ledger once; trees are counted anew in its place.
    pub fn keep(&self, last: bool) -> Result<(), LedgerError> {
        if self.is_left() && self.shared.is_none() {
            return Ok(());
        }
        let tallies: Vec<_> = lock(&self.tallies).values().cloned().collect();
        for tally in &tallies {
            tally.keep(last);
        }
        if self.shared.is_some() && !last {
            self.count_again(tallies);
        } else {
            drop(tallies);
        }
        // Unused tallies need not stay in memory: the ledger has them. One that has changed since is kept in a second;
        // nothing waits here, where logins do.
        lock(&self.tallies).retain(|_, tally| Arc::strong_count(tally) > 1 || !tally.is_kept());
        let complaint = self.book.as_ref().and_then(|book| lock(&book.complaint).take());
        complaint.map_or(Ok(()), Err)
    }

    /// Counts one of these trees again, if one is in doubt, on a thread of its own.
    fn count_again(&self, tallies: Vec<Arc<Tally>>) {
        let mut counter = lock(&self.counter);
        if counter.as_ref().is_some_and(|counter| !counter.is_finished()) {
            return;
        }
        let Some(tally) = tallies.into_iter().find(|tally| tally.is_count_due()) else { return };
        let thread = thread::Builder::new().name("millrace-count".to_owned());
        // What fails is tried again.
        *counter = thread.spawn(move || drop(tally.recount())).ok();
    }

    /// The last stored count of a tree, for reports: nothing is counted, and no file is created. `None` where none is
    /// stored; inexact after later changes.
    pub fn kept(&self, tree: &str) -> Option<TallyReport> {
        let book = self.book.as_ref().filter(|book| book.path.exists())?;
        let query = "SELECT bytes, files, changing FROM tally WHERE tree = ?";
        let kept = book.with(|connection| {
            let row = connection.query_row(query, [tree], |row| {
                let (bytes, files): (i64, i64) = (row.get(0)?, row.get(1)?);
                let exact = !row.get::<_, bool>(2)?;
                Ok(TallyReport { tree: tree.to_owned(), bytes: bytes as u64, files: files as u64, exact })
            });
            row.optional()
        });
        // A tree that was never counted is known by its row alone.
        book.or_complain(kept).flatten().filter(|kept| kept.exact || kept.bytes > 0 || kept.files > 0)
    }

    /// The last stored note of another component.
    pub fn kept_note(&self, key: &str) -> Option<String> {
        self.book.as_ref().filter(|book| book.path.exists())?;
        self.note(key)
    }

    /// A note of another component.
    pub fn note(&self, key: &str) -> Option<String> {
        let book = self.book.as_ref()?;
        let note = book.with(|connection| {
            let query = "SELECT text FROM note WHERE key = ?";
            connection.query_row(query, [key], |row| row.get(0)).optional()
        });
        book.or_complain(note).flatten()
    }

    /// Stores a note for another component.
    pub fn put_note(&self, key: &str, text: &str) {
        if let Some(book) = &self.book {
            let insert = "INSERT OR REPLACE INTO note VALUES (?, ?)";
            book.or_complain(book.with(|connection| connection.execute(insert, [key, text])));
        }
    }

    /// The state of the trees in use.
    pub fn report(&self) -> Vec<TallyReport> {
        let mut reports: Vec<_> = lock(&self.tallies).values().map(|tally| tally.report()).collect();
        reports.sort_by(|one, other| one.tree.cmp(&other.tree));
        reports
    }

    /// Counts trees again: one, or all. A tree that is not in use is counted at its next change.
    pub fn recount(&self, tree: Option<&str>) -> Result<Vec<TallyReport>, LedgerError> {
        if let Some(book) = &self.book {
            book.forget(tree)?;
        }
        let wanted = |name: &String| tree.is_none_or(|tree| tree == name);
        let tallies: Vec<_> = {
            let tallies = lock(&self.tallies);
            tallies.iter().filter(|(name, _)| wanted(name)).map(|(_, tally)| Arc::clone(tally)).collect()
        };
        let recount = |tally: Arc<Tally>| {
            let tree = tally.report().tree;
            tally.recount().map_err(|source| LedgerError::Count { tree, source })
        };
        tallies.into_iter().map(recount).collect()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = self.keep(true);
    }
}

impl Book {
    /// The stored count of a tree, if it is valid; it is marked as invalid from now on.
    pub(super) fn take(&self, tree: &str) -> Option<(u64, u64)> {
        let taken = self.with(|connection| {
            // A power cut that undid the mark and not the change would leave a wrong count that is believed.
            connection.pragma_update(None, "synchronous", "FULL")?;
            let transaction = connection.transaction()?;
            let kept = transaction
                .query_row("SELECT bytes, files FROM tally WHERE tree = ? AND NOT changing", [tree], |row| {
                    Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64))
                })
                .optional()?;
            transaction.execute(
                "INSERT INTO tally VALUES (?, 0, 0, 1) ON CONFLICT (tree) DO UPDATE SET changing = 1",
                [tree],
            )?;
            transaction.commit()?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            Ok(kept)
        });
        self.or_complain(taken).flatten()
    }

    /// Keeps what a tree holds.
    pub(super) fn keep(&self, tree: &str, bytes: u64, files: u64) {
        let kept = self.with(|connection| {
            connection.execute(
                "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, 0)",
                params![tree, bytes as i64, files as i64],
            )
        });
        self.or_complain(kept);
    }

    fn forget(&self, tree: Option<&str>) -> Result<usize, LedgerError> {
        self.with(|connection| match tree {
            Some(tree) => connection.execute("DELETE FROM tally WHERE tree = ?", [tree]),
            None => connection.execute("DELETE FROM tally", []),
        })
    }

    fn or_complain<T>(&self, result: Result<T, LedgerError>) -> Option<T> {
        result.map_err(|error| *lock(&self.complaint) = Some(error)).ok()
    }

    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, LedgerError> {
        let mut connection = lock(&self.connection);
        let connection = match &mut *connection {
            Some(connection) => connection,
            none => none.insert(connect(&self.path)?),
        };
        work(connection).map_err(|source| LedgerError::Sqlite { path: self.path.clone(), source })
    }
}

fn connect(path: &Path) -> Result<Connection, LedgerError> {
    let failed = |source| LedgerError::Sqlite { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        // Where that fails, opening does, and says why.
        let _ = std::fs::create_dir_all(folder);
    }
    // Other local users must not see how much a user has. SQLite's auxiliary files get the same mode. If the file
    // cannot be created, opening it reports why.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut connection = Connection::open(path).map_err(failed)?;
    let version = prepare(&mut connection).map_err(failed)?;
    if version == VERSION { Ok(connection) } else { Err(LedgerError::Foreign(path.to_owned())) }
}

/// Makes the tables where there is nothing yet; answers the version.
fn prepare(connection: &mut Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY)?;
    // A killed process loses nothing so; a power cut may lose counts, which the walk replaces.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // The sandbox has no folder for temporary files.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        transaction.execute_batch(SCHEMA)?;
    }
    let version = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let is_ours = transaction.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'tally'",
        [],
        |row| row.get::<_, i64>(0),
    )?;
    transaction.commit()?;
    Ok(if is_ours == 1 { version } else { 0 })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn other_users_cannot_read_the_ledger() {
        let folder = std::env::temp_dir().join(format!("millrace-ledger-mode-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let ledger = Ledger::new(Some(folder.join("quotas.db")));
        ledger.put_note("a", "note");
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", entry.path().display());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
