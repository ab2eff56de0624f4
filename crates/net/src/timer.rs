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
}

impl<K> Wheel<K> {
    /// An empty wheel that begins to turn now.
    pub fn new(now: Instant) -> Self {
        Self { start: now, next: 0, slots: (0..SLOTS).map(|_| Vec::new()).collect(), count: 0 }
    }

    /// Asks to look at `key` when `deadline` has come, or earlier where it is more than a turn away.
    /// Answers the moment at which it will be looked at.
    pub fn insert(&mut self, deadline: Instant, key: K) -> Instant {
        let tick = self.tick_after(deadline).clamp(self.next, self.next + SLOTS as u64 - 1);
        self.slots[tick as usize % SLOTS].push(key);
        self.count += 1;
        self.moment(tick)
    }

    /// Takes out everything that is due.
    pub fn expire(&mut self, now: Instant, due: &mut Vec<K>) {
        let current = self.tick_before(now);
        while self.next <= current {
            if self.count == 0 {
                self.next = current + 1;
                return;
            }
            let slot = &mut self.slots[self.next as usize % SLOTS];
            self.count -= slot.len();
            due.append(slot);
            // A burst must not keep its memory for ever.
            if slot.capacity() > KEPT {
                *slot = Vec::new();
            }
            self.next += 1;
        }
    }

    /// When the next entry is due.
    pub fn next_due(&self) -> Option<Instant> {
        if self.count == 0 {
            return None;
        }
        let ahead =
            (0..SLOTS as u64).find(|ahead| !self.slots[(self.next + ahead) as usize % SLOTS].is_empty())?;
        Some(self.moment(self.next + ahead))
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
