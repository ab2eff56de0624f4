//! The places that this node has, and its lease: what is known here without asking the database.
//!
//! The database counts `held + freed + surplus + telling` of this epoch: a place that is freed stays counted until the keeper has told
//! it. Until then a session with the same claims may have it without asking.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::lease::{Duty, Lease, LeaseTimes};
use crate::scope::{Claim, SharedScope};
use crate::table::{Epoch, Renewal, Taking};

/// How a claim begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// A place of this epoch that is not given back yet is taken on.
    Reused(Epoch),
    /// The database has to be asked under this epoch.
    Ask(Epoch),
    /// This node may grant nothing now.
    Away,
}

/// How a claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The places are this node's.
    Taken,
    /// The claim of this index finds no place.
    Full(usize),
    /// There are no places now, or the epoch has ended meanwhile, and the places with it.
    Away,
}

/// The places of a node.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) lease: Lease,
    /// Places of sessions that run.
    held: BTreeMap<SharedScope, u64>,
    /// Places of sessions that have ended, by all that each had claimed.
    freed: HashMap<Box<[Claim]>, u64>,
    /// Places of sessions that have ended, which were taken under an earlier epoch. They may be over the limit: no session takes
    /// them on.
    surplus: BTreeMap<SharedScope, u64>,
}

impl Book {
    pub(crate) fn new(times: LeaseTimes) -> Self {
        Self {
            lease: Lease::new(times),
            held: BTreeMap::new(),
            freed: HashMap::new(),
            surplus: BTreeMap::new(),
        }
    }

    /// Begins a claim.
    pub(crate) fn begin(&mut self, claims: &[Claim], now: Instant) -> Begun {
        let Some(epoch) = self.lease.grants(now) else { return Begun::Away };
        let Some(count) = self.freed.get_mut(claims) else { return Begun::Ask(epoch) };
        *count -= 1;
        if *count == 0 {
            self.freed.remove(claims);
        }
        self.hold(claims);
        Begun::Reused(epoch)
    }

    /// Ends a claim that the database was asked about under this epoch.
    pub(crate) fn end(&mut self, epoch: Epoch, claims: &[Claim], taking: Taking, now: Instant) -> Ended {
        match taking {
            Taking::Full(index) => Ended::Full(index),
            Taking::Closed => Ended::Away,
            Taking::Fenced => {
                self.lease.fence(epoch);
                Ended::Away
            }
            Taking::Taken if self.lease.grants(now) == Some(epoch) => {
                self.hold(claims);
                Ended::Taken
            }
            // The answer came late, and the places may be another node's: they are given back if the lease can be renewed.
            Taking::Taken if self.lease.epoch() == Some(epoch) => {
                *self.freed.entry(claims.into()).or_default() += 1;
                Ended::Away
            }
            Taking::Taken => Ended::Away,
        }
    }

    fn hold(&mut self, claims: &[Claim]) {
        claims.iter().for_each(|claim| *self.held.entry(claim.scope.clone()).or_default() += 1);
    }

    /// Ends a renewal that was sent at this time. Without an answer, nothing is known of the registration.
    pub(crate) fn renewed(&mut self, epoch: Epoch, sent: Instant, answer: Option<Renewal>) {
        match answer {
            // A login may have found meanwhile that the registration is to be replaced.
            Some(Renewal::Kept) if self.lease.epoch() == Some(epoch) => self.lease.hold(epoch, sent),
            Some(Renewal::Kept) => {}
            Some(Renewal::Fenced) => self.lease.fence(epoch),
            None => self.lease.doubt(epoch),
        }
    }

    /// A session has ended that has taken its place under this epoch.
    pub(crate) fn free(&mut self, epoch: Epoch, claims: &[Claim]) {
        for Claim { scope, .. } in claims {
            let Some(count) = self.held.get_mut(scope) else { continue };
            *count -= 1;
            if *count == 0 {
                self.held.remove(scope);
            }
        }
        if self.lease.epoch() == Some(epoch) {
            *self.freed.entry(claims.into()).or_default() += 1;
        } else {
            claims.iter().for_each(|claim| *self.surplus.entry(claim.scope.clone()).or_default() += 1);
        }
    }

