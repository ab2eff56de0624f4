//! Whose turn it is to change a place: between a look at what is there and the change that follows from it, nobody
//! else's change comes. Without it two editors who both name the same tag would both be let through.
//!
//! A turn lasts as long as the change, never as long as a client; so those who wait wait for the same disk.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

use super::place::Place;

/// The places that are being changed.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: Mutex<HashSet<Place>>,
    given_back: Condvar,
}

/// The turn to change some places, until it is dropped.
#[derive(Debug)]
pub(in crate::http) struct Turn<'a> {
    turns: &'a Turns,
    places: Vec<Place>,
}

impl Turns {
    /// Waits until nobody changes any of these places. Whoever has a turn may not ask for another.
    pub(super) fn take(&self, mut places: Vec<Place>) -> Turn<'_> {
        places.dedup();
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = |taken: &mut HashSet<Place>| places.iter().any(|place| taken.contains(place));
        let mut taken = self.given_back.wait_while(taken, is_taken).unwrap_or_else(PoisonError::into_inner);
        taken.extend(places.iter().cloned());
        drop(taken);
        Turn { turns: self, places }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for place in &self.places {
            taken.remove(place);
        }
        drop(taken);
        self.turns.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_at_a_time_changes_a_place() {
        let (turns, within) = (Turns::default(), AtomicU32::new(0));
        let [one, two] = [b"1", b"2"].map(|name| Place::within((0, 0), name));
        std::thread::scope(|scope| {
            for places in [vec![one.clone()], vec![one.clone(), two.clone()], vec![two, one]] {
                let (turns, within) = (&turns, &within);
                scope.spawn(move || {
                    for _ in 0..1000 {
                        let turn = turns.take(places.clone());
                        assert_eq!(within.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        within.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert!(turns.taken.lock().unwrap().is_empty());
    }
}
