//! Places of sessions, and what they share with the keeper: the book, the database, and calls for the keeper.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::book::{Begun, Book, Ended};
use crate::known_locks::KnownLocks;
use crate::lease::LeaseTimes;
use crate::lock::lock;
use crate::open_uploads::Uploads;
use crate::scope::Claim;
use crate::set_limits::SetLimits;
use crate::shared_secret::SharedSecret;
use crate::table::{Epoch, NodeEntry, Table, TableError};
use crate::trees::Trees;

/// How a node keeps its lease, and what it shares.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long after its last renewal others take a node's places.
    pub lease: Duration,
    /// How often it is renewed.
    pub renewal: Duration,
    /// How often freed places are given back, bans of others looked for, and a database that is away tried.
    pub exchange: Duration,
}

impl Timing {
    /// The usual times for a lease of this length: it is renewed three times before it is over.
    pub fn of_lease(lease: Duration) -> Self {
        let renewal = lease / 3;
        Self { lease, renewal, exchange: renewal.min(Duration::from_secs(1)) }
    }
}

/// What places, the keeper and the node share.
pub(crate) struct Shared {
    pub(crate) table: Box<dyn Table>,
    pub(crate) entry: NodeEntry,
    pub(crate) timing: Timing,
    /// Locked for a step; never while the database is asked.
    pub(crate) book: Mutex<Book>,
    /// Why the database gives no answers; `None` while it does.
    pub(crate) trouble: Mutex<Option<Arc<str>>>,
    /// What all nodes derive keys from. Locked for a copy or a swap.
    pub(crate) secrets: Mutex<Arc<[SharedSecret]>>,
    /// Limits that are set, as this node has heard. Locked while the database is asked for them.
    pub(crate) set_limits: Mutex<SetLimits>,
    /// Trees with a quota.
    pub(crate) trees: Trees,
    /// Locks of WebDAV, as far as they were heard of.
    pub(crate) locks: Mutex<KnownLocks>,
    /// Resumable uploads.
    pub(crate) uploads: Uploads,
    /// Whether the keeper is to look at once, and whether it is to end.
    pub(crate) call: Mutex<Call>,
    pub(crate) called: Condvar,
    /// The places of sessions by the session's number and its user: of several logins at once the first takes the place, and
    /// the others wait for it. Locked for a look.
    slots: Mutex<HashMap<Holder, Arc<Slot>>>,
    /// How many logins wait for places that other nodes give back.
    waiting: AtomicUsize,
}

/// How many logins at most wait for such places at once; of more, each is told at once that the limit is reached. They have threads
/// on which others log in.
const MOST_WAITING: usize = 8;

/// What the keeper is called for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Call {
    pub(crate) is_urgent: bool,
    pub(crate) is_end: bool,
}

/// A session's number, and its user.
type Holder = (u64, Box<[u8]>);
/// Locked while a place is taken.
type Slot = Mutex<Weak<Place>>;

/// A place of a session on all nodes; dropping it gives it back, within a second.
pub struct Place {
    holder: Holder,
    claims: Box<[Claim]>,
    /// Under which it was taken.
    epoch: Epoch,
    shared: Arc<Shared>,
}

/// Why there is no place.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// The claim of this index finds all places taken.
    #[error("all places of the limit are taken")]
    Full(usize),
    /// This node may grant nothing now.
    #[error("no place in the cluster can be granted now: {0}")]
    Away(Arc<str>),
}

