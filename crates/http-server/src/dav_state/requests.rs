//! What requests change of locks and properties: in the records of this server, or in those of a cluster.

use std::time::{Duration, Instant};

use millrace_http::dav::Touch;
use millrace_http::dav::body::Change;
use millrace_http::dav::condition::List;
use millrace_http::dav::locks::{Lock, LockDenied};
use millrace_http::dav::multistatus::Property;
use millrace_http::dav::place::{Chain, Place};
use millrace_http::dav::properties::Properties;
use millrace_http::{Refusal, Status};

use crate::dav_state::shared::{AWAY, Look};
use crate::dav_state::{Dav, Told};

/// Properties by the status that each gets.
type Groups = Vec<(Status, Vec<Property>)>;

/// All of them may wait.
impl Dav {
    /// Gives a lock, where it goes with those that are held.
    pub(crate) fn give(&self, lock: &Lock) -> Result<Result<(), LockDenied>, Refusal> {
        match &self.shared {
            Some(shared) => shared.give(lock),
            None => self.change(|told| told.locks.give(lock.clone())),
        }
    }

    /// Checks that a user who shows these tokens may change these places, and returns whether locks or properties are there.
    ///
    /// While the database of a cluster is away, what it has is not known. Then a change is refused where the node has heard
    /// of a lock, and where the client says that it has one.
    pub(crate) fn pass(
        &self,
        touched: &[(Chain, Touch)],
        user: Option<&[u8]>,
        tokens: &[&[u8]],
    ) -> Result<bool, Refusal> {
        let check = |told: &Told| {
            touched.iter().try_for_each(|(chain, touch)| told.locks.check(chain, *touch, user, tokens))
        };
        let Some(shared) = &self.shared else { return self.with(|told| check(told)).map(|()| true) };
        let look = touched.iter().fold(Look::default(), |look, (chain, touch)| match touch {
            Touch::Content => look.at(chain),
            Touch::Name => look.at(chain).beneath(chain).properties(&chain[0]),
        });
        match shared.look(&look) {
            Ok(told) => check(&told).map(|()| !told.is_empty()),
            Err(AWAY) if tokens.is_empty() && !shared.may_be_locked(&look) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// Takes a lock back that was given a moment ago.
    pub(crate) fn release(&self, lock: &Lock) {
        match &self.shared {
            Some(shared) => shared.release(&lock.token),
            None => self.with(|told| told.locks.release(lock.token.as_bytes())),
        }
    }

    /// Has the lock that the lists name hold for so long from now.
    pub(crate) fn refresh(
        &self,
        lists: &[List<'_>],
        chain: &[Place],
        user: Option<&[u8]>,
        left: Duration,
    ) -> Result<Lock, Refusal> {
        let until = Instant::now() + left;
        let Some(shared) = &self.shared else {
            return self.change(|told| told.locks.refresh(lists, chain, user, until).cloned())?;
        };
        let mut told = shared.look(&Look::default().at(chain))?;
        let lock = told.locks.refresh(lists, chain, user, until)?;
        shared.extend(&lock.token, left)?;
        Ok(lock.clone())
    }

    /// Takes back the lock with this token at the user's request.
    pub(crate) fn unlock(&self, token: &[u8], chain: &[Place], user: Option<&[u8]>) -> Result<(), Refusal> {
        let Some(shared) = &self.shared else {
            return self.change(|told| told.locks.unlock(token, chain, user))?;
        };
        shared.look(&Look::default().at(chain))?.locks.unlock(token, chain, user)?;
        // It was found, so it is text.
        shared.take_back(&String::from_utf8_lossy(token))
    }

    /// Changes properties of a place, all or none, and returns them by the status that each gets.
    pub(crate) fn patch(
        &self,
        place: &Place,
        changes: Vec<Change>,
        user: Option<&[u8]>,
    ) -> Result<Groups, Refusal> {
        let Some(shared) = &self.shared else {
            return self.change(|told| told.properties.patch(place, changes, user));
        };
        let mut groups = Groups::new();
        let work = |properties: &mut Properties| {
            groups = properties.patch(place, changes.clone(), user);
        };
        if shared.change((place, &[]), work)?.is_none() {
            groups.iter_mut().for_each(|(status, _)| *status = Status::INSUFFICIENT_STORAGE);
        }
        Ok(groups)
    }

    /// What was at a place is gone, with all beneath.
    pub(crate) fn gone(&self, place: &Place) {
        match &self.shared {
            Some(shared) => shared.forget(place),
            None => self.with(|told| {
                told.locks.forget(place);
                told.properties.forget(place);
            }),
        }
    }

    /// What is at a place is at another, too, or there alone: properties go along, locks do not.
    pub(crate) fn copied(&self, from: &Place, to: &Place) {
        match &self.shared {
            // Where that cannot be, the copy has none.
            Some(shared) => drop(shared.change((to, &[from]), |properties| properties.copy(from, to))),
            None => self.with(|told| told.properties.copy(from, to)),
        }
    }
}
