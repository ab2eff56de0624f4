//! Where locks of WebDAV are, as far as this node has heard.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::dav_table::{NewLocks, PlaceDigest, Wanted};

/// Until when what was pulled is taken for what is so.
const FRESH: Duration = Duration::from_millis(2500);

/// How many places are known at most.
const MOST: usize = 100_000;

/// Where locks are, as far as this node has heard: for the time when the database is away.
#[derive(Debug, Default)]
pub(crate) struct KnownLocks {
    pub(crate) edition: i64,
    /// The places of locks, and until when one may hold there. One that was taken back before its time is still here.
    on: HashMap<PlaceDigest, Instant>,
    /// The places above them.
    beneath: HashMap<PlaceDigest, Instant>,
    /// Until then places are locked that are not known: there were too many.
    overfull_until: Option<Instant>,
    /// Whether there are any locks or properties.
    are_any: bool,
    pulled: Option<Instant>,
}

impl KnownLocks {
    /// Learns which locks were given, as was asked at a time: the process may have been stopped since.
    pub(crate) fn learn(&mut self, new: NewLocks, asked: Instant, now: Instant) {
        let NewLocks { locks, are_any, edition } = new;
        if !are_any {
            self.on.clear();
            self.beneath.clear();
            self.overfull_until = None;
        }
        let later = |known: &mut Instant, until| *known = (*known).max(until);
        for (place, above, left) in locks {
            let until = now + left;
            later(self.on.entry(place).or_insert(until), until);
            above.into_iter().for_each(|above| later(self.beneath.entry(above).or_insert(until), until));
        }
        self.on.retain(|_, until| *until > now);
        self.beneath.retain(|_, until| *until > now);
        if self.on.len() + self.beneath.len() > MOST {
            let longest = self.on.values().max().copied();
            self.overfull_until = self.overfull_until.max(longest);
            self.on.clear();
            self.beneath.clear();
        }
        (self.edition, self.are_any, self.pulled) = (edition, are_any, Some(asked));
    }

    /// Returns whether there were neither locks nor properties a moment ago.
    pub(crate) fn are_none(&self, now: Instant) -> bool {
        !self.are_any && self.pulled.is_some_and(|pulled| now < pulled + FRESH)
    }

    /// Returns whether a lock may be in the way.
    pub(crate) fn may_hold(&self, wanted: &Wanted, now: Instant) -> bool {
        let is_there = |known: &HashMap<PlaceDigest, Instant>, places: &[PlaceDigest]| {
            places.iter().any(|place| known.get(place).is_some_and(|until| *until > now))
        };
        let is_unknown = self.pulled.is_none() || self.overfull_until.is_some_and(|until| until > now);
        is_unknown || is_there(&self.on, &wanted.on) || is_there(&self.beneath, &wanted.beneath)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: PlaceDigest = [1; 16];
    const FOLDER: PlaceDigest = [2; 16];

    fn on(place: PlaceDigest) -> Wanted {
        Wanted { on: vec![place], ..Wanted::default() }
    }

    #[test]
    fn a_node_that_has_heard_nothing_takes_all_for_locked() {
        let known = KnownLocks::default();
        assert!(known.may_hold(&on(FILE), Instant::now()) && !known.are_none(Instant::now()));
    }

    #[test]
    fn a_lock_is_known_until_its_time_is_over_or_there_are_none() {
        let (mut known, now) = (KnownLocks::default(), Instant::now());
        let beneath = Wanted { beneath: vec![FOLDER], ..Wanted::default() };
        let minute = Duration::from_secs(60);
        let given = || vec![(FILE, vec![FOLDER], minute)];
        known.learn(NewLocks { locks: given(), are_any: true, edition: 7 }, now, now);
        assert!(known.may_hold(&on(FILE), now) && known.may_hold(&beneath, now));
        assert!(!known.may_hold(&on(FOLDER), now) && !known.are_none(now));
        assert!(!known.may_hold(&on(FILE), now + minute));
        known.learn(NewLocks { locks: Vec::new(), are_any: false, edition: 7 }, now, now);
        assert!(!known.may_hold(&on(FILE), now) && known.are_none(now));
        assert!(!known.are_none(now + FRESH), "what was heard long ago says nothing of now");
    }

    #[test]
    fn what_was_asked_long_before_the_answer_was_heard_says_nothing_of_now() {
        let (mut known, now) = (KnownLocks::default(), Instant::now());
        known.learn(NewLocks::default(), now, now + FRESH);
        assert!(!known.are_none(now + FRESH));
    }

    #[test]
    fn more_places_than_are_kept_make_all_count_as_locked_for_as_long() {
        let (mut known, now, minute) = (KnownLocks::default(), Instant::now(), Duration::from_secs(60));
        let place = |number: usize| (number as u128).to_be_bytes();
        let locks = (1..=MOST + 1).map(|number| (place(number), Vec::new(), minute)).collect();
        known.learn(NewLocks { locks, are_any: true, edition: 1 }, now, now);
        assert!(known.on.is_empty() && known.may_hold(&on(place(0)), now));
        assert!(!known.may_hold(&on(place(0)), now + minute));
    }
}
