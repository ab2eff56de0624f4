//! Locks (RFC 4918 section 6): who said that nobody else is to write, where, and until when.
//!
//! The invariant: of the locks that reach a place, either one is exclusive, or all are shared. Locks are advice
//! among those who write by HTTP.

use std::time::{Duration, Instant};

use super::place::{Chain, Place};

/// Locks at a time.
pub(super) const MOST: usize = 10_000;

/// Bytes of all locks together, as they are kept.
const MOST_BYTES: usize = 16 << 20;

/// Shared locks of one place, which all are told of it and of each of its members.
const MOST_SHARED: usize = 64;

/// For how long a lock is given at most; editors refresh theirs in time.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// A lock.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    pub(super) token: String,
    /// Where it is, and what is above.
    pub(super) chain: Chain,
    /// What was locked, as a link.
    pub(super) root: String,
    pub(super) is_exclusive: bool,
    /// It holds for all beneath.
    pub(super) is_deep: bool,
    /// What the client said of its holder, as XML.
    pub(super) owner: Option<String>,
    /// Who holds it.
    pub(super) user: Option<Vec<u8>>,
    pub(super) until: Instant,
}

impl Lock {
    /// Returns whether it holds at a place.
    pub(super) fn reaches(&self, chain: &[Place]) -> bool {
        let Some(own) = self.chain.first() else { return false };
        chain.first() == Some(own) || (self.is_deep && chain.contains(own))
    }

    /// Bytes that it takes where it is kept at most.
    fn size(&self) -> usize {
        let text =
            self.token.len() + self.root.len() + self.owner.as_ref().map_or(0, |owner| 2 * owner.len());
        let user = self.user.as_ref().map_or(0, |user| 4 * user.len());
        256 + text + user + self.chain.iter().map(Place::size).sum::<usize>()
    }

    /// Returns whether what it is on lies beneath a place.
    fn is_beneath(&self, place: &Place) -> bool {
        self.chain.iter().skip(1).any(|above| above == place)
    }
}

/// All locks.
#[derive(Debug, Default)]
pub(super) struct Locks {
    all: Vec<Lock>,
    /// What they take.
    bytes: usize,
    /// Counts what changed them.
    changes: u64,
}

/// Why a lock is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// Somebody holds one that does not go with it.
    Held,
    /// There are too many.
    Full,
}

