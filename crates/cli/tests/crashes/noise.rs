//! Random numbers and file contents that follow from a seed.

/// SplitMix64: any seed is a good one.
#[derive(Debug, Clone)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, or 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// Contents without a zero byte: what a device never wrote cannot be taken for them.
    pub(crate) fn contents(&mut self, length: usize) -> Vec<u8> {
        let words = length.div_ceil(8);
        let mut bytes: Vec<u8> =
            (0..words).flat_map(|_| self.next().to_le_bytes().map(|byte| byte.max(1))).collect();
        bytes.truncate(length);
        bytes
    }
}