    /// Returns whether there are places to give back.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty() || !self.surplus.is_empty()
    }

    /// Returns what is to be done now; with places to give back, a renewal.
    pub(crate) fn duty(&self, now: Instant, gives_back: bool) -> Duty {
        match (self.lease.duty(now), self.lease.epoch()) {
            (Duty::Rest, Some(epoch)) if gives_back && self.has_freed() => Duty::Renew(epoch),
            (duty, _) => duty,
        }
    }

    /// Returns the places with which this node registers. Those that are free now are not among them; those that become free
    /// while the database registers it are given back afterwards.
    pub(crate) fn places_to_register(&mut self) -> Vec<(SharedScope, u64)> {
        self.freed.clear();
        self.surplus.clear();
        self.held.iter().map(|(scope, count)| (scope.clone(), *count)).collect()
    }

    /// Returns the places to give back, by scope, which no session may take on any more.
    pub(crate) fn take_freed(&mut self) -> Vec<(SharedScope, u64)> {
        let mut by_scope = std::mem::take(&mut self.surplus);
        for (claims, count) in self.freed.drain() {
            for claim in claims {
                *by_scope.entry(claim.scope).or_default() += count;
            }
        }
        by_scope.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn book(now: Instant) -> Book {
        let second = Duration::from_secs(1);
        let mut book = Book::new(LeaseTimes { length: 6 * second, renewal: 2 * second, pause: second });
        book.lease.hold(Epoch(1), now);
        book
    }

    fn claims(most: u64) -> [Claim; 2] {
        [SharedScope::server(), SharedScope::user(b"ann")].map(|scope| Claim { scope, most })
    }

    #[test]
    fn a_place_that_is_free_is_taken_on_by_the_next_session_with_the_same_claims_alone() {
        let now = Instant::now();
        let mut book = book(now);
        assert_eq!(book.begin(&claims(7), now), Begun::Ask(Epoch(1)));
        assert_eq!(book.end(Epoch(1), &claims(7), Taking::Taken, now), Ended::Taken);
        book.free(Epoch(1), &claims(7));
        assert_eq!(book.begin(&claims(6), now), Begun::Ask(Epoch(1)), "the limit is another one now");
        assert_eq!(book.begin(&claims(7), now), Begun::Reused(Epoch(1)));
        assert_eq!(book.begin(&claims(7), now), Begun::Ask(Epoch(1)));
        book.free(Epoch(1), &claims(7));
        let scopes = claims(7).map(|claim| (claim.scope, 1));
        assert_eq!(book.take_freed(), scopes);
        assert_eq!(book.begin(&claims(7), now), Begun::Ask(Epoch(1)), "it is given back");
        assert!(book.places_to_register().is_empty() && !book.has_freed());
    }

    #[test]
    fn a_place_of_an_epoch_that_has_ended_meanwhile_is_none() {
        let now = Instant::now();
        let mut book = book(now);
        book.lease.doubt(Epoch(1));
        assert_eq!(book.begin(&claims(7), now), Begun::Away);
        assert_eq!(book.end(Epoch(1), &claims(7), Taking::Taken, now), Ended::Away);
        book.lease.hold(Epoch(2), now);
        assert_eq!(book.end(Epoch(1), &claims(7), Taking::Taken, now), Ended::Away);
        assert_eq!(book.end(Epoch(2), &claims(7), Taking::Taken, now), Ended::Taken);
        assert_eq!(book.end(Epoch(2), &claims(7), Taking::Full(1), now), Ended::Full(1));
    }

    #[test]
    fn a_place_whose_answer_comes_after_the_lease_is_given_back_and_no_session_has_it() {
        let now = Instant::now();
        let mut book = book(now);
        let late = now + Duration::from_secs(20);
        assert_eq!(book.end(Epoch(1), &claims(7), Taking::Taken, late), Ended::Away);
        assert_eq!(book.begin(&claims(7), late), Begun::Away);
        assert_eq!(book.take_freed(), claims(7).map(|claim| (claim.scope, 1)));
        assert!(book.places_to_register().is_empty());
        assert_eq!(book.end(Epoch(1), &claims(7), Taking::Closed, now), Ended::Away);
        assert_eq!(book.lease.epoch(), Some(Epoch(1)), "it is registered, and may have places later");
    }

    #[test]
    fn a_node_registers_anew_with_the_places_of_sessions_that_run() {
        let now = Instant::now();
        let mut book = book(now);
        for _ in 0..3 {
            assert_eq!(book.end(Epoch(1), &claims(7), Taking::Taken, now), Ended::Taken);
        }
        book.free(Epoch(1), &claims(7));
        assert_eq!(book.end(Epoch(1), &claims(7), Taking::Fenced, now), Ended::Away);
        book.free(Epoch(1), &claims(7));
        assert_eq!(book.duty(now, true), Duty::Register(None));
        assert_eq!(book.places_to_register(), claims(7).map(|claim| (claim.scope, 1)));
        book.lease.hold(Epoch(2), now);
        assert_eq!(book.duty(now, true), Duty::Rest);
        book.free(Epoch(1), &claims(7));
        assert_eq!(book.begin(&claims(7), now), Begun::Ask(Epoch(2)), "it may be over the limit");
        assert_eq!((book.duty(now, false), book.duty(now, true)), (Duty::Rest, Duty::Renew(Epoch(2))));
    }
}
