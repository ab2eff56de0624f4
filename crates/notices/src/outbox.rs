//! What a receiver has not taken yet, and when it is tried again.
//!
//! A later notice takes the place of an earlier one about the same thing. So there is at most one for each, and a receiver that
//! was out of reach for a week gets one message.

use std::time::{Duration, Instant};

use super::states::Notice;

/// How long the first repetition waits; each further one three times as long.
const FIRST: Duration = Duration::from_secs(10);

/// How long any waits at most.
const LONGEST: Duration = Duration::from_secs(3600);

/// Notices at most; the configuration bounds their number, and this bounds it again.
const MOST: usize = 1000;

/// What waits for a receiver.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Vec<Notice>,
    failures: u32,
    /// Not before.
    next: Option<Instant>,
}

impl Outbox {
    /// Adds notices, in the place of earlier ones about the same.
    pub(crate) fn put(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            self.waiting.retain(|earlier| !earlier.is_about_the_same(&notice));
            self.waiting.push(notice);
        }
        let excess = self.waiting.len().saturating_sub(MOST);
        self.waiting.drain(..excess);
    }

    /// Returns how long there is nothing to be done; nothing where that is for good.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        let next = self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
        (!self.waiting.is_empty()).then_some(next)
    }

    /// Takes what is to be sent now.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Vec<Notice>> {
        let is_due = self.rest(now).is_some_and(|rest| rest.is_zero());
        is_due.then(|| std::mem::take(&mut self.waiting))
    }

    /// Notes that what was taken has been sent. Returns how often that had failed.
    pub(crate) fn sent(&mut self) -> u32 {
        self.next = None;
        std::mem::take(&mut self.failures)
    }

    /// Puts back what was taken and not sent. Returns whether that is the first failure in a row.
    pub(crate) fn failed(&mut self, now: Instant, taken: Vec<Notice>) -> bool {
        let later = std::mem::replace(&mut self.waiting, taken);
        self.put(later);
        let wait = FIRST.saturating_mul(3_u32.saturating_pow(self.failures)).min(LONGEST);
        self.next = Some(now + wait);
        self.failures = self.failures.saturating_add(1);
        self.failures == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Kind;

    fn notice(subject: &str, at: i64) -> Notice {
        let (kind, text) = (Kind::Disk, String::new());
        Notice { kind, subject: subject.to_owned(), is_bad: at % 2 == 0, text, at, since: 0 }
    }

    #[test]
    fn a_dead_receiver_is_tried_ever_less_often_and_costs_one_notice_for_each_thing() {
        let (mut outbox, mut now) = (Outbox::default(), Instant::now());
        let mut waits = Vec::new();
        outbox.put(vec![notice("/a", 0), notice("/b", 0)]);
        for round in 1..=8 {
            let taken = outbox.take(now).unwrap();
            assert_eq!(taken.len(), 2);
            // Meanwhile it goes on.
            outbox.put(vec![notice("/a", round)]);
            assert_eq!(outbox.failed(now, taken), round == 1);
            assert_eq!(outbox.take(now), None);
            let rest = outbox.rest(now).unwrap();
            waits.push(rest.as_secs());
            now += rest;
        }
        assert_eq!(waits, [10, 30, 90, 270, 810, 2430, 3600, 3600]);
        let taken = outbox.take(now).unwrap();
        assert_eq!(taken, [notice("/b", 0), notice("/a", 8)], "the last of each");
        assert_eq!(outbox.sent(), 8);
        outbox.put(vec![notice("/a", 9)]);
        assert_eq!(outbox.rest(now), Some(Duration::ZERO), "then it is tried at once again");
    }

    #[test]
    fn more_things_than_any_server_has_are_not_kept() {
        let mut outbox = Outbox::default();
        outbox.put((0..5000).map(|number| notice(&number.to_string(), 0)).collect());
        assert_eq!(outbox.waiting.len(), MOST);
        assert_eq!(outbox.rest(Instant::now()), Some(Duration::ZERO));
    }
}
