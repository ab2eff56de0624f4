//! Properties that clients keep here without our knowing what they mean ("dead" ones, RFC 4918 section 4.5).
//!
//! They are kept up to a bound that all share, and outlive the server (`kept.rs`).

use std::collections::{BTreeMap, HashMap};

use millrace_http::dav::Name;

use crate::dav_state::place::Place;

/// Bytes of all properties together, and of the places that have them.
pub(crate) const MOST: usize = 8 << 20;

/// The properties of one resource: each as the XML that was given.
pub(crate) type Values = BTreeMap<Name, String>;

/// All dead properties.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    by_place: HashMap<Place, Values>,
    bytes: usize,
    /// Counts what changed them.
    changes: u64,
}

/// What a place with properties takes, about as much as where it is kept; nothing without any.
fn size(place: &Place, values: &Values) -> usize {
    if values.is_empty() {
        return 0;
    }
    let each = |(name, value): (&Name, &String)| name.space.len() + name.local.len() + value.len() + 64;
    place.size() + values.iter().map(each).sum::<usize>()
}

impl Properties {
    pub(crate) fn len(&self) -> usize {
        self.by_place.len()
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Place, &Values)> {
        self.by_place.iter()
    }

    /// Those of a place.
    pub(crate) fn of(&self, place: &Place) -> Option<&Values> {
        self.by_place.get(place)
    }

    /// Gives a place other properties; `false` where there is no room for them.
    pub(crate) fn set(&mut self, place: &Place, values: Values) -> bool {
        let old = self.by_place.get(place).map_or(0, |values| size(place, values));
        let new = size(place, &values);
        if new > old && self.bytes - old + new > MOST {
            return false;
        }
        self.bytes = self.bytes - old + new;
        self.changes += u64::from(old > 0 || new > 0);
        match values.is_empty() {
            true => drop(self.by_place.remove(place)),
            false => drop(self.by_place.insert(place.clone(), values)),
        }
        true
    }

    /// What was at a place is gone.
    pub(crate) fn forget(&mut self, place: &Place) {
        self.set(place, Values::new());
    }

    /// The same file has another name, or a copy.
    pub(crate) fn copy(&mut self, from: &Place, to: &Place) {
        let values = self.by_place.get(from).cloned().unwrap_or_default();
        // A copy for which there is no room has none.
        if !self.set(to, values) {
            self.forget(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_given_back() {
        let mut properties = Properties::default();
        let [one, two] = [b"1", b"2"].map(|name| Place::within((0, 0), name));
        let values = |length: usize| Values::from([(Name::dav("x"), "x".repeat(length))]);
        assert!(properties.set(&one, values(MOST / 2)));
        assert!(!properties.set(&two, values(MOST / 2)));
        assert!(properties.set(&one, values(10)));
        properties.copy(&one, &two);
        assert_eq!(properties.of(&two), Some(&values(10)));
        properties.forget(&one);
        properties.forget(&two);
        // A long name takes more where it is kept than a short value.
        let long = |at: usize| Place::within((0, at as u64), &[b'n'; 255]);
        let kept = (0..).take_while(|at| properties.set(&long(*at), values(1))).count();
        assert!((1000..8500).contains(&kept), "{kept}");
        (0..kept).for_each(|at| properties.forget(&long(at)));
        assert_eq!((properties.bytes, properties.len()), (0, 0));
    }
}
