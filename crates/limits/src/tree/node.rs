//! One scope's buckets and sessions: the configured limits, those set at run time, and its members.
//!
//! A member of a node holds a [`Seat`] or a [`Guest`]; dropping it ends the membership.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_ftp::session::Occupancy;

use super::sharing::Portion;
use super::{Direction, Scope};
use crate::bucket::{Bucket, Nanos};
use crate::{Limit, Limits, Refused};

/// One bucket in each direction, how many share them, and what was said about them.
#[derive(Debug)]
pub(crate) struct Node {
    scope: Scope,
    download: Bucket,
    upload: Bucket,
    download_portion: Portion,
    upload_portion: Portion,
    sessions: AtomicUsize,
    /// Members that are in it and count for no limit of sessions.
    guests: AtomicUsize,
    /// 0 for no limit.
    most_sessions: AtomicU64,
    wanted: Mutex<Wanted>,
}

/// The configured limits, and those set at run time.
#[derive(Debug, Default)]
struct Wanted {
    configured: Limits,
    set: Limits,
}

impl Node {
    pub(super) fn new(scope: Scope, configured: Limits, clock: Moment) -> Arc<Self> {
        let node = Arc::new(Self {
            scope,
            download: Bucket::default(),
            upload: Bucket::default(),
            download_portion: Portion::default(),
            upload_portion: Portion::default(),
            sessions: AtomicUsize::new(0),
            guests: AtomicUsize::new(0),
            most_sessions: AtomicU64::new(0),
            wanted: Mutex::default(),
        });
        node.configure(configured, clock);
        node
    }

    pub(crate) fn bucket(&self, direction: Direction) -> &Bucket {
        match direction {
            Direction::Download => &self.download,
            Direction::Upload => &self.upload,
        }
    }

    pub(super) fn portion(&self, direction: Direction) -> &Portion {
        match direction {
            Direction::Download => &self.download_portion,
            Direction::Upload => &self.upload_portion,
        }
    }

    /// The scope of these limits.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Sessions now.
    pub(super) fn sessions(&self) -> usize {
        self.sessions.load(Relaxed)
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the configuration; limits set at run time stay. Returns true if anything changed.
    pub(super) fn configure(&self, configured: Limits, clock: Moment) -> bool {
        let mut wanted = self.wanted();
        if wanted.configured != configured {
            wanted.configured = configured;
        }
        self.apply(&wanted, clock)
    }

    /// Sets limits above those that are configured; a part that is `None` stays as it is. Answers whether anything changed.
    pub(super) fn set(&self, limits: &Limits, clock: Moment) -> bool {
        let mut wanted = self.wanted();
        wanted.set = limits.clone().or(&wanted.set);
        self.apply(&wanted, clock)
    }

    /// Forgets what was set; answers whether anything changed.
    pub(super) fn restore(&self, clock: Moment) -> bool {
        self.replace_set(&Limits::default(), clock)
    }

    /// Has these limits set in the place of those that were; answers whether anything changed.
    pub(super) fn replace_set(&self, limits: &Limits, clock: Moment) -> bool {
        let mut wanted = self.wanted();
        wanted.set = limits.clone();
        self.apply(&wanted, clock)
    }

    /// Returns true if something was set, and is not forgotten.
    pub(super) fn is_set(&self) -> bool {
        self.wanted().set != Limits::default()
    }

    /// Returns the limit of sessions that was set, if one was.
    pub(super) fn sessions_set(&self) -> Option<Limit> {
        self.wanted().set.sessions.clone()
    }

    /// Returns true if a limit of sessions was set.
    pub(super) fn has_sessions_set(&self) -> bool {
        self.sessions_set().is_some()
    }

    /// Schedules take effect; answers whether anything changed.
    pub(super) fn tick(&self, clock: Moment) -> bool {
        self.apply(&self.wanted(), clock)
    }

    /// Applies the limits wanted at this moment; returns whether anything changed.
    fn apply(&self, wanted: &Wanted, clock: Moment) -> bool {
        let at = |set: &Option<Limit>, configured: &Option<Limit>| {
            set.as_ref().or(configured.as_ref()).map_or(0, |limit| limit.at(clock.wall))
        };
        let (set, configured) = (&wanted.set, &wanted.configured);
        let sessions = at(&set.sessions, &configured.sessions);
        let is_shared = clock.is_divided && self.may_be_shared();
        let down = self.download_portion.of(at(&set.download, &configured.download), is_shared);
        let up = self.upload_portion.of(at(&set.upload, &configured.upload), is_shared);
        let down = self.download.set_rate(down, clock.nanos);
        let up = self.upload.set_rate(up, clock.nanos);
        self.most_sessions.swap(sessions, Relaxed) != sessions || down || up
    }

    pub(super) fn enter(self: &Arc<Self>) -> Result<Seat, Refused> {
        let (most, before) = (self.most_sessions.load(Relaxed), self.sessions.fetch_add(1, Relaxed));
        // Counted out again by the drop.
        let seat = Seat(Some(Arc::clone(self)));
        if most > 0 && before as u64 >= most { Err(self.refused(most)) } else { Ok(seat) }
    }

    /// There may be no more sessions than these.
    fn refused(&self, most: u64) -> Refused {
        Refused { scope: self.scope.clone(), value: most, is_default: false }
    }

    /// The effective limits.
    pub(super) fn report(&self) -> ScopeReport {
        ScopeReport {
            scope: self.scope.clone(),
            sessions: self.sessions.load(Relaxed),
            download: self.download_portion.most(),
            upload: self.upload_portion.most(),
            most_sessions: self.most_sessions.load(Relaxed),
            is_set: self.is_set(),
        }
    }

    /// Returns true if others than one are in it.
    pub(super) fn is_shared(&self) -> bool {
        self.sessions.load(Relaxed) + self.guests.load(Relaxed) > 1
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.sessions.load(Relaxed) + self.guests.load(Relaxed) > 0
    }

    pub(super) fn is_idle(&self, now: Nanos) -> bool {
        !self.is_in_use() && self.download.is_settled(now) && self.upload.is_settled(now) && !self.is_set()
    }
}

/// A session's part in a node.
#[derive(Debug)]
pub(super) struct Seat(Option<Arc<Node>>);

impl Seat {
    pub(super) fn node(&self) -> &Arc<Node> {
        self.0.as_ref().expect("a seat that was given back is dropped")
    }

