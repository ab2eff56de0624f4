//! WebDAV, classes 1 and 2 (RFC 4918), over the same files: properties, locks, and what they forbid.
//!
//! - `crate::dav_work` answers `PROPFIND`, `PROPPATCH`, `LOCK` and `UNLOCK` with it.
//! - [`Locks`] and [`Properties`] decide; `claim.rs` looks up what they decide from, by [`place`].
//!
//! - [`shared`] keeps them in the database of a cluster in place of this server.
//!
//! All of it runs on the pool. Who uses none of it pays one look at a counter for a change.

pub(crate) mod claim;
mod devices;
pub(crate) mod kept;
pub(crate) mod place;
pub(crate) mod requests;
pub(crate) mod shared;
pub(crate) mod turns;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millrace_cluster::Cluster;
use millrace_http::dav::body::Asked;
use millrace_http::dav::locks::Locks;
use millrace_http::dav::place::Place;
use millrace_http::dav::properties::Properties;
use millrace_http::{Head, Refusal, Status, dav};

use crate::dav_state::shared::{Look, SharedDav};
use crate::dav_state::turns::Turns;

/// The answer where another server must be asked.
pub(crate) const ELSEWHERE: &str = "Another server takes over; ask again.";

/// Why the file of locks and properties cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("locks and properties of WebDAV cannot be kept in {}: {error}", path.display())]
pub struct KeepError {
    path: PathBuf,
    error: io::Error,
}

/// What WebDAV's clients have told, of all users.
#[derive(Debug, Default)]
pub struct Dav {
    /// Locked for some look-ups, never while a file is waited for.
    told: Mutex<Told>,
    /// How much there is of it.
    count: AtomicUsize,
    turns: Turns,
    /// Where it is kept.
    path: Option<PathBuf>,
    /// Another server has it from now on, and nothing is told here any more; changes while `told` is locked.
    is_left: AtomicBool,
    /// The changes that are kept there; held while it is written.
    kept: Mutex<u64>,
    /// Where it is in place of all that, for several servers.
    shared: Option<SharedDav>,
}

/// Locks and properties as they are for one step of a request.
#[derive(Debug)]
pub(crate) enum View<'a> {
    /// This server's.
    Own(&'a Dav),
    /// Those of a cluster, as they were found.
    Found(Box<Told>),
    /// The same, found before.
    Seen(&'a Told),
}

impl View<'_> {
    /// Looks at them.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Told) -> T) -> T {
        match self {
            Self::Own(dav) => dav.with(|told| work(told)),
            Self::Found(told) => work(told),
            Self::Seen(told) => work(told),
        }
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Own(dav) => dav.is_empty(),
            Self::Found(told) => told.is_empty(),
            Self::Seen(told) => told.is_empty(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) locks: Locks,
    pub(crate) properties: Properties,
}

impl Told {
    /// Returns true if there are no locks and no properties.
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.properties.is_empty()
    }

    fn changes(&self) -> u64 {
        self.locks.changes() + self.properties.changes()
    }
}

impl Dav {
    /// Opens the stored records, if there are any; and the error.
    pub fn open(path: Option<PathBuf>) -> (Self, Option<String>) {
        let read = path.as_deref().map_or(Ok(Told::default()), kept::read);
        let (told, trouble) = match (read, &path) {
            (Ok(told), _) => (told, None),
            (Err(error), path) => {
                let path = path.as_deref().unwrap_or(Path::new(""));
                // The next change rewrites the file; its old content remains for repair.
                let aside = path.with_extension("unread");
                let aside = match std::fs::rename(path, &aside) {
                    Ok(()) => format!("; it is {} now", aside.display()),
                    Err(_) => String::new(),
                };
                let path = path.display();
                let trouble =
                    format!("locks and properties of WebDAV in {path} cannot be read: {error}{aside}");
                (Told::default(), Some(trouble))
            }
        };
        let count = AtomicUsize::new(told.locks.len() + told.properties.len());
        let kept = Mutex::new(told.changes());
        (Self { told: Mutex::new(told), count, path, kept, ..Self::default() }, trouble)
    }

