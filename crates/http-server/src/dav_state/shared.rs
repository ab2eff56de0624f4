//! Locks and properties that the nodes of a cluster share: they are kept in its database, and nowhere else.
//!
//! A question brings the locks and properties of some places, to which the rules of [`millrace_http::dav`] apply as to those
//! that a single server keeps. What is written the database checks itself, as others write at the same time.
//!
//! While the database is away nothing is locked. What is to be changed is refused where a lock may be in the way, as far as
//! the node has heard of it within the last second; anything else is permitted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_cluster::{
    Changing, Cluster, DavTable, FoundDav, Granting, LockBounds, PlaceDigest, SharedLock, SharedProperties,
    TableError, Wanted,
};
use millrace_http::dav::locks::{
    Lock, LockDenied, MAX_LOCKS, MOST_BYTES, MOST_SHARED, SHARE, SHARE_OF_BYTES,
};
use millrace_http::dav::place::Place;
use millrace_http::dav::{locks, properties};
use millrace_http::{Refusal, Status};

use crate::dav_state::devices::Devices;
use crate::dav_state::{Told, kept};

/// The answer while the database is away.
pub(crate) const AWAY: Refusal = Refusal {
    status: Status::SERVICE_UNAVAILABLE,
    reason: "Locks cannot be looked up at the moment; try again later.",
};

/// The answer while too many wait for the database, which is there.
pub(crate) const BUSY: Refusal = Refusal {
    status: Status::SERVICE_UNAVAILABLE,
    reason: "Too many requests wait for locks to be looked up; try again later.",
};

/// How often a change of properties is tried that others were faster than.
const TRIES: usize = 10;

/// What is looked up: the locks that reach places, those beneath them, and their properties.
#[derive(Debug, Default)]
pub(crate) struct Look(Wanted);

/// The locks and properties in the database of a cluster.
#[derive(Debug)]
pub(crate) struct SharedDav {
    cluster: Arc<Cluster>,
    devices: Devices,
}

impl Look {
    /// The locks that reach a place.
    pub(crate) fn at(mut self, chain: &[Place]) -> Self {
        self.0.on.extend(chain.iter().map(digest));
        self
    }

    /// The locks beneath a place.
    pub(crate) fn beneath(mut self, chain: &[Place]) -> Self {
        self.0.beneath.extend(chain.first().map(digest));
        self
    }

    /// The properties of a place.
    pub(crate) fn properties(mut self, place: &Place) -> Self {
        self.0.properties.push(digest(place));
        self
    }
}

