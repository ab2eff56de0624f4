//! Names on their way into an `NLST`: one buffer for all of them, so that a name costs no allocation.

/// Names in one buffer.
#[derive(Debug, Default)]
pub(super) struct NameQueue {
    bytes: Vec<u8>,
    /// Where each name begins and ends.
    spans: Vec<(usize, usize)>,
}

impl NameQueue {
    pub(super) fn push(&mut self, name: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.spans.push((start, self.bytes.len()));
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn sort(&mut self, reverse: bool) {
        let bytes = &self.bytes;
        self.spans.sort_unstable_by(|a, b| {
            let (a, b) = if reverse { (b, a) } else { (a, b) };
            bytes[a.0..a.1].cmp(&bytes[b.0..b.1])
        });
    }

    /// Every name in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|&(start, end)| &self.bytes[start..end])
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}