    /// Makes it what the nodes of a cluster share.
    pub fn of_cluster(cluster: Arc<Cluster>) -> Self {
        Self { shared: Some(SharedDav::new(cluster)), ..Self::default() }
    }

    /// The place of a name in a directory. May wait.
    pub(crate) fn place(&self, directory: (u64, u64), name: &[u8]) -> Place {
        match &self.shared {
            Some(shared) => shared.place(directory, name),
            None => Place::within(directory, name),
        }
    }

    /// Has it looked up, where it is not here: waits for the database.
    pub(crate) fn view(&self, look: impl FnOnce(Look) -> Look) -> Result<View<'_>, Refusal> {
        Ok(match &self.shared {
            Some(shared) => View::Found(Box::new(shared.look(&look(Look::default()))?)),
            None => View::Own(self),
        })
    }

    /// The same for what a `PROPFIND` asks for, which tells of none while the database is away: reading goes on.
    pub(crate) fn view_for(&self, asked: &Asked, look: impl FnOnce(Look) -> Look) -> View<'_> {
        match self.shared.is_some() && !asked.concerns_clients() {
            true => View::Found(Box::default()),
            false => self.view(look).unwrap_or_else(|_| View::Found(Box::default())),
        }
    }

    /// Keeps it for another server that has it from now on: what clients would tell here then is refused.
    pub fn leave(&self) -> Result<(), KeepError> {
        if self.shared.is_some() {
            return Ok(());
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.with(|_| self.is_left.store(true, Ordering::Release));
        self.keep_changes(&mut kept)
    }

    /// The other server has come to nothing.
    pub fn take_back(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.with(|told| {
            self.is_left.store(false, Ordering::Release);
            // The other one may have written the file, or put it aside.
            if told.changes() > 0 {
                *kept = u64::MAX;
            }
        });
    }

    /// Returns whether another server has to be asked this: what it would change is kept there.
    pub(crate) fn is_for_another(&self, head: &Head) -> bool {
        self.is_left() && dav::may_change_state(head, self.is_empty())
    }

    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Reads the records that the predecessor has stored meanwhile.
    pub fn read_again(&self) {
        if let Some(Ok(told)) = self.path.as_deref().map(kept::read) {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = told.changes();
            self.with(|now| *now = told);
        }
    }

    /// Has it outlive the server, if something has changed.
    pub fn keep(&self) -> Result<(), KeepError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_left() { Ok(()) } else { self.keep_changes(&mut kept) }
    }

    fn keep_changes(&self, kept: &mut u64) -> Result<(), KeepError> {
        let Some(path) = &self.path else { return Ok(()) };
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = told.changes();
        if *kept == changes {
            return Ok(());
        }
        let bytes = kept::write(&told);
        drop(told);
        // What cannot be written now is not tried again until there is more of it.
        *kept = changes;
        let written = bytes.map_err(Into::into).and_then(|bytes| kept::put(path, &bytes));
        written.map_err(|error| KeepError { path: path.clone(), error })
    }

    /// Returns true if there are no locks and no properties; of those of a cluster that is not known without a question.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_none() && self.count.load(Ordering::Acquire) == 0
    }

    /// Returns true if a cluster had no locks and no properties a second ago.
    pub(crate) fn had_none(&self) -> bool {
        self.shared.as_ref().is_some_and(SharedDav::had_none)
    }

    /// Changes it as a client asks, where it is this server's.
    pub(crate) fn change<T>(&self, work: impl FnOnce(&mut Told) -> T) -> Result<T, Refusal> {
        self.with(|told| match self.is_left() {
            true => Err(Refusal { status: Status::SERVICE_UNAVAILABLE, reason: ELSEWHERE }),
            false => Ok(work(told)),
        })
    }

    /// Looks at it, or changes it; locks whose time is over are gone before.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Told) -> T) -> T {
        let mut told: MutexGuard<'_, Told> = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.locks.expire(Instant::now());
        let result = work(&mut told);
        self.count.store(told.locks.len() + told.properties.len(), Ordering::Release);
        result
    }
}
