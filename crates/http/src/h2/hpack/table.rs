//! The tables of names and values: the static one (RFC 7541 appendix A) and the dynamic one (section 2.3.2).

use std::collections::VecDeque;

/// What an entry counts besides its name and value (RFC 7541 section 4.1).
pub(super) const OVERHEAD: usize = 32;

/// Entries of the static table; the dynamic one begins behind them.
pub(super) const STATIC: usize = 61;

/// The static table; its first entry has index 1.
pub(super) const ENTRIES: [(&str, &str); STATIC] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The first index of a name in the static table: by its length and first letters, without a search.
pub(super) fn index_of(name: &[u8]) -> Option<usize> {
    let candidates: &[usize] = match name.len() {
        3 => &[21, 60],
        4 => &[33, 34, 37, 38, 45, 59],
        5 => &[4, 22, 50],
        6 => &[19, 32, 35, 54],
        7 => &[2, 6, 8, 36, 51, 52],
        8 => &[39, 42, 46],
        10 => &[1, 55, 58],
        11 => &[53],
        12 => &[31, 47],
        13 => &[18, 23, 24, 30, 41, 44],
        14 => &[15, 28],
        15 => &[16, 17],
        16 => &[26, 27, 29, 61],
        17 => &[40, 57],
        18 => &[48],
        19 => &[25, 43, 49],
        25 => &[56],
        27 => &[20],
        _ => &[],
    };
    candidates.iter().copied().find(|&index| ENTRIES[index - 1].0.as_bytes() == name)
}

/// The index of a name with a value in the static table.
pub(super) fn index_of_pair(name: &[u8], value: &[u8]) -> Option<usize> {
    let first = index_of(name).filter(|&index| index <= 16)?;
    ENTRIES[first - 1..16]
        .iter()
        .position(|entry| entry.0.as_bytes() == name && entry.1.as_bytes() == value && !value.is_empty())
        .map(|at| first + at)
}

/// Fields that were sent before, the newest first.
#[derive(Debug)]
pub(super) struct DynamicTable {
    entries: VecDeque<Entry>,
    /// What they count together, and may at most.
    size: usize,
    max_size: usize,
}

#[derive(Debug)]
struct Entry {
    /// The name, and behind it the value.
    text: Box<[u8]>,
    name: usize,
}

impl DynamicTable {
    pub(super) fn new(max_size: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, max_size }
    }

    /// Evicts what a smaller table has no room for.
    pub(super) fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(max_size);
    }

    /// The entry with this index, 0 for the newest: name and value.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        Some(entry.text.split_at(entry.name))
    }

    /// Adds an entry. One that is larger than the table empties it, which is no fault (RFC 7541 section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            self.entries.push_front(Entry { text: [name, value].concat().into(), name: name.len() });
        }
    }

    fn evict(&mut self, size: usize) {
        while self.size > size {
            let Some(entry) = self.entries.pop_back() else { return };
            self.size -= entry.text.len() + OVERHEAD;
        }
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_static_name_is_found_at_its_first_index() {
        for (name, value) in ENTRIES {
            let first = ENTRIES.iter().position(|entry| entry.0 == name).map(|at| at + 1);
            assert_eq!(index_of(name.as_bytes()), first, "{name}");
            let pair = ENTRIES.iter().position(|entry| *entry == (name, value)).map(|at| at + 1);
            let pair = pair.filter(|_| !value.is_empty());
            assert_eq!(index_of_pair(name.as_bytes(), value.as_bytes()), pair, "{name}: {value}");
        }
        assert_eq!(index_of(b"x-a"), None);
        assert_eq!(index_of_pair(b":status", b"201"), None);
    }

    #[test]
    fn the_oldest_entries_make_room() {
        let mut table = DynamicTable::new(3 * (OVERHEAD + 2));
        for name in [b"a", b"b", b"c", b"d"] {
            table.insert(name, b"1");
        }
        assert_eq!(
            (table.get(0), table.get(2)),
            (Some((&b"d"[..], &b"1"[..])), Some((&b"b"[..], &b"1"[..])))
        );
        assert_eq!((table.get(3), table.size()), (None, 3 * (OVERHEAD + 2)));
        table.resize(OVERHEAD + 2);
        assert_eq!((table.get(0).is_some(), table.get(1)), (true, None));
        table.insert(b"long", b"x");
        assert_eq!((table.get(0), table.size()), (None, 0));
    }
}