impl Locks {
    /// Forgets those whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        self.retain(|lock| lock.until > now);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Lock> {
        self.all.iter()
    }

    /// The locks that hold at a place.
    pub(super) fn at<'a>(&'a self, chain: &'a [Place]) -> impl Iterator<Item = &'a Lock> {
        self.all.iter().filter(|lock| lock.reaches(chain))
    }

    /// The locks on what is beneath a place.
    pub(super) fn beneath<'a>(&'a self, place: &'a Place) -> impl Iterator<Item = &'a Lock> {
        self.all.iter().filter(|lock| lock.is_beneath(place))
    }

    /// Gives a lock, where it goes with those that are held.
    pub(super) fn give(&mut self, lock: Lock) -> Result<(), Denied> {
        let place = &lock.chain[0];
        let others = self.at(&lock.chain).chain(self.beneath(place).filter(|_| lock.is_deep));
        let (mut beside, size) = (0, lock.size());
        for other in others {
            if lock.is_exclusive || other.is_exclusive {
                return Err(Denied::Held);
            }
            beside += usize::from(other.reaches(&lock.chain));
        }
        if self.all.len() >= MOST || beside >= MOST_SHARED || self.bytes + size > MOST_BYTES {
            return Err(Denied::Full);
        }
        self.bytes += size;
        self.all.push(lock);
        self.changes += 1;
        Ok(())
    }

    /// The lock with this token, if it holds at a place.
    pub(super) fn find(&mut self, token: &[u8], chain: &[Place]) -> Option<&mut Lock> {
        // Whoever asks for it this way may hold it on.
        self.changes += 1;
        self.all.iter_mut().find(|lock| lock.token.as_bytes() == token && lock.reaches(chain))
    }

    /// Takes a lock back.
    pub(super) fn release(&mut self, token: &[u8]) {
        self.changes += 1;
        self.retain(|lock| lock.token.as_bytes() != token);
    }

    /// What was at a place is gone, with all beneath.
    pub(super) fn forget(&mut self, place: &Place) {
        self.changes += 1;
        self.retain(|lock| lock.chain.first() != Some(place) && !lock.is_beneath(place));
    }

    fn retain(&mut self, stays: impl Fn(&Lock) -> bool) {
        let bytes = &mut self.bytes;
        self.all.retain(|lock| {
            let stays = stays(lock);
            *bytes -= if stays { 0 } else { lock.size() };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place at this depth beneath the root: `["f", "d", ""]` is `/d/f`.
    fn lock(names: &[&str], is_exclusive: bool, is_deep: bool) -> Lock {
        let depth = names.len() as u64;
        let chain = names.iter().enumerate();
        let chain = chain.map(|(at, name)| Place::within((1, depth - at as u64), name.as_bytes())).collect();
        let until = Instant::now() + LONGEST;
        let token = format!("{names:?}{is_exclusive}{is_deep}");
        Lock { token, chain, root: String::new(), is_exclusive, is_deep, owner: None, user: None, until }
    }

    #[test]
    fn locks_go_together_or_not() {
        for (first, second, fits) in [
            (lock(&["f", ""], true, false), lock(&["f", ""], false, false), false),
            (lock(&["f", ""], false, false), lock(&["f", ""], false, false), true),
            (lock(&["f", ""], true, false), lock(&["g", ""], true, false), true),
            (lock(&["d", ""], true, true), lock(&["f", "d", ""], false, false), false),
            (lock(&["d", ""], true, false), lock(&["f", "d", ""], true, false), true),
            (lock(&["f", "d", ""], true, false), lock(&["d", ""], true, true), false),
            (lock(&["f", "d", ""], true, false), lock(&["d", ""], true, false), true),
            (lock(&["f", "d", ""], false, false), lock(&["d", ""], false, true), true),
        ] {
            let mut locks = Locks::default();
            locks.give(first.clone()).unwrap();
            assert_eq!(locks.give(second.clone()).is_ok(), fits, "{first:?} and {second:?}");
        }
    }

    #[test]
    fn what_locks_take_is_bounded_and_given_back() {
        let mut locks = Locks::default();
        let long = |at: usize| Lock {
            owner: Some("x".repeat(MOST_BYTES / 10)),
            token: at.to_string(),
            ..lock(&[&at.to_string(), ""], true, false)
        };
        let given = (0..10).take_while(|at| locks.give(long(*at)).is_ok()).count();
        assert_eq!((given, locks.give(long(9))), (4, Err(Denied::Full)));
        locks.release(b"0");
        assert_eq!(locks.give(long(9)), Ok(()));
        locks.expire(Instant::now() + LONGEST + LONGEST);
        assert_eq!((locks.len(), locks.bytes), (0, 0));
    }

    #[test]
    fn one_place_has_so_many_shared_locks_and_no_more() {
        let mut locks = Locks::default();
        for _ in 0..MOST_SHARED {
            locks.give(lock(&["d", ""], false, true)).unwrap();
        }
        assert_eq!(locks.give(lock(&["d", ""], false, true)), Err(Denied::Full));
        assert_eq!(locks.give(lock(&["f", "d", ""], false, false)), Err(Denied::Full));
        assert_eq!(locks.give(lock(&["e", ""], false, true)), Ok(()));
    }

    #[test]
    fn locks_end_with_their_time_and_with_what_they_are_on() {
        let mut locks = Locks::default();
        locks.give(lock(&["f", "d", ""], true, false)).unwrap();
        locks.forget(&Place::within((1, 2), b"d"));
        assert_eq!(locks.len(), 0);
        locks.give(lock(&["f", ""], true, false)).unwrap();
        locks.expire(Instant::now());
        assert_eq!(locks.len(), 1);
        locks.expire(Instant::now() + LONGEST + LONGEST);
        assert_eq!(locks.len(), 0);
    }
}