impl SharedDav {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster, devices: Devices::default() }
    }

    /// The place of a name in a directory, as all nodes know it.
    pub(crate) fn place(&self, (device, directory): (u64, u64), name: &[u8]) -> Place {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.devices.number(device).to_be_bytes());
        hasher.update(&directory.to_be_bytes());
        hasher.update(name);
        let mut digest = PlaceDigest::default();
        hasher.finalize_xof().fill(&mut digest);
        place_of(&digest)
    }

    fn table(&self) -> Result<&dyn DavTable, Refusal> {
        self.cluster.dav().ok_or(AWAY)
    }

    fn find(&self, look: &Look) -> Result<FoundDav, Refusal> {
        self.table()?.find_dav(&look.0).map_err(away)
    }

    /// Looks up locks and properties. Waits for the database.
    pub(crate) fn look(&self, look: &Look) -> Result<Told, Refusal> {
        Ok(told_of(&self.find(look)?))
    }

    /// Returns whether there were no locks a second ago, so that a request that asks again later need not ask now.
    pub(crate) fn had_none(&self) -> bool {
        self.cluster.had_no_locks()
    }

    /// Returns whether a lock may be there, as far as this node has heard.
    pub(crate) fn may_be_locked(&self, look: &Look) -> bool {
        self.cluster.may_be_locked(&look.0)
    }

    /// Gives a lock.
    pub(crate) fn give(&self, lock: &Lock) -> Result<Result<(), LockDenied>, Refusal> {
        const MOST: LockBounds = LockBounds {
            locks: MAX_LOCKS as u64,
            bytes: MOST_BYTES as u64,
            share: SHARE as u64,
            share_bytes: SHARE_OF_BYTES as u64,
            shared: MOST_SHARED as u64,
        };
        let shared = SharedLock {
            token: lock.token.clone(),
            place: digest(&lock.chain[0]),
            above: lock.chain[1..].iter().map(digest).collect(),
            root: lock.root.clone(),
            is_exclusive: lock.is_exclusive,
            is_deep: lock.is_deep,
            owner: lock.owner.clone(),
            user: lock.user.clone(),
            address: lock.address,
            bytes: lock.size() as u64,
            left: lock.until.saturating_duration_since(Instant::now()),
        };
        let given = self.table()?.give_lock(&shared, &MOST).map_err(|error| {
            // It may have been given nevertheless; else it would be in the client's own way.
            self.release(&lock.token);
            away(error)
        })?;
        Ok(match given {
            Granting::Given => Ok(()),
            Granting::Held => Err(LockDenied::Held),
            Granting::Full => Err(LockDenied::Full),
        })
    }

    /// Has a lock hold on.
    pub(crate) fn extend(&self, token: &str, left: Duration) -> Result<(), Refusal> {
        match self.table()?.extend_lock(token, left).map_err(away)? {
            true => Ok(()),
            false => Err(locks::NO_SUCH_LOCK),
        }
    }

    /// Takes a lock back. Without an answer it ends with its time.
    pub(crate) fn release(&self, token: &str) {
        let _ = self.take_back(token);
    }

    /// Takes a lock back at a client's request.
    pub(crate) fn take_back(&self, token: &str) -> Result<(), Refusal> {
        self.table()?.release_lock(token).map_err(away)
    }

    /// What was at a place is gone. Without an answer its locks end with their time.
    pub(crate) fn forget(&self, place: &Place) {
        let _ = self.table().map(|table| table.forget_place(&digest(place)));
    }

    /// Changes the properties of a place, from what those of these places are. `None`: there is no room.
    pub(crate) fn change<T>(
        &self,
        (place, others): (&Place, &[&Place]),
        mut work: impl FnMut(&mut properties::Properties) -> T,
    ) -> Result<Option<T>, Refusal> {
        let look =
            others.iter().fold(Look::default().properties(place), |look, other| look.properties(other));
        for _ in 0..TRIES {
            let found = self.find(&look)?;
            let mut told = told_of(&found);
            let changes = told.properties.changes();
            let result = work(&mut told.properties);
            if told.properties.changes() == changes {
                return Ok(Some(result));
            }
            let before = found.properties.iter().find(|properties| properties.place == digest(place));
            let edition = before.map_or(0, |properties| properties.edition);
            let changed = SharedProperties { edition, ..properties_of(place, &told) };
            match self.table()?.change_properties(
                &changed,
                properties::MAX_BYTES as u64,
                properties::SHARE as u64,
            ) {
                Ok(Changing::Changed) => return Ok(Some(result)),
                Ok(Changing::Full) => return Ok(None),
                Ok(Changing::Outdated) => {}
                Err(error) => return Err(away(error)),
            }
        }
        Err(AWAY)
    }
}

fn away(error: TableError) -> Refusal {
    match error {
        TableError::Busy => BUSY,
        _ => AWAY,
    }
}

/// A place of [`SharedDav::place`] as the database has it.
fn digest(place: &Place) -> PlaceDigest {
    let (high, low) = place.directory();
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&high.to_be_bytes());
    digest[8..].copy_from_slice(&low.to_be_bytes());
    digest
}

fn place_of(digest: &PlaceDigest) -> Place {
    let (high, low) = ((u128::from_be_bytes(*digest) >> 64) as u64, u128::from_be_bytes(*digest) as u64);
    Place::within((high, low), b"")
}

/// What was found, for the rules.
fn told_of(found: &FoundDav) -> Told {
    let (mut told, now) = (Told::default(), Instant::now());
    for lock in &found.locks {
        let SharedLock { token, root, is_exclusive, is_deep, owner, user, address, .. } = lock.clone();
        let chain = std::iter::once(&lock.place).chain(&lock.above).map(place_of).collect();
        let until = now + lock.left;
        // The database has checked that it goes with the others.
        let lock = Lock { token, chain, root, is_exclusive, is_deep, owner, user, address, until };
        let _ = told.locks.give(lock);
    }
    for SharedProperties { place, values, user, .. } in &found.properties {
        let values = kept::read_properties(values).unwrap_or_default();
        told.properties.restore(&place_of(place), values, user.as_deref());
    }
    told
}

/// The properties of a place, as the database is to have them.
fn properties_of(place: &Place, told: &Told) -> SharedProperties {
    let (place_digest, none) = (digest(place), properties::PropertyValues::new());
    let (values, user, bytes) = told.properties.owned(place).unwrap_or((&none, None, 0));
    SharedProperties {
        place: place_digest,
        values: kept::write_properties(values),
        user: user.map(<[u8]>::to_vec),
        bytes: bytes as u64,
        edition: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_in_the_database_and_from_it() {
        let place = Place::within((u64::MAX - 1, 7), b"");
        assert_eq!(place_of(&digest(&place)), place);
    }
}
