//! The tables of WebDAV's locks and properties.
//!
//! A place is known by a digest that all nodes compute alike. Rules are not here: the database compares what a lock conflicts
//! with, and the server decides what a lock forbids.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use crate::question::TableError;

/// A place, as all nodes know it.
pub type PlaceDigest = [u8; 16];

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedLock {
    /// Its token.
    pub token: String,
    /// Its place.
    pub place: PlaceDigest,
    /// The places above, from the nearest on.
    pub above: Vec<PlaceDigest>,
    /// What was locked, as a link.
    pub root: String,
    /// No other lock may be in its reach.
    pub is_exclusive: bool,
    /// It holds for all beneath.
    pub is_deep: bool,
    /// What the client said of its holder, as XML.
    pub owner: Option<String>,
    /// Who holds it.
    pub user: Option<Vec<u8>>,
    /// Where it was asked for from.
    pub address: Option<IpAddr>,
    /// How many bytes it counts as.
    pub bytes: u64,
    /// How long it still holds, by the database's clock.
    pub left: Duration,
}

/// How many locks there may be, and how large.
#[derive(Debug, Clone, Copy)]
pub struct LockBounds {
    /// In all.
    pub locks: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Of one user, and of one address.
    pub share: u64,
    /// Bytes of one user, and of one address.
    pub share_bytes: u64,
    /// Shared locks that reach one place.
    pub shared: u64,
}

/// What becomes of a lock that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granting {
    /// It is given.
    Given,
    /// It conflicts with another.
    Held,
    /// There are too many.
    Full,
}

/// The properties of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedProperties {
    /// Where.
    pub place: PlaceDigest,
    /// All of them, as the server writes them; empty where there are none.
    pub values: Vec<u8>,
    /// As part of whose share they count.
    pub user: Option<Vec<u8>>,
    /// How many bytes they count as.
    pub bytes: u64,
    /// The number of their last change; 0 where there are none.
    pub edition: i64,
}

/// What becomes of a change of properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changing {
    /// It is made.
    Changed,
    /// There is no room for it.
    Full,
    /// Another change was first.
    Outdated,
}

/// What a server wants to know.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Locks on these places.
    pub on: Vec<PlaceDigest>,
    /// Locks of what is beneath these.
    pub beneath: Vec<PlaceDigest>,
    /// The properties of these.
    pub properties: Vec<PlaceDigest>,
}

/// What the database has of it.
#[derive(Debug, Clone, Default)]
pub struct FoundDav {
    /// In the order in which they were given.
    pub locks: Vec<SharedLock>,
    /// In no order.
    pub properties: Vec<SharedProperties>,
}

/// Locks that were given since an edition.
#[derive(Debug, Clone, Default)]
pub struct NewLocks {
    /// Their places, and how long they hold.
    pub locks: Vec<(PlaceDigest, Vec<PlaceDigest>, Duration)>,
    /// Whether there are any locks or properties at all.
    pub are_any: bool,
    /// The edition after them.
    pub edition: i64,
}

/// The tables of WebDAV. All functions wait.
pub trait DavTable: Debug + Send + Sync {
    /// Finds locks and properties.
    fn find_dav(&self, wanted: &Wanted) -> Result<FoundDav, TableError>;

    /// Gives a lock, where it goes with those that are held.
    fn give_lock(&self, lock: &SharedLock, most: &LockBounds) -> Result<Granting, TableError>;

    /// Has a lock hold for so long from now. `false`: it has ended.
    fn extend_lock(&self, token: &str, left: Duration) -> Result<bool, TableError>;

    /// Ends a lock.
    fn release_lock(&self, token: &str) -> Result<(), TableError>;

    /// Gives a place other properties, where those that are there have this edition still.
    fn change_properties(
        &self,
        properties: &SharedProperties,
        most: u64,
        share: u64,
    ) -> Result<Changing, TableError>;

    /// What was at a place is gone, with all beneath.
    fn forget_place(&self, place: &PlaceDigest) -> Result<(), TableError>;

    /// Returns the locks that were given since an edition.
    fn pull_locks(&self, since: i64) -> Result<NewLocks, TableError>;
}
