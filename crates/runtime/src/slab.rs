//! Connections by number: a key names one connection for ever, so what arrives late for one that is gone
//! cannot reach another that has its place.

/// Names a connection of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The place: less than 2^30.
    pub index: u32,
    /// How often the place was used before: 31 bits.
    pub generation: u32,
}

/// The connections of a worker.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts in what `make` makes for its key.
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        let key = Key { index, generation: place.0 };
        place.1 = Some(make(key));
        key
    }

    /// The connection, if it is still there.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.places.get_mut(key.index as usize) {
            Some((generation, place)) if *generation == key.generation => place.as_mut(),
            _ => None,
        }
    }

    /// Two connections, if both are still there.
    pub fn get_pair(&mut self, first: Key, second: Key) -> Option<(&mut T, &mut T)> {
        let indices = [first.index as usize, second.index as usize];
        let [one, two] = self.places.get_disjoint_mut(indices).ok()?;
        match (one, two) {
            ((a, Some(one)), (b, Some(two))) if *a == first.generation && *b == second.generation => {
                Some((one, two))
            }
            _ => None,
        }
    }

    /// Takes the connection out.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, place) = self.places.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let taken = place.take()?;
        // The top bit stays clear: a token must not look like the inbox's.
        *generation = (*generation + 1) & 0x7fff_ffff;
        self.free.push(key.index);
        Some(taken)
    }

    /// The keys of all entries.
    pub fn keys(&self) -> Vec<Key> {
        let occupied = self.places.iter().enumerate().filter(|(_, (_, place))| place.is_some());
        occupied
            .map(|(index, (generation, _))| Key { index: index as u32, generation: *generation })
            .collect()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_names_a_successor() {
        let mut slab = Slab::default();
        let first = slab.insert_with(|_| "first");
        assert_eq!(slab.remove(first).as_ref(), Some(&"first"));
        let second = slab.insert_with(|_| "second");
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
        assert_eq!(slab.keys(), [second]);
        slab.remove(second);
        assert!(slab.is_empty());
    }

    #[test]
    fn a_pair_is_two_that_are_there() {
        let mut slab = Slab::default();
        let (one, two) = (slab.insert_with(|_| 1), slab.insert_with(|_| 2));
        let (first, second) = slab.get_pair(two, one).unwrap();
        std::mem::swap(first, second);
        assert_eq!(slab.get_mut(one), Some(&mut 2));
        assert_eq!(slab.get_pair(one, one), None);
        slab.remove(two);
        assert_eq!(slab.get_pair(one, two), None);
    }
}