    /// The same, unless there may be fewer now.
    pub(super) fn stay(mut self) -> Result<Self, Refused> {
        let node = Arc::clone(self.node());
        let most = node.most_sessions.load(Relaxed);
        if most > 0 && self.yields(most) { Err(node.refused(most)) } else { Ok(self) }
    }

    /// Gives itself back if there are more than this; answers whether it did. Of several that look at once no more do
    /// than are too many.
    fn yields(&mut self, most: u64) -> bool {
        let one_less = |sessions: usize| (sessions as u64 > most).then(|| sessions - 1);
        let yields = self.node().sessions.fetch_update(Relaxed, Relaxed, one_less).is_ok();
        if yields {
            // It counts no more.
            self.0 = None;
        }
        yields
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(node) = &self.0 {
            node.sessions.fetch_sub(1, Relaxed);
        }
    }
}

/// A membership that does not count as a session.
#[derive(Debug)]
pub(super) struct Guest(Arc<Node>);

impl Guest {
    pub(super) fn of(node: &Arc<Node>) -> Self {
        node.guests.fetch_add(1, Relaxed);
        Self(Arc::clone(node))
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.0
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Relaxed);
    }
}

/// The same moment for deadlines and for schedules.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) nanos: Nanos,
    pub(super) wall: i64,
    /// Whether other servers have a part of the limits.
    pub(super) is_divided: bool,
}

/// The sessions of a scope, counted while they come and go.
#[derive(Debug, Clone)]
pub struct Headcount(pub(super) Arc<Node>);

impl Occupancy for Headcount {
    fn sessions(&self) -> u64 {
        self.0.sessions() as u64
    }

    fn most(&self) -> Option<u64> {
        Some(self.0.most_sessions.load(Relaxed)).filter(|most| *most > 0)
    }
}

/// The effective limits of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeReport {
    /// The scope.
    pub scope: Scope,
    /// Sessions now.
    pub sessions: usize,
    /// Bytes a second to clients; 0 for no limit.
    pub download: u64,
    /// Bytes a second from clients; 0 for no limit.
    pub upload: u64,
    /// Sessions at most; 0 for no limit.
    pub most_sessions: u64,
    /// Whether an administrator has set one of them.
    pub is_set: bool,
}
