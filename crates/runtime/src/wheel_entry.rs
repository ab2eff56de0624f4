//! When a worker's wheel has a connection looked at.
//!
//! The wheel's entries are hints: a connection is looked at when its earliest deadline may have come, and then says whether
//! it has. So a deadline that moves further away, which every command does, costs one comparison.

use std::time::Instant;

use millrace_net::timer::Wheel;

use crate::slab::Key;

/// The earliest entry that a connection has in its worker's wheel.
#[derive(Debug, Default)]
pub struct WheelEntry(Option<Instant>);

impl WheelEntry {
    /// Has the wheel look at the connection when its next deadline is `due`, unless it does so before.
    pub fn cover(&mut self, due: Option<Instant>, wheel: &mut Wheel<Key>, key: Key) {
        if let Some(due) = due
            && self.0.is_none_or(|moment| due < moment)
        {
            self.0 = Some(wheel.insert(due, key));
        }
    }

    /// The wheel looks at the connection. Returns whether that is its earliest entry, and not a later one that it had
    /// before: then there is none any more, and the connection has to look at its deadlines.
    pub fn take_due(&mut self, now: Instant) -> bool {
        self.0.take_if(|moment| *moment <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const KEY: Key = Key { index: 3, generation: 1 };

    #[test]
    fn only_an_earlier_deadline_makes_another_entry() {
        let (begin, key) = (Instant::now(), KEY);
        let (mut wheel, mut entry) = (Wheel::new(begin), WheelEntry::default());
        let after = |seconds| begin + Duration::from_secs(seconds);
        for due in [Some(after(5)), None, Some(after(7)), Some(after(2))] {
            entry.cover(due, &mut wheel, key);
        }
        for (moment, entries) in [(after(1), 0), (after(3), 1), (after(6), 1), (after(20), 0)] {
            let mut due = Vec::new();
            wheel.expire(moment, &mut due);
            assert_eq!(due.len(), entries, "those of 2 s and 5 s");
        }
    }

    #[test]
    fn the_earliest_entry_is_taken_once_and_a_later_one_means_nothing() {
        let (begin, key) = (Instant::now(), KEY);
        let (mut wheel, mut entry) = (Wheel::new(begin), WheelEntry::default());
        assert!(!entry.take_due(begin), "there is none");
        let due = begin + Duration::from_secs(2);
        entry.cover(Some(due), &mut wheel, key);
        assert!(!entry.take_due(begin), "it is not due yet");
        let then = due + Duration::from_secs(1);
        assert!(entry.take_due(then));
        assert!(!entry.take_due(then), "it was taken");
        entry.cover(Some(then + Duration::from_secs(9)), &mut wheel, key);
        let mut looked_at = Vec::new();
        wheel.expire(then + Duration::from_secs(10), &mut looked_at);
        assert_eq!(looked_at, [key, key], "another entry can be made");
    }
}