impl Shared {
    pub(crate) fn new(table: Box<dyn Table>, entry: NodeEntry, timing: Timing) -> Self {
        let times = LeaseTimes { length: timing.lease, renewal: timing.renewal, pause: timing.exchange };
        Self {
            table,
            entry,
            timing,
            book: Mutex::new(Book::new(times)),
            trouble: Mutex::default(),
            secrets: Mutex::new(Arc::new([])),
            set_limits: Mutex::default(),
            trees: Trees::default(),
            locks: Mutex::default(),
            uploads: Uploads::default(),
            call: Mutex::default(),
            called: Condvar::new(),
            slots: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Takes a place for a session: the one that it has, or a new one. Waits for the database.
    pub(crate) fn take(self: &Arc<Self>, holder: Holder, claims: &[Claim]) -> Result<Arc<Place>, PlaceError> {
        let slot = Arc::clone(lock(&self.slots).entry(holder.clone()).or_default());
        let mut place = lock(&slot);
        if let Some(place) = place.upgrade() {
            return Ok(place);
        }
        let epoch = match self.ask_twice(claims) {
            Ok(epoch) => epoch,
            Err(error) => {
                drop(place);
                drop(slot);
                self.forget(&holder);
                return Err(error);
            }
        };
        let taken = Arc::new(Place { holder, claims: claims.into(), epoch, shared: Arc::clone(self) });
        *place = Arc::downgrade(&taken);
        Ok(taken)
    }

    /// Asks, and again where all places are taken: another node may not have given back yet what a session held that has
    /// just ended, and whose client now comes here.
    fn ask_twice(&self, claims: &[Claim]) -> Result<Epoch, PlaceError> {
        let refused = match self.ask(claims) {
            Err(refused @ PlaceError::Full(_)) => refused,
            answer => return answer,
        };
        let may_wait = self.waiting.fetch_add(1, Ordering::Relaxed) < MOST_WAITING;
        let answer = if may_wait {
            thread::sleep(self.timing.exchange + self.timing.exchange / 4);
            self.ask(claims)
        } else {
            Err(refused)
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    fn ask(&self, claims: &[Claim]) -> Result<Epoch, PlaceError> {
        let begun = lock(&self.book).begin(claims, Instant::now());
        let epoch = match begun {
            Begun::Reused(epoch) => return Ok(epoch),
            Begun::Away => return Err(self.away()),
            Begun::Ask(epoch) => epoch,
        };
        let taking = match self.table.take(epoch, claims) {
            Ok(taking) => taking,
            Err(error @ TableError::Busy) => return Err(PlaceError::Away(error.to_string().into())),
            Err(error) => {
                self.unanswered(epoch, &error);
                return Err(PlaceError::Away(error.to_string().into()));
            }
        };
        let ended = lock(&self.book).end(epoch, claims, taking, Instant::now());
        match ended {
            Ended::Taken => Ok(epoch),
            Ended::Full(index) => Err(PlaceError::Full(index)),
            Ended::Away => {
                self.call(|call| call.is_urgent = true);
                Err(self.away())
            }
        }
    }

    /// A write under this epoch has no answer: it may be executed yet, behind what this node asks next. So the node registers anew
    /// first, with what it has; what is late is refused then.
    pub(crate) fn unanswered(&self, epoch: Epoch, error: &TableError) {
        if !error.is_undone() {
            lock(&self.book).lease.doubt(epoch);
            self.call(|call| call.is_urgent = true);
        }
    }

    fn away(&self) -> PlaceError {
        let trouble = lock(&self.trouble).clone();
        PlaceError::Away(trouble.unwrap_or_else(|| "nodes register".into()))
    }

    /// Calls the keeper.
    pub(crate) fn call(&self, change: impl FnOnce(&mut Call)) {
        change(&mut lock(&self.call));
        self.called.notify_all();
    }

    /// Forgets a slot that has no place, and that no login waits for.
    fn forget(&self, holder: &Holder) {
        let mut slots = lock(&self.slots);
        let is_unused = |slot: &Arc<Slot>| Arc::strong_count(slot) == 1 && lock(slot).strong_count() == 0;
        if slots.get(holder).is_some_and(is_unused) {
            slots.remove(holder);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.shared.book).free(self.epoch, &self.claims);
        self.shared.forget(&self.holder);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("claims", &self.claims).finish_non_exhaustive()
    }
}
