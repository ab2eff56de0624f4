//! A wheel of deadlines: one small entry each, no search, no allocation per change.
//!
//! Entries are hints: "look at this connection at about that time". The connection then checks whether its deadline has
//! really come, or when to look again; so moving a deadline further away, which every command does, costs nothing here.
//! An entry is due at most one tick late and never early by more than the wheel's turn.

use std::time::{Duration, Instant};

/// The length of a tick: how late a deadline may be noticed.
pub const TICK: Duration = Duration::from_millis(50);

/// Slots in the wheel: a turn takes 51 s; later deadlines are looked at once a turn.
const SLOTS: usize = 1024;

/// Room that an empty slot keeps: with all of them, some 64 KiB of a wheel of keys.
const KEPT: usize = 8;

/// The wheel. `K` identifies the connections.
#[derive(Debug)]
pub struct Wheel<K> {
    start: Instant,
    /// The first tick whose slot has not been emptied.
    next: u64,
    slots: Vec<Vec<K>>,
    count: usize,
    /// The tick of the earliest entry, where there is one.
    earliest: u64,
}

impl<K> Wheel<K> {
    /// An empty wheel that begins to turn now.
    pub fn new(now: Instant) -> Self {
        Self { start: now, next: 0, slots: (0..SLOTS).map(|_| Vec::new()).collect(), count: 0, earliest: 0 }
    }

    /// Asks to look at `key` when `deadline` has come, or earlier where it is more than a turn away.
    /// Answers the moment at which it will be looked at.
    pub fn insert(&mut self, deadline: Instant, key: K) -> Instant {
        let tick = self.tick_after(deadline).clamp(self.next, self.next + SLOTS as u64 - 1);
        self.slots[tick as usize % SLOTS].push(key);
        self.earliest = if self.count == 0 { tick } else { self.earliest.min(tick) };
        self.count += 1;
        self.moment(tick)
    }

    /// Takes out everything that is due.
    pub fn expire(&mut self, now: Instant, due: &mut Vec<K>) {
        let current = self.tick_before(now);
        while self.count > 0 && self.earliest <= current {
            self.next = self.earliest;
            let slot = &mut self.slots[self.next as usize % SLOTS];
            self.count -= slot.len();
            due.append(slot);
            // A burst must not keep its memory for ever.
            if slot.capacity() > KEPT {
                *slot = Vec::new();
            }
            self.next += 1;
            self.earliest = self.find_earliest();
        }
        self.next = self.next.max(current + 1);
    }

    /// When the next entry is due.
    pub fn next_due(&self) -> Option<Instant> {
        (self.count > 0).then(|| self.moment(self.earliest))
    }

    /// Finds the first tick from the next one on that has an entry.
    fn find_earliest(&self) -> u64 {
        if self.count == 0 {
            return self.next;
        }
        let ticks = self.next..self.next + SLOTS as u64;
        ticks.clone().find(|tick| !self.slots[*tick as usize % SLOTS].is_empty()).unwrap_or(ticks.start)
    }

    fn moment(&self, tick: u64) -> Instant {
        self.start + TICK * u32::try_from(tick).unwrap_or(u32::MAX)
    }

    fn tick_after(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.start);
        since.as_nanos().div_ceil(TICK.as_nanos()) as u64
    }

    fn tick_before(&self, moment: Instant) -> u64 {
        (moment.saturating_duration_since(self.start).as_nanos() / TICK.as_nanos()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_due_in_their_tick_and_never_early() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        for milliseconds in [0, 10, 50, 51, 120] {
            wheel.insert(start + Duration::from_millis(milliseconds), milliseconds);
        }
        let mut due = Vec::new();
        for (now, expected) in
            [(0, &[0][..]), (49, &[]), (50, &[10, 50]), (100, &[51]), (149, &[]), (150, &[120])]
        {
            due.clear();
            wheel.expire(start + Duration::from_millis(now), &mut due);
            assert_eq!(due, expected, "at {now} ms");
        }
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn a_far_deadline_is_looked_at_once_a_turn() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let look = wheel.insert(start + Duration::from_secs(300), ());
        assert!(look <= start + TICK * SLOTS as u32);
        assert_eq!(wheel.next_due(), Some(look));
    }

    #[test]
    fn the_earliest_entry_is_known_after_each_step() {
        let start = Instant::now();
        let at = |ticks: u32| start + TICK * ticks;
        let mut wheel = Wheel::new(start);
        let mut due = Vec::new();
        assert_eq!(wheel.next_due(), None);
        for (deadline, next) in [(900, 900), (1000, 900), (7, 7), (7, 7), (8, 7)] {
            wheel.insert(at(deadline), deadline);
            assert_eq!(wheel.next_due(), Some(at(next)));
        }
        for (now, next) in [(6, Some(7)), (7, Some(8)), (100, Some(900))] {
            wheel.expire(at(now), &mut due);
            assert_eq!(wheel.next_due(), next.map(at), "at {now}");
        }
        // Its slot lies before that of 900 in memory.
        wheel.insert(at(1100), 1100);
        wheel.expire(at(1050), &mut due);
        assert_eq!(wheel.next_due(), Some(at(1100)));
        wheel.expire(at(5000), &mut due);
        assert_eq!((wheel.next_due(), due), (None, vec![7, 7, 8, 900, 1000, 1100]));
        wheel.insert(at(3), 3);
        assert_eq!(wheel.next_due(), Some(at(5001)));
    }

    #[test]
    fn time_may_leap() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        wheel.insert(start + TICK, 1);
        let mut due = Vec::new();
        wheel.expire(start + Duration::from_secs(3600), &mut due);
        assert_eq!(due, [1]);
        wheel.insert(start, 2);
        wheel.expire(start + Duration::from_secs(3601), &mut due);
        assert_eq!(due, [1, 2]);
    }
}
