//! WebDAV, classes 1 and 2 (RFC 4918), over the same files: properties, locks, and what they forbid.
//!
//! - `crate::dav_work` answers `PROPFIND`, `PROPPATCH`, `LOCK` and `UNLOCK` with it.
//! - [`Locks`] and [`Properties`] decide; `claim.rs` looks up what they decide from, by [`place`].
//!
//! - [`shared`] keeps them in the database of a cluster in place of this server.
//!
//! All of it runs on the pool. Without locks and properties a change costs one look at a counter.

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

/// The reason of the answer that sends clients to the successor of this server.
pub(crate) const ELSEWHERE: &str = "Another server takes over; ask again.";

/// An error of writing the file of locks and properties.
#[derive(Debug, thiserror::Error)]
#[error("locks and properties of WebDAV cannot be kept in {}: {error}", path.display())]
pub struct KeepError {
    path: PathBuf,
    error: io::Error,
}

/// The locks and properties of WebDAV, of all users.
#[derive(Debug, Default)]
pub struct Dav {
    /// Locked for some look-ups, never while a file is written.
    told: Mutex<Told>,
    /// How many locks and properties there are.
    count: AtomicUsize,
    turns: Turns,
    /// The file that keeps them.
    path: Option<PathBuf>,
    /// Whether a successor has taken over, so that changes are refused here. Set while `told` is locked.
    is_left: AtomicBool,
    /// The number of changes that the file has; locked while it is written.
    kept: Mutex<u64>,
    /// The database of the cluster, which takes the place of all of the above.
    shared: Option<SharedDav>,
}

/// Locks and properties as they are for one step of a request.
#[derive(Debug)]
pub(crate) enum View<'a> {
    /// Those of this server.
    Own(&'a Dav),
    /// Those of a cluster, as this step has found them.
    Found(Box<Told>),
    /// Those of a cluster, as an earlier step has found them.
    Seen(&'a Told),
}

impl View<'_> {
    /// Calls `work` with the locks and properties.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Told) -> T) -> T {
        match self {
            Self::Own(dav) => dav.with(|told| work(told)),
            Self::Found(told) => work(told),
            Self::Seen(told) => work(told),
        }
    }

    /// Returns whether there are none.
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
    /// Reads the file, if there is one. Returns a message if it cannot be read.
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

    /// The locks and properties that the nodes of a cluster share.
    pub fn of_cluster(cluster: Arc<Cluster>) -> Self {
        Self { shared: Some(SharedDav::new(cluster)), ..Self::default() }
    }

    /// Returns the place of a name in a directory. May wait for the file system.
    pub(crate) fn place(&self, directory: (u64, u64), name: &[u8]) -> Place {
        match &self.shared {
            Some(shared) => shared.place(directory, name),
            None => Place::within(directory, name),
        }
    }

    /// Returns what this step needs; in a cluster it waits for the database, which is asked what `look` adds.
    pub(crate) fn view(&self, look: impl FnOnce(Look) -> Look) -> Result<View<'_>, Refusal> {
        Ok(match &self.shared {
            Some(shared) => View::Found(Box::new(shared.look(&look(Look::default()))?)),
            None => View::Own(self),
        })
    }

    /// The same for a `PROPFIND`. While the database is away, it shows no locks and no properties of clients.
    pub(crate) fn view_for(&self, asked: &Asked, look: impl FnOnce(Look) -> Look) -> View<'_> {
        match self.shared.is_some() && !asked.concerns_clients() {
            true => View::Found(Box::default()),
            false => self.view(look).unwrap_or_else(|_| View::Found(Box::default())),
        }
    }

    /// Writes the file for a successor, and refuses changes from now on.
    pub fn leave(&self) -> Result<(), KeepError> {
        if self.shared.is_some() {
            return Ok(());
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.with(|_| self.is_left.store(true, Ordering::Release));
        self.keep_changes(&mut kept)
    }

    /// Takes changes again: the successor has failed to start.
    pub fn take_back(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.with(|told| {
            self.is_left.store(false, Ordering::Release);
            // The successor may have written the file, or put it aside.
            if told.changes() > 0 {
                *kept = u64::MAX;
            }
        });
    }

    /// Returns whether this request has to go to the successor, since it may change locks or properties.
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

    /// Writes the file, if something has changed since.
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
        // After an error the file is written with the next change, not before.
        *kept = changes;
        let written = bytes.map_err(Into::into).and_then(|bytes| kept::put(path, &bytes));
        written.map_err(|error| KeepError { path: path.clone(), error })
    }

    /// Returns whether there are no locks and no properties. In a cluster only the database knows: false.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_none() && self.count.load(Ordering::Acquire) == 0
    }

    /// Returns whether a cluster had no locks and no properties a second ago.
    pub(crate) fn had_none(&self) -> bool {
        self.shared.as_ref().is_some_and(SharedDav::had_none)
    }

    /// Makes a change that a client asks for; refused after [`leave`](Self::leave).
    pub(crate) fn change<T>(&self, work: impl FnOnce(&mut Told) -> T) -> Result<T, Refusal> {
        self.with(|told| match self.is_left() {
            true => Err(Refusal { status: Status::SERVICE_UNAVAILABLE, reason: ELSEWHERE }),
            false => Ok(work(told)),
        })
    }

    /// Calls `work` with the locks and properties, after expired locks were removed.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Told) -> T) -> T {
        let mut told: MutexGuard<'_, Told> = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.locks.expire(Instant::now());
        let result = work(&mut told);
        self.count.store(told.locks.len() + told.properties.len(), Ordering::Release);
        result
    }
}
