//! Random numbers that are the same for the same seed, on every machine: an experiment can be repeated.
//!
//! SplitMix64 (G. Steele, D. Lea, C. Flood: Fast Splittable Pseudorandom Number Generators, 2014). Nothing here is
//! secret, so nothing better is needed.

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0. The bias of the multiplication is below 2^-32 for any count here.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Puts things in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }

    /// Standard normal, near enough to test with: twelve uniform numbers (Irwin and Hall).
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_an_order() {
        let shuffled = |seed| {
            let mut numbers: Vec<u8> = (0..100).collect();
            Random::new(seed).shuffle(&mut numbers);
            numbers
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u8>>());
    }

    #[test]
    fn every_order_is_as_likely() {
        let (mut random, mut seen) = (Random::new(7), [0u32; 6]);
        for _ in 0..6000 {
            let mut things = [0, 1, 2];
            random.shuffle(&mut things);
            seen[things[0] * 2 + usize::from(things[1] > things[2])] += 1;
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
    }
}
